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
    series_digest,
    usable,
)


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
