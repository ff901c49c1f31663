"""The two sides of a comparison: which runs count, which don't and why."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.criteria import Criteria
from parity.judging.curve import Curve, FloatArray, Rounding
from parity.judging.inputs.alignment import Nonfinite, align, nonfinite, paired_by_seed
from parity.judging.inputs.context import same_data_recorded
from parity.judging.inputs.counted_runs import independent_runs
from parity.judging.inputs.independence import LeftOut, dependence
from parity.judging.inputs.pairing import SAME_ORDER, pair_correlation
from parity.judging.inputs.unstated_seeds import BY_SEEDS, RunPairing, pair_by_batches, seeds_unstated
from parity.judging.window import Window
from parity.recipes import ALWAYS_STOCHASTIC, rounds_to_nearest

NO_SEED = -1  # of a run whose batches no run of the other arm read


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One side: name, recipe, rounding, the runs that count, those that depend on one of them, NaN and infinities of all given runs.

    `given` are all runs of the side, under the seeds by which they are paired (`NO_SEED`: the batches do not show it).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Baseline and candidate with runs of common seeds; `unpaired` given runs have no partner in the other arm.

    `pairing` says how runs were paired: where their seeds are not stated the seeds of the runs are those that the batches show.
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
        return bool({run.seed for run in self.baseline.runs} & {run.seed for run in self.candidate.runs})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Controls:
    """Reruns of the baseline: those used, why others were not, and (C,) window means minus the baseline's mean of that seed."""

    used: tuple[Curve, ...]
    left_out: tuple[str, ...]
    offsets: FloatArray


def make_arms(names: tuple[str, str], baseline: Sequence[Curve], candidate: Sequence[Curve], criteria: Criteria, window: Window) -> Arms:
    """Arms of independent runs with common seeds; where no seed is common all runs stay, and the comparison will say so."""
    if criteria.pairing == "unpaired":
        baseline, candidate = ([dataclasses.replace(run, seed=0) for run in arm] for arm in (baseline, candidate))
    left, left_dependent = independent_runs(baseline)
    right, right_dependent = independent_runs(candidate)
    pairing = BY_SEEDS
    runs = (*baseline, *candidate)
    if criteria.pairing == "paired" and seeds_unstated(runs) and not same_data_recorded(runs):
        pairing = pair_by_batches(left, right, window.last)
        if pairing.by == "batches":
            left, baseline = _reseeded(left, baseline, {pair.baseline: seed for seed, pair in enumerate(pairing.pairs)})
            right, candidate = _reseeded(right, candidate, {pair.candidate: seed for seed, pair in enumerate(pairing.pairs)})
    left_paired, right_paired, unpaired = paired_by_seed(left, right)
    if left_paired:
        left, right = left_paired, right_paired
    return Arms(
        baseline=_arm(names[0], left, left_dependent, baseline, window),
        candidate=_arm(names[1], right, right_dependent, candidate, window),
        unpaired=unpaired,
        pairing=pairing,
    )


def _reseeded(counted: Sequence[Curve], given: Sequence[Curve], seeds: Mapping[int, int]) -> tuple[tuple[Curve, ...], tuple[Curve, ...]]:
    """The runs that count and all given ones under the seeds that their batches show, by position among those that count."""
    renamed = {id(run): dataclasses.replace(run, seed=seeds.get(number, NO_SEED - 1 - number)) for number, run in enumerate(counted)}
    others = (renamed.get(id(run)) or dataclasses.replace(run, seed=NO_SEED) for run in given)
    return tuple(sorted(renamed.values(), key=lambda run: run.seed)), tuple(others)


def _arm(name: str, runs: tuple[Curve, ...], left_out: tuple[LeftOut, ...], given: Sequence[Curve], window: Window) -> Arm:
    return Arm(
        name=name,
        recipe=runs[0].recipe,
        rounding=rounding_of(_stated_rounding(run) for run in runs) or "stochastic",
        runs=runs,
        left_out=left_out,
        given=tuple(given),
        nonfinite=nonfinite(given, window.first, window.last),
    )


def rounding_of(roundings: Iterable[Rounding | None]) -> Rounding | None:
    """The rounding of an arm: stochastic where any run recorded that, nearest where every run recorded that, else not on record."""
    recorded = set(roundings)
    if "stochastic" in recorded:
        return "stochastic"
    return "nearest" if recorded == {"nearest"} else None


def _stated_rounding(run: Curve) -> Rounding | None:
    """A run's rounding: as recorded, or by the definition of its recipe."""
    if run.rounding is None and rounds_to_nearest(run.recipe):
        return "nearest"
    return run.rounding or ("stochastic" if run.recipe in ALWAYS_STOCHASTIC else None)


def usable_controls(arms: Arms, controls: Sequence[Curve], criteria: Criteria, window: Window) -> Controls:
    """The controls that are reruns of the baseline's lowest seed: same recipe and rounding where both
    state them, enough common points in the window, same data order, no run of an arm.
    """
    reference = [run for run in arms.baseline.runs if run.seed == min(run.seed for run in arms.baseline.runs)]
    used, left_out, offsets = [], [], []
    for number, control in enumerate(controls):
        reason, offset = _other_arithmetic(control, reference) or _no_rerun(control, (*arms.runs, *controls[:number])), 0.0
        if not reason:
            reason, offset = _check_control(control, reference, criteria, window)
        if reason:
            left_out.append(f"{control.label or 'control'}: {reason}")
        else:
            used.append(control)
            offsets.append(offset)
    return Controls(used=tuple(used), left_out=tuple(left_out), offsets=np.array(offsets))


def _other_arithmetic(control: Curve, reference: Sequence[Curve]) -> str:
    """Why a control is no rerun of the baseline by what both state, "" where it may be: another recipe has another run noise."""
    for what in ("recipe", "rounding"):
        own, stated = getattr(control, what), {getattr(run, what) for run in reference} - {None}
        if own is not None and stated and own not in stated:
            return f"{what} {own}, but the baseline's is {' or '.join(sorted(stated))}"
    return ""


def _no_rerun(control: Curve, others: Sequence[Curve]) -> str:
    """Why a control is no run of its own next to others, "" where it is."""
    return next((doubt[1] for other in others if (doubt := dependence(other, control)) is not None), "")


def _check_control(control: Curve, reference: Sequence[Curve], criteria: Criteria, window: Window) -> tuple[str, float]:
    """Why a control can't be used ("" where it can), and its window mean minus the reference's."""
    pair = align(reference, [control], window.last)
    part = window.part(pair.steps)
    points = part.stop - part.start
    if points < criteria.min_points:
        return f"{points} points in the window in common with the baseline, {criteria.min_points} needed", 0.0
    correlation = pair_correlation(pair.baseline[0], pair.candidate[0])
    if criteria.pairing == "paired" and correlation is not None and correlation < SAME_ORDER:
        return f"other data order than the baseline (second differences correlate {correlation:.2f})", 0.0
    return "", float((pair.candidate[0, part] - pair.baseline[:, part].mean(axis=0)).mean())
