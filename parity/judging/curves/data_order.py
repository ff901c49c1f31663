"""Do two arms read the same data in the same order? r_pair: correlation of their second differences
over the last half.

c_t = x_t - 2 x_{t+1} + x_{t+2}; r_pair = corr(c_baseline, c_candidate), each clipped at 6 robust
standard deviations; the smallest over the last half and its blocks of 200 points or more, because
other data over the last steps alone would hide in the whole.

The same batches give both arms the same noise: 0.95 to 0.999 on real pairs with one data order,
-0.04 to 0.10 with two. Clipping keeps a loss spike in one arm from hiding the agreement of all
other steps. Can fail: r = b^2 / (b^2 + e^2) falls with the batch noise b, so at multi-million-token
batches a correct pair can have 0.3; equal data digests then turn the refusal into a warning.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import Aligned
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    computed_once,
    dots,
)
from parity.judging.curves.step_noise import mad_sds, second_differences

OTHER_ORDER, SAME_ORDER, SURELY_SAME_ORDER = 0.15, 0.5, 0.9  # other batches give -0.04 to 0.10
# in a short block a handful of spikes must not outweigh the rest
CLIP_SDS, BLOCK_CLIP_SDS = 6.0, 1.5
BLOCKS, BLOCK_POINTS, MIN_POINTS = 20, 200, 6
# second differences overlap: their correlation is known on fewer points than there are
PARTS, SURE_Z, OVERLAP = (2, 4), 4.0, 1.4
SCALE_SAMPLE, BLOCK_SAMPLE = 16_384, 4_096  # values are enough for a robust scale
# of the loss's size: below the spacing of float32 there is no batch noise to correlate
NOISELESS = 1e-7


@frozen(eq=False)
class _Parts:
    """Second differences (b, m) of b stretches of a run, clipped and centred; their sums of squares
    (b,), and the largest unclipped.
    """

    clipped: FloatArray
    power: FloatArray
    size: FloatArray


@frozen(eq=False)
class _LateNoise:
    """A run's last half: the size of its losses, and the noise of the whole and of its blocks,
    which have one of two lengths.
    """

    level: float
    parts: list[_Parts]


def pair_correlation(baseline: FloatArray, candidate: FloatArray) -> float | None:
    """r_pair of two runs' losses (n,) on common steps, over their last half; None where neither arm
    has any noise to compare.
    """
    a, b = (_late_noise(losses, blocks=False) for losses in (baseline, candidate))
    return _smallest(a, b)


def worst_correlation(
    aligned: Aligned, baseline: Sequence[Curve], candidate: Sequence[Curve]
) -> float | None:
    """The smallest r_pair of the last half and of its blocks; None where no pair has noise.

    Pairs: each run with the first run of its seed in the other arm. `aligned` has the losses of the
    runs of both arms.
    """
    pairs = _pairs(aligned)
    left = {i: _noise_of(baseline[i], aligned.baseline[i]) for i in {i for i, _ in pairs}}
    right = {j: _noise_of(candidate[j], aligned.candidate[j]) for j in {j for _, j in pairs}}
    correlations = (_smallest(left[i], right[j]) for i, j in pairs)
    return min((value for value in correlations if value is not None), default=None)


def hidden_correlation(aligned: Aligned) -> float | None:
    """The smallest correlation of the pairs over the last half, where it is between that of other
    batches and of equal ones throughout.

    Such a pair has little batch noise against its runs' own: 0.15 to 0.5, in each block as far as
    its points show it. None elsewhere.
    """
    least = None
    for i, j in _pairs(aligned):
        whole = pair_correlation(aligned.baseline[i], aligned.candidate[j])
        if whole is None or not OTHER_ORDER <= whole < SAME_ORDER:
            return None
        block = max(len(aligned.steps) // 2 // BLOCKS, BLOCK_POINTS)
        smallest = _smallest(_late_noise(aligned.baseline[i]), _late_noise(aligned.candidate[j]))
        if smallest is None or smallest < whole - SURE_Z * OVERLAP / block**0.5:
            return None
        least = whole if least is None else min(least, whole)
    return least


def is_proven_somewhere(aligned: Aligned) -> bool:
    """Whether every pair of runs surely read the same batches in some half or quarter of the run:
    enough for a fail.

    r >= 0.5 and atanh(r) sqrt(n - 5)/1.4 >= 4 there. A candidate that broke at one point or late
    hides its batches elsewhere.
    """
    return all(_proven(aligned.baseline[i], aligned.candidate[j]) for i, j in _pairs(aligned))


def _proven(base: FloatArray, cand: FloatArray) -> bool:
    n = len(base)
    parts = [
        slice(part * n // parts, (part + 1) * n // parts)
        for parts in PARTS
        for part in range(parts)
    ]
    for part in parts:
        noise = (
            parts_of(second_differences(arm[part])[None], CLIP_SDS, SCALE_SAMPLE)
            for arm in (base, cand)
        )
        x, y = (_LateNoise(level=1.0, parts=[run]) for run in noise)
        r, points = _smallest(x, y), x.parts[0].clipped.shape[-1]
        if (
            r is not None
            and r >= SAME_ORDER
            and np.arctanh(min(r, 1.0 - 1e-12)) * (points - 5) ** 0.5 / OVERLAP >= SURE_Z
        ):
            return True
    return False


def _pairs(aligned: Aligned) -> list[tuple[int, int]]:
    base, cand = aligned.baseline_seeds, aligned.candidate_seeds
    pairs = {(base.index(seed), j) for j, seed in enumerate(cand) if seed in base}
    pairs |= {(i, cand.index(seed)) for i, seed in enumerate(base) if seed in cand}
    return sorted(pairs)


def _noise_of(run: Curve, losses: FloatArray) -> _LateNoise:
    """The noise of a run's losses (n,) at the common steps, computed once where these are all its
    steps.
    """
    if len(losses) == len(run.loss):
        return _late_noise_of(run)
    return _late_noise(losses)


@computed_once
def _late_noise_of(run: Curve) -> _LateNoise:
    return _late_noise(run.loss)


def _late_noise(losses: FloatArray, blocks: bool = True) -> _LateNoise:
    late = losses[len(losses) // 2 :]
    changes = second_differences(late)
    parts = [parts_of(changes[None], CLIP_SDS, SCALE_SAMPLE)]
    count = min(BLOCKS, len(changes) // BLOCK_POINTS) if blocks else 0
    if count >= 2:
        length, longer = divmod(len(changes), count)
        end = longer * (length + 1)
        equal = [changes[:end].reshape(-1, length + 1), changes[end:].reshape(-1, length)]
        parts += [parts_of(some, BLOCK_CLIP_SDS, BLOCK_SAMPLE) for some in equal if len(some)]
    return _LateNoise(level=float(np.abs(late).max(initial=0.0)), parts=parts)


def parts_of(changes: FloatArray, clip_sds: float, sample: int) -> _Parts:
    """Second differences (b, m) clipped at so many robust standard deviations, which every so many
    values are enough for.
    """
    size = np.abs(changes).max(axis=-1, initial=0.0)
    if changes.shape[-1] < MIN_POINTS:
        return _Parts(clipped=changes, power=np.zeros(len(changes)), size=size)
    limit = clip_sds * mad_sds(changes[:, :: 1 + changes.shape[-1] // sample])
    limit[limit == 0.0] = np.inf
    clipped = np.clip(changes, -limit[:, None], limit[:, None])
    centred = clipped - clipped.mean(axis=-1, keepdims=True)
    return _Parts(clipped=centred, power=dots(centred, centred), size=size)


def _smallest(a: _LateNoise, b: _LateNoise) -> float | None:
    """The smallest correlation of two runs' parts; None where there are too few points, or both are
    rounding throughout.
    """
    least = 8 * NOISELESS * max(a.level, b.level)
    correlations: list[float] = []
    for one, other in zip(a.parts, b.parts, strict=True):
        if one.clipped.shape[-1] >= MIN_POINTS:
            power = one.power * other.power
            products = dots(one.clipped, other.clipped)
            found = np.divide(products, np.sqrt(power), out=np.zeros_like(power), where=power > 0.0)
            correlations += found[(one.size > least) | (other.size > least)].tolist()
    return min(correlations, default=None)
