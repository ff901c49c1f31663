"""Is it faster, and does that pay? Step-time ratio with its interval, and the net time-to-loss
speed-up after the token tax.

ratio = median step seconds of the baseline / of the candidate (> 1: candidate faster), at equal
    tokens a step
ln ratio: its variance is the spread of the runs' log medians where both arms have 2 or more runs,
    else of the medians of 20 blocks of consecutive steps of each run; plus, for each arm, twice the
    variance of the medians of a run's quarters (3 degrees of freedom): the machine's own drift,
    which moves the mean of a random walk by 2.0 times what its quarters show
net = ratio / (1 + tax); ln net has the variance of both, so a format 1.4 x as fast that needs 36 %
    more tokens is worth 1.03 x

The ratio is given only where the arms trained under the same conditions (`conditions`); of single
runs only steps of their common time count. Start-up and compilation (the first tenth) are left out.
Can fail: another job that slows one arm's device alone, all the time; a device clock that depends
on the device's place in a rack.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray
from parity.judging.document_types import EstimateDocument, ThroughputDocument
from parity.judging.gap.interval import t_quantile
from parity.judging.secondary.conditions import UNIX_SECONDS, NotComparable, common_conditions
from parity.judging.secondary.token_tax import TokenTax

STEP_SECONDS = "step_seconds"
BLOCKS, QUARTERS, SKIPPED_SHARE, MIN_STEPS = 20, 4, 0.10, 40
DRIFT = 2.0


def throughput(
    baseline: Sequence[Curve], candidate: Sequence[Curve], confidence: float
) -> ThroughputDocument | NotComparable | None:
    """Step-time ratio of two arms from their `step_seconds` columns, or why their times cannot be
    compared.

    None where a run recorded no step times, or fewer than 40.
    """
    runs = (*baseline, *candidate)
    if any(len(_timed(run, -math.inf, math.inf)) < MIN_STEPS for run in runs):
        return None
    conditions = common_conditions(baseline, candidate)
    if isinstance(conditions, NotComparable):
        return conditions
    seconds = [[_timed(run, *conditions) for run in arm] for arm in (baseline, candidate)]
    if any(len(times) < MIN_STEPS for arm in seconds for times in arm):
        return NotComparable(
            reason=f"a run has fewer than {MIN_STEPS} timed steps in the time in which both arms "
            "trained"
        )
    logs = [np.array([math.log(float(np.median(times))) for times in arm]) for arm in seconds]
    parts = [_variance(log, arm) for log, arm in zip(logs, seconds, strict=True)] + [
        _drift(arm) for arm in seconds
    ]
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / part_df for part, part_df in parts) if variance > 0.0 else 1.0
    half = t_quantile(confidence, df) * math.sqrt(variance)
    base, cand = (float(log.mean()) for log in logs)
    return ThroughputDocument(
        baseline_step_seconds=math.exp(base),
        candidate_step_seconds=math.exp(cand),
        ratio=from_logs(base - cand, base - cand - half, base - cand + half),
        run_hours=sum(float(_all_times(run).sum()) for run in runs) / 3600.0,
        tokens_per_second=[_median(arm, "tokens_per_second") for arm in (baseline, candidate)],
        tflops=[_median(arm, "tflops") for arm in (baseline, candidate)],
    )


def from_logs(mean: float, lo: float, hi: float) -> EstimateDocument:
    """A ratio from its logarithm and the ends of the logarithm's interval."""
    return EstimateDocument(value=math.exp(mean), lo=math.exp(lo), hi=math.exp(hi))


def net_speedup(speed: EstimateDocument, tax: TokenTax) -> EstimateDocument | None:
    """Time-to-loss speed-up after the token tax; None where the tax is unbounded or its interval is
    empty.
    """
    shifts = (1.0 + tax.estimate, 1.0 + tax.lo, 1.0 + tax.hi)
    if not all(math.isfinite(shift) and shift > 0.0 for shift in shifts):
        return None
    value = speed["value"] / shifts[0]
    down = math.hypot(math.log(speed["value"] / speed["lo"]), math.log(shifts[2] / shifts[0]))
    up = math.hypot(math.log(speed["hi"] / speed["value"]), math.log(shifts[0] / shifts[1]))
    return EstimateDocument(value=value, lo=value * math.exp(-down), hi=value * math.exp(up))


def _median(arm: Sequence[Curve], column: str) -> float | None:
    """Median of a column over all runs of an arm without the first tenth; None where a run lacks
    it.
    """
    if not all(column in run.columns for run in arm):
        return None
    late = np.concatenate(
        [run.columns[column][int(SKIPPED_SHARE * len(run.steps)) :] for run in arm]
    )
    late = late[np.isfinite(late)]
    if not len(late):
        return None
    return float(np.median(late))


def _all_times(run: Curve) -> FloatArray:
    times = run.columns.get(STEP_SECONDS, np.empty(0))
    kept: FloatArray = times[_usable(times)]
    return kept


def _usable(times: FloatArray) -> np.ndarray:
    """Step times from a nanosecond to a day, (n,)."""
    return (times >= 1e-9) & (times <= 86_400.0)


def _timed(run: Curve, begin: float, end: float) -> FloatArray:
    """Step times of a run without the first tenth, those that ended between two moments (Unix
    seconds).
    """
    times = run.columns.get(STEP_SECONDS, np.empty(0))
    usable = _usable(times)
    usable[: int(SKIPPED_SHARE * len(times))] = False
    if math.isfinite(begin):
        at = run.columns[UNIX_SECONDS]
        usable &= (at >= begin) & (at <= end)
    kept: FloatArray = times[usable]
    return kept


def _variance(log_medians: FloatArray, arm: Sequence[FloatArray]) -> tuple[float, float]:
    """Variance of an arm's mean log median step time and its df: between its runs, or between the
    blocks of its only run.
    """
    if len(log_medians) > 1:
        return float(log_medians.var(ddof=1)) / len(log_medians), float(len(log_medians) - 1)
    return float(_blocks(arm[0], BLOCKS).var(ddof=1)) / BLOCKS, float(BLOCKS - 1)


def _drift(arm: Sequence[FloatArray]) -> tuple[float, float]:
    """Variance by which a drifting machine moves an arm's mean, from the quarters of its runs, and
    its df.
    """
    return DRIFT * float(np.mean([_blocks(times, QUARTERS).var(ddof=1) for times in arm])) / len(
        arm
    ), QUARTERS - 1.0


def _blocks(times: FloatArray, count: int) -> FloatArray:
    """Log medians of `count` blocks of consecutive step times, (count,)."""
    size = len(times) // count
    return np.log(np.median(times[-size * count :].reshape(count, size), axis=1))
