"""Is it faster, and does that pay? Step-time ratio with its interval, and the net time-to-loss speed-up after the token tax.

ratio = median step seconds of the baseline / of the candidate (> 1: candidate faster), at equal tokens a step
ln ratio: between-run variance of the runs' log medians where both arms have 2 or more, else block medians within the run
net = ratio / (1 + tax); ln net has the variance of both, so a format 1.4 x as fast that needs 36 % more tokens is worth 1.03 x

Can fail: shared machines (other jobs slow one arm), unequal batch sizes; start-up and compilation (the first tenth) are left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import Curve, FloatArray
from parity.judging.interval import t_quantile
from parity.judging.secondary.token_tax import TokenTax

STEP_SECONDS = "step_seconds"
BLOCKS, SKIPPED_SHARE, MIN_STEPS = 20, 0.10, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A speed ratio with its interval; above 1 the candidate is faster."""

    value: float
    lo: float
    hi: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Median step seconds of both arms, their ratio, the hours of training that all runs took; a device's medians where recorded."""

    baseline_step_seconds: float
    candidate_step_seconds: float
    ratio: Ratio
    run_hours: float
    tokens_per_second: tuple[float | None, float | None]
    tflops: tuple[float | None, float | None]


def throughput(baseline: Sequence[Curve], candidate: Sequence[Curve], confidence: float) -> Throughput | None:
    """Step-time ratio of two arms from their `step_seconds` columns; None where a run has fewer than 40 timed steps."""
    seconds = [[_timed(run) for run in arm] for arm in (baseline, candidate)]
    if any(len(times) < MIN_STEPS for arm in seconds for times in arm):
        return None
    (base, base_variance, base_df), (cand, cand_variance, cand_df) = (_log_median(arm) for arm in seconds)
    variance = base_variance + cand_variance
    df = 1.0 / ((base_variance / variance) ** 2 / base_df + (cand_variance / variance) ** 2 / cand_df) if variance > 0.0 else 1.0
    half = t_quantile(confidence, df) * math.sqrt(variance)
    log_ratio = base - cand
    total = sum(float(_all_times(run).sum()) for run in (*baseline, *candidate))
    return Throughput(
        baseline_step_seconds=math.exp(base),
        candidate_step_seconds=math.exp(cand),
        ratio=Ratio(value=math.exp(log_ratio), lo=math.exp(log_ratio - half), hi=math.exp(log_ratio + half)),
        run_hours=total / 3600.0,
        tokens_per_second=(_median(baseline, "tokens_per_second"), _median(candidate, "tokens_per_second")),
        tflops=(_median(baseline, "tflops"), _median(candidate, "tflops")),
    )


def net_speedup(speed: Ratio, tax: TokenTax) -> Ratio | None:
    """Time-to-loss speed-up after the token tax; None where the tax is unbounded or its interval is empty."""
    shifts = (1.0 + tax.estimate, 1.0 + tax.lo, 1.0 + tax.hi)
    if not all(math.isfinite(shift) and shift > 0.0 for shift in shifts):
        return None
    value = speed.value / shifts[0]
    down = math.hypot(math.log(speed.value / speed.lo), math.log(shifts[2] / shifts[0]))
    up = math.hypot(math.log(speed.hi / speed.value), math.log(shifts[0] / shifts[1]))
    return Ratio(value=value, lo=value * math.exp(-down), hi=value * math.exp(up))


def _median(arm: Sequence[Curve], column: str) -> float | None:
    """Median of a column over all runs of an arm without the first tenth; None where a run lacks it."""
    if not all(column in run.columns for run in arm):
        return None
    late = np.concatenate([run.columns[column][int(SKIPPED_SHARE * len(run.steps)) :] for run in arm])
    late = late[np.isfinite(late)]
    return float(np.median(late)) if len(late) else None


def _all_times(run: Curve) -> FloatArray:
    times = run.columns.get(STEP_SECONDS, np.empty(0))
    kept: FloatArray = times[np.isfinite(times) & (times > 0.0)]
    return kept


def _timed(run: Curve) -> FloatArray:
    times = _all_times(run)
    return times[int(SKIPPED_SHARE * len(times)) :]


def _log_median(arm: Sequence[FloatArray]) -> tuple[float, float, float]:
    """Mean over runs of the log median step time, the variance of that mean and its df."""
    medians = np.array([math.log(float(np.median(times))) for times in arm])
    if len(medians) > 1:
        return float(medians.mean()), float(medians.var(ddof=1)) / len(medians), float(len(medians) - 1)
    times = arm[0]
    size = len(times) // BLOCKS
    blocks = np.log(np.median(times[-size * BLOCKS :].reshape(BLOCKS, size), axis=1))
    return float(medians[0]), float(blocks.var(ddof=1)) / BLOCKS, float(BLOCKS - 1)
