"""The values of one quantity with their steps, in the order in which they were logged."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from parity.judging.curves.curve import FloatArray, IntArray


class Track:
    """Steps (n,), or keys that increase with the lines of a log, and values (n,) of one
    quantity.
    """

    def __init__(self, steps: FloatArray | None = None, values: FloatArray | None = None) -> None:
        self._blocks = [] if steps is None or values is None else [(steps, values)]
        self._steps: list[float] = []
        self._values: list[float] = []

    def add(self, step: float, value: float) -> None:
        """Add one value."""
        self._steps.append(step)
        self._values.append(value)

    def add_block(self, steps: FloatArray | IntArray, values: FloatArray) -> None:
        """Add values (n,) with their steps (n,)."""
        self._close()
        self._blocks.append((np.asarray(steps, np.float64), values))

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Steps and values, in the order in which they were added."""
        self._close()
        if len(self._blocks) == 1:
            return self._blocks[0]
        whole: tuple[FloatArray, FloatArray] = (
            np.concatenate([np.empty(0), *(steps for steps, _ in self._blocks)]),
            np.concatenate([np.empty(0), *(values for _, values in self._blocks)]),
        )
        self._blocks = [whole]
        return whole

    def _close(self) -> None:
        if self._steps:
            self._blocks.append(
                (np.array(self._steps, np.float64), np.array(self._values, np.float64))
            )
            self._steps, self._values = [], []

    def __len__(self) -> int:
        return sum(len(steps) for steps, _ in self._blocks) + len(self._steps)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        steps, values = self.arrays()
        return zip(map(int, steps.tolist()), values.tolist(), strict=True)


Series = Sequence[tuple[int, float]] | Track
"""The (step, value) of one quantity, in the order in which they were logged."""


def arrays_of(series: Sequence[tuple[float, float]] | Track) -> tuple[FloatArray, FloatArray]:
    """Steps (n,) and values (n,) of a series."""
    if isinstance(series, Track):
        return series.arrays()
    return np.array([step for step, _ in series], dtype=np.float64), np.array(
        [value for _, value in series], dtype=np.float64
    )


def at_rows(steps: FloatArray, series: Iterable[tuple[float, float]] | Track) -> FloatArray:
    """A sparse series of (step, value), each at the last of (T,) steps that is not after it; NaN
    elsewhere.

    An evaluation belongs to the training step before it, whether or not that step's loss was
    logged.
    """
    values: FloatArray = np.full(len(steps), np.nan)
    order = np.argsort(steps, kind="stable")
    evaluated_steps, evaluated = arrays_of(series if isinstance(series, Track) else [*series])
    places = np.searchsorted(steps[order], evaluated_steps, side="right") - 1
    values[order[places[places >= 0]]] = evaluated[places >= 0]  # of one place, the last value
    return values
