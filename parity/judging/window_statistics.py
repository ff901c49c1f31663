"""What the points of the late window say: level, gap with its interval, noises, decline, drift and sensitivity.

The gap is the mean over runs (of a seed, then over seeds) of candidate minus baseline at common steps. Masked steps (`spikes`) count
neither for the level nor for the runs' means, and are interpolated in the gap series.
"""

from dataclasses import dataclass

import numpy as np

from parity.judging.alignment import Aligned
from parity.judging.arms import Arms, Controls
from parity.judging.criteria import Criteria
from parity.judging.curve import BoolArray, FloatArray, IntArray
from parity.judging.interval import Interval, interval
from parity.judging.margin import Margin, determine_margin
from parity.judging.noise import StandardError, lag1, mean_se, step_noise
from parity.judging.run_floor import RunFloor, RunTerm, prior_for, run_floor, run_term, run_term_over_seeds
from parity.judging.spikes import Spikes, find_spikes
from parity.judging.window import SENSITIVITY_FRACTIONS, Window, decline_limit, drift, ols_change


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLate:
    """One arm in the window: mean loss, first loss of the run, least-squares decline and its limit (C1), run floor; nats."""

    level: float
    first_loss: float
    decline: float
    decline_limit: float
    floor: RunFloor

    @property
    def converged(self) -> bool:
        """Whether the arm declines no more than a late phase should."""
        return self.decline <= self.decline_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The interval over another last fraction of the plan: `n` points, mean gap and its ends in nats."""

    fraction: float
    n: int
    mean: float
    lo: float
    hi: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Late:
    """The window's measurements over `n` common points; losses and gaps in nats, a gap positive where the candidate is worse."""

    n: int
    baseline: ArmLate
    candidate: ArmLate
    spikes: Spikes
    interval: Interval
    raw_gap: float
    margin: Margin | None
    sigma_step: float
    sd_paired: float
    rho1: float
    drift: float
    drift_se: float
    sensitivity: tuple[Sensitivity, ...]

    @property
    def floors(self) -> tuple[RunFloor, RunFloor]:
        """The run floors of baseline and candidate."""
        return self.baseline.floor, self.candidate.floor

    @property
    def effective_n(self) -> float:
        """Points after lag-1 correlation: n (1 - rho) / (1 + rho), at most n."""
        rho = min(max(self.rho1, 0.0), 0.9999)
        return self.n * (1.0 - rho) / (1.0 + rho)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowGap:
    """The gap's interval over one window, with what it rests on: spikes, the points that count (n,), and the run floor of each arm."""

    spikes: Spikes
    keep: BoolArray
    floors: tuple[RunFloor, RunFloor]
    interval: Interval


def window_gap(
    aligned: Aligned, curves: tuple[FloatArray, FloatArray], part: slice, arms: Arms, controls: Controls, criteria: Criteria, quantum: float
) -> WindowGap:
    """The interval over a part (at least one point) of the aligned steps; `curves` are `aligned.arm_means()`."""
    base, cand = curves[0][part], curves[1][part]
    spikes = find_spikes(cand - base, float(base.mean()), quantum)
    keep = ~spikes.mask if not spikes.mask.all() else np.ones(len(base), dtype=bool)
    floors, run = _between_runs(aligned, part, keep, arms, controls, criteria)
    within = within_se(spikes.masked_gap, base, cand, aligned.steps[part], criteria)
    return WindowGap(spikes=spikes, keep=keep, floors=floors, interval=interval(float(spikes.masked_gap.mean()), within, run))


def measure_late(aligned: Aligned, arms: Arms, controls: Controls, criteria: Criteria, window: Window, quantum: float) -> Late | None:
    """Measure the window of losses rounded to `quantum`; None where it holds no common finite point."""
    part = window.part(aligned.steps)
    if part.start >= part.stop:
        return None
    steps, curves = aligned.steps[part], aligned.arm_means()
    seen = window_gap(aligned, curves, part, arms, controls, criteria, quantum)
    spikes, keep, gap = seen.spikes, seen.keep, seen.spikes.masked_gap
    base, cand = curves[0][part], curves[1][part]
    change, change_se = drift(gap, steps)
    left, right = (_arm_late(whole, part, steps, keep, floor) for whole, floor in zip(curves, seen.floors, strict=True))
    return Late(
        n=len(steps),
        baseline=left,
        candidate=right,
        spikes=spikes,
        interval=seen.interval,
        raw_gap=float((cand - base).mean()),
        margin=determine_margin(criteria, left.level, left.floor),
        sigma_step=float(np.mean([step_noise(row) for row in aligned.baseline[:, part]])),
        sd_paired=float(gap.std()),
        rho1=lag1(gap),
        drift=change,
        drift_se=change_se,
        sensitivity=_sensitivity(aligned.steps, curves, window, seen.interval, criteria, quantum),
    )


def within_se(gap: FloatArray, base: FloatArray, cand: FloatArray, steps: IntArray, criteria: Criteria) -> StandardError:
    """SE_within of the mean gap (n,); arms declared unpaired give the sum of their own detrended variances instead."""
    if criteria.pairing == "paired":
        return mean_se(gap)
    parts = [mean_se(_detrended(arm, steps)) for arm in (base, cand)]
    return StandardError(value=float(np.hypot(parts[0].value, parts[1].value)), df=min(part.df for part in parts))


def _detrended(series: FloatArray, steps: IntArray) -> FloatArray:
    span = float(steps[-1] - steps[0]) if len(steps) > 1 else 0.0
    position = (steps - steps.mean()) / span if span else np.zeros(len(steps))
    flat: FloatArray = series - position * ols_change(series, steps)
    return flat


def _arm_late(whole: FloatArray, part: slice, steps: IntArray, keep: BoolArray, floor: RunFloor) -> ArmLate:
    late = whole[part][keep]
    level, first = float(late.mean()), float(whole[0])
    decline = -ols_change(late, steps[keep])
    return ArmLate(level=level, first_loss=first, decline=decline, decline_limit=decline_limit(first, level), floor=floor)


def _between_runs(
    aligned: Aligned, part: slice, keep: BoolArray, arms: Arms, controls: Controls, criteria: Criteria
) -> tuple[tuple[RunFloor, RunFloor], RunTerm]:
    """Run floor of each arm and the between-run part of the gap's variance."""
    base_means, cand_means = (arm[:, part][:, keep].mean(axis=1) for arm in (aligned.baseline, aligned.candidate))
    base_seeds, cand_seeds = aligned.baseline_seeds, aligned.candidate_seeds
    base_of = {seed: _mean_of_seed(base_means, base_seeds, seed) for seed in aligned.seeds}
    gaps = np.array([_mean_of_seed(cand_means, cand_seeds, seed) - base_of[seed] for seed in aligned.seeds])
    size = abs(float(np.mean(list(base_of.values()))))
    control_means = controls.offsets + base_of[aligned.seeds[0]] if len(controls.used) else None
    floors = (
        run_floor(prior_for(arms.baseline.recipe, criteria.baseline_run_floor, criteria, size), base_means, base_seeds, control_means),
        run_floor(prior_for(arms.candidate.recipe, criteria.candidate_run_floor, criteria, size), cand_means, cand_seeds),
    )
    return floors, run_term(*floors) if len(gaps) == 1 else run_term_over_seeds(gaps, *floors)


def _mean_of_seed(means: FloatArray, seeds: tuple[int, ...], seed: int) -> float:
    return float(np.mean([mean for mean, own in zip(means, seeds, strict=True) if own == seed]))


def _sensitivity(
    steps: IntArray, curves: tuple[FloatArray, FloatArray], window: Window, found_in_window: Interval, criteria: Criteria, quantum: float
) -> tuple[Sensitivity, ...]:
    """C3: the interval over the last 10, 20, 30 and 50 % of the plan, with the window's own between-run term."""
    found = []
    for fraction in SENSITIVITY_FRACTIONS:
        part = window.at(fraction).part(steps)
        if fraction == window.fraction and window.decay_from is None:
            lo, hi = found_in_window.bounds(criteria.confidence)
            found.append(Sensitivity(fraction=fraction, n=part.stop - part.start, mean=found_in_window.mean, lo=lo, hi=hi))
            continue
        base, cand = (curve[part] for curve in curves)
        if len(base) < 20:
            continue
        gap = find_spikes(cand - base, float(base.mean()), quantum).masked_gap
        got = interval(float(gap.mean()), within_se(gap, base, cand, steps[part], criteria), found_in_window.run)
        lo, hi = got.bounds(criteria.confidence)
        found.append(Sensitivity(fraction=fraction, n=len(gap), mean=got.mean, lo=lo, hi=hi))
    return tuple(found)
