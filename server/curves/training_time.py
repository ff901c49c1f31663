"""Seconds of training up to each logged step of a run, for charts against time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen


@frozen(eq=False)
class TrainingTime:
    """Seconds of training up to some steps (n,) of a run, ascending, so that a range need not be
    summed from the first step.
    """

    steps: NDArray[np.int64]
    passed: NDArray[np.float64]

    def before(self, step: int) -> tuple[int, float] | None:
        """The last step before this one, with its seconds, or None."""
        at = int(np.searchsorted(self.steps, step)) - 1
        if at < 0:
            return None
        return int(self.steps[at]), float(self.passed[at])

    def updated(
        self, steps: NDArray[np.int64], passed: NDArray[np.float64], every: int
    ) -> TrainingTime:
        """The same with every n-th of these steps (`every` = n), which replace the earlier entries
        of their range.
        """
        old = (self.steps < steps[0]) | (self.steps > steps[-1])
        some = np.append(self.steps[old], steps[every - 1 :: every])
        order = np.argsort(some)
        return TrainingTime(
            steps=some[order], passed=np.append(self.passed[old], passed[every - 1 :: every])[order]
        )


def seconds_of(
    steps: NDArray[np.int64],
    step_seconds: NDArray[np.float64],
    after: tuple[int, float] | None = None,
) -> NDArray[np.float64]:
    """Seconds of training up to each of (n,) logged steps.

    Steps between two logged ones are taken to last as long as the later one; unknown times count as
    0. The sum begins at the first step, or continues from a step with known seconds (`after`).
    """
    durations = np.where(np.isfinite(step_seconds), step_seconds, 0.0)
    last, passed = (steps[:1] - 1, 0.0) if after is None else (after[0], after[1])
    return passed + np.cumsum(durations * np.diff(steps, prepend=last))
