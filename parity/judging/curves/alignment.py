"""Which runs and which steps are compared: runs paired by seed, finite steps common to all.

Assumption that can fail: the same seed means the same data order; `pairing` checks it from the
curves.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    between,
    series_digest,
    usable,
)

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
        loss_KT[[i for i, run_seed in enumerate(run_seeds) if run_seed == seed]].mean(axis=0)
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
