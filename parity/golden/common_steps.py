"""The losses of a golden and a run at their common steps, and how finely they were printed."""

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, FloatArray, IntArray

MOST_DECIMALS = 6  # a golden file keeps no more; its loss is then as exact as a float32 near 10


@frozen(eq=False)
class Common:
    """Losses (n,) in nats of a golden and a run at their common `steps` (n,); `unit` is the last
    printed digit of the coarser of the two, nats.
    """

    steps: IntArray
    golden: FloatArray
    run: FloatArray
    unit: float

    @property
    def difference(self) -> FloatArray:
        """Run minus golden (n,), nats."""
        return self.run - self.golden

    @property
    def percent(self) -> FloatArray:
        """Run minus golden (n,), % of the golden's loss."""
        return 100.0 * self.difference / self.golden

    def rows(self, first: int, last: int | None = None) -> "Common":
        """The rows from index `first` to `last` (exclusive)."""
        part = slice(first, last)
        return Common(
            steps=self.steps[part], golden=self.golden[part], run=self.run[part], unit=self.unit
        )


def common_steps(golden: Curve, run: Curve) -> Common:
    """The rows of two curves at the steps that both have, in order."""
    steps, of_golden, of_run = np.intersect1d(
        golden.steps, run.steps, assume_unique=True, return_indices=True
    )
    return Common(
        steps=steps,
        golden=golden.loss[of_golden],
        run=run.loss[of_run],
        unit=10.0 ** -min(decimals(golden.loss), decimals(run.loss)),
    )


def decimals(values: FloatArray) -> int:
    """The number of decimals with which finite values (n,) were printed, 0 to 6; 6 where they were
    not rounded.
    """
    for number in range(MOST_DECIMALS):
        if np.array_equal(np.round(values, number), values, equal_nan=True):
            return number
    return MOST_DECIMALS
