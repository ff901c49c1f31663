"""Do two arms read the same data in the same order? r_pair: correlation of their second differences over the last half.

c_t = x_t - 2 x_{t+1} + x_{t+2}; r_pair = corr(c_baseline, c_candidate), each clipped at 6 robust standard deviations; the smallest over
the last half and its blocks of 200 points or more, because other data over the last steps alone would hide in the whole.

The same batches give both arms the same noise: 0.95 to 0.999 on real pairs with one data order, -0.04 to 0.10 with two. Clipping keeps
a loss spike in one arm from hiding the agreement of all other steps. Can fail: r = b^2 / (b^2 + e^2) falls with the batch noise b, so
at multi-million-token batches a correct pair can have 0.3; equal data digests then turn the refusal into a warning.
"""

import numpy as np

from parity.judging.curve import FloatArray
from parity.judging.noise import dot, mad_sd, second_differences

OTHER_ORDER, SAME_ORDER, SURELY_SAME_ORDER = 0.15, 0.5, 0.9  # other batches give -0.04 to 0.10
CLIP_SDS, BLOCK_CLIP_SDS = 6.0, 1.5  # in a short block a handful of spikes must not outweigh the rest
BLOCKS, BLOCK_POINTS, MIN_POINTS = 20, 200, 6
SCALE_SAMPLE, BLOCK_SAMPLE = 16_384, 4_096  # values are enough for a robust scale
NOISELESS = 1e-7  # of the loss's size: below the spacing of float32 there is no batch noise to correlate


def pair_correlation(baseline: FloatArray, candidate: FloatArray) -> float | None:
    """r_pair of two runs' losses (n,) on common steps, over their last half; None where neither arm has any noise to compare."""
    a, b, least = _late_noise(baseline, candidate)
    return _correlation(a, b, least, CLIP_SDS, SCALE_SAMPLE)


def worst_correlation(baseline_KT: FloatArray, candidate_KT: FloatArray, pairs: list[tuple[int, int]]) -> float | None:
    """The smallest r_pair over (baseline row, candidate row) pairs, of the last half and of its blocks; None where no pair has noise."""
    correlations: list[float | None] = []
    for i, j in pairs:
        a, b, least = _late_noise(baseline_KT[i], candidate_KT[j])
        correlations.append(_correlation(a, b, least, CLIP_SDS, SCALE_SAMPLE))
        count = min(BLOCKS, len(a) // BLOCK_POINTS)
        if count >= 2:
            blocks = zip(np.array_split(a, count), np.array_split(b, count), strict=True)
            correlations += [_correlation(left, right, least, BLOCK_CLIP_SDS, BLOCK_SAMPLE) for left, right in blocks]
    return min((value for value in correlations if value is not None), default=None)


def _late_noise(baseline: FloatArray, candidate: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Second differences (m,) of both runs' last half, and the size in nats up to which they are rounding."""
    half = len(baseline) // 2
    left, right = baseline[half:], candidate[half:]
    least = 8 * NOISELESS * max(_size(left), _size(right)) if len(left) else 0.0
    return second_differences(left), second_differences(right), least


def _correlation(a: FloatArray, b: FloatArray, least: float, clip_sds: float, sample: int) -> float | None:
    if len(a) < MIN_POINTS or (_size(a) <= least and _size(b) <= least):
        return None
    a, b = _clipped(a, clip_sds, sample), _clipped(b, clip_sds, sample)
    power = dot(a, a) * dot(b, b)
    return dot(a, b) / power**0.5 if power > 0.0 else 0.0


def _size(values: FloatArray) -> float:
    return max(float(values.max()), -float(values.min()))


def _clipped(values: FloatArray, clip_sds: float, sample: int) -> FloatArray:
    limit = clip_sds * mad_sd(values[:: 1 + len(values) // sample])
    clipped = np.clip(values, -limit, limit) if limit > 0.0 else values
    centred: FloatArray = clipped - clipped.mean()
    return centred
