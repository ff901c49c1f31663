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
BLOCKS, BLOCK_POINTS = 20, 200
SCALE_SAMPLE = 65_536  # values are enough for a robust scale
NOISELESS = 1e-7  # of the loss's size: below the spacing of float32 there is no batch noise to correlate


def pair_correlation(baseline: FloatArray, candidate: FloatArray) -> float | None:
    """r_pair of two runs' losses (n,) on common steps, over their last half; None where neither arm has any noise to compare."""
    half = len(baseline) // 2
    return _correlation(baseline[half:], candidate[half:])


def _correlation(left: FloatArray, right: FloatArray, clip_sds: float = CLIP_SDS) -> float | None:
    if len(left) < 8:
        return None
    a, b = second_differences(left), second_differences(right)
    floor = NOISELESS * max(_size(left), _size(right), 1e-300)
    if _size(a) <= 8 * floor and _size(b) <= 8 * floor:
        return None
    a, b = _clipped(a, clip_sds), _clipped(b, clip_sds)
    power = dot(a, a) * dot(b, b)
    return dot(a, b) / power**0.5 if power > 0.0 else 0.0


def worst_block(baseline: FloatArray, candidate: FloatArray) -> float | None:
    """The smallest r_pair over up to 20 blocks, of 200 points or more, of the last half: other data for a part of it shows there."""
    half = len(baseline) // 2
    count = min(BLOCKS, (len(baseline) - half) // BLOCK_POINTS)
    if count < 2:
        return None
    blocks = zip(np.array_split(baseline[half:], count), np.array_split(candidate[half:], count), strict=True)
    known = [value for left, right in blocks if (value := _correlation(left, right, BLOCK_CLIP_SDS)) is not None]
    return min(known, default=None)


def worst_correlation(baseline_KT: FloatArray, candidate_KT: FloatArray, pairs: list[tuple[int, int]]) -> float | None:
    """The smallest r_pair over (baseline row, candidate row) pairs, of the last half and of its blocks; None where no pair has noise."""
    correlations = [measure(baseline_KT[i], candidate_KT[j]) for measure in (pair_correlation, worst_block) for i, j in pairs]
    known = [value for value in correlations if value is not None]
    return min(known, default=None)


def _size(values: FloatArray) -> float:
    return max(float(values.max()), -float(values.min()))


def _clipped(values: FloatArray, clip_sds: float) -> FloatArray:
    limit = clip_sds * mad_sd(values[:: 1 + len(values) // SCALE_SAMPLE])
    clipped = np.clip(values, -limit, limit) if limit > 0.0 else values
    centred: FloatArray = clipped - clipped.mean()
    return centred
