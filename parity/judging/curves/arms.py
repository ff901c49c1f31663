"""The two sides of a comparison: which runs count, which don't and why, and what reruns that were
stopped early show of their noise.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from weakref import ref

import numpy as np

from parity.judging.curves.agreement import confounding_keys, same_data_recorded
from parity.judging.curves.curve import (
    FORKED_FROM,
    BoolArray,
    Curve,
    FloatArray,
    Rounding,
    computed_once,
    rounding_of,
)
from parity.judging.curves.independence import (
    LeftOut,
    dependence,
    is_mixture,
    may_be_mixtures,
    may_be_related,
    starts_late,
)
from parity.judging.curves.pairing import (
    BY_SEEDS,
    SAME_ORDER,
    Aligned,
    Nonfinite,
    RunPairing,
    align,
    nonfinite,
    pair_by_batches,
    pair_correlation,
    paired_by_seed,
    seeds_unstated,
)
from parity.judging.curves.schedule import differing_rates
from parity.judging.curves.window import COMPLETE_SHARE, LEARNING_RATE, Window
from parity.judging.policy import Policy
from parity.recipes import ALWAYS_STOCHASTIC, rounds_to_nearest
from parity.structure import frozen
from parity.wording import percent

# The runs of an arm that count: those that no test of `independence` relates to a run before them.


def independent_runs(runs: Sequence[Curve]) -> tuple[tuple[Curve, ...], tuple[LeftOut, ...]]:
    """The runs of one arm that count, in their order, and those that don't."""
    if not runs:
        return (), ()
    related = _related(runs)
    mixed = may_be_mixtures(runs)
    kept: list[int] = []
    left_out: list[LeftOut] = []
    for number, run in enumerate(runs):
        before = [runs[other] for other in kept]
        doubt = next(
            (
                doubt
                for other in kept
                if related[other, number] and (doubt := dependence(runs[other], run)) is not None
            ),
            None,
        )
        if (
            doubt is None
            and kept
            and mixed[number]
            and is_mixture(run, [other for other in before if other.seed == run.seed])
        ):
            doubt = "copy", "a mixture of other runs"
        if doubt is None:
            kept.append(number)
        else:
            left_out.append(
                LeftOut(label=run.label or f"run {number + 1}", relation=doubt[0], why=doubt[1])
            )
    return tuple(runs[number] for number in kept), tuple(left_out)


def _related(runs: Sequence[Curve]) -> BoolArray:
    """(R, R): which later run needs the thorough test against which earlier one; asked once, though
    an arm is in several comparisons.
    """
    known, key = _known_relations(runs[0]), tuple(map(ref, runs))
    if key not in known:
        # by its own record
        itself = np.array(
            [
                FORKED_FROM in run.context or (len(run.steps) > 0 and starts_late(run))
                for run in runs
            ]
        )
        known[key] = may_be_related(runs, runs, before=True) | itself
    return known[key]


@computed_once
def _known_relations(_first: Curve) -> dict[tuple["ref[Curve]", ...], BoolArray]:
    return {}


# The two sides of a comparison: which runs count, which don't and why.

NO_SEED = -1  # of a run whose batches no run of the other arm read


@frozen
class Arm:
    """One side: name, recipe, rounding, the runs that count, those that depend on one of them, NaN
    and infinities of all given runs.

    `given` are all runs of the side, under the seeds by which they are paired (`NO_SEED`: the
    batches do not show it).
    """

    name: str
    recipe: str | None
    rounding: Rounding
    runs: tuple[Curve, ...]
    left_out: tuple[LeftOut, ...]
    given: tuple[Curve, ...]
    nonfinite: Nonfinite

    @property
    def rounding_unstated(self) -> bool:
        """Whether it counts as stochastic only because nobody stated how it rounds."""
        return rounding_of(_stated_rounding(run) for run in self.runs) is None


@frozen
class Arms:
    """Baseline and candidate with runs of common seeds; `unpaired` given runs have no partner in
    the other arm.

    `pairing` says how runs were paired: where their seeds are not stated the seeds of the runs are
    those that the batches show.
    """

    baseline: Arm
    candidate: Arm
    unpaired: int
    pairing: RunPairing

    @property
    def both(self) -> tuple[Arm, Arm]:
        """Baseline and candidate."""
        return self.baseline, self.candidate

    @property
    def both_runs(self) -> tuple[tuple[Curve, ...], tuple[Curve, ...]]:
        """The runs of the baseline and those of the candidate."""
        return self.baseline.runs, self.candidate.runs

    @property
    def runs(self) -> tuple[Curve, ...]:
        """The runs of both arms, baseline first."""
        return (*self.baseline.runs, *self.candidate.runs)

    @property
    def share_seeds(self) -> bool:
        """Whether at least one seed is in both arms."""
        return bool(
            {run.seed for run in self.baseline.runs} & {run.seed for run in self.candidate.runs}
        )


@frozen(eq=False)
class Controls:
    """Reruns of the baseline: those used, why others were not, and (C,) window means minus the
    baseline's mean of that seed.
    """

    used: tuple[Curve, ...]
    left_out: tuple[str, ...]
    offsets: FloatArray


def make_arms(
    names: tuple[str, str],
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    policy: Policy,
    window: Window,
) -> Arms:
    """Arms of independent runs with common seeds; where no seed is common all runs stay, and the
    comparison will say so.
    """
    if policy.pairing == "unpaired":
        baseline, candidate = (
            [dataclasses.replace(run, seed=0) for run in arm] for arm in (baseline, candidate)
        )
    left, left_dependent = independent_runs(baseline)
    right, right_dependent = independent_runs(candidate)
    pairing = BY_SEEDS
    runs = (*baseline, *candidate)
    if policy.is_paired and seeds_unstated(runs) and not same_data_recorded(runs):
        pairing = pair_by_batches(left, right, window.last)
        if pairing.by == "batches":
            left, baseline = _reseeded(
                left, baseline, {pair.baseline: seed for seed, pair in enumerate(pairing.pairs)}
            )
            right, candidate = _reseeded(
                right, candidate, {pair.candidate: seed for seed, pair in enumerate(pairing.pairs)}
            )
    left_paired, right_paired, unpaired = paired_by_seed(left, right)
    if left_paired:
        left, right = left_paired, right_paired
    return Arms(
        baseline=_arm(names[0], left, left_dependent, baseline, window),
        candidate=_arm(names[1], right, right_dependent, candidate, window),
        unpaired=unpaired,
        pairing=pairing,
    )


def _reseeded(
    counted: Sequence[Curve], given: Sequence[Curve], seeds: Mapping[int, int]
) -> tuple[tuple[Curve, ...], tuple[Curve, ...]]:
    """The runs that count and all given ones under the seeds that their batches show, by position
    among those that count.
    """
    renamed = {
        id(run): dataclasses.replace(run, seed=seeds.get(number, NO_SEED - 1 - number))
        for number, run in enumerate(counted)
    }
    others = (renamed.get(id(run)) or dataclasses.replace(run, seed=NO_SEED) for run in given)
    return tuple(sorted(renamed.values(), key=lambda run: run.seed)), tuple(others)


def _arm(
    name: str,
    runs: tuple[Curve, ...],
    left_out: tuple[LeftOut, ...],
    given: Sequence[Curve],
    window: Window,
) -> Arm:
    return Arm(
        name=name,
        recipe=runs[0].recipe,
        rounding=rounding_of(_stated_rounding(run) for run in runs) or "stochastic",
        runs=runs,
        left_out=left_out,
        given=tuple(given),
        nonfinite=nonfinite(given, window.first, window.last),
    )


def _stated_rounding(run: Curve) -> Rounding | None:
    """A run's rounding: as recorded, or by the definition of its recipe."""
    if run.rounding is None and rounds_to_nearest(run.recipe):
        return "nearest"
    return run.rounding or ("stochastic" if run.recipe in ALWAYS_STOCHASTIC else None)


def usable_controls(
    arms: Arms, controls: Sequence[Curve], policy: Policy, window: Window
) -> Controls:
    """The controls that are reruns of the baseline's lowest seed: same recipe and rounding where
    both state them, enough common points in the window, same data order, no run of an arm.
    """
    reference = [
        run for run in arms.baseline.runs if run.seed == min(run.seed for run in arms.baseline.runs)
    ]
    used, left_out, offsets = [], [], []
    for number, control in enumerate(controls):
        reason, offset = (
            _other_arithmetic(control, reference)
            or _no_rerun(control, (*arms.runs, *controls[:number])),
            0.0,
        )
        if not reason:
            reason, offset = _check_control(control, reference, policy, window)
        if reason:
            left_out.append(f"{control.label or 'control'}: {reason}")
        else:
            used.append(control)
            offsets.append(offset)
    return Controls(used=tuple(used), left_out=tuple(left_out), offsets=np.array(offsets))


def _other_arithmetic(control: Curve, reference: Sequence[Curve]) -> str:
    """Why a control is no rerun of the baseline by what both state, "" where it may be: another
    recipe has another run-to-run noise.
    """
    for what in ("recipe", "rounding"):
        own, stated = getattr(control, what), {getattr(run, what) for run in reference} - {None}
        if own is not None and stated and own not in stated:
            return f"{what} {own}, but the baseline's is {' or '.join(sorted(stated))}"
    return ""


def _no_rerun(run: Curve, others: Sequence[Curve]) -> str:
    """Why a run does not count as independent of the others; "" where it does."""
    return next((doubt[1] for other in others if (doubt := dependence(other, run)) is not None), "")


def _check_control(
    control: Curve, reference: Sequence[Curve], policy: Policy, window: Window
) -> tuple[str, float]:
    """Why a control can't be used ("" where it can), and its window mean minus the reference's."""
    pair = align(reference, [control], window.last)
    part = window.part(pair.steps)
    points = part.stop - part.start
    if points < policy.min_points:
        return (
            (
                f"{points} points in the window in common with the baseline, {policy.min_points} "
                "needed"
            ),
            0.0,
        )
    return _other_order(pair, "the baseline", policy), float(
        (pair.candidate[0, part] - pair.baseline[:, part].mean(axis=0)).mean()
    )


def _other_order(pair: Aligned, of: str, policy: Policy) -> str:
    """Why the first runs of a pair did not read the same batches, "" where they may have."""
    correlation = pair_correlation(pair.baseline[0], pair.candidate[0])
    if policy.pairing == "unpaired" or correlation is None or correlation >= SAME_ORDER:
        return ""
    return f"other data order than {of} (second differences correlate {correlation:.2f})"


# The run-to-run noise that reruns show which were stopped early: trained from step 0 under the full
# schedule, and never judged as runs.
#
# window the last 20 % of the planned steps before the earliest stop of the arm's reruns, but
# nothing before 30 % x_i mean loss of run i there / the mean of the arm's full runs there: K full
# runs with their own prefix, N reruns SS SS(x of K + N runs) - SS(x of the K full runs), per seed,
# on N degrees of freedom (Helmert) tau sqrt(SS / N) x late loss / r0 r: spread in the window over
# that of the last 20 %, log-normal about r0 1/nu = 1/N + 2 sd_log^2 Satterthwaite on the log: one
# unknown r for all reruns, so nu < 1 / (2 sd_log^2) = 5.6
#
# SS is independent of what the full runs say among themselves, so `run_floor` may add it to theirs.
# It does depend on the gap itself: a full run that is far off spreads its arm, which widens the
# interval just where the gap is wrong. Few points only add noise to x, and so widen.
#
# r0 = 1, sd_log = 0.3: stopped at 50 %, r is 1.2 on average over 19 groups (0.3 to 3 M and 124 M
# parameters), 1.0 and 1.2 at 8 B; in seven groups of 7 to 12 runs it is 0.7 to 1.6, its logs 0.28
# about 0 (docs/design/noise.md#reruns-that-stop-early). Dividing by 1 leaves the floor a little too
# wide on average. Before 30 % of the steps, where the loss still falls steeply, r was 0.3 to 0.6 on
# models of 0.1 M. Can fail: a recipe whose noise comes late in the schedule, such as a switch of
# precision near the end, shows too little of it here.

MIN_STOP = 0.4  # share of the planned steps
PREFIX, NOT_BEFORE = 0.2, 0.3  # shares of the planned steps
RATIO_SD_LOG = 0.3
SHARED_VARIANCE = 2.0 * RATIO_SD_LOG**2  # of log tau^2 over 2: what no number of reruns removes


@frozen
class EarlySpread:
    """What `runs` reruns of an arm show, stopped at the share `stop` of the plan: `squares` is SS,
    as a share of the loss, squared.
    """

    squares: float
    runs: int
    stop: float
    first: int
    last: int

    @property
    def share(self) -> float:
        """tau as a share of the loss."""
        return math.sqrt(self.squares / self.runs)

    @property
    def df(self) -> float:
        """nu, the degrees of freedom that it is worth."""
        return early_df(self.runs)


def early_df(runs: int) -> float:
    """nu of N reruns, of one arm or of both together; 0 without any."""
    if not runs:
        return 0.0
    return 1.0 / (1.0 / runs + SHARED_VARIANCE)


def prefix_window(window: Window, last: int) -> tuple[int, int]:
    """First and last step of the window before the stop at step `last`."""
    done = last - window.origin + 1
    first = max(
        done - round(PREFIX * window.planned_steps), round(NOT_BEFORE * window.planned_steps)
    )
    return window.origin + first, last


def helmert_squares(
    full: FloatArray, full_seeds: Sequence[int], early: FloatArray, early_seeds: Sequence[int]
) -> float:
    """SS of the shares x of K full runs (K,) and N reruns (N,), whose seeds are all among those of
    the full runs.
    """
    total = 0.0
    for seed in sorted(set(early_seeds)):
        own = full[[index for index, other in enumerate(full_seeds) if other == seed]]
        both = np.append(
            own, early[[index for index, other in enumerate(early_seeds) if other == seed]]
        )
        total += _squares(both) - _squares(own)
    return max(total, 0.0)


def _squares(values: FloatArray) -> float:
    return float(np.sum((values - values.mean()) ** 2))


# Which reruns that were stopped early count: those that train as their arm's runs do, are runs of
# their own, and stop in 40 to 95 %.
#
# Whatever disqualifies a replicate disqualifies them too (`inputs.independence`). They never enter
# the arm's mean.
#
# A rerun diverged, and blocks a pass, whether or not it counts: NaN at its end or in more than 1 %
# of its steps, or a mean loss over the last tenth of its common points with its arm (at least 10)
# more than 3 % above that of the arm's full runs there.

MIN_POINTS = 50  # in the prefix window; fewer only widen the floor, but too few say nothing
# per arm: the run-to-run noise of more is not known better, and the time to see copies grows with
# their square
MAX_SHORT_RERUNS = 16
# a rerun that ends further above its arm diverged
END_SHARE, END_POINTS, MAX_EXCESS = 0.1, 10, 0.03


@frozen(eq=False)
class EarlyStops:
    """The reruns of one arm: those used, why others were not, those that diverged, and what is
    measured on them.
    """

    used: tuple[Curve, ...] = ()
    left_out: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    spread: EarlySpread | None = None


def usable_early_stops(
    arms: Arms,
    controls: Controls,
    given: tuple[Sequence[Curve], Sequence[Curve]],
    policy: Policy,
    window: Window,
) -> tuple[EarlyStops, EarlyStops]:
    """The early-stopped reruns of baseline and candidate, `given` in that order."""
    known = (*arms.runs, *controls.used)
    baseline = _usable(arms.baseline, given[0], known, policy, window)
    return baseline, _usable(arms.candidate, given[1], (*known, *baseline.used), policy, window)


def _usable(
    arm: Arm, given: Sequence[Curve], known: Sequence[Curve], policy: Policy, window: Window
) -> EarlyStops:
    used: list[Curve] = []
    left_out, diverged = [], []
    for number, run in enumerate(given, 1):
        own = dataclasses.replace(run, seed=0) if policy.pairing == "unpaired" else run
        label = f"{run.label or f'rerun {number}'} of {arm.name}"
        bad = nonfinite([own], window.origin, window.last)
        reason = (
            _not_a_rerun(arm, own, window, policy)
            or (
                f"NaN or infinite loss at step {bad.first_step:,}"
                if bad.first_step is not None
                else ""
            )
            or _dependent(own, (*known, *used))
        )
        if bad.fails:
            diverged.append(f"{label} from step {bad.first_step:,} on")
        elif (excess := _excess(arm, own, window)) > MAX_EXCESS:
            diverged.append(
                f"{label}, which ends {percent(excess)} above the full runs of {arm.name}"
            )
        if reason:
            left_out.append(f"{label}: {reason}")
        else:
            used.append(own)
    spread, why = _spread(arm, used, window) if used else (None, "")
    if why:
        left_out += [f"{run.label or 'rerun'} of {arm.name}: {why}" for run in used]
        used = []
    return EarlyStops(
        used=tuple(used), left_out=tuple(left_out), diverged=tuple(diverged), spread=spread
    )


def _excess(arm: Arm, run: Curve, window: Window) -> float:
    """How far a rerun ends above its arm, as a share of the arm's loss there; 0 where they have no
    point in common.
    """
    together = align(arm.runs, [run], window.last)
    points = len(together.steps)
    if points == 0:
        return 0.0
    end = slice(max(points - max(END_POINTS, math.ceil(END_SHARE * points)), 0), None)
    level, own = float(together.baseline[:, end].mean()), float(together.candidate[:, end].mean())
    if level == 0.0:
        return 0.0
    return (own - level) / abs(level)


def _not_a_rerun(arm: Arm, run: Curve, window: Window, policy: Policy) -> str:
    """Why a run is no rerun of the arm that was stopped in time, "" where it is."""
    if len(run.steps) == 0:
        return "it has no steps"
    stop = _stop(run, window)
    if stop >= COMPLETE_SHARE:
        return (
            f"it went on to {percent(stop)} of the planned steps: give it as a further run of "
            f"{arm.name}"
        )
    if round(stop * window.planned_steps) < round(MIN_STOP * window.planned_steps):
        return f"it stopped at {percent(stop)} of the planned steps, {percent(MIN_STOP)} needed"
    if run.seed not in {own.seed for own in arm.runs}:
        return f"no run of {arm.name} has its seed {run.seed}"
    if run.recipe != arm.recipe:
        return f"its recipe is {run.recipe}, that of {arm.name} is {arm.recipe}"
    if run.rounding is not None and {own.rounding for own in arm.runs} - {None, run.rounding}:
        return f"its gradients were rounded otherwise ({run.rounding})"
    if keys := confounding_keys([own.context for own in (*arm.runs, run)], policy.may_differ):
        return f"its record differs from that of {arm.name} in {', '.join(keys[:3])}"
    if (
        LEARNING_RATE not in policy.may_differ
        and (rates := differing_rates((*arm.runs, run))) is not None
    ):
        return (
            f"another learning rate at step {rates.step:,}, {rates.rate:.3g} against "
            f"{rates.reference:.3g}"
        )
    return _other_order(
        align([next(own for own in arm.runs if own.seed == run.seed)], [run], window.last),
        arm.name,
        policy,
    )


def _stop(run: Curve, window: Window) -> float:
    """Share of the plan that a run has reached; a log of every n-th step may have stopped n - 1
    steps later.
    """
    return (
        int(run.steps[-1]) - window.origin + (run.completeness.stride or 1)
    ) / window.planned_steps


def _dependent(run: Curve, others: Sequence[Curve]) -> str:
    if why := _no_rerun(run, others):
        return why
    relatives = [other for other in others if other.seed == run.seed]
    mixed = is_mixture(run, relatives)
    if mixed is None:
        return (
            f"too few points in common with {len(relatives)} other runs to see whether it is a "
            "mixture of them: log it more often"
        )
    if mixed:
        return "a mixture of other runs"
    return ""


def _spread(arm: Arm, early: Sequence[Curve], window: Window) -> tuple[EarlySpread | None, str]:
    """What the reruns of an arm show, or why they show nothing: one window for all, before the
    earliest stop.
    """
    first, last = prefix_window(window, min(int(run.steps[-1]) for run in early))
    together = align(arm.runs, early, last)
    part = slice(int(np.searchsorted(together.steps, first)), len(together.steps))
    points = part.stop - part.start
    if points < MIN_POINTS:
        return None, f"{points} common points from step {first:,} to its stop, {MIN_POINTS} needed"
    full, reruns = together.baseline[:, part].mean(axis=1), together.candidate[:, part].mean(axis=1)
    level = float(full.mean())
    if level == 0.0:
        return None, "the mean loss before its stop is 0"
    squares = helmert_squares(
        full / level, together.baseline_seeds, reruns / level, together.candidate_seeds
    )
    stop = min(_stop(run, window) for run in early)
    return EarlySpread(squares=squares, runs=len(early), stop=stop, first=first, last=last), ""
