"""Which runs and steps are compared, and whether two arms read the same data in the same order:
stated or measured.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import numpy as np

from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    between,
    computed_once,
    dots,
    series_digest,
    usable,
)
from parity.judging.curves.window import mad_sds, second_differences
from parity.structure import frozen

# Which runs and which steps are compared: runs paired by seed, finite steps common to all.
#
# Assumption that can fail: the same seed means the same data order; `pairing` checks it from the
# curves.

# of a run's points, and points: one NaN of few is no divergence
NONFINITE_SHARE, NONFINITE_BLOCKS, NONFINITE_FAILS = 0.01, 2, 3


@frozen
class Nonfinite:
    """NaN and infinite losses of one arm (or above 1e6): count, the worst run's share, the first
    such step, whether a run ends in one.

    `blocks` and `fails`: a run has at least 2, or 3, and at least 1 % of its points, over the run
    or its window, or ends in one.
    """

    count: int
    worst_share: float
    first_step: int | None
    at_end: bool
    blocks: bool
    fails: bool


@frozen(eq=False)
class Aligned:
    """Losses of both arms on their common finite steps: steps (n,), baseline (K_A, n), candidate
    (K_B, n), seeds (K,) of each arm.
    """

    steps: IntArray
    baseline: FloatArray
    candidate: FloatArray
    baseline_seeds: tuple[int, ...]
    candidate_seeds: tuple[int, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that both arms have, in order; each is one paired gap."""
        return tuple(sorted(set(self.baseline_seeds) & set(self.candidate_seeds)))

    def arm_means(self) -> tuple[FloatArray, FloatArray]:
        """Mean curve of each arm (n,): over the runs of a seed first, then over seeds."""
        return (
            _mean_over_seeds(self.baseline, self.baseline_seeds, self.seeds),
            _mean_over_seeds(self.candidate, self.candidate_seeds, self.seeds),
        )

    def digest(self) -> str:
        """sha256 of the aligned series, baseline runs first."""
        return series_digest(self.steps, np.concatenate([self.baseline, self.candidate]).ravel())


def _mean_over_seeds(
    loss_KT: FloatArray, run_seeds: tuple[int, ...], seeds: tuple[int, ...]
) -> FloatArray:
    if len(loss_KT) == 1:
        only: FloatArray = loss_KT[0]
        return only
    per_seed = [
        loss_KT[[i for i, own in enumerate(run_seeds) if own == seed]].mean(axis=0)
        for seed in seeds
    ]
    mean: FloatArray = np.mean(per_seed, axis=0)
    return mean


def paired_by_seed(
    baseline: Sequence[Curve], candidate: Sequence[Curve]
) -> tuple[tuple[Curve, ...], tuple[Curve, ...], int]:
    """The runs of seeds that both arms have, and how many runs have no partner."""
    common = {run.seed for run in baseline} & {run.seed for run in candidate}
    left = tuple(run for run in baseline if run.seed in common)
    right = tuple(run for run in candidate if run.seed in common)
    return left, right, len(baseline) + len(candidate) - len(left) - len(right)


def align(
    baseline: Sequence[Curve], candidate: Sequence[Curve], last_step: int | None = None
) -> Aligned:
    """Inner join of the finite steps of all runs, up to `last_step` inclusive (the end of the
    plan).
    """
    runs = (*baseline, *candidate)
    steps, losses = common_losses(runs)
    if last_step is not None:
        steps = steps[: int(np.searchsorted(steps, last_step, side="right"))]
    loss_KT = np.array([loss[: len(steps)] for loss in losses])
    if not all_usable(loss_KT):
        finite = usable(loss_KT).all(axis=0)
        steps, loss_KT = steps[finite], loss_KT[:, finite]
    return Aligned(
        steps=steps,
        baseline=loss_KT[: len(baseline)],
        candidate=loss_KT[len(baseline) :],
        baseline_seeds=tuple(run.seed for run in baseline),
        candidate_seeds=tuple(run.seed for run in candidate),
    )


def common_losses(runs: Sequence[Curve]) -> tuple[IntArray, list[FloatArray]]:
    """The steps (n,) that all runs have, and each run's losses (n,) there: views where all runs
    have one grid, which costs nothing.
    """
    first, *others = (run.steps for run in runs)
    shortest = min(len(run.steps) for run in runs)
    # the usual case, one run perhaps behind
    if all(np.array_equal(first[:shortest], steps[:shortest]) for steps in others):
        return first[:shortest], [run.loss[:shortest] for run in runs]
    steps = reduce(common_steps, others, first)
    return steps, [run.loss[np.searchsorted(run.steps, steps)] for run in runs]


def common_steps(left: IntArray, right: IntArray) -> IntArray:
    """Steps that both of two sorted, distinct series have."""
    shorter = min(len(left), len(right))
    # the usual case: the same grid, one run perhaps behind
    if np.array_equal(left[:shorter], right[:shorter]):
        return left[:shorter]
    return np.intersect1d(left, right, assume_unique=True)


def nonfinite(runs: Sequence[Curve], first_step: int, last_step: int) -> Nonfinite:
    """Count NaN and infinity up to `last_step`; the share is the larger of the whole run's and the
    window's (from `first_step`).
    """
    count, share, firsts, at_end, most = (
        0,
        0.0,
        [],
        False,
        dict.fromkeys((NONFINITE_BLOCKS, NONFINITE_FAILS), False),
    )
    for run in runs:
        window = between(run.steps, first_step, last_step)
        start, end = window.start, window.stop
        if all_usable(run.loss[:end]):
            continue
        bad = ~usable(run.loss[:end])
        count += int(bad.sum())
        firsts.append(int(run.steps[int(np.argmax(bad))]))
        in_window = float(bad[start:].mean()) if start < end else 0.0
        share = max(share, float(bad.mean()), in_window)
        at_end = at_end or bool(bad[-1])
        for least in most:
            most[least] |= any(
                part.sum() >= max(least, NONFINITE_SHARE * len(part)) for part in (bad, bad[start:])
            )
    return Nonfinite(
        count=count,
        worst_share=share,
        first_step=min(firsts, default=None),
        at_end=at_end,
        blocks=at_end or most[NONFINITE_BLOCKS],
        fails=at_end or most[NONFINITE_FAILS],
    )


# Do two arms read the same data in the same order? r_pair: correlation of their second differences
# over the last half.
#
# c_t = x_t - 2 x_{t+1} + x_{t+2}; r_pair = corr(c_baseline, c_candidate), each clipped at 6 robust
# standard deviations; the smallest over the last half and its blocks of 200 points or more, because
# other data over the last steps alone would hide in the whole.
#
# The same batches give both arms the same noise: 0.95 to 0.999 on real pairs with one data order,
# -0.04 to 0.10 with two. Clipping keeps a loss spike in one arm from hiding the agreement of all
# other steps. Can fail: r = b^2 / (b^2 + e^2) falls with the batch noise b, so at
# multi-million-token batches a correct pair can have 0.3; equal data digests then turn the refusal
# into a warning.

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
        x, y = (_LateNoise(level=1.0, parts=[own]) for own in noise)
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
            own = np.divide(products, np.sqrt(power), out=np.zeros_like(power), where=power > 0.0)
            correlations += own[(one.size > least) | (other.size > least)].tolist()
    return min(correlations, default=None)


# Which runs of two arms read the same batches, where nobody stated their seeds? Their batch noise
# says it.
#
# c_i        second differences of run i over all n common points, clipped at 6 robust standard
#            deviations and demeaned
# r_ij       correlation of c_i (baseline) with c_j (candidate)
# one order  every r_ij >= 0.9, over all points and over the last half, each without its straight
#            line: all runs read the same batches.
#   Over
#            the first half the fall of the loss alone would make all of them alike
# pairs      else, with the mean of c over the runs of both arms taken away i and j belong together
#            where
#            atanh(r_ij) sqrt(n - 5)/1.4 >= 4, r_ij >= 0.15 and r_ij is at least twice every other r
#            of i and of j;
#            where every run of the candidate has a partner, these are the seeds
# one order  else, every r_ij >= 0.5, and the smallest at least 0.75 of the largest
# unknown    else: then the seeds have to be stated
#
# Three seeds of a byte-level trainer in random order: 93 % of the runs are paired with 12 or 13
# points, 100 % from 20 on, none of them wrongly; reruns of one data order are seen as that in 100
# %. Without the mean, what large batches share would count as agreement. Can fail: a recipe whose
# own step noise hides its batches is `unknown`, which is no statement about its data.

ONE_ORDER_SPREAD = 0.75
LEAST_R, LEAD = 0.15, 2.0
MIN_POINTS_FOR_SEEDS = 8  # fewer decide nothing, whatever is paired with what

PairedBy = Literal["seeds", "batches", "one order", "unknown"]


@frozen
class RunPair:
    """Two runs that read the same batches: the position of each in its arm, and the correlation of
    their batch noise.
    """

    baseline: int
    candidate: int
    r: float


@frozen
class RunPairing:
    """How the runs of two arms were paired: by their seeds, or where these are not stated by their
    batches (`pairs`); or it is unknown.
    """

    by: PairedBy
    pairs: tuple[RunPair, ...] = ()


BY_SEEDS = RunPairing(by="seeds")


def seeds_unstated(runs: Sequence[Curve]) -> bool:
    """Whether nobody stated the seed of any run; a seed that somebody stated is never
    overridden.
    """
    return not any(run.seed_stated or run.seed for run in runs)


def pair_by_batches(
    baseline: Sequence[Curve], candidate: Sequence[Curve], last_step: int
) -> RunPairing:
    """Pair the runs of two arms whose seeds are not stated, by their batches up to `last_step`."""
    if len(baseline) == len(candidate) == 1:
        return BY_SEEDS
    both = align(baseline, candidate, last_step)
    losses = np.concatenate([both.baseline, both.candidate])
    if losses.shape[1] < MIN_POINTS_FOR_SEEDS:
        return BY_SEEDS
    changes = parts_of(second_differences(losses), CLIP_SDS, SCALE_SAMPLE).clipped
    if np.abs(changes).max() <= 8 * NOISELESS * np.abs(losses).max():
        return BY_SEEDS
    whole, late = (
        _correlations(_detrended(part), len(baseline))
        for part in (changes, changes[:, changes.shape[1] // 2 :])
    )
    r = np.minimum(whole, late)
    if r.min() >= SURELY_SAME_ORDER:
        return RunPairing(by="one order")
    pairs = _cross_pairs(
        _correlations(changes - changes.mean(axis=0), len(baseline)), losses.shape[1]
    )
    if len(pairs) == len(candidate):
        return RunPairing(by="batches", pairs=pairs)
    return RunPairing(
        by="one order" if r.min() >= max(SAME_ORDER, ONE_ORDER_SPREAD * r.max()) else "unknown"
    )


def _detrended(changes: FloatArray) -> FloatArray:
    """The (K, n) values without a straight line in each row: where points are far apart, the loss
    still bends between them.
    """
    at = np.linspace(-1.0, 1.0, changes.shape[1])
    centred = changes - changes.mean(axis=1, keepdims=True)
    flat: FloatArray = centred - np.outer(
        np.einsum("kn,n->k", centred, at) / np.einsum("n,n->", at, at), at
    )
    return flat


def _correlations(changes: FloatArray, baselines: int) -> FloatArray:
    """(B, C): correlations of the rows of the baseline, which come first, with those of the
    candidate; 0 for a row without noise.
    """
    size = np.sqrt(np.einsum("kn,kn->k", changes, changes))
    size[size == 0.0] = np.inf
    r: FloatArray = np.einsum("bn,cn->bc", changes[:baselines], changes[baselines:]) / np.outer(
        size[:baselines], size[baselines:]
    )
    return r


def _cross_pairs(r: FloatArray, points: int) -> tuple[RunPair, ...]:
    """The pairs among (B, C) correlations that no other run comes near to; each run is in one at
    most.
    """
    least = max(LEAST_R, float(np.tanh(SURE_Z * OVERLAP / (points - 5) ** 0.5)))
    found = []
    for i, j in np.argwhere(r >= least).tolist():
        others = np.append(np.delete(r[i], j), np.delete(r[:, j], i))
        if r[i, j] >= LEAD * max(others, default=0.0):
            found.append(RunPair(baseline=i, candidate=j, r=float(r[i, j])))
    return tuple(found)
