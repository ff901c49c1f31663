"""The two sides of a comparison: which runs count, which don't and why."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import Aligned, align, paired_by_seed
from parity.judging.curves.context import same_data_recorded
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    Rounding,
    rounding_of,
)
from parity.judging.curves.data_order import SAME_ORDER, pair_correlation
from parity.judging.curves.independence import LeftOut, dependence
from parity.judging.curves.nonfinite import Nonfinite, nonfinite
from parity.judging.curves.unstated_seeds import (
    BY_SEEDS,
    RunPairing,
    are_seeds_unstated,
    pair_by_batches,
)
from parity.judging.curves.window import Window
from parity.judging.policy import Policy
from parity.recipes import ALWAYS_STOCHASTIC, rounds_to_nearest

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
    if policy.is_paired and are_seeds_unstated(runs) and not same_data_recorded(runs):
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
            or no_rerun(control, (*arms.runs, *controls[:number])),
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
        recorded, stated = (
            getattr(control, what),
            {getattr(run, what) for run in reference} - {None},
        )
        if recorded is not None and stated and recorded not in stated:
            return f"{what} {recorded}, but the baseline's is {' or '.join(sorted(stated))}"
    return ""


def no_rerun(run: Curve, others: Sequence[Curve]) -> str:
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
    return other_order(pair, "the baseline", policy), float(
        (pair.candidate[0, part] - pair.baseline[:, part].mean(axis=0)).mean()
    )


def other_order(pair: Aligned, of: str, policy: Policy) -> str:
    """Why the first runs of a pair did not read the same batches, "" where they may have."""
    correlation = pair_correlation(pair.baseline[0], pair.candidate[0])
    if policy.pairing == "unpaired" or correlation is None or correlation >= SAME_ORDER:
        return ""
    return f"other data order than {of} (second differences correlate {correlation:.2f})"
