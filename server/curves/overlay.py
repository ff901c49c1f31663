"""The numbers of several runs of a job in one chart, with the same bucket edges, so that lines
differ only where the runs do.

Edges depend on the first and the last step of any of the runs in the range. Up to 20,000 steps
are returned without reduction, fewer if there are more than three runs. This is for charts only;
the judge reads every step.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen
from parity.judging.live.gap_chart import step_edges
from server.curves.buckets import NonFinite, cut
from server.json_numbers import rounded

RAW_STEPS = 20_000
# of all runs together: a response with thirty runs of 20,000 steps would be ten megabytes
RAW_VALUES = 60_000


@frozen(eq=False)
class RecordedColumn:
    """A run's column: steps (n,) ascending, values (n,), and, if requested, seconds of training up
    to each step (n,).
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64] | None = None


@frozen
class Line:
    """One run on the common edges: one entry per bucket, null if it has no finite value there.

    `minimum` and `maximum` are null if every step is included; `seconds` is the mean training time
    in the bucket.
    """

    steps_in_range: int
    mean: list[float | None]
    minimum: list[float | None] | None
    maximum: list[float | None] | None
    seconds: list[float | None] | None
    nonfinite: list[NonFinite]
    nonfinite_count: int


@frozen
class Overlay:
    """Runs on common edges; `aggregation` is `none` if every step is included."""

    aggregation: Literal["none", "minmaxmean"]
    steps_in_range: int
    first_step: list[int]
    last_step: list[int]
    lines: list[Line]


def overlay(
    runs: Sequence[RecordedColumn],
    points: int,
    *,
    log: bool = False,
    raw_values: int = RAW_VALUES,
) -> Overlay:
    """Put runs on common edges: every step up to 20,000, or `raw_values` of all runs together, else
    at most `points` buckets (1 or more).

    Buckets are equally long, or have equal ratios (`log`).
    """
    grid = _union([run.steps for run in runs])
    is_raw = len(grid) <= min(RAW_STEPS, raw_values // max(1, len(runs)))
    first, last = (grid, grid) if is_raw else _edges(grid, points, log=log)
    return Overlay(
        aggregation="none" if is_raw else "minmaxmean",
        steps_in_range=len(grid),
        first_step=first.tolist(),
        last_step=last.tolist(),
        lines=[_line(run, first, is_raw=is_raw) for run in runs],
    )


def _union(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Every step of any run, ascending; runs of one plan have the same."""
    if not columns:
        return np.empty(0, np.int64)
    if all(np.array_equal(columns[0], column) for column in columns[1:]):
        return columns[0]
    return np.unique(np.concatenate(columns))


def _edges(
    grid: NDArray[np.int64], points: int, *, log: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last step of the buckets that hold any of the steps."""
    begin, end = int(grid[0]), int(grid[-1])
    if log:
        first = step_edges(begin, end, points, log=True)
    else:
        first = np.arange(begin, end + 1, (end - begin) // points + 1)
    last = np.append(first[1:], end + 1) - 1
    at = np.searchsorted(grid, first)
    has_steps = np.append(at[1:], len(grid)) > at
    return first[has_steps], last[has_steps]


def _line(run: RecordedColumn, first: NDArray[np.int64], *, is_raw: bool) -> Line:
    buckets = cut(run.values, np.searchsorted(run.steps, first))
    has_value = buckets.count > 0
    nonfinite, nonfinite_count = buckets.nonfinite(run.steps, run.values)
    low = high = None
    if not is_raw:
        low, high = (
            rounded(buckets.minimum(run.values), has_value),
            rounded(buckets.maximum(run.values), has_value),
        )
    return Line(
        steps_in_range=len(run.steps),
        mean=rounded(buckets.mean(run.values), has_value),
        minimum=low,
        maximum=high,
        seconds=None if run.seconds is None else rounded(buckets.mean(run.seconds), has_value),
        nonfinite=nonfinite,
        nonfinite_count=nonfinite_count,
    )
