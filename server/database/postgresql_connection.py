"""A connection to PostgreSQL that waits a limited time for each answer.

A server that is stopped, or behind a dead network, accepts bytes and never answers, and neither a
statement's limit (the server enforces it) nor TCP notices. So the client waits for each answer
for a limited time too, and then closes the connection.

A connection from the pool is tried before its transaction, with a statement of its own. One that
has just answered, and that the server has not closed since, is not tried: the statement and its
round trip cost as much as a small transaction.
"""

import select as select_module
import time
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

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


class PostgresqlConnection(psycopg.Connection[Any]):
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


def connect(
    words: Sequence[Any], options: dict[str, Any], statement_seconds: float
) -> PostgresqlConnection:
    """A new connection with these limits; options of the URL come first. Through a pooler, each
    transaction has to set its own limit.
    """
    limits: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "options": f"-c statement_timeout={round(1000 * statement_seconds)}",
        **_TCP,
    }
    try:
        connection = PostgresqlConnection.connect(*words, **(limits | options))
    except psycopg.OperationalError as error:
        if _NO_OPTIONS not in str(error):
            raise
        del limits["options"]
        connection = PostgresqlConnection.connect(*words, **(limits | options))
    connection.patience = statement_seconds + _GRACE_SECONDS
    connection.autocommit = True
    if connection.execute("select pg_backend_pid()").fetchone() != (connection.info.backend_pid,):
        # A prepared statement would be unknown to the next process, or known to it by another's
        # name.
        connection.is_pooled, connection.prepare_threshold = True, None
    connection.autocommit = False
    return connection
