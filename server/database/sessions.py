"""Connections and transactions: short writes that take their lock at the start, the database's
clock, named locks, and patience.
"""

import os
import select as select_module
import sqlite3
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, overload

import psycopg
from psycopg.pq import Format, TransactionStatus
from sqlalchemy import (
    ColumnElement,
    Engine,
    Float,
    QueuePool,
    create_engine,
    event,
    func,
    literal,
    make_url,
    select,
)
from sqlalchemy import Connection as DatabaseConnection
from sqlalchemy.engine import ExceptionContext, ExecutionContext
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session, joinedload
from sqlalchemy.pool import ConnectionPoolEntry

from server.database.tables import Job, Run, is_id
from server.errors import NotFoundError

# How long a process waits for PostgreSQL.
#
# A server that is stopped, or behind a dead network, accepts bytes and never answers, and neither a
# statement's limit (the server enforces it) nor TCP notices. So the client waits for each answer
# for a limited time too, and then closes the connection.
#
# A connection from the pool is tried before its transaction, with a statement of its own. One that
# has just answered, and that the server has not closed since, is not tried: the statement and its
# round trip cost as much as a small transaction.

STATEMENT_SECONDS = 30.0
POOL_SECONDS = 5.0
_CONNECT_SECONDS = 5
_FRESH_SECONDS = 1.0
_GRACE_SECONDS = 5.0  # more than the server's own limit, whose error says more
_NO_OPTIONS = "unsupported startup parameter"  # PgBouncer's error
_TCP = {
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_Result = TypeVar("_Result")


class Connection(psycopg.Connection[Any]):
    """A connection that waits for each answer for `patience` seconds, and is closed when none
    came.
    """

    patience: float | None = None
    is_pooled = False
    """Whether a pooler such as PgBouncer stands between: then each transaction may have another
    process of the server, and no session.
    """
    _answered_at = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether it answered within the last second, and nothing arrived since: the end of a
        connection does arrive.
        """
        if time.monotonic() - self._answered_at > _FRESH_SECONDS:
            return False
        arrivals = select_module.poll()
        arrivals.register(self.pgconn.socket, select_module.POLLIN)
        return not arrivals.poll(0)

    def wait(
        self, gen: Generator[Any, Any, _Result], interval: float = 0.1, timeout: float | None = None
    ) -> _Result:
        """As psycopg's; OperationalError where no answer came in time."""
        try:
            result = super().wait(gen, interval, timeout if timeout is not None else self.patience)
        except psycopg.OperationalError:
            # the answer may still come, to the next statement
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise
        self._answered_at = time.monotonic()
        return result


def connect(words: Sequence[Any], options: dict[str, Any], statement_seconds: float) -> Connection:
    """A new connection with these limits; options of the URL come first. Through a pooler, each
    transaction has to set its own limit.
    """
    limits: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "options": f"-c statement_timeout={round(1000 * statement_seconds)}",
        **_TCP,
    }
    try:
        connection = Connection.connect(*words, **(limits | options))
    except psycopg.OperationalError as error:
        if _NO_OPTIONS not in str(error):
            raise
        del limits["options"]
        connection = Connection.connect(*words, **(limits | options))
    connection.patience = statement_seconds + _GRACE_SECONDS
    connection.autocommit = True
    if connection.execute("select pg_backend_pid()").fetchone() != (connection.info.backend_pid,):
        # A prepared statement would be unknown to the next process, or known to it by another's
        # name.
        connection.is_pooled, connection.prepare_threshold = True, None
    connection.autocommit = False
    return connection


# Named locks: of two transactions that want to write the same thing, the second waits and then sees
# what the first wrote.


def hold_lock(session: Session, name: str) -> None:
    """Acquire the lock of this name and hold it until the transaction ends. Call it in a writing
    transaction.

    Does nothing on SQLite, which has only one writer at a time.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))


# One clock for all leases: the database's, so that a wrong clock on a worker neither loses nor
# keeps a run.
#
# With SQLite all writers are on one machine and use its clock. If that clock jumps ahead, all
# leases end at once: the runs are queued again, the old trainers are fenced, and only time is lost.

POSTGRESQL: ColumnElement[float] = func.extract("epoch", func.clock_timestamp()).cast(Float(53))


def now(session: Session) -> float:
    """Seconds since 1970 by the database's clock."""
    if session.get_bind().dialect.name == "sqlite":
        return time.time()
    return float(session.scalar(select(POSTGRESQL)) or 0.0)


def now_in(session: Session) -> ColumnElement[float]:
    """The same as an expression, for a statement that writes it."""
    if session.get_bind().dialect.name == "sqlite":
        return literal(time.time())
    return POSTGRESQL


def cannot_be_used(error: SQLAlchemyError) -> str:
    """Why a command on the server's own machine cannot read its database, and what to set."""
    return (
        f"the database cannot be used: {getattr(error, 'orig', error)}; set PARITY_DATABASE_URL or "
        "PARITY_STATE_DIR as for the server"
    )


@overload
def time_text(seconds: float) -> str: ...
@overload
def time_text(seconds: None) -> None: ...
@overload
def time_text(seconds: float | None) -> str | None: ...
def time_text(seconds: float | None) -> str | None:
    """A time as RFC 3339 text in UTC; None stays None."""
    if seconds is None:
        return None
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


# Looks up rows by an id from a request.


def find_job(session: Session, job_id: str) -> Job:
    """The job of this id; NotFoundError names the id."""
    job = session.get(Job, job_id) if is_id("j", job_id) else None
    if job is None:
        raise NotFoundError(f"job {job_id!r} does not exist; `parity status` lists the jobs")
    return job


def find_run(session: Session, run_id: str, *, lock: bool = False) -> Run:
    """The run of this id; NotFoundError names the id."""
    # With its arm, which nearly every response names; FOR UPDATE would lock the arm too.
    options = () if lock else (joinedload(Run.arm, innerjoin=True),)
    if is_id("r", run_id):
        run = session.get(Run, run_id, options=options, with_for_update=lock or None)
    else:
        run = None
    if run is None:
        raise NotFoundError(
            f"run {run_id!r} does not exist; the job's page and `parity status JOB` list the runs"
        )
    return run


# Connections and transactions: every write is one short transaction that takes its lock at the
# start.
#
# On SQLite a deferred transaction that reads and then writes can fail as busy despite any timeout,
# so a write begins with BEGIN IMMEDIATE. With WAL, readers continue during a write; with
# synchronous=FULL no commit is lost at power loss.
#
# Every wait has a limit: a process has a fixed number of connections and waits a few seconds for a
# free one (sqlalchemy.exc.TimeoutError), and a PostgreSQL server that cannot be reached, or stops
# answering, is an OperationalError after a limit (`server.database.sessions`).

CONNECTIONS = 15
IN_BINARY = "parity_binary"
"""The execution option of a statement that reads chunks: in PostgreSQL's text format they have
twice their size, written and parsed.
"""
_BUSY_TIMEOUT_MS = 15_000
_READ_ONLY = "25006"  # SQLSTATE read_only_sql_transaction: a standby, for example after a failover


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


def _postgresql(url: str, pool: dict[str, Any], statement_seconds: float) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, **pool)
    ping = engine.dialect.do_ping

    def ping_unless_fresh(dbapi_connection: Any) -> bool:
        return dbapi_connection.is_fresh or ping(dbapi_connection)

    engine.dialect.do_ping = ping_unless_fresh  # type: ignore[method-assign]

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, words: list[Any], options: dict[str, Any]
    ) -> Connection:
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
        if context.execution_options.get(IN_BINARY):
            cursor.format = Format.BINARY

    @event.listens_for(engine, "handle_error")
    def _read_only(context: ExceptionContext) -> None:
        """A server that has become a standby is away like one that cannot be reached; its
        connections are closed.
        """
        error = context.original_exception
        if getattr(error, "sqlstate", None) == _READ_ONLY:
            context.is_disconnect = True
            raise OperationalError(context.statement, context.parameters, error) from error

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

    @event.listens_for(engine, "begin")
    def _begin(connection: DatabaseConnection) -> None:
        immediate = connection.get_execution_options().get("parity_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine
