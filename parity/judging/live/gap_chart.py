"""The gap between two arms in bins of steps, for a chart; finished runs or not.

mean gap of a bin -+ t(df) sqrt(tau_A^2/K_A + tau_B^2/K_B + sd^2 (1 + rho) / (n (1 - rho))), K the
runs that reach the bin, n its steps, sd and rho (lag 1) of the gap's residuals over all bins. Can
fail: a band per bin is not a test of the whole; the verdict's interval is.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.canonical_json import fields_of
from parity.frozen import frozen
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import (
    MAX_STEP,
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    between,
    dot,
    rounding_of,
    usable,
)
from parity.judging.curves.spikes import SPIKE_SCALE_SAMPLE
from parity.judging.curves.spikes import THRESHOLD_SDS as SPIKE_SDS
from parity.judging.curves.step_noise import lag1, mad_sd
from parity.judging.curves.window import Window, plan_window
from parity.judging.gap.interval import t_quantile
from parity.judging.gap.margin import determine_margin
from parity.judging.live.baseline_end import level_at_end
from parity.judging.noise.arm_noise import ArmNoise, Prior, arm_noise, prior_for
from parity.judging.policy import Policy

Priors = tuple[Prior, Prior]


@frozen(eq=False)
class _Bins:
    """Arrays (bins,) of steps, mean gap, interval ends (nats) and paired steps in the bin.

    `lo` and `hi` are the interval of the bin's mean at the level that decides: step noise of the
    bin plus the between-run term with as many runs as the bin has.
    """

    first_step: IntArray
    last_step: IntArray
    mean: FloatArray
    lo: FloatArray
    hi: FloatArray
    n: IntArray


@frozen(eq=False)
class BinnedGap(_Bins):
    """The gap in bins for a live chart.

    Where the window has no points yet, `level` and `margin_nats` are those expected at the planned
    end, and `level_is_provisional` is true. `nonfinite_*` are the steps of the range with NaN or
    infinite losses.
    """

    nonfinite_baseline: IntArray
    nonfinite_candidate: IntArray
    margin_nats: float | None
    level: float | None
    level_is_provisional: bool
    window: tuple[int, int]


@frozen
class GapBasis:
    """Level, run-to-run noise, margin and window from the whole curves, which bins of any range
    need.

    `counted` are the indices of the runs that count in each arm.
    Keep it for a pair that has ended: a range of bins then reads only its own steps.
    """

    level: float | None
    level_is_provisional: bool
    noises: tuple[ArmNoise, ArmNoise] | None
    margin_nats: float | None
    window: tuple[int, int]
    counted: tuple[tuple[int, ...], tuple[int, ...]]


@frozen(eq=False)
class StepRange:
    """Steps from `first` to `last` (None: to the end), and how they are cut: at most `bins` ranges,
    or those that begin at `edges`.

    Ranges are equally long, or (`log`) equally long in the step's logarithm. `edges` (bins,) are
    first steps of ranges, ascending, which take the place of `bins` and `log`, so that several
    candidates can have the same.
    """

    first: int = 0
    last: int | None = None
    bins: int = 200
    log: bool = False
    edges: IntArray | None = None

    @property
    def is_part(self) -> bool:
        """Whether steps at an end may be missing."""
        return self.first > 0 or self.last is not None

    def part(self, steps: IntArray) -> slice:
        """The part of ascending steps (n,) that lies in the range."""
        return between(steps, self.first, MAX_STEP if self.last is None else self.last)


WHOLE = StepRange()


def gap_basis(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    policy: Policy,
    planned_steps: int | None = None,
    priors: Priors | None = None,
    *,
    independent: Sequence[Curve] | None = None,
) -> GapBasis:
    """Level, run-to-run noise, margin and window of a pair, finished or not.

    `independent` are the baseline's runs that count, for a caller that compares many candidates
    with the same baseline.
    """
    base_runs = independent_runs(baseline)[0] if independent is None else independent
    cand_runs = independent_runs(candidate)[0]
    return _basis(
        (baseline, candidate),
        (base_runs, cand_runs),
        _mean_arms(base_runs, cand_runs),
        policy,
        planned_steps,
        priors,
    )


def _basis(
    given: tuple[Sequence[Curve], Sequence[Curve]],
    counted: tuple[Sequence[Curve], Sequence[Curve]],
    means: tuple[IntArray, FloatArray, FloatArray, IntArray],
    policy: Policy,
    planned_steps: int | None,
    priors: Priors | None = None,
) -> GapBasis:
    window = plan_window(
        (*counted[0], *counted[1]), planned_steps, True, policy.window_fraction
    ).at_plan
    steps, base, _, _ = means
    level, provisional = _level(steps, base, window)
    noises = _noises(*counted, steps, policy, level, priors)
    margin = None if level is None or noises is None else determine_margin(policy, level, noises[0])
    left, right = (
        tuple(i for i, run in enumerate(arm) if any(run is other for other in used))
        for arm, used in zip(given, counted, strict=True)
    )
    return GapBasis(
        level=level,
        level_is_provisional=provisional,
        noises=noises,
        margin_nats=margin.nats if margin else None,
        window=(window.first, window.last),
        counted=(left, right),
    )


def binned_gap(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    policy: Policy,
    wanted: StepRange = WHOLE,
    *,
    planned_steps: int | None = None,
    basis: GapBasis | None = None,
    priors: Priors | None = None,
    confidence: float | None = None,
) -> BinnedGap:
    """Mean gap with its band in ranges of steps; unfinished runs, NaN and disjoint steps are no
    error.

    At each step the gap is the mean of the candidate's runs there minus the mean of the baseline's,
    so that a run that has just started does not shorten the chart; empty bins are left out. With a
    `basis` from the whole curves, the runs given are those that count, and need only have the steps
    of the range. `priors` are the run-to-run noise that the verdict started from; by default those
    that are assumed of a finished run. `confidence` is the interval's level where looks or
    candidates share the policy's (`parity.judging.policy`).
    """
    if wanted.bins < 1:
        raise ValueError(f"bins is {wanted.bins}; expected 1 or more")
    if basis:
        base_runs, cand_runs = baseline, candidate
    else:
        base_runs, cand_runs = independent_runs(baseline)[0], independent_runs(candidate)[0]
    means = _mean_arms(base_runs, cand_runs)
    basis = basis or _basis(
        (baseline, candidate), (base_runs, cand_runs), means, policy, planned_steps, priors
    )
    steps, base, cand, runs_2T = means
    inside = wanted.part(steps)
    edges = wanted.edges
    if edges is None and inside.start < inside.stop:
        edges = step_edges(
            int(steps[inside][0]), int(steps[inside][-1]), wanted.bins, log=wanted.log
        )
    level = policy.confidence if confidence is None else confidence
    bins = _bins(
        steps[inside], (cand - base)[inside], runs_2T[:, inside], basis.noises, level, edges
    )
    return BinnedGap(
        **fields_of(bins),
        nonfinite_baseline=_nonfinite_steps(base_runs, wanted),
        nonfinite_candidate=_nonfinite_steps(cand_runs, wanted),
        margin_nats=basis.margin_nats,
        level=basis.level,
        level_is_provisional=basis.level_is_provisional,
        window=basis.window,
    )


def step_edges(first: int, last: int, count: int, *, log: bool) -> IntArray:
    """First steps of at most `count` ranges from `first` to `last`, equally long, or equally long
    in the step's logarithm.
    """
    if log:
        edges = np.geomspace(max(first, 1), last + 1, count + 1)
    else:
        edges = np.linspace(first, last + 1, count + 1)
    whole = np.unique(np.append(np.ceil(edges[:-1]).astype(np.int64), first))
    return whole[whole <= last][:count]


def _mean_arms(
    baseline: Sequence[Curve], candidate: Sequence[Curve]
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Steps where both arms have a finite loss, each arm's mean over its runs there, and the number
    of runs (2, n).
    """
    grids = [run.steps for run in (*baseline, *candidate)]
    if not baseline or not candidate:
        return np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty((2, 0), np.int64)
    steps = max(grids, key=len)
    if not all(np.array_equal(steps[: len(grid)], grid) for grid in grids):
        steps = np.unique(np.concatenate(grids))
    totals, counts = np.zeros((2, len(steps))), np.zeros((2, len(steps)), np.int64)
    for row, arm in enumerate((baseline, candidate)):
        for run in arm:
            is_first_part = np.array_equal(steps[: len(run.steps)], run.steps)
            at = slice(0, len(run.steps)) if is_first_part else np.searchsorted(steps, run.steps)
            finite = True if all_usable(run.loss) else usable(run.loss)
            totals[row, at] += np.where(finite, run.loss, 0.0) if finite is not True else run.loss
            counts[row, at] += finite
    both = (counts > 0).all(axis=0)
    if not both.all():
        steps, totals, counts = steps[both], totals[:, both], counts[:, both]
    totals /= counts
    return steps, totals[0], totals[1], counts


def _level(steps: IntArray, base: FloatArray, window: Window) -> tuple[float | None, bool]:
    """Baseline level in the window, or what the loss so far lets expect there (provisional)."""
    if len(steps) == 0:
        return None, True
    part = window.part(steps)
    if part.start < part.stop:
        return float(base[part].mean()), False
    late = max(1, len(base) // 5)
    shares = np.maximum(steps - window.origin + 1, 1) / window.planned_steps
    return level_at_end(float(base[-late:].mean()), shares, base, late, window.fraction), True


def _noises(
    baseline: Sequence[Curve],
    candidate: Sequence[Curve],
    steps: IntArray,
    policy: Policy,
    level: float | None,
    priors: Priors | None,
) -> tuple[ArmNoise, ArmNoise] | None:
    """Run-to-run noise of both arms from the last fifth of the steps that all runs have."""
    if level is None:
        return None
    shared = min(int(run.steps[-1]) for run in (*baseline, *candidate) if len(run.steps))
    late = steps[: int(np.searchsorted(steps, shared, side="right"))]
    late = late[-max(1, len(late) // 5) :] if len(late) else steps[-1:]
    noises = []
    for number, (arm, declared) in enumerate(
        zip((baseline, candidate), policy.declared_noise, strict=True)
    ):
        means = [(_late_mean(run, late), run.seed) for run in arm]
        known = [(mean, seed) for mean, seed in means if math.isfinite(mean)]
        rounding = rounding_of(run.rounding for run in arm)
        if priors:
            prior = priors[number]
        else:
            prior = prior_for(arm[0].recipe, declared, policy, abs(level), rounding)
        noises.append(
            arm_noise(prior, np.array([mean for mean, _ in known]), [seed for _, seed in known])
        )
    return noises[0], noises[1]


def _late_mean(run: Curve, late: IntArray) -> float:
    part = run.loss[between(run.steps, late[0], late[-1])]
    part = part[usable(part)]
    return float(part.mean()) if len(part) else math.nan


def _bins(
    steps: IntArray,
    gap: FloatArray,
    runs_2T: IntArray,
    noises: tuple[ArmNoise, ArmNoise] | None,
    confidence: float,
    edges: IntArray | None,
) -> _Bins:
    """The bins that have a step."""
    if len(steps) == 0 or noises is None or edges is None:
        none, no_steps = np.empty(0), np.empty(0, np.int64)
        return _Bins(
            first_step=no_steps, last_step=no_steps, mean=none, lo=none, hi=none, n=no_steps
        )
    places = np.searchsorted(steps, edges)
    starts = np.unique(places[places < len(steps)])
    # steps before the first edge
    starts = starts if not len(starts) or starts[0] == 0 else np.append(0, starts)
    ends = np.append(starts[1:], len(steps))
    n = (ends - starts).astype(np.int64)
    mean = np.add.reduceat(gap, starts) / n
    residual = gap - np.repeat(mean, n)
    rho = min(max(lag1(residual), 0.0), 0.97)
    limit = SPIKE_SDS * mad_sd(residual[:: 1 + len(residual) // SPIKE_SCALE_SAMPLE]) or math.inf
    residual = np.clip(residual, -limit, limit)  # a spike is shown in its bin, and widens no other
    # one bin alone may hold too few steps for a variance
    pooled = dot(residual, residual) / max(len(gap) - len(n), 1)
    v_within = pooled / n * (1.0 + rho) / (1.0 - rho)
    v_run = sum(
        noise.tau**2 / (np.add.reduceat(row, starts) / n)
        for noise, row in zip(noises, runs_2T, strict=True)
    )
    df = min(noise.df for noise in noises)
    half = t_quantile(confidence, df) * np.sqrt(v_within + v_run)
    return _Bins(
        first_step=steps[starts],
        last_step=steps[ends - 1],
        mean=mean,
        lo=mean - half,
        hi=mean + half,
        n=n,
    )


def _nonfinite_steps(runs: Sequence[Curve], wanted: StepRange) -> IntArray:
    """Steps of the range at which any run has a loss that is not finite, ascending."""
    if not runs:
        return np.empty(0, np.int64)
    steps = np.unique(np.concatenate([run.steps[~usable(run.loss)] for run in runs]))
    return steps[wanted.part(steps)]
