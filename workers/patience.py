"""Reads and writes of a worker that wait for a database that is away, busy or full: the one place
where `PARITY_DATABASE_PATIENCE_SECONDS` is spent.

What a worker repeats by itself anyway (heartbeat, housekeeping, looking for a run) does not wait
here; it is tried again in its next period, for as long as it takes.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from server import outages
from server.database.sessions import Database
from server.settings import Settings

RETRY_SECONDS = 1.0
_AGAIN_SECONDS = 60.0  # between two lines about one outage
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Patience:
    """Tries again what failed because of the database, until it has failed for as long as the
    settings allow, or the worker stops.
    """

    def __init__(self, settings: Settings, database: Database, stopping: threading.Event) -> None:
        self._seconds = settings.database_patience_seconds
        self._database = database
        self._stopping = stopping

    def read(self, query: Callable[[Session], Result]) -> Result:
        """Read in one transaction; see `retried`."""

        def read() -> Result:
            with self._database.read() as session:
                return query(session)

        return self.retried(read)

    def written(self, change: Callable[[Session], Result]) -> Result:
        """Make a change in one transaction; see `retried`. A commit that was not confirmed is made
        again, so the change must allow that.
        """

        def write() -> Result:
            with self._database.write() as session:
                return change(session)

        return self.retried(write)

    def retried(self, work: Callable[[], Result]) -> Result:
        """Do it, and again while the database is away, busy or full. One line says so, one a minute
        that it lasts, and one that it is over.
        """
        began, logged_at = time.monotonic(), 0.0
        failure: SQLAlchemyError | None = None
        while True:
            try:
                result = work()
            except outages.OUTAGES as error:
                now = time.monotonic()
                if (
                    not outages.passes(error)
                    or now > began + self._seconds
                    or self._stopping.is_set()
                ):
                    raise
                if failure is None or now >= logged_at + _AGAIN_SECONDS:
                    _log.warning(
                        "%s; trying again for %.0f more seconds",
                        outages.reason(error),
                        began + self._seconds - now,
                    )
                    logged_at = now
                failure = error
            else:
                if failure is not None:
                    _log.warning("the database works again, after %.0f s", time.monotonic() - began)
                return result
            time.sleep(RETRY_SECONDS)
