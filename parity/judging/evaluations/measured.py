"""What is measured on two arms of held-out losses, before anything is decided.

points: the common evaluations in the window of any training curve, the last 20 % of the steps (at
least the last one), or those declared gap over runs: the arms' difference of means with run-to-run
noise measured or assumed (`gap`); over clusters, where asked for, their own spread bands: the gap
at every common point at confidence 1 - (1 - c)/m for m points (Bonferroni), so that all m hold at
once

Can fail: runs that are not independent (`clusters`), and what the assumed run-to-run noise rests on
(`arm_noise`).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import common_losses
from parity.judging.curves.curve import (
    FORKED_FROM,
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    median,
    usable,
)
from parity.judging.curves.independence import same_series
from parity.judging.curves.resolution import rounding_step
from parity.judging.curves.schedule import UNKNOWN_SLOPE, ScheduleState, log_slope, schedule_state
from parity.judging.curves.window import Window, plan_window
from parity.judging.evaluations.clusters import ClusteredGap, clustered_gap
from parity.judging.evaluations.gap import PRINTED_STEP, Losses, Seeds, gap_interval, printed_step
from parity.judging.evaluations.group_means import values_by_cluster
from parity.judging.gap.interval import Interval
from parity.judging.noise.arm_noise import Prior, priors_for
from parity.judging.policy import Policy

MIN_RUNS = 2  # of an arm whose spread is measured
MIN_POINTS_ALIKE = 5
# four decimals or more show copies; one point may be another's
ALIKE_NATS, LEAST_STEP, APART = 1e-4, 1e-5, 1
MAX_HALF_NATS = 1e-3  # half a rounding step; honest runs agree to half of a coarser one
# equal ones are no chance: by the first evaluation two runs of one seed differ by more than
# rounding; 3 with a constant
START_POINTS = 2
MAX_OFF = 0.01  # of the interval between evaluations, by which the steps of two runs may differ
LATE_SHARE = 0.2  # of a run, in which the gap must not come near the margin


@frozen
class Bands:
    """The gap at each common point (m,) with simultaneous limits (m,), and each arm's mean loss
    (m,), nats.
    """

    gap: FloatArray
    lo: FloatArray
    hi: FloatArray
    baseline: FloatArray
    candidate: FloatArray


@frozen(eq=False)
class MeasuredEvaluations:
    """Two arms of evaluations, measured.

    `steps` (m,) are the common points, `points` those that are compared; `baseline` and `candidate`
    (K,) each run's loss there, in the order of `runs`, which leaves out `copies` and `forks` of
    other runs (labels); `losses` (K, m) are theirs at every common point, `seeds` those by which
    they are paired. `window` is that of a training curve. `arms_alike` and `arms_share_start` name
    two runs, one of each arm. `over_runs` is None without a common point, and without a common seed
    where runs are paired. `priors` are the run-to-run noise of the arms that would be assumed,
    `steps_printed` the steps to which their losses are printed (nats).
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
    losses: Losses
    seeds: Seeds
    window: Window
    pairs: int | None
    schedule: ScheduleState
    priors: tuple[Prior, Prior]
    steps_printed: tuple[float, float]
    over_runs: Interval | None
    over_clusters: ClusteredGap | None
    bands: Bands | None

    @property
    def rounding(self) -> float:
        """By how much printed digits can move the gap, nats."""
        return sum(self.steps_printed) / 2.0

    @property
    def typed(self) -> bool:
        """Whether the losses are numbers that somebody typed, one an arm."""
        return any(PRINTED_STEP in run.columns for arm in self.runs for run in arm)

    @property
    def single(self) -> bool:
        """Whether an arm has one run, so that its run-to-run noise is assumed."""
        return min(map(len, self.runs)) < MIN_RUNS


def measure(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    policy: Policy,
    *,
    confidence: float,
    planned_steps: int | None,
    paired: bool,
    cluster: str | None,
    at: Sequence[int],
) -> MeasuredEvaluations:
    """Measure two arms; `cluster` is a key of the runs' context, `at` the points to compare.

    Raises ValueError where not every run has an evaluation at a point.
    """
    points_of = next((run.steps for run in baseline if len(run.steps)), None)
    if points_of is not None:
        baseline, candidate = (
            [_moved_to_points(run, points_of) for run in arm] for arm in (baseline, candidate)
        )
    kept, copies, forks = zip(*(_independent(arm) for arm in (baseline, candidate)), strict=True)
    steps, losses = common_losses((*kept[0], *kept[1]))
    rows = np.array(losses).reshape(len(losses), len(steps))
    finite = usable(rows).all(axis=0)
    steps, rows = steps[finite], rows[:, finite]
    arms = rows[: len(kept[0])], rows[len(kept[0]) :]
    window = plan_window(
        (*kept[0], *kept[1]), planned_steps, policy.schedule == "decayed", policy.window_fraction
    )
    if len(steps):
        slope = log_slope(steps, arms[0].mean(axis=0), loaded=policy.start == "loaded")
    else:
        slope = UNKNOWN_SLOPE
    schedule = schedule_state((kept[0], kept[1]), window, policy, slope)
    points = (
        _points(steps, at)
        or tuple(steps[steps >= window.first].tolist())
        or tuple(steps[-1:].tolist())
    )
    compared = np.isin(steps, points)
    values = rows[:, compared].mean(axis=1) if points else np.full(len(rows), np.nan)
    base, cand = values[: len(kept[0])], values[len(kept[0]) :]
    printed = printed_step(kept[0]), printed_step(kept[1])
    own_seeds = [np.array([run.seed if paired else 0 for run in runs], np.int64) for runs in kept]
    seeds = own_seeds[0], own_seeds[1]
    pairs = len(np.intersect1d(*seeds))
    measured = bool(points) and pairs > 0

    def priors(level: float) -> tuple[Prior, Prior]:
        return priors_for((kept[0][0], kept[1][0]), policy, abs(level), schedule.assumed_slope)

    def gap(chosen: BoolArray) -> Interval:
        losses = arms[0][:, chosen], arms[1][:, chosen]
        return gap_interval(losses, priors(float(losses[0].mean())), seeds, sum(printed) / 2.0)

    return MeasuredEvaluations(
        steps=steps,
        points=points,
        runs=(kept[0], kept[1]),
        copies=(*copies[0], *copies[1]),
        forks=(*forks[0], *forks[1]),
        arms_alike=_across(kept[0], kept[1], _alike),
        arms_share_start=_across(kept[0], kept[1], _share_start),
        invalid=(_first_nonfinite(baseline), _first_nonfinite(candidate)),
        baseline=base,
        candidate=cand,
        losses=arms,
        seeds=seeds,
        window=window,
        pairs=pairs if paired else None,
        schedule=schedule,
        priors=priors(float(base.mean()) if points else 0.0),
        steps_printed=printed,
        over_runs=gap(compared) if measured else None,
        over_clusters=over_clusters((kept[0], kept[1]), (base, cand), cluster)
        if points and cluster
        else None,
        bands=_bands(arms, [gap(steps == step) for step in steps], confidence)
        if measured
        else None,
    )


def _moved_to_points(run: Curve, points: IntArray) -> Curve:
    """The run at the given points where each of its steps is off by one small number: two trainers
    may count 32 samples apart.
    """
    if len(points) < MIN_RUNS or len(run.steps) == 0 or np.isin(run.steps, points).any():
        return run
    after = np.clip(np.searchsorted(points, run.steps), 1, len(points) - 1)
    nearest = np.where(
        points[after] - run.steps < run.steps - points[after - 1], points[after], points[after - 1]
    )
    off = run.steps - nearest
    if np.ptp(off) or abs(int(off[0])) > MAX_OFF * int(np.diff(points).min()):
        return run
    return dataclasses.replace(
        run,
        steps=nearest,
        notes=(*run.notes, f"steps moved by {-int(off[0]):+,} to those of the other runs"),
    )


def _points(steps: IntArray, at: Sequence[int]) -> tuple[int, ...]:
    """The declared points; raises ValueError where one is not common to all runs."""
    for point in at:
        if point not in steps:
            known = ", ".join(f"{int(step)}" for step in steps[-8:]) or "none"
            raise ValueError(
                f"not every run has an evaluation at {point}; the last points that all runs have "
                f"are {known}"
            )
    return tuple(sorted(set(at)))


def over_clusters(
    runs: tuple[tuple[Curve, ...], tuple[Curve, ...]], values: Losses, cluster: str
) -> ClusteredGap | None:
    """The gap of the runs' values (K_A,) and (K_B,) over the clusters that `cluster` names in their
    context.
    """
    named = [[run.context.get(cluster, "") for run in arm] for arm in runs]
    return clustered_gap(
        values_by_cluster(values[0], named[0]), values_by_cluster(values[1], named[1])
    )


def _bands(
    arms: tuple[FloatArray, FloatArray], gaps: Sequence[Interval], confidence: float
) -> Bands:
    limits = np.array([gap.bounds(1.0 - (1.0 - confidence) / len(gaps)) for gap in gaps])
    means = arms[0].mean(axis=0), arms[1].mean(axis=0)
    return Bands(
        gap=np.array([gap.mean for gap in gaps]),
        lo=limits[:, 0],
        hi=limits[:, 1],
        baseline=means[0],
        candidate=means[1],
    )


def _first_nonfinite(runs: Sequence[Curve]) -> str | None:
    """The label of the first run with a loss that is not finite, and where."""
    for number, run in enumerate(runs, 1):
        bad = ~usable(run.loss)
        if bad.any():
            return f"{run.label or f'run {number}'} at {int(run.steps[int(np.argmax(bad))]):,}"
    return None


def _independent(
    runs: Sequence[Curve],
) -> tuple[tuple[Curve, ...], tuple[str, ...], tuple[str, ...]]:
    """The runs that stand for themselves, and the labels of the copies and of the forks of earlier
    ones.
    """
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


def _across(
    baseline: Sequence[Curve], candidate: Sequence[Curve], related: Callable[[Curve, Curve], bool]
) -> str | None:
    """The labels of two related runs, one of each arm."""
    pairs = ((left, right) for right in candidate for left in baseline)
    return next(
        (
            f"{right.label or 'a run'} and {left.label or 'a run'}"
            for left, right in pairs
            if related(left, right)
        ),
        None,
    )


def _share_start(left: Curve, right: Curve) -> bool:
    """Whether two runs have equal losses at their first evaluations after step 0, or losses that
    differ there by one constant.

    Then one was forked from the other, or both from a third.
    """
    steps, (x, y) = common_losses((left, right))
    finite = usable(x) & usable(y) & (steps > 0)
    x, y = x[finite], y[finite]
    if len(x) < START_POINTS:
        return False
    gap = (y - x)[: START_POINTS + 1]
    stored = 4.0 * float(np.spacing(np.abs(x[: START_POINTS + 1]).astype(np.float32)).max())
    apart = float(np.abs(gap[:START_POINTS]).max())
    if len(gap) > START_POINTS:
        apart = min(apart, float(np.ptp(gap)))
    # most pairs: finding the rounding of two runs takes a hundred times as long
    if apart > max(ALIKE_NATS, stored):
        return False
    printed = max(rounding_step(x), rounding_step(y))
    return printed <= ALIKE_NATS and apart <= max(printed, stored)


def _alike(left: Curve, right: Curve) -> bool:
    """Whether one run is a copy of the other, but for a constant: as printed, at every point but
    one; coarse losses at every point.

    Honest runs whose gap hardly moves are none: 1,128 pairs of 175 B runs lie within 0.0001 nats of
    one gap at up to 60 % of the points.
    """
    if len(left.steps) >= START_POINTS and same_series(left, right):
        return True
    _, (x, y) = common_losses((left, right))
    finite = usable(x) & usable(y)
    gap = (y - x)[finite]
    apart = np.abs(gap - median(gap)) if len(gap) else gap
    # no rule below allows more
    if len(gap) < MIN_POINTS_ALIKE or np.count_nonzero(apart > 1.001 * MAX_HALF_NATS) > APART:
        return False
    rounding_steps = rounding_step(x[finite]), rounding_step(y[finite])
    if max(rounding_steps) > ALIKE_NATS:
        half = 0.501 * max(rounding_steps)
        if rounding_steps[0] != rounding_steps[1] and half < MAX_HALF_NATS:
            return bool((apart <= half).all())
        return float(np.ptp(gap)) <= ALIKE_NATS
    printed = max(*rounding_steps, LEAST_STEP)
    return int(np.count_nonzero(apart > 1.001 * printed)) <= APART
