"""Whether the database, its migrations and the broker are ready; and alembic's configuration,
without which workers start sooner.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache

import redis
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from anyio import CapacityLimiter
from sqlalchemy import text, update
from sqlalchemy.exc import SQLAlchemyError

from server import outages
from server.database.sessions import Database
from server.database.tables import READINESS, Duty
from server.queue import redis_client
from server.settings import CHECKOUT, Settings

_log = logging.getLogger(__name__)
_SEE_LOG = "see the server's log for the reason"
ANSWER_SECONDS = 1.8
"""Time for all checks together: an orchestrator asks with a limit of a few seconds."""
_CURRENT_SECONDS = 1.0
# PostgreSQL updates a row in room that its files have already, so a full disk shows only where it
# needs more: here in a temporary file of some hundred kilobytes.
_TAKES_ROOM = (
    "SET LOCAL work_mem = '64kB'",
    "SELECT count(*) FROM generate_series(1, 20000)",
)
NEEDED = "database"
"""The part without which nothing works; without the broker workers look for work by themselves."""


def alembic_config(url: str) -> Config:
    """Alembic's configuration for a database."""
    config = Config(CHECKOUT / "alembic.ini")
    config.set_main_option("script_location", str(CHECKOUT / "migrations"))
    # Alembic interpolates %; a URL may have a %-escaped password.
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


class Readiness:
    """Whether this process can serve: its checks run in threads of their own, so that an answer
    comes in time whatever hangs.

    Each check runs once at a time, and its result counts for a second, however often the
    unauthenticated route is asked.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._checks: dict[str, Callable[[], str | None]] = {
            NEEDED: lambda: _database_problem(database),
            "broker": lambda: _broker_problem(settings.redis),
        }
        self.threads = CapacityLimiter(4)
        """Of the requests that ask: those that wait for a part that hangs take no thread from
        others, nor wait for them.
        """
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[float, Future[str | None]]] = {}

    def problems(self) -> dict[str, str]:
        """A sentence for each part that does not work, by its name (`NEEDED` or `broker`), after at
        most `ANSWER_SECONDS`.
        """
        end = time.monotonic() + ANSWER_SECONDS
        pending = {name: self._result(name) for name in self._checks}
        sentences = {}
        for name, result in pending.items():
            try:
                sentences[name] = result.result(max(0.0, end - time.monotonic()))
            except TimeoutError:
                sentences[name] = f"the {name} has not answered for {ANSWER_SECONDS:g} s"
        return {name: sentence for name, sentence in sentences.items() if sentence}

    def _result(self, name: str) -> Future[str | None]:
        with self._lock:
            begun, result = self._begun.get(name, (-math.inf, None))
            if result is not None and (
                not result.done() or time.monotonic() - begun < _CURRENT_SECONDS
            ):
                return result
            result = Future()
            self._begun[name] = (time.monotonic(), result)
        threading.Thread(
            target=_complete, args=(result, self._checks[name]), name=f"ready-{name}", daemon=True
        ).start()
        return result


def _complete(result: Future[str | None], check: Callable[[], str | None]) -> None:
    try:
        result.set_result(check())
    except Exception as error:  # noqa: BLE001
        result.set_exception(error)


def _database_problem(database: Database) -> str | None:
    """Reads the migration, and writes a row: a full disk or a standby can be read.

    This needs no token, so hosts and users appear in the log only, not in the sentence.
    """
    expected = _heads()
    try:
        with database.engine.connect() as connection:
            current = set(MigrationContext.configure(connection).get_current_heads())
    except SQLAlchemyError as error:
        _log.warning("the database cannot be read: %s", outages.reason(error))
        return f"the database cannot be read: {outages.cause(error)}; {_SEE_LOG}"
    if current != expected:
        return (
            f"the database is at migration {', '.join(current) or 'none'}, expected "
            f"{', '.join(expected)}: run `alembic upgrade head`"
        )
    try:
        with database.write() as session:
            session.execute(
                update(Duty).where(Duty.name == READINESS).values(expires_at=time.time())
            )
            if session.get_bind().dialect.name == "postgresql":
                for statement in _TAKES_ROOM:
                    session.execute(text(statement))
    except SQLAlchemyError as error:
        _log.warning("the database can be read, and writes fail: %s", outages.reason(error))
        is_full = isinstance(error, outages.DatabaseFullError)
        remedy = "free space on it" if is_full else _SEE_LOG
        return f"the database can be read, and writes fail: {outages.cause(error)}; {remedy}"
    return None


@cache
def _heads() -> frozenset[str]:
    """The newest migrations of this version; read once, since a readiness check comes every few
    seconds.
    """
    return frozenset(ScriptDirectory.from_config(alembic_config("")).get_heads())


def _broker_problem(url: str) -> str | None:
    try:
        redis_client(url, seconds=ANSWER_SECONDS / 2).ping()
    except redis.RedisError as error:
        _log.warning("the broker does not answer: %s", error)
        return f"the broker does not answer; {_SEE_LOG}"
    return None
