"""The late window, registered before the run starts, the vetoes that say a curve is not ready, the
noise inside one run, and its spikes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import (
    BoolArray,
    Curve,
    FloatArray,
    IntArray,
    between,
    dot,
    dots,
    mean,
    median,
    row_means,
    row_medians,
)
from parity.judging.document_types import RunSpikesDocument
from parity.structure import frozen
from parity.wording import percent

# The noises inside one pair of runs: batch noise of one arm, and the standard error of the mean gap
# in the window.
#
# sigma_step = 1.4826 MAD(x_t - 2 x_{t+1} + x_{t+2}) / sqrt(6)                 batch noise of one
#   run, free of trend
# SE_within  = error of the mean of the gap series d_t, which averaging over the window leaves
#   to 100 points   that of an AR(1) process whose lag-1 correlation is taken a standard error too
#                   high:
#                   rho = clip(r1 + (1 + 3 r1)/n, 0, 0.97), u = min(rho + sqrt((1 - rho^2)/n), 0.97)
#                   f = 1 + 2 sum_{k<n} (1 - k/n) u^k, SE^2 = var(d) / max(1 - f/n, 0.05) f/n
#                   with max(2, n (1 - u)/(1 + u) - 1) degrees of freedom
#   from 200 on     max(EWC, NW); in between, both variances and 1/df are mixed by (n - 100)/100, so
#                   that no single point changes the rule
#   EWC: L_j = orthonormal DCT-II of d, Omega = mean of L_j^2 over j = 1..B, SE = sqrt(Omega / n), B
#   degrees of freedom
#   NW:  AR(1) prewhitening, Bartlett kernel with Andrews' bandwidth, recoloured by 1 / (1 - rho)^2
#
# Coverage of few points (benchmarks/calibration.py P1): 93 % and more from 12 points on to a
# correlation of 0.8, from 20 points on to 0.9. Can fail: long memory. A run's constant offset is
# invisible to any of these: that is the run-to-run noise's business (`run_floor`). Sources:
# Lazarus, Lewis, Stock, Watson 2018 (EWC); Andrews and Monahan 1992 (prewhitening); Andrews 1991
# (bandwidth).

MAD_TO_SD = 1.482602218505602
MAX_PREWHITENING_RHO = 0.97
# up to the first the AR(1) error alone, from the second on EWC and Newey-West alone
FEW_POINTS, MANY_POINTS = 100, 200
# of the AR(1) error; they bound what a few points can say of their own correlation
MAX_RHO, LEAST_FREE, LEAST_DF = 0.97, 0.05, 2.0
BLOCKS = 32_768
SCALE_SAMPLE = 65_536  # values, evenly spread, are enough for a robust scale


@frozen
class StandardError:
    """Standard error of a series' mean (its own unit) and the degrees of freedom it is known
    with.
    """

    value: float
    df: float


def mad_sd(values: FloatArray) -> float:
    """Robust standard deviation of (n,) values: 1.4826 x the median absolute deviation; 0.0 for
    fewer than 2.
    """
    if len(values) > 1:
        return MAD_TO_SD * median(np.abs(values - median(values)))
    return 0.0


def mad_sds(values: FloatArray) -> FloatArray:
    """(b,): `mad_sd` of each row of (b, n) values, n > 1."""
    deviations: FloatArray = np.median(
        np.abs(values - np.median(values, axis=-1, keepdims=True)), axis=-1
    )
    return MAD_TO_SD * deviations


def second_differences(series: FloatArray) -> FloatArray:
    """x_t - 2 x_{t+1} + x_{t+2} of (..., n) values, (..., n - 2)."""
    return series[..., :-2] - 2.0 * series[..., 1:-1] + series[..., 2:]


def step_noise(series: FloatArray) -> float:
    """sigma_step of one run's losses (n,) in nats; 0.0 for fewer than 4 points."""
    if len(series) < 4:
        return 0.0
    stride = 1 + len(series) // SCALE_SAMPLE
    return mad_sd(second_differences(series)[::stride]) / math.sqrt(6.0)


def lag1(series: FloatArray) -> float:
    """Lag-1 autocorrelation of the demeaned series (n,); 0.0 for a constant one."""
    centred = series - mean(series) if len(series) else series
    power = dot(centred, centred)
    if power > 0.0:
        return dot(centred[1:], centred[:-1]) / power
    return 0.0


def _lag1s(centred: FloatArray) -> FloatArray:
    """(b,): `lag1` of each row of (b, n) demeaned values."""
    power = dots(centred, centred)
    return np.divide(
        dots(centred[:, 1:], centred[:, :-1]), power, out=np.zeros_like(power), where=power > 0.0
    )


def mean_se(series: FloatArray) -> StandardError:
    """SE_within of the mean of (n,) values; zero for a constant, the values' own spread for fewer
    than 4.
    """
    if len(series) < 4:
        return StandardError(value=float(np.std(series)) if len(series) else 0.0, df=1.0)
    values, df = mean_ses(block_average(series)[None])
    return StandardError(value=float(values[0]), df=float(df[0]))


def mean_ses(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """SE_within (b,) of the means of (b, n) values, n > 3, and its degrees of freedom (b,)."""
    n = rows.shape[1]
    centred = rows - row_means(rows)[:, None]
    weight = min(max((n - FEW_POINTS) / (MANY_POINTS - FEW_POINTS), 0.0), 1.0)
    variances, inverse_df = np.zeros(len(rows)), np.zeros(len(rows))
    for share, estimate in ((1.0 - weight, _ar1), (weight, _long_run)):
        if share > 0.0:
            own, df = estimate(centred)
            variances, inverse_df = variances + share * own, inverse_df + share / df
    return np.sqrt(variances), 1.0 / inverse_df


def _ar1(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variance (b,) of the means of few demeaned values (b, n), as AR(1) processes with a
    correlation on the safe side; and its df (b,).
    """
    n = centred.shape[1]
    lag = _lag1s(centred)
    rho = np.clip(lag + (1.0 + 3.0 * lag) / n, 0.0, MAX_RHO)
    u = np.minimum(rho + np.sqrt((1.0 - rho**2) / n), MAX_RHO)
    f = 1.0 + 2.0 * u * (n * (1.0 - u) - (1.0 - u**n)) / (n * (1.0 - u) ** 2)
    variance = dots(centred, centred) / n / np.maximum(1.0 - f / n, LEAST_FREE) * f / n
    return variance, np.maximum(LEAST_DF, n * (1.0 - u) / (1.0 + u) - 1.0)


def _long_run(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same by the larger of EWC and prewhitened Newey-West."""
    variance, df = _ewc(centred)
    return np.maximum(variance, newey_west_prewhitened(centred)) / centred.shape[1], np.full(
        len(centred), float(df)
    )


def block_average(series: FloatArray, blocks: int = BLOCKS) -> FloatArray:
    """Means of about this number of equal blocks, less the first points, which fill none; a series
    of up to twice as many points itself.
    """
    n = len(series)
    if n <= 2 * blocks:
        return series
    size = n // blocks
    means: FloatArray = series[n % size :].reshape(-1, size).mean(axis=1)
    return means


def _ewc(centred: FloatArray) -> tuple[FloatArray, int]:
    """Long-run variances (b,) of (b, n) demeaned values from the lowest B cosine coefficients, and
    B.
    """
    count = min(math.floor(0.4 * centred.shape[1] ** (2 / 3)), 12)
    coefficients = special.dct(centred, type=2, norm="ortho")[:, 1 : count + 1]
    return dots(coefficients, coefficients) / count, count


def newey_west_prewhitened(centred: FloatArray) -> FloatArray:
    """Long-run variances (b,) of demeaned series (b, n): AR(1) prewhitening, Bartlett kernel,
    Andrews' bandwidth, recoloured.
    """
    n = centred.shape[1]
    rho = _lag1s(centred)
    # + small-sample bias of the estimate
    rho = np.clip(rho + (1.0 + 3.0 * rho) / n, -MAX_PREWHITENING_RHO, MAX_PREWHITENING_RHO)
    white = centred[:, 1:] - rho[:, None] * centred[:, :-1]
    left = np.clip(
        _lag1s(white - row_means(white)[:, None]), -MAX_PREWHITENING_RHO, MAX_PREWHITENING_RHO
    )
    alpha = 4.0 * left**2 / ((1.0 - left) ** 2 * (1.0 + left) ** 2)
    lags = np.minimum(np.floor(1.1447 * (alpha * n) ** (1 / 3)), white.shape[1] - 1)
    variance = dots(white, white) / n
    for lag in range(1, int(lags.max()) + 1):
        some = np.flatnonzero(lags >= lag)
        weights = 2.0 * (1.0 - lag / (lags[some] + 1.0)) / n
        rows = white if len(some) == len(white) else white[some]
        variance[some] += weights * dots(rows[:, lag:], rows[:, :-lag])
    found: FloatArray = np.maximum(variance, 0.0) / (1.0 - rho) ** 2
    return found


# The late window, registered before the run starts, and the vetoes that say a curve is not ready to
# be judged.
#
# window: the last 20 % of the planned steps, never searched for; of a schedule that starts to decay
# inside it, the decay phase. C2 drift g: least-squares change of the gap over the window, SE(g)
# from the long-run variance of u_t e_t
#
# Flatness can't prove convergence (power laws never flatten; no threshold separates finished runs
# from runs cut short), so the window comes from the plan, and whether a run was finished from its
# learning rate (`schedule.state`). Source: docs/method.md.

PlanSource = Literal["declared", "assumed complete", "unknown"]

COMPLETE_SHARE = 0.95
MISSING_SHARE = 0.005  # of the plan, or one logging interval: an end that is as good as reached
LEARNING_RATE, CONSTANT_RATE_TOLERANCE, MIN_CONSTANT_SHARE = "learning_rate", 1e-3, 0.05
SENSITIVITY_FRACTIONS = (0.10, 0.20, 0.30, 0.50)


@frozen
class Window:
    """First and last step of the window (inclusive), from `planned_steps` counted from `origin` (0
    or 1).

    `decay_from` is set where the learning rate began to decay inside the window: only the decay
    phase is judged then. Where a run ended before its plan, `unreached` says so, and the window is
    that of the steps that every run reached.
    """

    first: int
    last: int
    fraction: float
    origin: int
    planned_steps: int
    plan: PlanSource
    decay_from: int | None = None
    unreached: str = ""

    @property
    def rule(self) -> str:
        """The rule in words."""
        decay = (
            f", its decay phase from step {self.decay_from}" if self.decay_from is not None else ""
        )
        reached = self.last - self.origin + 1
        if self.unreached:
            steps = f"{reached} steps (of {self.planned_steps}, {self.plan})"
        else:
            steps = f"{self.planned_steps} steps ({self.plan})"
        return f"last {100 * self.fraction:g} % of {steps}{decay}"

    def part(self, steps: IntArray) -> slice:
        """The window's part of sorted steps (n,)."""
        return between(steps, self.first, self.last)

    @property
    def at_plan(self) -> "Window":
        """The window at the end of the plan, whether or not it was reached."""
        return make_window(self.planned_steps, self.origin, self.fraction, self.plan)

    def at(self, fraction: float) -> "Window":
        """The window of another fraction of the same plan."""
        points = max(1, round(fraction * (self.last - self.origin + 1)))
        return dataclasses.replace(
            self, first=self.last - points + 1, fraction=fraction, decay_from=None
        )


def make_window(
    planned_steps: int,
    origin: int,
    fraction: float,
    plan: PlanSource,
    last: int | None = None,
    unreached: str = "",
) -> Window:
    """The last `fraction` of `planned_steps` steps that are numbered from `origin`, or of those up
    to the step `last`.
    """
    last = origin + planned_steps - 1 if last is None else last
    points = max(1, round(fraction * (last - origin + 1)))
    return Window(
        first=last - points + 1,
        last=last,
        fraction=fraction,
        origin=origin,
        planned_steps=planned_steps,
        plan=plan,
        unreached=unreached,
    )


def plan_window(
    runs: Sequence[Curve], planned_steps: int | None, assume_complete: bool, fraction: float
) -> Window:
    """The window of a comparison: the end of the plan, or of what every run reached of it.

    Without a plan the longest run counts as one, and is marked `unknown` unless it is assumed to be
    complete.
    """
    spans = [(int(run.steps[0]), int(run.steps[-1])) for run in runs if len(run.steps)]
    origin = min(1, min((first for first, _ in spans), default=0))
    plan: PlanSource = "declared"
    if planned_steps is None:
        plan = "assumed complete" if assume_complete else "unknown"
        planned_steps = max(max((last for _, last in spans), default=0) - origin + 1, 1)
    end = origin + planned_steps - 1
    shortest = min((last for _, last in spans), default=end)
    stride = max((run.completeness.stride or 1 for run in runs), default=1)
    if end - shortest <= max(stride, MISSING_SHARE * planned_steps):
        return make_window(planned_steps, origin, fraction, plan)
    share = max(shortest - origin + 1, 0) / planned_steps
    words = f"a run stops at step {shortest:,} of {planned_steps:,} ({percent(share)} of the plan)"
    return make_window(planned_steps, origin, fraction, plan, max(shortest, origin), words)


def decay_phase(window: Window, run: Curve, min_points: int) -> Window:
    """The window without its constant-rate part, where the run's learning rate starts to decay
    inside it (warm-up, stable, decay).

    Nothing changes without a `learning_rate` column, where the rate falls from the window's start
    on (cosine), or where the decay phase has fewer than `min_points` points.
    """
    part = window.part(run.steps)
    rate = run.columns.get(LEARNING_RATE, np.empty(0))[part]
    if len(rate) == 0 or not np.isfinite(rate).all() or rate[0] <= 0.0:
        return window
    falling = rate < (1.0 - CONSTANT_RATE_TOLERANCE) * rate[0]
    start = int(np.argmax(falling))
    if (
        not falling.any()
        or start < MIN_CONSTANT_SHARE * len(rate)
        or len(rate) - start < min_points
    ):
        return window
    first = int(run.steps[part][start])
    return dataclasses.replace(window, first=first, decay_from=first)


def planned_share(runs: Sequence[Curve], window: Window) -> float:
    """Share of the plan that the shortest run has reached."""
    last = min(int(run.steps[-1]) if len(run.steps) else window.origin - 1 for run in runs)
    return (last - window.origin + 1) / window.planned_steps


def ols_change(series: FloatArray, steps: IntArray) -> float:
    """Least-squares change of (n,) values from the first to the last of (n,) steps."""
    u = _unit_steps(steps)
    power = dot(u, u)
    if power > 0.0:
        return dot(u, series - mean(series)) / power
    return 0.0


def detrended(series: FloatArray, steps: IntArray) -> FloatArray:
    """The (n,) values at (n,) steps without their least-squares trend; their mean stays."""
    return series - _unit_steps(steps) * ols_change(series, steps)


def drift(gap: FloatArray, steps: IntArray) -> tuple[float, float]:
    """C2: change g of the gap (n,) over the window and its standard error, both in nats."""
    u = _unit_steps(steps)
    power = dot(u, u)
    if len(gap) < 8 or power == 0.0:
        return 0.0, 0.0
    centred = gap - mean(gap)
    change = dot(u, centred) / power
    score = mean_se(u * (centred - change * u))
    return change, score.value * len(gap) / power


def _unit_steps(steps: IntArray) -> FloatArray:
    """Steps as positions from -0.5 to 0.5, demeaned."""
    span = float(steps[-1] - steps[0]) if len(steps) > 1 else 0.0
    if span == 0.0:
        return np.zeros(len(steps))
    u = (steps - steps[0]) / span
    centred: FloatArray = u - mean(u)
    return centred


# Loss spikes and late divergence in the gap series of the window.
#
# masked: |d_t - median| > 8 x 1.4826 MAD, widened by 5 steps on each side, replaced by linear
# interpolation. A spike returns: a stretch that reaches the last 2 % of the points (at least 8), or
# fills more than 10 % of the window, is a divergence or a level shift, and stays in. A spike is the
# candidate's where the gap jumps up, the baseline's where it jumps down. Counts are compared with
# the exact binomial P(X >= n_B | n_A + n_B, 1/2). Late divergence: the median gap of the last 10 %
# of the window is above 3 margins and above the first half's median by 2 margins.
#
# Can fail: many short excursions that are no spikes; above a masked share of 10 % the pair is
# unstable. Never silent: raw gap, masked gap and masked share are all in the verdict.

THRESHOLD_SDS, WIDEN_STEPS = 8.0, 5
MAX_MASKED_SHARE = 0.10
SPIKE_SCALE_SAMPLE = 16_384  # values, evenly spread, are enough for a median and a robust scale
# at most so many blocks of a whole run, each of at least so many points
RUN_BLOCKS, RUN_BLOCK_POINTS = 20, 100
ONE_SIDED_ALPHA = 0.01
STEPS_KEPT = 200  # of each arm's spikes over the run
QUANTA = 2.5  # rounding steps; two honest losses that are both rounded differ by 2 of them
END_POINTS, END_SHARE = 8, 0.02  # what has not returned before these has not been seen to return
NEGLIGIBLE = 1e-6  # of the loss; gaps of equal or rounded curves can have a MAD of 0


@frozen(eq=False)
class Spikes:
    """Indices of the tops of each arm's spikes, the mask (n,), and the gap (n,) without them."""

    baseline_at: IntArray
    candidate_at: IntArray
    mask: BoolArray
    masked_gap: FloatArray

    @property
    def baseline(self) -> int:
        """How many spikes the baseline has."""
        return len(self.baseline_at)

    @property
    def candidate(self) -> int:
        """How many spikes the candidate has."""
        return len(self.candidate_at)

    @property
    def p_candidate_more(self) -> float:
        """One-sided p that the candidate has more by chance."""
        return binomial_upper(self.candidate, self.baseline + self.candidate)

    @property
    def masked_share(self) -> float:
        """Share of the window's points that are masked."""
        if not len(self.mask):
            return 0.0
        return np.count_nonzero(self.mask) / len(self.mask)

    @property
    def candidate_alone(self) -> bool:
        """Whether the candidate has significantly more spikes than the baseline."""
        return self.p_candidate_more < ONE_SIDED_ALPHA


def find_spikes(
    gap: FloatArray, level: float, quantum: float = 0.0, *, part_of_run: bool = False
) -> Spikes:
    """Find and mask the spikes of a gap series (n,) in nats, at the baseline's `level` and losses
    rounded to `quantum`.

    Of a `part_of_run` the end is not the run's, so a stretch that reaches it counts.
    """
    if len(gap) == 0:
        return no_spikes(gap)
    middles, limits = _bands(gap[None], level, quantum)
    middle, limit = float(middles[0]), float(limits[0])
    if gap.max() - middle <= limit and middle - gap.min() <= limit:
        return no_spikes(gap)
    offset = gap - middle
    size = np.abs(offset)
    mask = widen(size > limit, WIDEN_STEPS)
    end = len(gap) - max(END_POINTS, int(END_SHARE * len(gap)))
    spikes = []
    for a, b in zip(*stretches(mask), strict=True):
        if not part_of_run and (b - a > MAX_MASKED_SHARE * len(gap) or b - WIDEN_STEPS >= end):
            mask[a:b] = False
        else:
            spikes.append((a, b))
    tops = np.array([a + np.argmax(size[a:b]) for a, b in spikes], dtype=np.int64)
    up = offset[tops] > 0
    return Spikes(
        baseline_at=tops[~up], candidate_at=tops[up], mask=mask, masked_gap=interpolate(gap, mask)
    )


def _bands(rows: FloatArray, level: float, quantum: float) -> tuple[FloatArray, FloatArray]:
    """The middle of each gap series of (b, n), and how far from it a value is a spike, both
    (b,).
    """
    sample = rows[:, :: 1 + rows.shape[1] // SPIKE_SCALE_SAMPLE]
    middles = row_medians(sample)
    scales = MAD_TO_SD * row_medians(np.abs(sample - middles[:, None]))
    return middles, np.maximum(
        THRESHOLD_SDS * scales, max(NEGLIGIBLE * abs(level), QUANTA * quantum)
    )


def spikes_over_run(
    gap: FloatArray, steps: IntArray, level: float, quantum: float = 0.0
) -> RunSpikesDocument | None:
    """Count the spikes of a whole run's gap series (n,) at (n,) steps, block by block because its
    scale falls; None below 200 points.
    """
    blocks = min(RUN_BLOCKS, len(gap) // RUN_BLOCK_POINTS)
    if blocks < 2:
        return None
    baseline: list[int] = []
    candidate: list[int] = []
    # the first blocks have a point more, as numpy.array_split makes them
    size, longer = divmod(len(gap), blocks)
    cut = longer * (size + 1)
    for part, points in ((slice(0, cut), size + 1), (slice(cut, None), size)):
        rows, at = gap[part].reshape(-1, points), steps[part].reshape(-1, points)
        middles, limits = _bands(rows, level, quantum)
        within = (rows.max(axis=1) - middles <= limits) & (middles - rows.min(axis=1) <= limits)
        for block in np.flatnonzero(~within):
            spikes = find_spikes(rows[block], level, quantum, part_of_run=True)
            baseline += at[block][spikes.baseline_at].tolist()
            candidate += at[block][spikes.candidate_at].tolist()
    return RunSpikesDocument(
        baseline=len(baseline),
        candidate=len(candidate),
        p_candidate_more=binomial_upper(len(candidate), len(baseline) + len(candidate)),
        blocks=blocks,
        steps=[baseline[:STEPS_KEPT], candidate[:STEPS_KEPT]],
    )


def no_spikes(gap: FloatArray) -> Spikes:
    """A gap series (n,) in which nothing is masked."""
    mask = np.zeros(len(gap), dtype=bool)
    none = np.empty(0, dtype=np.int64)
    return Spikes(baseline_at=none, candidate_at=none, mask=mask, masked_gap=gap)


def widen(mask: BoolArray, by: int) -> BoolArray:
    """The mask (n,) with every true stretch longer by `by` points on both sides."""
    kernel = np.ones(2 * by + 1)
    return np.convolve(mask.astype(np.float64), kernel, mode="full")[by : by + len(mask)] > 0.5


def stretches(mask: BoolArray) -> tuple[np.ndarray, np.ndarray]:
    """Start and end (exclusive) of every stretch of true values."""
    edges = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)


def interpolate(series: FloatArray, mask: BoolArray) -> FloatArray:
    """The series with masked points replaced linearly; the nearest kept value at the ends;
    unchanged where all or nothing is masked.
    """
    if mask.all() or not mask.any():
        return series
    index = np.arange(len(series))
    filled = series.copy()
    filled[mask] = np.interp(index[mask], index[~mask], series[~mask])
    return filled


def binomial_upper(count: int, total: int) -> float:
    """P(X >= count) for X ~ Binomial(total, 1/2)."""
    if count <= 0:
        return 1.0
    return float(special.bdtrc(float(count - 1), total, 0.5))


def diverged_late(gap: FloatArray, margin: float) -> bool:
    """Whether the gap series (n,) ends far above the margin and far above its own first half."""
    if len(gap) < 20:
        return False
    end = median(gap[-(len(gap) // 10) :])
    first_half = median(gap[: len(gap) // 2])
    return end > 3.0 * margin and end > first_half + 2.0 * margin
