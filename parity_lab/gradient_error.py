"""How far a GEMM moves the gradient, from sums over layers and batches
(`parity_lab.training.fixed_weights.gradients`).

relative_error = sqrt(mean |g - r|^2 / |r|^2)
systematic     = sqrt of the part of it that does not average out over seeds
bias           = <g, r> / <r, r> - 1
cosine         = <g, r> / sqrt(<r, r> <g, g>)

r is the gradient of the bf16 twin from the same weights and batch. Intervals are jackknives over
batches. Can fail: stochastic rounding with few seeds leaves `systematic` noisy; its square is
unbiased and may come out negative, which is shown as 0.
"""

import math

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen
from parity_lab.estimates import Estimate, ratio

SUMS = ("reference", "dot", "own", "error", "systematic")
"""The columns of `parity_lab.training.fixed_weights.gradients`."""


@frozen
class GradientError:
    """One GEMM, or one layer under it. The squares are estimates with an interval; `cosine` and the
    roots follow from them.
    """

    squared_error: Estimate
    squared_systematic: Estimate
    bias: Estimate
    cosine: float

    @property
    def relative_error(self) -> float:
        """The root mean square of the error over the norm of the reference."""
        return math.sqrt(self.squared_error.value)

    @property
    def systematic(self) -> float:
        """The part of the relative error that does not average out over rounding seeds."""
        return math.sqrt(max(0.0, self.squared_systematic.value))


def gradient_error(sums: NDArray[np.float64]) -> GradientError:
    """The error of sums (batches, ..., SUMS), over all layers in them. Raises ValueError for one
    batch.
    """
    by_batch = sums.reshape(len(sums), -1, len(SUMS)).sum(axis=1)
    reference, dot, square, error, systematic = by_batch.T
    if not (reference > 0).all():
        raise ValueError(
            f"the reference gradient is {reference.tolist()} long, expected above 0 in every "
            "batch; measure other weights"
        )
    return GradientError(
        squared_error=ratio(error, reference),
        squared_systematic=ratio(systematic, reference),
        bias=ratio(dot - reference, reference),
        cosine=float(dot.sum() / math.sqrt(reference.sum() * square.sum())),
    )
