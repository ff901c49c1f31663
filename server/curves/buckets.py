"""Long series for a screen: min, mean and max of equal ranges of steps, with what was not finite named beside them.

Edges depend on the first and the last step and on the number of buckets alone, so finished runs of one plan get the same
edges. Buckets are for drawing only; the judge reads every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Number = float | Literal["nan", "inf", "-inf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite:
    """A step whose value was not finite."""

    step: int
    kind: Literal["nan", "inf", "-inf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A metric of a run over a range of steps; `aggregation` is `none` where every step is given.

    `first_step`, `last_step`, `minimum`, `mean` and `maximum` have one entry a bucket (null where nothing was finite).
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


NONFINITE_LISTED = 1000


def number(value: float) -> Number:
    """A float for JSON, which has no NaN: those become the words nan, inf and -inf."""
    return float(value) if np.isfinite(value) else kind_of(value)


def series(name: str, steps: NDArray[np.int64], values: NDArray[np.float64], points: int) -> Series:
    """At most `points` buckets of a metric.

    Args:
        name: what the values are.
        steps: (n,) ascending.
        values: (n,) float64, NaN and Inf allowed.
        points: largest number of buckets, at least 1.
    """
    finite = np.isfinite(values)
    bad = np.flatnonzero(~finite)
    starts = _starts(steps, points)
    ends = np.append(starts[1:], len(steps)) - 1
    # Millions of values pass here for each look at a page: what is all finite is not copied to be masked.
    counts = ends - starts + 1 - np.add.reduceat(~finite, starts, dtype=np.int64) if len(bad) else ends - starts + 1

    def reduced(operation: np.ufunc, neutral: float) -> NDArray[np.float64]:
        return operation.reduceat(np.where(finite, values, neutral) if len(bad) else values, starts) if len(steps) else np.empty(0)

    def listed(numbers: NDArray[np.float64]) -> list[float | None]:
        return [float(value) if count else None for value, count in zip(numbers, counts, strict=True)]

    return Series(
        name=name,
        aggregation="none" if len(starts) == len(steps) else "minmaxmean",
        steps_in_range=len(steps),
        first_step=steps[starts].tolist(),
        last_step=steps[ends].tolist() if len(steps) else [],
        minimum=listed(reduced(np.minimum, np.inf)),
        mean=listed(reduced(np.add, 0.0) / np.maximum(counts, 1)),
        maximum=listed(reduced(np.maximum, -np.inf)),
        nonfinite=[NonFinite(step=int(steps[i]), kind=kind_of(values[i])) for i in bad[:NONFINITE_LISTED]],
        nonfinite_count=len(bad),
    )


def _starts(steps: NDArray[np.int64], points: int) -> NDArray[np.int64]:
    """Index of the first element of each non-empty bucket."""
    if len(steps) <= points:
        return np.arange(len(steps))
    width = (int(steps[-1]) - int(steps[0])) // points + 1
    first_of_each = np.searchsorted(steps, steps[0] + width * np.arange(points))
    return np.unique(first_of_each[first_of_each < len(steps)])


def kind_of(value: float) -> Literal["nan", "inf", "-inf"]:
    """The word for a value that is not finite."""
    if np.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"
