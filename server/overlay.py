"""Several runs in one chart: the same bucket edges for all of them, so that what differs between the lines is the runs.

Edges depend on the first and the last step that any of the runs has in the range. Up to 20,000 steps are given as they are.
For drawing only; the judge reads every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from server.buckets import NONFINITE_LISTED, NonFinite, kind_of

RAW_STEPS = 20_000
_DIGITS = 7  # significant; a chart can't show more, and the answer is half as long


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """A run's column: steps (n,) ascending, values (n,), and seconds of training up to each step (n,) where they are wanted."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    seconds: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run on the common edges, one entry a bucket, null where it has no finite value there.

    `minimum` and `maximum` are null as a whole where every step is given; `seconds` is the mean time of training in the bucket.
    """

    steps_in_range: int
    mean: list[float | None]
    minimum: list[float | None] | None
    maximum: list[float | None] | None
    seconds: list[float | None] | None
    nonfinite: list[NonFinite]
    nonfinite_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Runs on common edges; `aggregation` is `none` where every step is given."""

    aggregation: Literal["none", "minmaxmean"]
    steps_in_range: int
    first_step: list[int]
    last_step: list[int]
    lines: list[Line]


def overlay(runs: Sequence[Recorded], points: int) -> Overlay:
    """Put runs on common edges: every step up to 20,000 of them, else at most `points` buckets (1 or more)."""
    grid = np.unique(np.concatenate([run.steps for run in runs])) if runs else np.empty(0, np.int64)
    is_raw = len(grid) <= RAW_STEPS
    width = 1 if is_raw else (int(grid[-1]) - int(grid[0])) // points + 1
    first = grid if is_raw else grid[0] + width * np.unique((grid - grid[0]) // width)
    last = first if is_raw else np.minimum(first + width - 1, grid[-1])
    return Overlay(
        aggregation="none" if is_raw else "minmaxmean",
        steps_in_range=len(grid),
        first_step=first.tolist(),
        last_step=last.tolist(),
        lines=[_line(run, first, is_raw=is_raw) for run in runs],
    )


def seconds_of(steps: NDArray[np.int64], step_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of training up to each of (n,) logged steps; steps between two logged ones took as long, unknown times count as none."""
    known = np.where(np.isfinite(step_seconds), step_seconds, 0.0)
    return np.cumsum(known * np.diff(steps, prepend=steps[:1] - 1))


def _line(run: Recorded, first: NDArray[np.int64], *, is_raw: bool) -> Line:
    bucket = np.searchsorted(first, run.steps, side="right") - 1
    finite = np.isfinite(run.values)
    bad = np.flatnonzero(~finite)
    return Line(
        steps_in_range=len(run.steps),
        mean=_mean(bucket[finite], run.values[finite], len(first)),
        minimum=None if is_raw else _extreme(np.minimum, bucket[finite], run.values[finite], len(first)),
        maximum=None if is_raw else _extreme(np.maximum, bucket[finite], run.values[finite], len(first)),
        seconds=None if run.seconds is None else _mean(bucket, run.seconds, len(first)),
        nonfinite=[NonFinite(step=int(run.steps[i]), kind=kind_of(run.values[i])) for i in bad[:NONFINITE_LISTED]],
        nonfinite_count=len(bad),
    )


def _mean(bucket: NDArray[np.int64], values: NDArray[np.float64], count: int) -> list[float | None]:
    n = np.bincount(bucket, minlength=count)
    return _listed(np.bincount(bucket, values, minlength=count) / np.maximum(n, 1), n > 0)


def _extreme(operation: np.ufunc, bucket: NDArray[np.int64], values: NDArray[np.float64], count: int) -> list[float | None]:
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    reduced, known = np.zeros(count), np.zeros(count, bool)
    if len(starts):
        reduced[bucket[starts]] = operation.reduceat(values, starts)
        known[bucket[starts]] = True
    return _listed(reduced, known)


def _listed(values: NDArray[np.float64], known: NDArray[np.bool_]) -> list[float | None]:
    """Values for JSON to seven significant digits, null where unknown or beyond float64 (the mean of huge values)."""
    known = known & np.isfinite(values)
    kept = np.where(known, values, 0.0)
    decade = np.floor(np.log10(np.maximum(np.abs(kept), 1e-290)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - decade, -300, 300)
    scaled = kept * scale
    kept = np.where(np.isfinite(scaled), np.round(scaled) / scale, kept)
    return [value if is_known else None for value, is_known in zip(kept.tolist(), known.tolist(), strict=True)]
