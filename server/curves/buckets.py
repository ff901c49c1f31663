"""Long series reduced for a screen: min, mean and max of equal ranges of steps, and the steps with
non-finite values.

Edges depend only on the first step, the last step and the number of buckets, so finished runs of
one plan get the same edges. Buckets are for drawing only; the judge reads every step.
"""

from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen
from server.json_numbers import kind_of

N = TypeVar("N", np.int64, np.float64)

NONFINITE_LISTED = 1000


@frozen
class NonFinite:
    """A step whose value was not finite."""

    step: int
    kind: Literal["nan", "inf", "-inf"]


@frozen
class Series:
    """A metric of a run over a range of steps; `aggregation` is `none` if every step is included.

    `first_step`, `last_step`, `minimum`, `mean` and `maximum` have one entry per bucket (null if it
    has no finite value).
    """

    name: str
    aggregation: Literal["none", "minmaxmean"]
    steps_in_range: int
    first_step: list[int]
    last_step: list[int]
    minimum: list[float | None]
    mean: list[float | None]
    maximum: list[float | None]
    nonfinite: list[NonFinite]
    nonfinite_count: int


@frozen(eq=False)
class Buckets:
    """A series of n values cut into b buckets; only finite values count.

    `starts` (b,) holds the index of the first value of each bucket, ascending; a bucket ends where
    the next one begins, and is empty where both begin at the same index. `finite` (n,) is None
    where every value is finite. `count` (b,) is the number of finite values.
    """

    starts: NDArray[np.int64]
    finite: NDArray[np.bool_] | None
    count: NDArray[np.int64]

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean (b,) of the values (n,) that count; 0 for an empty bucket."""
        return self._reduce(np.add, values, 0.0) / np.maximum(self.count, 1)

    def minimum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Smallest (b,) of the values (n,) that count; infinity for an empty bucket."""
        return self._reduce(np.minimum, values, np.inf)

    def maximum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest (b,) of the values (n,) that count; minus infinity for an empty bucket."""
        return self._reduce(np.maximum, values, -np.inf)

    def nonfinite(
        self, steps: NDArray[np.int64], values: NDArray[np.float64]
    ) -> tuple[list[NonFinite], int]:
        """The first 1,000 steps (n,) whose value (n,) is not finite, and the number of all such
        steps.
        """
        if self.finite is None:
            return [], 0
        bad = np.flatnonzero(~self.finite)
        return [
            NonFinite(step=int(steps[i]), kind=kind_of(values[i])) for i in bad[:NONFINITE_LISTED]
        ], len(bad)

    def _reduce(
        self, operation: np.ufunc, values: NDArray[np.float64], neutral: float
    ) -> NDArray[np.float64]:
        # A page view reads millions of values; a series of finite values is not copied for a mask.
        counted = values if self.finite is None else np.where(self.finite, values, neutral)
        return reduce_ranges(operation, counted, self.starts, neutral)


def cut(values: NDArray[np.float64], starts: NDArray[np.int64]) -> Buckets:
    """Cut values (n,), NaN and Inf allowed, into buckets that begin at these indices (b,),
    ascending.
    """
    finite = np.isfinite(values)
    if finite.all():
        return Buckets(starts=starts, finite=None, count=np.diff(starts, append=len(values)))
    return Buckets(
        starts=starts,
        finite=finite,
        count=reduce_ranges(np.add, finite.astype(np.int64), starts, 0),
    )


def reduce_ranges(
    operation: np.ufunc, values: NDArray[N], starts: NDArray[np.int64], neutral: float
) -> NDArray[N]:
    """Reduce the values (n,) from each start (b,) to the next, ascending: (b,), `neutral` where a
    range is empty.
    """
    has_values = np.diff(starts, append=len(values)) > 0
    reduced = np.full(len(starts), neutral, values.dtype)
    if has_values.any():
        reduced[has_values] = operation.reduceat(values, starts[has_values])
    return reduced


def series(name: str, steps: NDArray[np.int64], values: NDArray[np.float64], points: int) -> Series:
    """At most `points` buckets of a metric.

    Args:
        name: what the values are.
        steps: (n,) ascending.
        values: (n,) float64, NaN and Inf allowed.
        points: largest number of buckets, at least 1.
    """
    starts = _starts(steps, points)
    ends = np.append(starts[1:], len(steps)) - 1
    buckets = cut(values, starts)
    nonfinite, nonfinite_count = buckets.nonfinite(steps, values)
    return Series(
        name=name,
        aggregation="none" if len(starts) == len(steps) else "minmaxmean",
        steps_in_range=len(steps),
        first_step=steps[starts].tolist(),
        last_step=steps[ends].tolist() if len(steps) else [],
        minimum=_or_null(buckets.minimum(values), buckets.count),
        mean=_or_null(buckets.mean(values), buckets.count),
        maximum=_or_null(buckets.maximum(values), buckets.count),
        nonfinite=nonfinite,
        nonfinite_count=nonfinite_count,
    )


def _or_null(numbers: NDArray[np.float64], counts: NDArray[np.int64]) -> list[float | None]:
    return [
        value if count else None
        for value, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]


def _starts(steps: NDArray[np.int64], points: int) -> NDArray[np.int64]:
    """Index of the first element of each non-empty bucket."""
    if len(steps) <= points:
        return np.arange(len(steps))
    width = (int(steps[-1]) - int(steps[0])) // points + 1
    first_of_each: NDArray[np.int64] = np.searchsorted(steps, steps[0] + width * np.arange(points))
    # Ascending, so that the last of equal ones is found without sorting; len(steps) begins a bucket
    # after the last step.
    return first_of_each[np.diff(first_of_each, append=len(steps)) > 0]
