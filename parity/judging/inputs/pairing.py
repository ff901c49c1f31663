"""Do two arms read the same data in the same order? r_pair: correlation of their second differences over the last half.

c_t = x_t - 2 x_{t+1} + x_{t+2}; r_pair = corr(c_baseline, c_candidate), each clipped at 6 robust standard deviations; the smallest over
the last half and its blocks of 200 points or more, because other data over the last steps alone would hide in the whole.

The same batches give both arms the same noise: 0.95 to 0.999 on real pairs with one data order, -0.04 to 0.10 with two. Clipping keeps
a loss spike in one arm from hiding the agreement of all other steps. Can fail: r = b^2 / (b^2 + e^2) falls with the batch noise b, so
at multi-million-token batches a correct pair can have 0.3; equal data digests then turn the refusal into a warning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import Curve, FloatArray, once_per_run
from parity.judging.inputs.alignment import Aligned
from parity.judging.noise import dot, mad_sd, second_differences

OTHER_ORDER, SAME_ORDER, SURELY_SAME_ORDER = 0.15, 0.5, 0.9  # other batches give -0.04 to 0.10
CLIP_SDS, BLOCK_CLIP_SDS = 6.0, 1.5  # in a short block a handful of spikes must not outweigh the rest
BLOCKS, BLOCK_POINTS, MIN_POINTS = 20, 200, 6
SCALE_SAMPLE, BLOCK_SAMPLE = 16_384, 4_096  # values are enough for a robust scale
NOISELESS = 1e-7  # of the loss's size: below the spacing of float32 there is no batch noise to correlate


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Second differences (m,) of a stretch of one run: clipped and centred, their sum of squares, and the largest before that, nats."""

    clipped: FloatArray
    power: float
    size: float


@dataclass(frozen=True, slots=True, eq=False)
class _LateNoise:
    """A run's last half: the size of its losses, and the noise of the whole and of its blocks."""

    level: float
    whole: _Part
    blocks: list[_Part]


def pair_correlation(baseline: FloatArray, candidate: FloatArray) -> float | None:
    """r_pair of two runs' losses (n,) on common steps, over their last half; None where neither arm has any noise to compare."""
    a, b = (_late_noise(losses, blocks=False) for losses in (baseline, candidate))
    return _correlation(a.whole, b.whole, max(a.level, b.level))


def worst_correlation(aligned: Aligned, baseline: Sequence[Curve], candidate: Sequence[Curve]) -> float | None:
    """The smallest r_pair of the last half and of its blocks; None where no pair has noise.

    Pairs: each run with the first run of its seed in the other arm. `aligned` has the losses of the runs of both arms.
    """
    pairs = _pairs(aligned)
    left = {i: _noise_of(baseline[i], aligned.baseline[i]) for i in {i for i, _ in pairs}}
    right = {j: _noise_of(candidate[j], aligned.candidate[j]) for j in {j for _, j in pairs}}
    correlations: list[float | None] = []
    for a, b in ((left[i], right[j]) for i, j in pairs):
        level = max(a.level, b.level)
        parts = zip((a.whole, *a.blocks), (b.whole, *b.blocks), strict=True)
        correlations += [_correlation(*part, level) for part in parts]
    return min((value for value in correlations if value is not None), default=None)


def _pairs(aligned: Aligned) -> list[tuple[int, int]]:
    base, cand = aligned.baseline_seeds, aligned.candidate_seeds
    pairs = {(base.index(seed), j) for j, seed in enumerate(cand) if seed in base}
    pairs |= {(i, cand.index(seed)) for i, seed in enumerate(base) if seed in cand}
    return sorted(pairs)


def _noise_of(run: Curve, losses: FloatArray) -> _LateNoise:
    """The noise of a run's losses (n,) at the common steps, computed once where these are all its steps."""
    return _late_noise_of(run) if len(losses) == len(run.loss) else _late_noise(losses)


@once_per_run
def _late_noise_of(run: Curve) -> _LateNoise:
    return _late_noise(run.loss)


def _late_noise(losses: FloatArray, blocks: bool = True) -> _LateNoise:
    late = losses[len(losses) // 2 :]
    changes = second_differences(late)
    count = min(BLOCKS, len(changes) // BLOCK_POINTS) if blocks else 0
    return _LateNoise(
        level=_size(late),
        whole=_part(changes, CLIP_SDS, SCALE_SAMPLE),
        blocks=[_part(block, BLOCK_CLIP_SDS, BLOCK_SAMPLE) for block in np.array_split(changes, count)] if count >= 2 else [],
    )


def _part(changes: FloatArray, clip_sds: float, sample: int) -> _Part:
    if len(changes) < MIN_POINTS:
        return _Part(clipped=changes, power=0.0, size=_size(changes))
    limit = clip_sds * mad_sd(changes[:: 1 + len(changes) // sample])
    clipped = np.minimum(np.maximum(changes, -limit), limit) if limit > 0.0 else changes
    centred = clipped - clipped.mean()
    return _Part(clipped=centred, power=dot(centred, centred), size=_size(changes))


def _correlation(a: _Part, b: _Part, level: float) -> float | None:
    """Of two parts of runs with losses of size `level`; None where there are too few points, or both are rounding."""
    least = 8 * NOISELESS * level
    if len(a.clipped) < MIN_POINTS or (a.size <= least and b.size <= least):
        return None
    power = a.power * b.power
    return dot(a.clipped, b.clipped) / power**0.5 if power > 0.0 else 0.0


def _size(values: FloatArray) -> float:
    return max(float(values.max()), -float(values.min())) if len(values) else 0.0
