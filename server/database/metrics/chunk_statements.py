"""The SQL statements that read, write and delete chunks with their columns."""

from __future__ import annotations

from typing import Any

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
)

from server.database.sessions import BINARY_RESULTS
from server.database.tables import Chunk, ChunkColumn, table_of

# On the tables: the mapper's bulk insert takes longer than the database's.
_chunks, _columns = table_of(Chunk), table_of(ChunkColumn)
INSERT_CHUNKS, INSERT_COLUMNS = insert(_chunks), insert(_columns)
_chunk, _column = _chunks.c, _columns.c
LAST_STEP = 2**62  # no step is as large


def _attempt_matches(chunks: FromClause) -> ColumnElement[bool]:
    """The chunks of one kind of one attempt, of parameters run, kind and attempt_number."""
    columns = chunks.c
    return and_(
        columns.run_id == bindparam("run"),
        columns.kind == bindparam("kind"),
        columns.attempt_number == bindparam("attempt_number"),
    )


_PLACE = (_chunk.first_step, _chunk.last_step, _chunk.count.label("steps"))
COLUMN_NAMES = cast(_chunk.columns, Text).label("names")
PIECES = (
    select(_chunk.attempt_number, *_PLACE)
    .where(_chunk.run_id == bindparam("run"), _chunk.kind == bindparam("kind"))
    .where(_chunk.last_step >= bindparam("first"), _chunk.first_step <= bindparam("last"))
    .order_by(_chunk.attempt_number, _chunk.first_step)
)
# Chunks that are full already stay as they are.
_SMALL = case((_chunk.count < bindparam("size"), _chunk.payload)).label("payload")
CHUNKS_TO_SEAL = (
    select(*_PLACE, COLUMN_NAMES, _SMALL, _chunk.checksum)
    .where(_attempt_matches(_chunks))
    .order_by(_chunk.first_step)
)
_ROWS = (
    *_PLACE,
    COLUMN_NAMES,
    _chunk.payload,
    _chunk.checksum,
    _column.name,
    _column.payload.label("value"),
    _column.checksum.label("value_checksum"),
)
"""What `table` needs of a chunk and of a column of it, in one statement."""


def _chunks_with_columns(*conditions: ColumnElement[bool]) -> Join:
    """Every chunk with each of its columns for which the conditions hold, or with none."""
    same = (
        _column[key] == _chunk[key] for key in ("run_id", "kind", "attempt_number", "first_step")
    )
    return _chunks.outerjoin(_columns, and_(*same, *conditions))


def _stretch_statement(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The chunks of an attempt that overlap the steps from `first` to before `end`, with their
    columns.
    """
    begins = _chunks.alias()
    last_before = select(func.max(begins.c.first_step)).where(
        _attempt_matches(begins), begins.c.first_step <= bindparam("first")
    )
    overlap = (
        _chunk.first_step >= func.coalesce(last_before.scalar_subquery(), 0),
        _chunk.first_step < bindparam("end"),
        _chunk.last_step >= bindparam("first"),
    )
    chunks = (
        select(*_ROWS)
        .select_from(_chunks_with_columns(*conditions))
        .where(_attempt_matches(_chunks), *overlap)
        .order_by(_chunk.first_step)
    )
    return chunks.execution_options(**{BINARY_RESULTS: True})


_NAME_MATCHES = _column.name.in_(bindparam("names", expanding=True))
STRETCH, STRETCH_OF_COLUMNS = _stretch_statement(), _stretch_statement(_NAME_MATCHES)
DELETE_CHUNKS = delete(_chunks).where(
    _attempt_matches(_chunks), _chunk.first_step.between(bindparam("first"), bindparam("last"))
)
_RUN_MATCHES = _chunk.run_id.in_(bindparam("runs", expanding=True))
CHUNKS_OF_RUNS = (
    select(_chunk.run_id, _chunk.attempt_number, *_ROWS)
    .select_from(_chunks_with_columns(_NAME_MATCHES))
    .where(_RUN_MATCHES, _chunk.kind == bindparam("kind"))
    .order_by(_chunk.run_id, _chunk.attempt_number, _chunk.first_step)
    .execution_options(**{BINARY_RESULTS: True})
)
FIRST_STEPS = (
    select(_chunk.run_id, _chunk.attempt_number, func.min(_chunk.first_step))
    .where(_RUN_MATCHES, _chunk.kind.in_(bindparam("kinds", expanding=True)))
    .group_by(_chunk.run_id, _chunk.attempt_number)
    .order_by(_chunk.attempt_number.desc())
)
