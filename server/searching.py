"""The thread of an API process that lets searches go on when the job of their newest step has ended.

It runs here and not in the workers, which run strangers' job files and may queue nothing (`server.database.roles`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.orm import Session

from server.database.sessions import Database
from server.errors import TooManyError
from server.jobs.limits import check_queue
from server.searches.record import advance, waiting
from server.settings import Settings

_log = logging.getLogger(__name__)
_CLOSE_SECONDS = 2.0
Ring = Callable[[str], None]


class Searcher:
    """Looks once every second at searches that run, or every `reconcile_seconds` if that is less."""

    def __init__(self, settings: Settings, database: Database, ring: Ring) -> None:
        self._settings = settings
        self._database = database
        self._ring = ring
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="searches", daemon=True)

    def start(self) -> None:
        """Start to look; the first look is after one period."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the search that is looked at."""
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _keep_looking(self) -> None:
        while not self._stopping.wait(min(1.0, self._settings.reconcile_seconds)):
            try:
                advance_all(self._settings, self._database, self._ring)
            except Exception:  # noqa: BLE001 (the thread must survive an unreachable database)
                _log.exception("searches could not be looked at; retrying")


def advance_all(settings: Settings, database: Database, ring: Ring) -> None:
    """Let every search go on whose newest step has ended; one whose sender's queue is full waits."""

    def may_queue(session: Session, sender: str) -> None:
        check_queue(session, settings, sender)

    with database.read() as session:
        due = waiting(session)
    for search_id in due:
        try:
            job = advance(database, search_id, may_queue)
        except TooManyError as error:
            _log.info("search %s waits: %s", search_id, error)
            continue
        except Exception:  # noqa: BLE001 (one search that cannot go on must not block the others)
            _log.exception("search %s could not go on and will be tried again", search_id)
            continue
        if job is not None:
            ring(job.capability)
