"""What is measured on two arms of several runs with few evaluations each, before anything is decided.

x_k: run k's mean loss over the declared points (by default the last one that every run reached)
gap = mean of the candidate's x - mean of the baseline's x, over runs (Welch, or paired by seed) and, where asked for, over clusters
bands: the gap at every common point with Welch's interval at confidence 1 - (1 - c)/m for m points (Bonferroni), so that all m hold at once

The between-run spread is measured on the runs themselves; nothing is assumed. Can fail: runs that are not independent (`clusters`), and
few runs an arm, whose interval is wide but right for normal spread only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.judging.curve import FORKED_FROM, Curve, FloatArray, IntArray, usable
from parity.judging.evaluations.clusters import ClusteredGap, clustered_gap
from parity.judging.evaluations.welch import Estimate, difference, of_clusters, paired_difference
from parity.judging.inputs.alignment import common_losses
from parity.judging.inputs.independence import same_series
from parity.judging.inputs.resolution import quantum
from parity.judging.noise import median
from parity.judging.window import decline_limit

MIN_POINTS, MAX_POINTS, MIN_RUNS = 5, 100, 2
ALIKE_NATS, LEAST_STEP, APART = 1e-4, 1e-5, 1  # four decimals or more show copies; one point may be another's
MAX_HALF_NATS = 1e-3  # half a rounding step; honest runs agree to half of a coarser one
START_POINTS = 2  # equal ones are no chance: by the first evaluation two runs of one seed differ by more than rounding; 3 with a constant
LATE_SHARE = 0.2  # of a run, over which its decline says whether the loss still falls

Pair = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """The gap at each common point (m,) with simultaneous limits (m,), and each arm's mean loss (m,), nats."""

    gap: FloatArray
    lo: FloatArray
    hi: FloatArray
    baseline: FloatArray
    candidate: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Two arms of evaluations, measured.

    `steps` (m,) are the common points, `points` those that are compared; `baseline` and `candidate` (K,) each run's loss there, in the
    order of `runs`, which leaves out `copies` and `forks` of other runs (labels). `arms_alike` and `arms_share_start` name two runs, one of
    each arm. `over_runs` is None with fewer than 2 runs in an arm or 2 pairs.
    """

    steps: IntArray
    points: tuple[int, ...]
    runs: tuple[tuple[Curve, ...], tuple[Curve, ...]]
    copies: tuple[str, ...]
    forks: tuple[str, ...]
    arms_alike: str | None
    arms_share_start: str | None
    invalid: tuple[str | None, str | None]
    baseline: FloatArray
    candidate: FloatArray
    pairs: int | None
    over_runs: Estimate | None
    over_clusters: ClusteredGap | None
    bands: Bands | None
    decline: float
    decline_limit: float


def has_few_evaluations(arms: Sequence[Sequence[Curve]]) -> bool:
    """Whether arms are to be judged as evaluations: at most 100 points in each run, and at least two runs in each arm."""
    return all(len(runs) >= MIN_RUNS and all(len(run.steps) <= MAX_POINTS for run in runs) for runs in arms)


def measure(
    baseline: Sequence[Curve], candidate: Sequence[Curve], *, confidence: float, paired: bool, cluster: str | None, at: Sequence[int]
) -> Measured:
    """Measure two arms; `cluster` is a key of the runs' context, `at` the points to compare.

    Raises ValueError where not every run has an evaluation at a point.
    """
    kept, copies, forks = zip(*(_independent(arm) for arm in (baseline, candidate)), strict=True)
    invalid = _first_nonfinite(baseline), _first_nonfinite(candidate)
    steps, losses = common_losses((*kept[0], *kept[1]))
    rows = np.array(losses).reshape(len(losses), len(steps))
    finite = usable(rows).all(axis=0)
    steps, rows = steps[finite], rows[:, finite]
    points = _points(steps, at)
    values = rows[:, np.isin(steps, points)].mean(axis=1) if len(points) else np.full(len(rows), np.nan)
    arms = rows[: len(kept[0])], rows[len(kept[0]) :]
    base, cand = values[: len(kept[0])], values[len(kept[0]) :]
    pairs = _pairs(*kept) if paired else None
    return Measured(
        steps=steps,
        points=points,
        runs=(kept[0], kept[1]),
        copies=(*copies[0], *copies[1]),
        forks=(*forks[0], *forks[1]),
        arms_alike=_across(kept[0], kept[1], _alike),
        arms_share_start=_across(kept[0], kept[1], _share_start),
        invalid=invalid,
        baseline=base,
        candidate=cand,
        pairs=None if pairs is None else len(pairs),
        over_runs=_gap(base, cand, pairs) if len(points) else None,
        over_clusters=_over_clusters(kept, (base, cand), cluster) if len(points) and cluster else None,
        bands=_bands(arms, pairs, confidence) if len(steps) else None,
        decline=_decline(steps, arms[0]),
        decline_limit=decline_limit(float(arms[0][:, 0].mean()), float(arms[0][:, -1].mean())) if len(steps) else 0.0,
    )


def _points(steps: IntArray, at: Sequence[int]) -> tuple[int, ...]:
    """The points to compare: those declared, else the last common one."""
    if not at:
        return (int(steps[-1]),) if len(steps) else ()
    for point in at:
        if point not in steps:
            known = ", ".join(f"{int(step)}" for step in steps[-8:]) or "none"
            raise ValueError(f"not every run has an evaluation at {point}; the last points that all runs have are {known}")
    return tuple(sorted(set(at)))


def _gap(base: FloatArray, cand: FloatArray, pairs: list[Pair] | None) -> Estimate | None:
    if pairs is not None:
        return paired_difference(np.array([cand[j].mean() - base[i].mean() for i, j in pairs])) if len(pairs) >= MIN_RUNS else None
    return difference(base, cand) if min(len(base), len(cand)) >= MIN_RUNS else None


def _pairs(baseline: Sequence[Curve], candidate: Sequence[Curve]) -> list[Pair]:
    """Positions of the baseline's and of the candidate's runs of each seed that both arms have."""
    seeds = sorted({run.seed for run in baseline} & {run.seed for run in candidate})
    arms = [np.array([run.seed for run in arm]) for arm in (baseline, candidate)]
    return [(np.flatnonzero(arms[0] == seed), np.flatnonzero(arms[1] == seed)) for seed in seeds]


def _over_clusters(runs: tuple[tuple[Curve, ...], ...], values: tuple[FloatArray, FloatArray], cluster: str) -> ClusteredGap | None:
    named = [[run.context.get(cluster, "") for run in arm] for arm in runs]
    return clustered_gap(of_clusters(values[0], named[0]), of_clusters(values[1], named[1]))


def _bands(arms: tuple[FloatArray, FloatArray], pairs: list[Pair] | None, confidence: float) -> Bands | None:
    m = arms[0].shape[1]
    at_each = [_gap(arms[0][:, i], arms[1][:, i], pairs) for i in range(m)]
    known = [gap for gap in at_each if gap is not None]
    if not known:
        return None
    limits = np.array([gap.bounds(1.0 - (1.0 - confidence) / m) for gap in known])
    means = arms[0].mean(axis=0), arms[1].mean(axis=0)
    return Bands(gap=np.array([gap.mean for gap in known]), lo=limits[:, 0], hi=limits[:, 1], baseline=means[0], candidate=means[1])


def _decline(steps: IntArray, loss_KT: FloatArray) -> float:
    """How much the baseline's mean loss falls over the last fifth of its steps, linear between evaluations; nats."""
    if len(steps) == 0:
        return 0.0
    mean = loss_KT.mean(axis=0)
    return float(np.interp((1.0 - LATE_SHARE) * steps[-1], steps, mean) - mean[-1])


def _first_nonfinite(runs: Sequence[Curve]) -> str | None:
    """The label of the first run with a loss that is not finite, and where."""
    for number, run in enumerate(runs, 1):
        bad = ~usable(run.loss)
        if bad.any():
            return f"{run.label or f'run {number}'} at {int(run.steps[int(np.argmax(bad))]):,}"
    return None


def _independent(runs: Sequence[Curve]) -> tuple[tuple[Curve, ...], tuple[str, ...], tuple[str, ...]]:
    """The runs that stand for themselves, and the labels of the copies and of the forks of earlier ones."""
    kept: list[Curve] = []
    copies, forks = [], []
    for number, run in enumerate(runs, 1):
        label = run.label or f"run {number}"
        if any(_alike(other, run) for other in kept):
            copies.append(label)
        elif FORKED_FROM in run.context or any(_share_start(other, run) for other in kept):
            forks.append(label)
        else:
            kept.append(run)
    return tuple(kept), tuple(copies), tuple(forks)


def _across(baseline: Sequence[Curve], candidate: Sequence[Curve], related: Callable[[Curve, Curve], bool]) -> str | None:
    """The labels of two related runs, one of each arm."""
    pairs = ((left, right) for right in candidate for left in baseline)
    return next((f"{right.label or 'a run'} and {left.label or 'a run'}" for left, right in pairs if related(left, right)), None)


def _share_start(left: Curve, right: Curve) -> bool:
    """Whether two runs have equal losses at their first evaluations after step 0, or losses that differ there by one constant.

    Then one was forked from the other, or both from a third.
    """
    steps, (x, y) = common_losses((left, right))
    finite = usable(x) & usable(y) & (steps > 0)
    x, y = x[finite], y[finite]
    if len(x) < START_POINTS or max(quantum(x), quantum(y)) > ALIKE_NATS:
        return False
    rounding = max(quantum(x), quantum(y), 4.0 * float(np.spacing(np.abs(x[: START_POINTS + 1]).astype(np.float32)).max()))
    gap = (y - x)[: START_POINTS + 1]
    return float(np.abs(gap[:START_POINTS]).max()) <= rounding or (len(gap) > START_POINTS and float(np.ptp(gap)) <= rounding)


def _alike(left: Curve, right: Curve) -> bool:
    """Whether one run is a copy of the other, but for a constant: as printed, at every point but one; coarse losses at every point.

    Honest runs whose gap hardly moves are none: 1,128 pairs of 175 B runs lie within 0.0001 nats of one gap at up to 60 % of the points.
    """
    if same_series(left, right):
        return True
    _, (x, y) = common_losses((left, right))
    finite = usable(x) & usable(y)
    gap = (y - x)[finite]
    if len(gap) < MIN_POINTS:
        return False
    quanta = quantum(x[finite]), quantum(y[finite])
    if max(quanta) > ALIKE_NATS:
        half = 0.501 * max(quanta)
        if quanta[0] != quanta[1] and half < MAX_HALF_NATS:
            return bool((np.abs(gap - median(gap)) <= half).all())
        return float(np.ptp(gap)) <= ALIKE_NATS
    printed = max(*quanta, LEAST_STEP)
    return int(np.count_nonzero(np.abs(gap - median(gap)) > 1.001 * printed)) <= APART
