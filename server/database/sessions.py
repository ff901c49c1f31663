"""Connections and transactions: every write is one short transaction that takes its lock at the start.

On SQLite a deferred transaction that reads and then writes can fail as busy despite any timeout, so a write begins with
BEGIN IMMEDIATE. With WAL, readers continue during a write; with synchronous=FULL no commit is lost at power loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.orm import Session

_BUSY_TIMEOUT_MS = 15_000


class Database:
    """An engine and its two kinds of transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = _engine(url)
        self._writer = self.engine.execution_options(parity_write=True)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction for reading; changes are discarded."""
        with Session(self.engine, autoflush=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on an exception. Keep it short."""
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:  # the driver's own connection, untyped
        # The driver must not open transactions by itself; `_begin` below does.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_TIMEOUT_MS}"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("parity_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine
