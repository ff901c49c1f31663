"""Recorded curves for a screen and for programs: reduced to buckets, several on the same edges, by
layer, as CSV and Arrow streams.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import nanoarrow
import numpy as np
import zstandard
from nanoarrow.ipc import StreamWriter
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.live.gap_chart import step_edges
from server.database.metrics import store
from server.database.metrics.chunk_tables import Columns as StoredColumns
from server.records import Number, kind_of, number, rounded
from training.step_values import PROJECTIONS

# Long series reduced for a screen: min, mean and max of equal ranges of steps, and the steps with
# non-finite values.
#
# Edges depend only on the first step, the last step and the number of buckets, so finished runs of
# one plan get the same edges. Buckets are for drawing only; the judge reads every step.

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
    held = np.diff(starts, append=len(values)) > 0
    reduced = np.full(len(starts), neutral, values.dtype)
    if held.any():
        reduced[held] = operation.reduceat(values, starts[held])
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


# Several runs in one chart, with the same bucket edges, so that lines differ only where the runs
# do.
#
# Edges depend on the first and the last step of any of the runs in the range. Up to 20,000 steps
# are returned without reduction, fewer if there are more than three runs. This is for charts only;
# the judge reads every step.

RAW_STEPS = 20_000
# of all runs together: a response with thirty runs of 20,000 steps would be ten megabytes
RAW_VALUES = 60_000


@frozen(eq=False)
class Recorded:
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


def overlay(runs: Sequence[Recorded], points: int, *, log: bool = False) -> Overlay:
    """Put runs on common edges: every step up to 20,000, or 60,000 of all runs together, else at
    most `points` buckets (1 or more).

    Buckets are equally long, or have equal ratios (`log`).
    """
    grid = _union([run.steps for run in runs])
    is_raw = len(grid) <= min(RAW_STEPS, RAW_VALUES // max(1, len(runs)))
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
    held = np.append(at[1:], len(grid)) > at
    return first[held], last[held]


def _line(run: Recorded, first: NDArray[np.int64], *, is_raw: bool) -> Line:
    buckets = cut(run.values, np.searchsorted(run.steps, first))
    known = buckets.count > 0
    nonfinite, nonfinite_count = buckets.nonfinite(run.steps, run.values)
    low = high = None
    if not is_raw:
        low, high = (
            rounded(buckets.minimum(run.values), known),
            rounded(buckets.maximum(run.values), known),
        )
    return Line(
        steps_in_range=len(run.steps),
        mean=rounded(buckets.mean(run.values), known),
        minimum=low,
        maximum=high,
        seconds=None if run.seconds is None else rounded(buckets.mean(run.seconds), known),
        nonfinite=nonfinite,
        nonfinite_count=nonfinite_count,
    )


# A run's steps as CSV and Arrow streams, made piece by piece so that a long run need not fit into
# memory.
#
# CSV writes every float64 so that it reads back to the same bits (NaN as nan). An Arrow stream
# keeps all bits, also those of NaN. It is written with nanoarrow (3 MB) instead of pyarrow (165
# MB).

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"


def csv(parts: Iterable[StoredColumns], names: Sequence[str]) -> Iterator[bytes]:
    """A header, then one line per step; a column that a part lacks is nan there."""
    yield (",".join(("step", *names)) + "\n").encode()
    for part in parts:
        steps = part["step"].astype(np.int64).tolist()
        columns = [map(repr, _column(part, name).tolist()) for name in names]
        yield "".join(
            ",".join((str(step), *row)) + "\n" for step, *row in zip(steps, *columns, strict=True)
        ).encode()


def arrow(parts: Iterable[StoredColumns], names: Sequence[str]) -> Iterator[bytes]:
    """An Arrow IPC stream: `step` int64, then the columns as float64; one record batch per part."""
    kinds = {"step": nanoarrow.int64()} | dict.fromkeys(names, nanoarrow.float64())
    out = io.BytesIO()
    with StreamWriter.from_writable(out) as writer:

        def write(count: int, columns: Sequence[object]) -> None:
            children = [
                nanoarrow.c_array_from_buffers(kind, count, [None, each])
                for kind, each in zip(kinds.values(), columns, strict=True)
            ]
            writer.write_array(
                nanoarrow.c_array_from_buffers(
                    nanoarrow.struct(kinds), count, [None], children=children
                )
            )

        written = 0
        for part in parts:
            columns = (np.ascontiguousarray(_column(part, name)) for name in names)
            write(len(part["step"]), [part["step"].astype(np.int64), *columns])
            written += 1
            yield _taken(out)
        if not written:
            write(0, [b""] * len(kinds))
    yield _taken(out)


def zstd(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in one zstd frame."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    for part in parts:
        compressed = compressor.compress(part)
        if compressed:
            yield compressed
    yield compressor.flush()


def _column(part: StoredColumns, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = part.get(name)
    if values is None:
        return np.full(len(part["step"]), np.nan)
    return values


def _taken(out: io.BytesIO) -> bytes:
    content = out.getvalue()
    out.seek(0)
    out.truncate()
    return content


# The statistics by layer of one run as a table for a heat map: layers in model order, steps in
# buckets.
#
# The database has columns `layer/operand/statistic` in chunks of kind `layers` on watched steps,
# and columns `layer` of kind `layer_grad_norm`. A bucket shows the mean of its finite values; NaN
# marks an operand that is not quantized.

GRAD_NORM, SNR = "grad_norm", "snr_db"
_KIND, _NORM_KIND = "layers", "layer_grad_norm"


@frozen
class Columns:
    """What a run has recorded by layer: layers in model order, operands and statistics in
    alphabetical order.

    `statistics` are those of any operand, `of_operand` those of each.
    """

    layers: list[str]
    operands: list[str]
    statistics: list[str]
    of_operand: dict[str, list[str]]
    has_norms: bool


@frozen
class LayerTable:
    """Values by (layer, bucket); the string nan, inf or -inf if a bucket has no finite value.

    `low` and `high` are the finite extremes, `usual_low` and `usual_high` the ends of the middle 96
    % of the finite values: a scale between them shows differences that one extreme bucket would
    flatten.
    """

    layers: list[str]
    first_step: list[int]
    last_step: list[int]
    values: list[list[Number]]
    low: float | None
    high: float | None
    usual_low: float | None
    usual_high: float | None
    steps_in_range: int


def recorded(session: Session, run_id: str) -> Columns:
    """The layers, operands and statistics that a run has recorded."""
    parts = [name.rsplit("/", 2) for name in store.names(session, run_id, _KIND)]
    parts = [part for part in parts if len(part) == 3]
    norms = store.names(session, run_id, _NORM_KIND)
    operands = sorted({part[1] for part in parts})
    return Columns(
        layers=sorted({part[0] for part in parts} | set(norms), key=_model_order),
        operands=operands,
        statistics=sorted({part[2] for part in parts}),
        of_operand={
            operand: sorted({part[2] for part in parts if part[1] == operand})
            for operand in operands
        },
        has_norms=bool(norms),
    )


@frozen
class Cells:
    """What a heat map shows: a statistic of an operand of every layer, from a first to a last step,
    in at most so many buckets.

    `grad_norm` has no operand.
    """

    statistic: str
    operand: str
    first_step: int
    last_step: float
    buckets: int


def layer_table(
    session: Session, run_id: str, cells: Cells, minus: str | None = None
) -> LayerTable:
    """The values of a run; with `minus`, less those of that run, of the layers and steps that both
    have recorded.
    """
    if cells.statistic == GRAD_NORM:
        kind, ending = _NORM_KIND, ""
    else:
        kind, ending = _KIND, f"/{cells.operand}/{cells.statistic}"
    runs = [run_id, *([minus] if minus else [])]
    both = set[str].intersection(*({*store.names(session, run, kind)} for run in runs))
    layers = sorted(
        (name.removesuffix(ending) for name in both if name.endswith(ending)), key=_model_order
    )
    columns = [layer + ending for layer in layers]
    read = [
        store.read_range(session, run, kind, cells.first_step, cells.last_step, columns)
        for run in runs
    ]
    steps, table = _with_numbers(*(_difference(*read) if minus else read[0]))
    edges = np.unique(
        np.linspace(0, len(steps), min(cells.buckets, len(steps)) + 1).astype(np.int64)
    )
    starts, ends = edges[:-1], edges[1:]
    grid = np.array([_values(table[name], starts) for name in columns]).reshape(
        len(columns), len(starts)
    )
    finite = grid[np.isfinite(grid)]
    usual = np.quantile(finite, [0.02, 0.98]).tolist() if len(finite) else (None, None)
    return LayerTable(
        layers=layers,
        first_step=steps[starts].tolist() if len(steps) else [],
        last_step=steps[ends - 1].tolist() if len(steps) else [],
        values=[[number(float(f"{value:.5g}")) for value in row] for row in grid.tolist()],
        low=float(finite.min()) if len(finite) else None,
        high=float(finite.max()) if len(finite) else None,
        usual_low=usual[0],
        usual_high=usual[1],
        steps_in_range=len(steps),
    )


_Read = tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]


def _difference(own: _Read, other: _Read) -> _Read:
    """The first less the second, at the steps of both; NaN where either is not finite, because
    infinity less infinity says nothing.
    """
    steps, at, at_other = np.intersect1d(own[0], other[0], assume_unique=True, return_indices=True)
    table = {}
    for name, values in own[1].items():
        first, second = values[at], other[1][name][at_other]
        finite = np.isfinite(first) & np.isfinite(second)
        table[name] = np.where(
            finite, np.where(finite, first, 0.0) - np.where(finite, second, 0.0), np.nan
        )
    return steps, table


def _with_numbers(
    steps: NDArray[np.int64], table: dict[str, NDArray[np.float64]]
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """The steps at which a layer has a number, if there are any: gradients are compared on fewer
    steps than statistics are recorded.
    """
    if not table:
        return steps, table
    kept = ~np.all([np.isnan(column) for column in table.values()], axis=0)
    if kept.any():
        return steps[kept], {name: column[kept] for name, column in table.items()}
    return steps, table


def _values(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean (b,) of the finite values from each start (b,) to the next; else infinity if the range
    has one, else NaN.
    """
    buckets = cut(values, starts)
    infinite = reduce_ranges(np.add, np.where(np.isinf(values), values, 0.0), starts, 0.0)
    return np.where(
        buckets.count > 0, buckets.mean(values), np.where(infinite != 0.0, infinite, np.nan)
    )


def _model_order(layer: str) -> tuple[list[tuple[int, int, str]], str]:
    """Blocks by number, projections in the order of the forward pass, everything else by name."""
    return [_part_order(part) for part in re.split(r"[./]", layer)], layer


def _part_order(part: str) -> tuple[int, int, str]:
    if part.isdigit():
        return 0, int(part), ""
    if part in PROJECTIONS:
        return 1, PROJECTIONS.index(part), ""
    return 2, 0, part
