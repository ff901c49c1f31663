"""The metrics store: float64 columns in chunks, keyed (run, kind, attempt_number, first step),
encoded without loss.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise, zip_longest
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    FromClause,
    Join,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    select,
    tuple_,
)
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database.sessions import IN_BINARY
from server.database.tables import Chunk, ChunkColumn, Run, table_of
from server.errors import DamagedError

# Encodes a float64 column as bytes without loss: as float32 if that holds every value, with zstd if
# that saves space.
#
# A trainer's losses are float32, so half of their float64 bytes are redundant. Noise does not
# compress, and for a million steps unpacking would take longer than reading.

_LEVEL = 3
# The share of bytes that zstd must save to be worth unpacking, and the bytes below which it is not
# tried: it takes longer than all else.
_WORTH = 0.9
_LEAST = 512
_WIDTHS: dict[bytes, type[np.floating[Any]]] = {b"4": np.float32, b"8": np.float64}
_of_thread = threading.local()


def encode(values: NDArray[np.float64]) -> bytes:
    """The bytes of a column (n,): its width, whether it is compressed, then the values."""
    plain, width = values.tobytes(), b"8"
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
    if narrow.astype(np.float64).tobytes() == plain:
        plain, width = narrow.tobytes(), b"4"
    if len(plain) < _LEAST:
        return width + b"r" + plain
    packed = zstandard.compress(plain, _LEVEL)
    if len(packed) < _WORTH * len(plain):
        return width + b"z" + packed
    return width + b"r" + plain


def decode(content: bytes) -> NDArray[np.float64]:
    """The column (n,) that was encoded."""
    return stored(content).astype(np.float64, copy=False)


def stored(content: bytes) -> NDArray[np.floating[Any]]:
    """The column (n,) as it is stored, float32 or float64, for those who widen many at once. Do not
    write to it.
    """
    body = memoryview(content)[2:]
    plain = _decompressor().decompress(body) if content[1:2] == b"z" else body
    return np.frombuffer(plain, _WIDTHS[content[:1]])


def _decompressor() -> zstandard.ZstdDecompressor:
    """One for each thread: making one takes half as long as its work for a chunk, and threads may
    not share one.
    """
    own: zstandard.ZstdDecompressor | None = getattr(_of_thread, "decompressor", None)
    if own is None:
        own = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return own


# Which steps of a run have arrived and which are missing, from the ranges of its chunks only.
#
# Trainers log every step or every n-th one, so a gap is a distance larger than the most common
# distance of logged steps (stride). Only the first step, the last step and the count of each chunk
# are read; a hole inside a chunk is placed between that chunk's ends.

GAPS_LISTED = 100


@frozen
class Range:
    """A range of recorded steps: the first, the last and their number."""

    first_step: int
    last_step: int
    count: int

    def up_to(self, end: float, stride: int) -> Range | None:
        """The part below `end`, assuming equal distances; None if it is empty."""
        if self.last_step < end:
            return self
        if self.first_step >= end:
            return None
        steps = (int(end) - 1 - self.first_step) // stride
        return Range(
            first_step=self.first_step,
            last_step=self.first_step + steps * stride,
            count=min(self.count, steps + 1),
        )


@frozen
class Gap:
    """`missing` steps did not arrive; all of them lie between `first_step` and `last_step`."""

    first_step: int
    last_step: int
    missing: int


@frozen
class Coverage:
    """The steps of a run that have arrived. `stride` is null below two steps; at most the first 100
    gaps are listed.
    """

    recorded: int
    first_step: int | None
    last_step: int | None
    stride: int | None
    missing: int
    gaps: list[Gap]


def coverage(ranges: Sequence[Range]) -> Coverage:
    """The coverage of ascending ranges that do not overlap."""
    if not ranges:
        return Coverage(
            recorded=0, first_step=None, last_step=None, stride=None, missing=0, gaps=[]
        )
    stride = stride_of(ranges)
    gaps = _gaps(ranges, stride) if stride else []
    return Coverage(
        recorded=sum(one.count for one in ranges),
        first_step=ranges[0].first_step,
        last_step=ranges[-1].last_step,
        stride=stride,
        missing=sum(gap.missing for gap in gaps),
        gaps=gaps[:GAPS_LISTED],
    )


def stride_of(ranges: Sequence[Range]) -> int | None:
    """The most common distance between neighbouring steps, the smaller of two; None below two
    steps.
    """
    votes: Counter[int] = Counter()
    for one in ranges:
        span = one.last_step - one.first_step
        if one.count > 1 and span % (one.count - 1) == 0:
            votes[span // (one.count - 1)] += one.count - 1
    for one, following in pairwise(ranges):
        votes[following.first_step - one.last_step] += 1
    if not votes and ranges[0].count > 1:
        # a single range without a regular stride has no most common distance; then every step is
        # expected
        return 1
    return min(votes, key=lambda distance: (-votes[distance], distance), default=None)


def _gaps(ranges: Sequence[Range], stride: int) -> list[Gap]:
    gaps = []
    for one, following in zip_longest(ranges, ranges[1:]):
        inside = (one.last_step - one.first_step) // stride + 1 - one.count
        if inside > 0:
            gaps.append(Gap(first_step=one.first_step, last_step=one.last_step, missing=inside))
        missing = (following.first_step - one.last_step - 1) // stride if following else 0
        if missing > 0:
            gaps.append(
                Gap(
                    first_step=one.last_step + stride,
                    last_step=one.last_step + missing * stride,
                    missing=missing,
                )
            )
    return gaps


# Checksums: what a disk or a memory changes between a write and a read is found, and never judged.
#
# CRC-32 finds every change of up to 32 bits in a row, and of others all but one in four thousand
# million. That of a chunk covers whose it is, its steps, the names of its columns, and its values
# where they are packed; a large chunk also says whether a column of steps belongs to it, and each
# of its columns has a checksum of its own, so that a reader of one touches no other.

_PACKED, _EVEN, _UNEVEN = "packed", "even", "uneven"


def checksum(*facts: object, payload: bytes = b"") -> int:
    """The checksum of a row: of these facts in their order, and of its values."""
    return zlib.crc32(payload, zlib.crc32(repr(facts).encode()))


def _check(
    row: Any, columns: Sequence[Any], attempt: tuple[str, str, int], names: Sequence[str] | None
) -> None:
    """DamagedError unless a chunk has the checksum that it was written with; `columns` are the rows
    of those of its columns that are read, and `names` which were wanted (None: all). What was
    written before there were checksums has none.
    """
    if row.checksum is None:
        return
    whose = (*attempt, row.first_step)
    place = (*whose, row.last_step, row.steps)
    payload = row.payload
    if payload is not None:
        if row.checksum != checksum(*place, row.names, _PACKED, payload=payload):
            raise damaged(*whose, "its values")
        return
    stored = [column.name for column in columns if column.name is not None]
    if row.checksum != checksum(*place, row.names, _UNEVEN if "step" in stored else _EVEN):
        raise damaged(*whose, "its steps or columns")
    for column in columns:
        if column.name is not None and column.value_checksum != checksum(
            *place, column.name, payload=column.value
        ):
            raise damaged(*whose, f"column {column.name}")
    for name in _names(row.names):
        if name != "step" and (names is None or name in names) and name not in stored:
            raise damaged(*whose, f"column {name}")


def damaged(
    run_id: str, kind: str, attempt_number: int, first_step: int, what: str
) -> DamagedError:
    """The error of a chunk that is not as it was written."""
    where = f"run {run_id}, {kind}, attempt {attempt_number}, the chunk from step {first_step}"
    return DamagedError(
        f"{where}: {what} changed since they were recorded; `python -m server.check` lists all "
        "damage and what to do"
    )


# The metrics store: float64 columns in chunks, keyed (run, kind, attempt_number, first step).
#
# Where attempts overlap, the newest wins from its first step on, so a curve never mixes two
# attempts on the same steps. A run that reuses another's curve (`Run.reused_from`) is read from
# there. NaN and Inf are kept bit for bit. Steps at equal distances are stored as the first, the
# last and the count only.
#
# A trainer writes chunks of a few steps, which hold all their columns in one value (packed): a row
# and a column's row cost a database the same. Sealing merges them, in two stages, into chunks with
# a row for each column, so that a reader of one column touches no other.

Columns = dict[str, NDArray[np.float64]]
Recorded = tuple[NDArray[np.int64], Columns]
"""The steps (n,) of a run, and its columns: name -> (n,)."""
_Decode = Callable[[bytes], NDArray[Any]]

SEALED_STEPS = 4096
SMALL_CHUNKS = 64
"""Small chunks after which they are merged: a run then has at most about twice this number that are
not full.
"""
_PACKED_VALUES = 4096  # the most in a packed chunk, of all columns
_CHUNKS_AT_ONCE = 64
_STEPS_AT_ONCE = 4 * SEALED_STEPS
# On the tables: the mapper's bulk insert takes longer than the database's.
_chunks, _columns = table_of(Chunk), table_of(ChunkColumn)
_INSERT_CHUNKS, _INSERT_COLUMNS = insert(_chunks), insert(_columns)
_chunk, _column = _chunks.c, _columns.c
_LAST = 2**62  # no step is as large


def _attempt(chunks: FromClause) -> ColumnElement[bool]:
    """The chunks of one kind of one attempt, of parameters run, kind and attempt_number."""
    own = chunks.c
    return and_(
        own.run_id == bindparam("run"),
        own.kind == bindparam("kind"),
        own.attempt_number == bindparam("attempt_number"),
    )


_PLACE = (_chunk.first_step, _chunk.last_step, _chunk.count.label("steps"))
_NAMES = cast(_chunk.columns, Text).label("names")
_PIECES = (
    select(_chunk.attempt_number, *_PLACE)
    .where(_chunk.run_id == bindparam("run"), _chunk.kind == bindparam("kind"))
    .where(_chunk.last_step >= bindparam("first"), _chunk.first_step <= bindparam("last"))
    .order_by(_chunk.attempt_number, _chunk.first_step)
)
# Chunks that are full already stay as they are.
_SMALL = case((_chunk.count < bindparam("size"), _chunk.payload)).label("payload")
_TO_SEAL = (
    select(*_PLACE, _NAMES, _SMALL, _chunk.checksum)
    .where(_attempt(_chunks))
    .order_by(_chunk.first_step)
)
_ROWS = (
    *_PLACE,
    _NAMES,
    _chunk.payload,
    _chunk.checksum,
    _column.name,
    _column.payload.label("value"),
    _column.checksum.label("value_checksum"),
)
"""What `table` needs of a chunk and of a column of it, in one statement."""


def _with_columns(*conditions: ColumnElement[bool]) -> Join:
    """Every chunk with each of its columns for which the conditions hold, or with none."""
    same = (
        _column[key] == _chunk[key] for key in ("run_id", "kind", "attempt_number", "first_step")
    )
    return _chunks.outerjoin(_columns, and_(*same, *conditions))


def _stretch_of(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The chunks of an attempt that overlap the steps from `first` to before `end`, with their
    columns.
    """
    begins = _chunks.alias()
    last_before = select(func.max(begins.c.first_step)).where(
        _attempt(begins), begins.c.first_step <= bindparam("first")
    )
    overlap = (
        _chunk.first_step >= func.coalesce(last_before.scalar_subquery(), 0),
        _chunk.first_step < bindparam("end"),
        _chunk.last_step >= bindparam("first"),
    )
    chunks = (
        select(*_ROWS)
        .select_from(_with_columns(*conditions))
        .where(_attempt(_chunks), *overlap)
        .order_by(_chunk.first_step)
    )
    return chunks.execution_options(**{IN_BINARY: True})


_NAMED = _column.name.in_(bindparam("names", expanding=True))
_STRETCH, _STRETCH_OF_SOME = _stretch_of(), _stretch_of(_NAMED)
_DELETE_CHUNKS = delete(_chunks).where(
    _attempt(_chunks), _chunk.first_step.between(bindparam("first"), bindparam("last"))
)


@frozen
class Piece(Range):
    """A chunk without its values."""

    attempt_number: int


@frozen(eq=False)
class NewChunk:
    """A chunk to be written: `columns` are name -> (n,) float64, `step` first and ascending, n >=
    1.
    """

    run_id: str
    kind: str
    attempt_number: int
    columns: Columns

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Its primary key."""
        return self.run_id, self.kind, self.attempt_number, int(self.columns["step"][0])


def append(
    session: Session,
    run_id: str,
    kind: str,
    attempt_number: int,
    steps: NDArray[np.int64],
    columns: Mapping[str, NDArray[np.float64]],
) -> None:
    """Write steps in chunks of up to 4,096. Writing the same steps again (a retry) changes nothing.

    Args:
        steps: (n,) ascending, n >= 1.
        columns: name -> (n,) float64.
    """
    append_all(
        session, cut(run_id, kind, attempt_number, {"step": steps.astype(np.float64), **columns})
    )


def cut(run_id: str, kind: str, attempt_number: int, table: Columns) -> list[NewChunk]:
    """A table (`step` first, ascending) as chunks of up to 4,096 steps."""
    return [
        NewChunk(
            run_id=run_id,
            kind=kind,
            attempt_number=attempt_number,
            columns={name: values[at : at + SEALED_STEPS] for name, values in table.items()},
        )
        for at in range(0, len(table["step"]), SEALED_STEPS)
    ]


def append_all(session: Session, chunks: Sequence[NewChunk]) -> None:
    """Write chunks of any runs. Writing the same chunks again (a retry) changes nothing."""
    key = tuple_(Chunk.run_id, Chunk.kind, Chunk.attempt_number, Chunk.first_step)
    repeated = delete(Chunk).where(key.in_([chunk.key for chunk in chunks]))
    session.execute(repeated.execution_options(synchronize_session=False))
    _insert_all(session, chunks)


def seal(
    session: Session, run_id: str, kind: str, attempt_number: int, steps: int = SEALED_STEPS
) -> int:
    """Merge neighbouring chunks of one attempt into chunks of at most `steps` steps; returns the
    new number of chunks. Safe to repeat.

    Call it while holding the run's fence, or after the run has ended. Readers see either all of the
    change or none.
    """
    groups: list[list[Any]] = []
    size = 0
    rows = session.connection().execute(
        _TO_SEAL, {"run": run_id, "kind": kind, "attempt_number": attempt_number, "size": steps}
    )
    for row in rows:
        size += row.steps
        if groups and groups[-1][-1].names == row.names and size <= steps:
            groups[-1].append(row)
        else:
            groups.append([row])
            size = row.steps
    for group in groups:
        if len(group) > 1:
            small = [_piece(row, attempt_number) for row in group]
            is_packed = all(row.payload is not None for row in group)
            own = (run_id, kind, attempt_number)
            if is_packed:
                parts = [_packed_table(row, own) for row in group]
            else:
                parts = load(session, run_id, kind, small)
            replace(session, run_id, kind, small, join(parts))
    return len(groups)


def replace(session: Session, run_id: str, kind: str, old: Sequence[Piece], table: Columns) -> None:
    """Replace neighbouring chunks of one attempt by a table (`step` first, ascending), cut into
    chunks of up to 4,096 steps.
    """
    attempt_number = old[0].attempt_number
    chosen = {
        "run": run_id,
        "kind": kind,
        "attempt_number": attempt_number,
        "first": old[0].first_step,
        "last": old[-1].first_step,
    }
    session.connection().execute(_DELETE_CHUNKS, chosen)
    _insert_all(session, cut(run_id, kind, attempt_number, table))


def _insert_all(session: Session, chunks: Sequence[NewChunk]) -> None:
    """Write chunks that are not recorded yet."""
    rows = [_rows(chunk) for chunk in chunks]
    connection = session.connection()
    connection.execute(_INSERT_CHUNKS, [row for row, _ in rows])
    columns = [column for _, own in rows for column in own]
    if columns:
        connection.execute(_INSERT_COLUMNS, columns)


@lru_cache(1000)
def _names(text: str) -> tuple[str, ...]:
    """The columns of a chunk, `step` first."""
    return tuple(json.loads(text))


def _rows(chunk: NewChunk) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a chunk, and those of its columns if they are not packed into it."""
    columns = chunk.columns
    steps = columns["step"]
    first, last, count = int(steps[0]), int(steps[-1]), len(steps)
    key = {
        "run_id": chunk.run_id,
        "kind": chunk.kind,
        "attempt_number": chunk.attempt_number,
        "first_step": first,
    }
    names = json.dumps([*columns])
    row = {**key, "last_step": last, "count": count, "columns": list(columns), "payload": None}
    facts = (*chunk.key, last, count)
    is_even = count == 1 or np.array_equal(steps, even_steps(first, last, count))
    stored = {name: values for name, values in columns.items() if name != "step" or not is_even}
    if len(stored) * count <= _PACKED_VALUES:
        payload = encode(
            np.concatenate([*stored.values()], dtype=np.float64) if stored else np.empty(0)
        )
        row |= {"payload": payload, "checksum": checksum(*facts, names, _PACKED, payload=payload)}
        return row, []
    row["checksum"] = checksum(*facts, names, _EVEN if is_even else _UNEVEN)
    own = []
    for name, values in stored.items():
        payload = encode(np.asarray(values, np.float64))
        own.append(
            {
                **key,
                "name": name,
                "payload": payload,
                "checksum": checksum(*facts, name, payload=payload),
            }
        )
    return row, own


def even_steps(first: int, last: int, count: int) -> NDArray[np.float64]:
    """The steps of a chunk if they are at equal distances, as float64."""
    stride = (last - first) // max(count - 1, 1)
    steps = _counted(count) if stride == 1 else stride * _counted(count)
    return first + steps


@lru_cache(maxsize=4)
def _counted(count: int) -> NDArray[np.float64]:
    """0 to count - 1, made once for the chunks of a run, which are nearly all of one size."""
    numbers = np.arange(count, dtype=np.float64)
    numbers.flags.writeable = False
    return numbers


def read(
    session: Session, run_id: str, kind: str, names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], Columns]:
    """All steps of a run and the named columns (default: all), as `read_range` returns them."""
    return read_range(session, run_id, kind, names=names)


def read_range(
    session: Session,
    run_id: str,
    kind: str,
    first_step: int = 0,
    last_step: float = math.inf,
    names: Sequence[str] | None = None,
) -> tuple[NDArray[np.int64], Columns]:
    """The steps of a run from first to last, with the named columns (default: all); the newest
    attempt wins.

    Returns:
        steps (n,) int64 ascending, and name -> (n,) float64; a column that some chunk lacks is NaN
            there.
    """
    return joined(
        [*tables(session, run_id, kind, first_step, last_step, names, math.inf, stored)], names
    )


def most_steps(session: Session, run_id: str, kind: str, first_step: int, last_step: float) -> int:
    """The number of steps that a range of a curve has at most; a part of them may be replaced by a
    newer attempt.
    """
    return sum(
        piece.count
        for piece in pieces(session, curve_of(session, run_id), kind, first_step, last_step)
    )


def curve_of(session: Session, run_id: str) -> str:
    """The run under whose id the steps of a run are stored: itself, or the run whose curve it
    reuses.
    """
    run = session.get(Run, run_id)  # mostly loaded already
    return (run.reused_from if run else None) or run_id


def names(session: Session, run_id: str, kind: str) -> list[str]:
    """The columns that a run has recorded, in alphabetical order."""
    own = curve_of(session, run_id)
    recorded = session.scalars(
        select(cast(Chunk.columns, Text)).where(Chunk.run_id == own, Chunk.kind == kind).distinct()
    )
    return sorted({name for names in recorded for name in _names(names)} - {"step"})


def names_by_kind(session: Session, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """The columns that any of these runs has recorded, in alphabetical order, by kind."""
    reused = session.scalars(
        select(Run.reused_from).where(Run.id.in_(run_ids), Run.reused_from.is_not(None))
    )
    own = (Chunk.run_id.in_({*run_ids, *reused}),)
    recorded: dict[str, set[str]] = {}
    for kind, text in session.execute(
        select(Chunk.kind, cast(Chunk.columns, Text)).where(*own).distinct()
    ):
        recorded.setdefault(kind, set()).update(_names(text))
    return {kind: sorted(each - {"step"}) for kind, each in recorded.items()}


@frozen
class Outline:
    """What a curve held at one moment: its newest attempt, and ranges of steps (first, last) that
    are small enough to read one by one.
    """

    newest_attempt: int
    ranges: tuple[tuple[int, int], ...]


def outline(
    session: Session, run_id: str, kind: str, first_step: int = 0, last_step: float = math.inf
) -> Outline:
    """The ranges in which a curve can be read in transactions of its own each, with `tables(...,
    newest_attempt=)`.

    Later attempts are left out, so that the parts are of one curve; chunks may be sealed in
    between.
    """
    run_id = curve_of(session, run_id)
    limits = superseded_from(session, run_id, kind)
    ranges: list[tuple[int, int]] = []
    count = chunks = _STEPS_AT_ONCE
    for piece in pieces(session, run_id, kind, first_step, last_step):
        if piece.first_step >= limits[piece.attempt_number]:
            continue
        if count + piece.count > _STEPS_AT_ONCE or chunks == _CHUNKS_AT_ONCE:
            ranges.append((piece.first_step, piece.last_step))
            count = chunks = 0
        ranges[-1] = (ranges[-1][0], piece.last_step)
        count, chunks = count + piece.count, chunks + 1
    # Where a newer attempt begins inside a range, the older one's last steps lie in the next range
    # too.
    starts = [max(first_step, first) for first, _ in ranges]
    ends = (
        [start - 1 for start in starts[1:]] + [int(min(last_step, ranges[-1][1]))] if ranges else []
    )
    return Outline(
        newest_attempt=max(limits, default=0), ranges=tuple(zip(starts, ends, strict=True))
    )


def tables(
    session: Session,
    run_id: str,
    kind: str,
    first_step: int = 0,
    last_step: float = math.inf,
    names: Sequence[str] | None = None,
    newest_attempt: float = math.inf,
    decode: _Decode = decode,
) -> Iterator[Columns]:
    """The curve of a run in pieces, ascending: name -> (n,) float64, `step` among them; only steps
    from first to last.

    An attempt counts up to the first step of a newer one, so the order of attempts is the order of
    steps. Attempts after `newest_attempt` (default: none) do not count. With `codec.stored` as
    `decode`, columns other than `step` may be float32. Chunks may be sealed between two statements,
    so each statement reads a range of steps, whatever the chunks are by then.
    """
    run_id = curve_of(session, run_id)
    inside_range = pieces(session, run_id, kind, first_step, last_step)
    limits = superseded_from(session, run_id, kind, newest_attempt) if inside_range else {}
    for attempt_number, attempt in groupby(inside_range, key=lambda piece: piece.attempt_number):
        end = min(limits.get(attempt_number, -math.inf), last_step + 1)
        starts = [piece.first_step for piece in attempt if piece.first_step < end][
            ::_CHUNKS_AT_ONCE
        ]
        for start, stop in pairwise([*starts, end]):
            yield from _stretch(
                session, (run_id, kind, attempt_number), max(start, first_step), stop, names, decode
            )


def pieces(
    session: Session, run_id: str, kind: str, first_step: int = 0, last_step: float = math.inf
) -> list[Piece]:
    """The chunks of a run that overlap a range of steps, by attempt, ascending."""
    where = {"run": run_id, "kind": kind, "first": first_step, "last": min(last_step, _LAST)}
    return [_piece(row, row.attempt_number) for row in session.connection().execute(_PIECES, where)]


def _piece(row: Any, attempt_number: int) -> Piece:
    return Piece(
        attempt_number=attempt_number,
        first_step=row.first_step,
        last_step=row.last_step,
        count=row.steps,
    )


def load(session: Session, run_id: str, kind: str, chosen: Sequence[Piece]) -> list[Columns]:
    """The tables of these chunks of one attempt, all their columns, `step` first. Call it while
    holding the run's fence.
    """
    return [
        *_stretch(
            session,
            (run_id, kind, chosen[0].attempt_number),
            chosen[0].first_step,
            chosen[-1].last_step + 1,
            None,
            decode,
        )
    ]


def _stretch(
    session: Session,
    attempt: tuple[str, str, int],
    first: float,
    end: float,
    names: Sequence[str] | None,
    decode: _Decode,
) -> Iterator[Columns]:
    """The tables of an attempt from step `first` to before `end`, ascending, with the named columns
    (default: all), in one statement.
    """
    run_id, kind, attempt_number = attempt
    where = {
        "run": run_id,
        "kind": kind,
        "attempt_number": attempt_number,
        "first": first,
        "end": min(end, _LAST),
    }
    if names is None:
        rows = session.connection().execute(_STRETCH, where)
    else:
        rows = session.connection().execute(_STRETCH_OF_SOME, where | {"names": ["step", *names]})
    for _, columns in groupby(rows, key=lambda row: row.first_step):
        part = _between(table([*columns], names, decode, attempt), first, end)
        if len(part["step"]):
            yield part


def _between(table: Columns, first: float, end: float) -> Columns:
    """The steps of a table from `first` to before `end`; the table itself if these are all."""
    steps = table["step"]
    if steps[0] >= first and steps[-1] < end:
        return table
    inside = (steps >= first) & (steps < end)
    return {name: values[inside] for name, values in table.items()}


def table(
    rows: Sequence[Any], names: Sequence[str] | None, decode: _Decode, attempt: tuple[str, str, int]
) -> Columns:
    """The table of a chunk, `step` first, from its rows: one for each column that is stored by
    itself, or one if they are packed.

    DamagedError where they are not as they were written by this attempt (run, kind,
    attempt_number).
    """
    _check(rows[0], rows, attempt, names)
    columns: Columns = {}
    for row in rows:
        if not columns:
            columns["step"] = even_steps(row.first_step, row.last_step, row.steps)
        if row.payload is not None:
            packed = packed_columns(row, decode)
            columns |= (
                packed
                if names is None
                else {name: packed[name] for name in ("step", *names) if name in packed}
            )
        elif row.name is not None:
            columns[row.name] = decode(row.value)
    return columns


def _packed_table(row: Any, attempt: tuple[str, str, int]) -> Columns:
    """The table of a chunk whose values are packed; DamagedError as `table`."""
    _check(row, (), attempt, None)
    return {
        "step": even_steps(row.first_step, row.last_step, row.steps),
        **packed_columns(row, decode),
    }


def packed_columns(row: Any, decode: _Decode) -> Columns:
    """The stored columns of a packed chunk; `step` is not among them if the steps are at equal
    distances.
    """
    table = decode(row.payload).reshape(-1, row.steps)
    stored = _names(row.names)
    return dict(zip(stored if len(table) == len(stored) else stored[1:], table, strict=True))


def superseded_from(
    session: Session, run_id: str, kind: str, newest_attempt: float = math.inf
) -> dict[int, float]:
    """For each attempt with recorded steps (up to the newest that counts), the first step that a
    newer one replaces, infinity if none does.

    This depends on training steps for every kind: once a newer attempt has trained a step, an older
    attempt's validation losses there are replaced too, even before the newer attempt has validated.
    """
    return superseded_in_each(session, [run_id], kind, newest_attempt).get(run_id, {})


def join(parts: Sequence[Columns], names: Sequence[str] | None = None) -> Columns:
    """Tables one after another, `step` first, then the named columns (default: all, in alphabetical
    order); NaN where a part lacks one.
    """
    if names is None:
        names = sorted({name for table in parts for name in table} - {"step"})
    return {name: _joined_column(parts, name) for name in ("step", *names)}


def joined(parts: Sequence[Columns], names: Sequence[str] | None = None) -> Recorded:
    """`join`, with the steps by themselves, as whole numbers."""
    whole = join(parts, names)
    return whole.pop("step").astype(np.int64), whole


def _joined_column(parts: Sequence[Columns], name: str) -> NDArray[np.float64]:
    if not parts:
        return np.empty(0)
    return np.concatenate(
        [table[name] if name in table else np.full(len(table["step"]), np.nan) for table in parts],
        dtype=np.float64,
    )


# Reads the curves of many runs from the metrics store with a few statements: what the judge needs
# of a job of hundreds of runs.
#
# Each has the values that `store.read` returns of one run. All columns of a run are in memory at
# once, as the judge holds them anyway.

_RUNS_AT_ONCE = 8  # so that few values are in memory twice, packed and unpacked

_OF_RUNS = _chunk.run_id.in_(bindparam("runs", expanding=True))
_CHUNKS = (
    select(_chunk.run_id, _chunk.attempt_number, *_ROWS)
    .select_from(_with_columns(_NAMED))
    .where(_OF_RUNS, _chunk.kind == bindparam("kind"))
    .order_by(_chunk.run_id, _chunk.attempt_number, _chunk.first_step)
    .execution_options(**{IN_BINARY: True})
)
_FIRST_STEPS = (
    select(_chunk.run_id, _chunk.attempt_number, func.min(_chunk.first_step))
    .where(_OF_RUNS, _chunk.kind.in_(bindparam("kinds", expanding=True)))
    .group_by(_chunk.run_id, _chunk.attempt_number)
    .order_by(_chunk.attempt_number.desc())
)


def read_each(
    session: Session, run_ids: Sequence[str], kind: str, names: Sequence[str]
) -> Iterator[Recorded]:
    """Of each of these runs all steps (n,) ascending and the named columns (n,), as `store.read`
    returns them.
    """
    stored_as = [curve_of(session, run_id) for run_id in run_ids]
    limits = superseded_in_each(session, stored_as, kind)
    for start in range(0, len(stored_as), _RUNS_AT_ONCE):
        some = stored_as[start : start + _RUNS_AT_ONCE]
        parts = _parts(session, some, kind, names, limits)
        for run_id in some:
            yield joined(parts.get(run_id, []), names)


def superseded_in_each(
    session: Session, run_ids: Sequence[str], kind: str, newest_attempt: float = math.inf
) -> dict[str, dict[int, float]]:
    """`superseded_from` of each run with recorded steps; the ids are those under which the curves
    are stored.
    """
    chosen = {"runs": list({*run_ids}), "kinds": list({kind, "train"})}
    limits: dict[str, dict[int, float]] = {}
    replaced_from: dict[str, float] = {}  # by the attempts that were looked at, the newest first
    for run_id, attempt_number, first in session.connection().execute(_FIRST_STEPS, chosen):
        if attempt_number <= newest_attempt:
            limit = replaced_from.get(run_id, math.inf)
            limits.setdefault(run_id, {})[attempt_number] = limit
            replaced_from[run_id] = min(limit, first)
    return limits


def _parts(
    session: Session,
    run_ids: Sequence[str],
    kind: str,
    names: Sequence[str],
    limits: Mapping[str, Mapping[int, float]],
) -> dict[str, list[Columns]]:
    """The tables of these runs' chunks, ascending, without the steps that a newer attempt
    replaced.
    """
    rows = (
        session.connection()
        .execute(_CHUNKS, {"runs": list({*run_ids}), "kind": kind, "names": ["step", *names]})
        .all()
    )
    parts: dict[str, list[Columns]] = {}
    for (run_id, attempt_number, first), columns in groupby(
        rows, key=lambda row: (row.run_id, row.attempt_number, row.first_step)
    ):
        # of an attempt that began since: nothing
        limit = limits.get(run_id, {}).get(attempt_number, -math.inf)
        if first < limit:
            parts.setdefault(run_id, []).append(
                _between(
                    table([*columns], names, stored, (run_id, kind, attempt_number)), first, limit
                )
            )
    return parts
