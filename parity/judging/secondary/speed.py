"""Is it faster, and does that pay? Comparable conditions, the step-time ratio with its interval,
and the token tax.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.context import DEVICE_CLASS, EMULATED, ENGINE, HOST, values_of
from parity.judging.curves.curve import Curve, FloatArray, IntArray, mean
from parity.judging.curves.step_noise import mad_sd
from parity.judging.document_types import EstimateDocument, ThroughputDocument
from parity.judging.gap.interval import TokenSlope, t_quantile
from parity.structure import frozen

# Did two arms train under the same conditions, so that their step times can be compared? Else one
# clear reason.
#
# Compared are only runs of one recorded device class, under an engine whose times mean something,
# with equal tokens per step, that trained at the same time: the arms' spans of wall-clock time
# overlap for at least half of the shorter one. Two spans are compared as they are where an arm has
# one run; where both arms have two or more, from the first start to the last end, so that runs in
# turns count, because then the spread between runs holds what changed from one to the next. For the
# same reason single runs must have trained on one machine.
#
# `unix_seconds` (T,) is when each step ended, Unix time; a server derives it from the attempts, a
# file has it as a column.

UNIX_SECONDS = "unix_seconds"
TOKENS = "tokens"
MIN_OVERLAP = 0.5
SAME_TOKENS = 1e-3

Span = tuple[float, float]


@frozen
class NotComparable:
    """Why the step times of two arms say nothing about their recipes: part of a sentence, without a
    full stop.
    """

    reason: str


def common_conditions(
    baseline: Sequence[Curve], candidate: Sequence[Curve]
) -> Span | NotComparable:
    """The time (Unix seconds) whose steps can be compared, all of it where both arms have several
    runs; or why none can be.
    """
    runs = (*baseline, *candidate)
    if reason := _other_machine(
        runs, several=min(len(baseline), len(candidate)) > 1
    ) or _other_work(baseline[0], candidate[0]):
        return NotComparable(reason=reason)
    spans = [_span(run) for run in runs]
    known = [span for span in spans if span is not None]
    if len(known) < len(runs):
        return NotComparable(reason="when the runs trained is not recorded")
    base, cand = _hull(known[: len(baseline)]), _hull(known[len(baseline) :])
    begin, end = max(base[0], cand[0]), min(base[1], cand[1])
    shorter = min(base[1] - base[0], cand[1] - cand[0])
    if end - begin < MIN_OVERLAP * shorter or end <= begin:
        return NotComparable(
            reason="the arms trained at different times, so the load of the machine may have "
            "changed"
        )
    if min(len(baseline), len(candidate)) > 1:
        return -np.inf, np.inf
    return begin, end


def _other_machine(runs: Sequence[Curve], *, several: bool) -> str | None:
    contexts = [run.context for run in runs]
    if EMULATED in values_of(contexts, ENGINE):
        return "engine emulated computes the codes of a format, not its speed"
    if not all(context.get(DEVICE_CLASS) for context in contexts):
        return "the device class of the runs is not recorded"
    classes = values_of(contexts, DEVICE_CLASS)
    if len(classes) > 1:
        return f"the runs trained on different device classes ({', '.join(sorted(classes))})"
    hosts = values_of(contexts, HOST)
    if len(hosts) > 1 and not several:
        return (
            f"the runs trained on different machines ({', '.join(sorted(hosts))}), with only one "
            "run of an arm"
        )
    return None


def _other_work(baseline: Curve, candidate: Curve) -> str | None:
    """Whether the arms processed other numbers of tokens, where both recorded them."""
    if not (TOKENS in baseline.columns and TOKENS in candidate.columns):
        return None
    _, left, right = np.intersect1d(
        baseline.steps, candidate.steps, assume_unique=True, return_indices=True
    )
    ours, theirs = baseline.columns[TOKENS][left], candidate.columns[TOKENS][right]
    both = np.isfinite(ours) & np.isfinite(theirs)
    if not both.any() or abs(ours[both][-1] - theirs[both][-1]) <= SAME_TOKENS * abs(
        ours[both][-1]
    ):
        return None
    return (
        f"the arms processed different numbers of tokens ({ours[both][-1]:,.0f} and "
        f"{theirs[both][-1]:,.0f} at the same step)"
    )


def _span(run: Curve) -> Span | None:
    at = run.columns.get(UNIX_SECONDS, np.empty(0))
    at = at[np.isfinite(at)]
    if len(at) > 1:
        return float(at.min()), float(at.max())
    return None


def _hull(spans: Sequence[Span]) -> Span:
    return min(begin for begin, _ in spans), max(end for _, end in spans)


# How many more tokens does the candidate need for the baseline's loss? The token tax, from a power
# law fitted to the baseline.
#
# f(t) = E + A t^-p, least squares with Huber weights on log-spaced bins tax = s - 1 for the s with
# mean over the window of f(t/s) - f(t) = gap: s^p = 1 + gap / (A mean of t^-p)
#
# Can fail: only at a constant learning rate is this the number of extra tokens needed; under a
# decaying schedule it is an equal-loss shift under this schedule. The linear shortcut gap /
# (-dL/dln t) reads 33 % where the truth is 36 %. Checked on synthetic laws only (A11). Source:
# neural scaling laws (Kaplan et al. 2020; Hoffmann et al. 2022) for the form.

BINS, TAX_SKIPPED_SHARE = 100, 0.02
LOG_POWERS = (math.log(0.02), math.log(3.0))
HUBER, REWEIGHTINGS = 2.0, 3
MAX_SHIFT = 32.0
MIN_POINTS, MAX_WINDOW_POINTS = 100, 1000
CAVEAT_CONSTANT = "extra tokens needed at this learning rate"
CAVEAT_SCHEDULE = (
    "equal-loss shift; the learning rate changes, so do not read it as extra tokens needed"
)
CAVEAT_UNKNOWN = (
    "equal-loss shift; extra tokens needed only if the learning rate, which was not recorded, is "
    "constant"
)


@frozen
class PowerLaw:
    """L(t) = floor + scale t^-power in nats, t in steps from 1."""

    floor: float
    scale: float
    power: float

    def at(self, t: FloatArray) -> FloatArray:
        """The law's loss at times (n,)."""
        return self.floor + self.scale * t**-self.power


@frozen
class TokenTax:
    """Extra tokens as a share (0.36 = 36 % more), with the ends that the gap's interval gives; inf
    where no shift reaches the loss.
    """

    estimate: float
    lo: float
    hi: float
    caveat: str


def fit_law(steps: IntArray, loss: FloatArray) -> PowerLaw | None:
    """Fit the law to the baseline's mean curve, (n,) steps and losses; None for fewer than 100
    points or no decline.
    """
    if len(steps) < MIN_POINTS:
        return None
    t, level, n = _log_bins(steps - steps[0] + 1, loss)
    if len(t) < 5 or level[0] <= level[-1]:
        return None
    weight = n
    law = PowerLaw(floor=0.0, scale=0.0, power=1.0)
    for _ in range(REWEIGHTINGS):
        law = _least_squares(t, level, weight)
        residual = (level - law.at(t)) * np.sqrt(n)
        limit = HUBER * max(mad_sd(residual), 1e-12)
        weight = n * np.minimum(1.0, limit / np.maximum(np.abs(residual), 1e-300))
    return law if law.scale > 0.0 else None


def _least_squares(t: FloatArray, loss: FloatArray, weight: FloatArray) -> PowerLaw:
    """The best floor and scale for each power are linear; the power is found by bounded search."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    share = weight / weight.sum()
    mean_loss = float(share @ loss)
    y = loss - mean_loss

    def linear(log_power: float) -> tuple[float, float, float]:
        u = t ** -math.exp(log_power)
        mean_u = float(share @ u)
        u -= mean_u
        slope = float(share @ (u * y) / (share @ u**2))
        return mean_loss - slope * mean_u, slope, float(share @ (y - slope * u) ** 2)

    minimum = minimize_scalar(
        lambda x: linear(x)[2], bounds=LOG_POWERS, method="bounded", options={"xatol": 1e-6}
    )
    floor, scale, _ = linear(float(minimum.x))
    return PowerLaw(floor=floor, scale=scale, power=math.exp(minimum.x))


def token_tax(
    law: PowerLaw,
    window: IntArray,
    first_step: int,
    gap: float,
    lo: float,
    hi: float,
    *,
    constant_rate: bool | None,
) -> TokenTax:
    """The tax for a window's mean gap and its interval's ends (nats); `window` are its steps,
    counted from `first_step`.

    `constant_rate` is None where the learning rate was not recorded.
    """
    stride = 1 + len(window) // MAX_WINDOW_POINTS  # a smooth law needs few points
    t = (window[stride // 2 :: stride] - first_step + 1).astype(np.float64)
    above = law.scale * mean(t**-law.power)
    ends = [_shift(law.power, above, value) - 1.0 for value in (gap, lo, hi)]
    caveat = {True: CAVEAT_CONSTANT, False: CAVEAT_SCHEDULE, None: CAVEAT_UNKNOWN}[constant_rate]
    return TokenTax(estimate=ends[0], lo=ends[1], hi=ends[2], caveat=caveat)


def tax_of_slope(slope: TokenSlope, gap: float, lo: float, hi: float) -> TokenTax:
    """The tax for a mean gap and its interval's ends (nats) by the slope of finished runs, whose
    schedules were as long as the runs.
    """
    ends = [slope.tokens(value) for value in (gap, lo, hi)]
    return TokenTax(
        estimate=ends[0],
        lo=ends[1],
        hi=ends[2],
        caveat=f"extra tokens needed, by {slope.nats:.3g} nats per e-fold: {slope.basis}",
    )


def _shift(power: float, above: float, gap: float) -> float:
    """The s with mean(f(t/s)) - mean(f(t)) = gap, from 1/32 to 32; inf or 0 beyond. `above` is the
    mean of f(t) - E.
    """
    if above * (MAX_SHIFT**power - 1.0) <= gap:
        return math.inf
    if above * (MAX_SHIFT**-power - 1.0) >= gap:
        return 0.0
    return math.exp(math.log1p(gap / above) / power)


def _log_bins(t: IntArray, loss: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Geometric-middle time, mean loss and number of points of the non-empty log-spaced bins after
    the start.
    """
    # the first steps, warm-up among them, follow no power law
    first = int(np.searchsorted(t, TAX_SKIPPED_SHARE * t[-1], side="right"))
    late, values = t[first:], loss[first:]
    starts = np.unique(np.searchsorted(late, np.geomspace(late[0], late[-1] + 1, BINS + 1)[:-1]))
    ends = np.append(starts[1:], len(late))
    n = (ends - starts).astype(np.float64)
    return (
        np.sqrt(late[starts].astype(np.float64) * late[ends - 1]),
        np.add.reduceat(values, starts) / n,
        n,
    )


# Is it faster, and does that pay? Step-time ratio with its interval, and the net time-to-loss
# speed-up after the token tax.
#
# ratio = median step seconds of the baseline / of the candidate (> 1: candidate faster), at equal
# tokens a step
# ln ratio: its variance is the spread of the runs' log medians where both arms have 2 or more runs,
# else of the medians of 20 blocks of
#           consecutive steps of each run; plus, for each arm, twice the variance of the medians of
#           a run's quarters (3 degrees of
#   freedom):
#           the machine's own drift, which moves the mean of a random walk by 2.0 times what its
#           quarters show
# net = ratio / (1 + tax); ln net has the variance of both, so a format 1.4 x as fast that needs 36
# % more tokens is worth 1.03 x
#
# The ratio is given only where the arms trained under the same conditions (`conditions`); of single
# runs only steps of their common time count. Start-up and compilation (the first tenth) are left
# out. Can fail: another job that slows one arm's device alone, all the time; a device clock that
# depends on the device's place in a rack.

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
    parts = [_variance(own, arm) for own, arm in zip(logs, seconds, strict=True)] + [
        _drift(arm) for arm in seconds
    ]
    variance = sum(part for part, _ in parts)
    df = variance**2 / sum(part**2 / part_df for part, part_df in parts) if variance > 0.0 else 1.0
    half = t_quantile(confidence, df) * math.sqrt(variance)
    base, cand = (float(own.mean()) for own in logs)
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
