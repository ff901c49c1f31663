"""Which runs of two arms read the same batches, where nobody stated their seeds? Their batch noise
says it.

c_i        second differences of run i over all n common points, clipped at 6 robust standard
           deviations and demeaned
r_ij       correlation of c_i (baseline) with c_j (candidate)
one order  every r_ij >= 0.9, over all points and over the last half, each without its straight
           line: all runs read the same batches. Over the first half the fall of the loss alone
           would make all of them alike
pairs      else, with the mean of c over the runs of both arms taken away i and j belong together
           where atanh(r_ij) sqrt(n - 5)/1.4 >= 4, r_ij >= 0.15 and r_ij is at least twice every
           other r of i and of j; where every run of the candidate has a partner, these are the
           seeds
one order  else, every r_ij >= 0.5, and the smallest at least 0.75 of the largest
unknown    else: then the seeds have to be stated

Three seeds of a byte-level trainer in random order: 93 % of the runs are paired with 12 or 13
points, 100 % from 20 on, none of them wrongly; reruns of one data order are seen as that in 100 %.
Without the mean, what large batches share would count as agreement. Can fail: a recipe whose own
step noise hides its batches is `unknown`, which is no statement about its data.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
)
from parity.judging.curves.data_order import (
    CLIP_SDS,
    NOISELESS,
    OVERLAP,
    SAME_ORDER,
    SCALE_SAMPLE,
    SURE_Z,
    SURELY_SAME_ORDER,
    parts_of,
)
from parity.judging.curves.step_noise import second_differences

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


def are_seeds_unstated(runs: Sequence[Curve]) -> bool:
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
