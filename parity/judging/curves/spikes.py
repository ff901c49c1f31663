"""Loss spikes and late divergence in the gap series of the window.

masked: |d_t - median| > 8 x 1.4826 MAD, widened by 5 steps on each side, replaced by linear
interpolation. A spike returns: a stretch that reaches the last 2 % of the points (at least 8), or
fills more than 10 % of the window, is a divergence or a level shift, and stays in. A spike is the
candidate's where the gap jumps up, the baseline's where it jumps down. Counts are compared with the
exact binomial P(X >= n_B | n_A + n_B, 1/2). Late divergence: the median gap of the last 10 % of the
window is above 3 margins and above the first half's median by 2 margins.

Can fail: many short excursions that are no spikes; above a masked share of 10 % the pair is
unstable. Never silent: raw gap, masked gap and masked share are all in the verdict.
"""

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import (
    BoolArray,
    FloatArray,
    IntArray,
    median,
    row_medians,
)
from parity.judging.curves.step_noise import MAD_TO_SD
from parity.judging.document_types import RunSpikesDocument

THRESHOLD_SDS, WIDEN_STEPS = 8.0, 5
MAX_MASKED_SHARE = 0.10
SPIKE_SCALE_SAMPLE = 16_384  # values, evenly spread, are enough for a median and a robust scale
# at most so many blocks of a whole run, each of at least so many points
RUN_BLOCKS, RUN_BLOCK_POINTS = 20, 100
ONE_SIDED_ALPHA = 0.01
STEPS_KEPT = 200  # of each arm's spikes over the run
ROUNDING_STEPS = 2.5  # two honest losses that are both rounded differ by 2 of them
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
    gap: FloatArray, level: float, rounding_step: float = 0.0, *, part_of_run: bool = False
) -> Spikes:
    """Find and mask the spikes of a gap series (n,) in nats, at the baseline's `level` and losses
    rounded to `rounding_step`.

    Of a `part_of_run` the end is not the run's, so a stretch that reaches it counts.
    """
    if len(gap) == 0:
        return no_spikes(gap)
    middles, limits = _bands(gap[None], level, rounding_step)
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


def _bands(rows: FloatArray, level: float, rounding_step: float) -> tuple[FloatArray, FloatArray]:
    """The middle of each gap series of (b, n), and how far from it a value is a spike, both
    (b,).
    """
    sample = rows[:, :: 1 + rows.shape[1] // SPIKE_SCALE_SAMPLE]
    middles = row_medians(sample)
    scales = MAD_TO_SD * row_medians(np.abs(sample - middles[:, None]))
    return middles, np.maximum(
        THRESHOLD_SDS * scales, max(NEGLIGIBLE * abs(level), ROUNDING_STEPS * rounding_step)
    )


def spikes_over_run(
    gap: FloatArray, steps: IntArray, level: float, rounding_step: float = 0.0
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
        middles, limits = _bands(rows, level, rounding_step)
        within = (rows.max(axis=1) - middles <= limits) & (middles - rows.min(axis=1) <= limits)
        for block in np.flatnonzero(~within):
            spikes = find_spikes(rows[block], level, rounding_step, part_of_run=True)
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
