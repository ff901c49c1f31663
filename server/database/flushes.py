"""Flushes: a few new steps at the end of a running attempt, of many runs in one transaction.

This is how nearly all steps of external runs arrive, and the only path that must be fast. Whatever is not such a flush (steps that may be
recorded already, a run that another transaction has locked or a worker trains, an attempt that has ended) is not written here: its sender
does it alone, with `server.jobs.external.append`, whose checks are the rule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    and_,
    any_,
    bindparam,
    cast,
    func,
    null,
    select,
    text,
)
from sqlalchemy.orm import Session

from server.cache import Cache
from server.database import clock, store
from server.database.group_commit import GroupCommit
from server.database.sessions import Database
from server.database.tables import Attempt, Chunk, Run, table_of

KIND = "train"
_RUNS_CHECKED = 10_000
LARGEST = 4096
"""Values in a flush, at most: larger ones cost more than their transaction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flush:
    """New steps of an attempt: `columns` are name -> (n,) float64, `step` first and strictly ascending."""

    run_id: str
    epoch: int
    columns: store.Columns
    last_loss: str

    @property
    def first_step(self) -> int:
        """The first of its steps."""
        return int(self.columns["step"][0])

    @property
    def last_step(self) -> int:
        """The last of its steps."""
        return int(self.columns["step"][-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A committed flush. `seal`: the steps up to which the run's small chunks should be merged now; None if not now."""

    seal: int | None


class Flushes:
    """The flushes of a process. Each extends its run's lease. `checked`: what was found of earlier ones, so that nobody looks twice."""

    def __init__(self, database: Database, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self.checked = Cache(_RUNS_CHECKED)
        self._group: GroupCommit[Flush, Written | None] = GroupCommit(database, self._write, key=lambda flush: flush.run_id)

    def write(self, flush: Flush) -> Written | None:
        """Write a flush and return after its commit; None if it has to be written alone, and nothing was."""
        return self._group.submit(flush)

    def _write(self, session: Session, flushes: Sequence[Flush]) -> list[Written | None]:
        return write(session, flushes, self._lease_seconds)


def write(session: Session, flushes: Sequence[Flush], lease_seconds: float) -> list[Written | None]:
    """Write flushes of different runs, each under its run's fence; None for each that has to be written alone."""
    # Plain statements, built once: the mapper's work, and building them, would take longer than running them.
    connection = session.connection()
    statements = _STATEMENTS[connection.dialect.name]
    ids = {"ids": statements.list_of([flush.run_id for flush in flushes])}
    locked = {row.id: row for row in connection.execute(statements.locked, ids)}
    recorded = {row.run_id: row for row in connection.execute(statements.recorded, ids)}
    rows: list[dict[str, Any]] = []
    answers: list[Written | None] = []
    for flush in flushes:
        run, before = locked.get(flush.run_id), recorded.get(flush.run_id)
        is_held = run is not None and run.epoch == flush.epoch
        if run and before and is_held and (before.last_step is None or before.last_step < flush.first_step):
            rows.append(_row(flush, run, before, lease_seconds))
            answers.append(Written(seal=_seal_due(before.last_step, flush)))
        else:
            answers.append(None)
    if rows:
        statements.write(connection, rows)
    return answers


def speed(first_step: int | None, last_step: int, began_at: float, now: float) -> float | None:
    """Steps per second of an attempt; None before its second flush."""
    return (last_step - first_step) / (now - began_at) if first_step is not None and last_step > first_step and now > began_at else None


def _row(flush: Flush, run: Row[Any], before: Row[Any], lease_seconds: float) -> dict[str, Any]:
    """What a flush writes: the row of its chunk, and its run's progress."""
    now = before.now or time.time()
    return store.packed_row(store.NewChunk(run_id=flush.run_id, kind=KIND, epoch=flush.epoch, columns=flush.columns)) | {
        "steps_done": min(run.planned_steps, flush.last_step + 1),
        "last_loss": flush.last_loss,
        "lease_expires_at": now + lease_seconds,
        "recorded_at": now,
        "steps_per_second": speed(before.first_step, flush.last_step, before.started_at, now) or run.steps_per_second,
    }


def _seal_due(last_step: int | None, flush: Flush) -> int | None:
    """Whether a number of flushes, or of steps, is full with this one, from the last steps before and after it alone."""
    if last_step is None:
        return None
    count, advance = len(flush.columns["step"]), flush.last_step - last_step

    def is_full(size: int) -> bool:
        return flush.last_step // size != last_step // size

    if is_full(max(1, advance // count) * store.SEALED_STEPS):
        return store.SEALED_STEPS
    small = store.SMALL_CHUNKS * count
    return small if small < store.SEALED_STEPS and is_full(store.SMALL_CHUNKS * advance) else None


_RUNS, _ATTEMPTS = table_of(Run), table_of(Attempt)
_runs, _attempts, _chunks = _RUNS.c, _ATTEMPTS.c, table_of(Chunk).c
_CHUNK = ("run_id", "epoch", "first_step", "last_step", "count", "columns", "payload")
_PROGRESS = ("steps_done", "last_loss", "lease_expires_at", "recorded_at", "steps_per_second")
_OWN = (_chunks.run_id == _attempts.run_id, _chunks.epoch == _attempts.epoch, _chunks.kind == KIND)
_FIRST = select(func.min(_chunks.first_step)).where(*_OWN).correlate(_ATTEMPTS).scalar_subquery()
# Chunks of an attempt do not overlap, so the last one has the last step.
_LAST = select(_chunks.last_step).where(*_OWN).order_by(_chunks.first_step.desc()).limit(1).correlate(_ATTEMPTS).scalar_subquery()


def _locked(among: ColumnElement[bool]) -> Select[Any]:
    """The running ones of some runs of engine external, in the order in which every writer locks them.

    A run that is locked is left out, because all others would wait for it.
    """
    ours = (among, _runs.state == "running", _runs.capability == "external")
    running = select(_runs.id, _runs.epoch, _runs.planned_steps, _runs.steps_per_second).where(*ours)
    return running.where(_runs.code.is_(None)).order_by(_runs.id).with_for_update(skip_locked=True)


def _recorded(among: ColumnElement[bool], now: ColumnElement[Any]) -> Select[Any]:
    """What their newest attempts have recorded, and the database's time.

    A statement of its own: it has to see what was committed before the locks were acquired.
    """
    columns = (_attempts.run_id, _attempts.started_at, _FIRST.label("first_step"), _LAST.label("last_step"), now.label("now"))
    return select(*columns).join(_RUNS, and_(_attempts.run_id == _runs.id, _attempts.epoch == _runs.epoch)).where(among)


class _Sqlite:
    """The statements for SQLite."""

    _ids: BindParameter[Any] = bindparam("ids", expanding=True)
    locked = _locked(_runs.id.in_(_ids))
    recorded = _recorded(_attempts.run_id.in_(_ids), null())
    _insert = text(f"insert into chunks (kind, {', '.join(_CHUNK)}) values ('{KIND}', {', '.join(f':{name}' for name in _CHUNK)})")  # noqa: S608
    _update = text(f"update runs set {', '.join(f'{name} = :{name}' for name in _PROGRESS)} where id = :run_id")  # noqa: S608

    @staticmethod
    def list_of(ids: list[str]) -> list[str]:
        """The parameter of `locked` and `recorded`."""
        return ids

    @classmethod
    def write(cls, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Write the rows of `_row`."""
        connection.execute(cls._insert, rows)
        connection.execute(cls._update, rows)


class _Postgresql:
    """The statements for PostgreSQL. They pass arrays, which takes a third of the time of a statement for each flush.

    The arrays are passed as text in PostgreSQL's syntax: psycopg needs longer to make it from a list than the database for the statement.
    """

    _ids = any_(cast(bindparam("ids", type_=String), ARRAY(String)))
    locked = _locked(_runs.id == _ids)
    recorded = _recorded(_attempts.run_id == _ids, clock.POSTGRESQL)
    _kinds = dict.fromkeys((*_CHUNK, *_PROGRESS), "bigint") | dict.fromkeys(("run_id", "last_loss"), "text")
    _kinds |= dict.fromkeys(("lease_expires_at", "recorded_at", "steps_per_second"), "float8") | {"columns": "json", "payload": "bytea"}
    _write = text(
        f"with flush as (select * from unnest({', '.join(f'cast(:{name} as {kind}[])' for name, kind in _kinds.items())})"  # noqa: S608
        f" as flush ({', '.join(_kinds)})),"
        f" chunk as (insert into chunks (kind, {', '.join(_CHUNK)}) select '{KIND}', {', '.join(_CHUNK)} from flush)"
        f" update runs set {', '.join(f'{name} = flush.{name}' for name in _PROGRESS)} from flush where runs.id = flush.run_id"
    )

    @staticmethod
    def list_of(ids: list[str]) -> str:
        """The parameter of `locked` and `recorded`."""
        return _array(ids)

    @classmethod
    def write(cls, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Write the rows of `_row`."""
        connection.execute(cls._write, {name: _array([row[name] for row in rows]) for name in cls._kinds})


def _array(values: Sequence[str | bytes | float | None]) -> str:
    """Values as the text of a PostgreSQL array (https://www.postgresql.org/docs/15/arrays.html#ARRAYS-IO)."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | bytes | float | None) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return '"\\\\x' + value.hex() + '"'
    return "NULL" if value is None else repr(value)


_STATEMENTS: dict[str, type[_Sqlite] | type[_Postgresql]] = {"sqlite": _Sqlite, "postgresql": _Postgresql}
