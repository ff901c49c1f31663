"""The metrics store: float64 columns in chunks, keyed (run, kind, attempt_number, first step).

Where attempts overlap, the newest wins from its first step on, so a curve never mixes two
attempts on the same steps. A run that reuses another's curve (`Run.reused_from`) is read from
there. NaN and Inf are kept bit for bit. Steps at equal distances are stored as the first, the
last and the count only.

A trainer writes chunks of a few steps, which hold all their columns in one value (packed): a row
and a column's row cost a database the same. Sealing merges them, in two stages, into chunks with
a row for each column, so that a reader of one column touches no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Text, cast, delete, select, tuple_
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database.metrics.checksums import column_names
from server.database.metrics.chunk_rows import Decode, packed_table, rows_of_chunk, table
from server.database.metrics.chunk_statements import (
    CHUNKS_TO_SEAL,
    DELETE_CHUNKS,
    INSERT_CHUNKS,
    INSERT_COLUMNS,
    LAST_STEP,
    PIECES,
    STRETCH,
    STRETCH_OF_COLUMNS,
)
from server.database.metrics.chunk_tables import (
    SEALED_STEPS,
    Columns,
    NewChunk,
    cut,
    join,
    joined,
    steps_between,
)
from server.database.metrics.column_codec import decode, stored
from server.database.metrics.coverage import Range
from server.database.metrics.replaced_steps import curve_of, superseded_from
from server.database.tables import Chunk, Run
from server.errors import DamagedError

SMALL_CHUNKS = 64
"""Small chunks after which they are merged: a run then has at most about twice this number that are
not full.
"""

_CHUNKS_AT_ONCE = 64
_STEPS_AT_ONCE = 4 * SEALED_STEPS


@frozen
class Piece(Range):
    """A chunk without its values."""

    attempt_number: int


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
        CHUNKS_TO_SEAL,
        {"run": run_id, "kind": kind, "attempt_number": attempt_number, "size": steps},
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
            attempt = (run_id, kind, attempt_number)
            if is_packed:
                parts = [packed_table(row, attempt) for row in group]
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
    session.connection().execute(DELETE_CHUNKS, chosen)
    _insert_all(session, cut(run_id, kind, attempt_number, table))


def _insert_all(session: Session, chunks: Sequence[NewChunk]) -> None:
    """Write chunks that are not recorded yet."""
    rows = [rows_of_chunk(chunk) for chunk in chunks]
    connection = session.connection()
    connection.execute(INSERT_CHUNKS, [row for row, _ in rows])
    columns = [column for _, column_rows in rows for column in column_rows]
    if columns:
        connection.execute(INSERT_COLUMNS, columns)


def read(
    session: Session, run_id: str, kind: str, names: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], Columns]:
    """All steps of a run and the named columns (default: all), as `read_range` returns them."""
    return read_range(session, run_id, kind, names=names)


def steps_before_damage(
    session: Session, run_id: str, kind: str
) -> tuple[NDArray[np.int64], DamagedError | None]:
    """The steps (n,) of a run before its first chunk that is not as it was written, ascending, and
    the error of that chunk; None if all chunks are intact. Columns that are stored by themselves
    are not read.
    """
    intact: list[Columns] = []
    try:
        intact.extend(tables(session, run_id, kind, names=[]))
    except DamagedError as error:
        return joined(intact, [])[0], error
    return joined(intact, [])[0], None


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


def names(session: Session, run_id: str, kind: str) -> list[str]:
    """The columns that a run has recorded, in alphabetical order."""
    curve_id = curve_of(session, run_id)
    recorded = session.scalars(
        select(cast(Chunk.columns, Text))
        .where(Chunk.run_id == curve_id, Chunk.kind == kind)
        .distinct()
    )
    return sorted({name for names in recorded for name in column_names(names)} - {"step"})


def names_by_kind(session: Session, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """The columns that any of these runs has recorded, in alphabetical order, by kind."""
    reused = session.scalars(
        select(Run.reused_from).where(Run.id.in_(run_ids), Run.reused_from.is_not(None))
    )
    is_of_runs = (Chunk.run_id.in_({*run_ids, *reused}),)
    recorded: dict[str, set[str]] = {}
    for kind, text in session.execute(
        select(Chunk.kind, cast(Chunk.columns, Text)).where(*is_of_runs).distinct()
    ):
        recorded.setdefault(kind, set()).update(column_names(text))
    return {
        kind: sorted(column_names_of_kind - {"step"})
        for kind, column_names_of_kind in recorded.items()
    }


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
    decode: Decode = decode,
) -> Iterator[Columns]:
    """The curve of a run in pieces, ascending: name -> (n,) float64, `step` among them; only steps
    from first to last.

    An attempt counts up to the first step of a newer one, so the order of attempts is the order of
    steps. Attempts after `newest_attempt` (default: none) do not count. With `column_codec.stored`
    as `decode`, columns other than `step` may be float32. Chunks may be sealed between two
    statements, so each statement reads a range of steps, whatever the chunks are by then.
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
    where = {"run": run_id, "kind": kind, "first": first_step, "last": min(last_step, LAST_STEP)}
    return [_piece(row, row.attempt_number) for row in session.connection().execute(PIECES, where)]


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
    decode: Decode,
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
        "end": min(end, LAST_STEP),
    }
    if names is None:
        rows = session.connection().execute(STRETCH, where)
    else:
        rows = session.connection().execute(STRETCH_OF_COLUMNS, where | {"names": ["step", *names]})
    for _, columns in groupby(rows, key=lambda row: row.first_step):
        part = steps_between(table([*columns], names, decode, attempt), first, end)
        if len(part["step"]):
            yield part
