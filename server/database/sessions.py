"""Connections and transactions: every write is one short transaction that takes its lock at the
start.

On SQLite a deferred transaction that reads and then writes can fail as busy despite any timeout,
so a write begins with BEGIN IMMEDIATE. With WAL, readers continue during a write; with
synchronous=FULL no commit is lost at power loss.

Every wait has a limit: a process has a fixed number of connections and waits a few seconds for a
free one (sqlalchemy.exc.TimeoutError), and a PostgreSQL server that cannot be reached, or stops
answering, is an OperationalError after a limit (`server.database.postgresql_connection`). A full
disk is one of its own (`server.outages`).
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from psycopg.pq import Format
from sqlalchemy import Connection as DatabaseConnection
from sqlalchemy import Engine, QueuePool, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext, ExecutionContext
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from server.database.postgresql_connection import (
    PostgresqlConnection,
    connect,
)
from server.full_disk import has_no_room
from server.outages import DISK_FULL, READ_ONLY, DatabaseFullError

CONNECTIONS = 15
STATEMENT_SECONDS = 30.0
POOL_SECONDS = 5.0
BINARY_RESULTS = "parity_binary"
"""The execution option of a statement that reads chunks: in PostgreSQL's text format they have
twice their size, written and parsed.
"""
_BUSY_TIMEOUT_MS = 15_000


class Database:
    """An engine and its two kinds of transaction.

    connections: how many a process opens at most; statement_seconds: PostgreSQL's limit for one
    statement.
    """

    def __init__(
        self, url: str, connections: int = CONNECTIONS, statement_seconds: float = STATEMENT_SECONDS
    ) -> None:
        self.url = url
        pool = {
            "poolclass": QueuePool,
            "pool_size": connections,
            "max_overflow": 0,
            "pool_timeout": POOL_SECONDS,
        }
        sqlite = make_url(url).get_backend_name() == "sqlite"
        self.engine = _sqlite(url, pool) if sqlite else _postgresql(url, pool, statement_seconds)
        self._writer = self.engine.execution_options(parity_write=True)
        self._is_closed = False
        event.listen(self.engine, "checkin", self._let_go)

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
        """Close all connections; one that a thread still uses is closed when the thread gives it
        back.
        """
        self._is_closed = True
        self.engine.dispose()

    def _let_go(self, connection: Any, record: ConnectionPoolEntry) -> None:
        if self._is_closed and connection is not None:
            record.invalidate()


def cannot_be_used(error: SQLAlchemyError) -> str:
    """Why a command on the server's own machine cannot use its database, and what to do."""
    if isinstance(error, DatabaseFullError):
        return f"the disk of the database is full ({error.orig}); free space on it, and retry"
    return (
        f"the database cannot be used: {getattr(error, 'orig', error)}; set PARITY_DATABASE_URL or "
        "PARITY_STATE_DIR as for the server"
    )


def _postgresql(url: str, pool: dict[str, Any], statement_seconds: float) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, **pool)
    ping = engine.dialect.do_ping

    def ping_unless_fresh(dbapi_connection: Any) -> bool:
        return dbapi_connection.is_fresh or ping(dbapi_connection)

    engine.dialect.do_ping = ping_unless_fresh  # type: ignore[method-assign]

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, words: list[Any], options: dict[str, Any]
    ) -> PostgresqlConnection:
        return connect(words, options, statement_seconds)

    limit = f"SET LOCAL statement_timeout = {round(1000 * statement_seconds)}"

    @event.listens_for(engine, "begin")
    def _limit(connection: DatabaseConnection) -> None:
        if getattr(connection.connection.driver_connection, "is_pooled", False):
            connection.exec_driver_sql(limit)

    @event.listens_for(engine, "before_cursor_execute")
    def _format(
        _connection: DatabaseConnection,
        cursor: Any,
        _text: str,
        _values: object,
        context: ExecutionContext,
        _many: bool,
    ) -> None:
        if context.execution_options.get(BINARY_RESULTS):
            cursor.format = Format.BINARY

    @event.listens_for(engine, "handle_error")
    def _read_only_or_full(context: ExceptionContext) -> None:
        """A server that has become a standby is away like one that cannot be reached; its
        connections are closed.
        """
        error = context.original_exception
        if getattr(error, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True
            raise OperationalError(context.statement, context.parameters, error) from error
        if getattr(error, "sqlstate", None) == DISK_FULL:
            raise DatabaseFullError(context.statement, context.parameters, error) from error

    return engine


def keep_private(url: str) -> None:
    """Make the file of an SQLite database private to its owner, before SQLite makes it; its -wal
    and -shm files get the same mode.
    """
    name = make_url(url).database
    if not name or name == ":memory:" or name.startswith("file:"):
        return
    with suppress(FileExistsError, FileNotFoundError):  # SQLite reports a missing folder itself
        # Never opened if it exists: closing it would release the locks that SQLite holds on it in
        # this process.
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for ending in ("", "-wal", "-shm"):
        # another user's file is that user's affair
        with suppress(FileNotFoundError, PermissionError):
            path = Path(name + ending)
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)


def _use_wal(connection: Any) -> None:
    """Set the file to WAL: SQLite refuses this at once, despite busy_timeout, while another
    connection writes to a new file or sets it.
    """
    until = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _sqlite(url: str, pool: dict[str, Any]) -> Engine:
    engine = create_engine(url, **pool)

    @event.listens_for(engine, "do_connect")
    def _private(
        _dialect: object, _record: object, _words: list[Any], _options: dict[str, Any]
    ) -> None:
        keep_private(url)

    @event.listens_for(engine, "connect")
    # the driver's own connection, untyped
    def _configure(connection: Any, _record: object) -> None:
        # The driver must not open transactions by itself; `_begin` below does.
        connection.isolation_level = None
        for pragma in (f"busy_timeout={_BUSY_TIMEOUT_MS}", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        _use_wal(connection)

    folder = Path(make_url(url).database or "").absolute().parent

    @event.listens_for(engine, "handle_error")
    def _full(context: ExceptionContext) -> None:
        """SQLite reports a full disk as such where it writes the database or its log, and as an
        I/O error where it makes or extends the files next to them.
        """
        error = context.original_exception
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        is_other = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        if code == sqlite3.SQLITE_FULL or (is_other and has_no_room(folder)):
            raise DatabaseFullError(context.statement, context.parameters, error) from error

    @event.listens_for(engine, "begin")
    def _begin(connection: DatabaseConnection) -> None:
        immediate = connection.get_execution_options().get("parity_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine
