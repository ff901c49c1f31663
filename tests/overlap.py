"""Two writers that overlap on PostgreSQL: the second begins before the first has committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, event, func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from server.database.sessions import Database
from server.database.tables import Job, Run

_SECONDS = 30.0
_WAITS = text(
    "select exists (select from pg_locks where not granted and :first = any(pg_blocking_pids(pid)))"
)
Work = Callable[[Session], Any]


@dataclass(frozen=True)
class Overlap:
    """What each of the two returned (or the second raised), and whether the second waited."""

    first: Any
    second: Any
    waited: bool


def overlap(database: Database, first: Work, second: Work) -> Overlap:
    """Do `first` in a transaction that commits once `second` has ended or waits for it.

    `second` has a transaction of its own, in another thread.
    """

    def write() -> Any:
        with database.write() as session:
            return second(session)

    return overlap_with(database, first, write)


def overlap_with(database: Database, first: Work, second: Callable[[], Any]) -> Overlap:
    """The same for a `second` that has transactions of its own."""
    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            one = first(session)
            session.flush()
            holder = session.scalar(select(func.pg_backend_pid()))
            other = pool.submit(second)
            waited = waits_for(database, holder, other)
        return Overlap(one, _outcome(other), waited)


def waits_for(database: Database, holder: int | None, other: Future[Any]) -> bool:
    """Whether somebody waits for a lock of a process of the server before `other` has ended."""
    until = time.monotonic() + _SECONDS
    with database.read() as session:
        while not other.done():
            if session.scalar(_WAITS, {"first": holder}):
                return True
            assert time.monotonic() < until, "the second neither ended nor waited for the first"
            time.sleep(0.002)
    return False


def _outcome(other: Future[Any]) -> Any:
    error = other.exception(_SECONDS)
    return error if error is not None else other.result()


def locked_out_of_order(database: Database, job_id: str, work: Callable[[], Any]) -> list[str]:
    """What `work` holds of a job while it waits for the first of its runs.

    That is nothing if it locks the runs of a job in the order of their ids, and before their job;
    ["nothing waits"] if it does not wait. Whatever reads whole tables meets the first run last, as
    it was written last; and no index or sorted join may give the order that is to be asked for.
    """
    event.listen(database.engine, "begin", _read_whole_tables)
    with database.write() as session:
        first, *others = session.scalars(
            select(Run.id).where(Run.job_id == job_id).order_by(Run.id)
        ).all()
        for statement in (
            "update runs set priority = priority where id = :id",
            "update attempts set state = state where run_id = :id",
        ):
            session.execute(text(statement), {"id": first})
    with ThreadPoolExecutor(1) as pool:  # noqa: SIM117
        with database.write() as session:
            session.get_one(Run, first, with_for_update=True)
            other = pool.submit(work)
            if waits_for(database, session.scalar(select(func.pg_backend_pid())), other):
                rows: list[tuple[Any, str]] = [*((Run, each) for each in others), (Job, job_id)]
                held = [row.__name__ for row, key in rows if _is_locked(database, row, key)]
            else:
                held = ["nothing waits"]
    other.result(_SECONDS)
    return held


def _read_whole_tables(connection: Connection) -> None:
    for way in ("indexscan", "indexonlyscan", "bitmapscan", "mergejoin"):
        connection.exec_driver_sql(f"set local enable_{way} = off")


def _is_locked(database: Database, row: Any, key: str) -> bool:
    try:
        with database.write() as session:
            session.get_one(row, key, with_for_update={"nowait": True})
    except OperationalError as error:
        assert "could not obtain lock" in str(error)  # noqa: PT017
        return True
    return False
