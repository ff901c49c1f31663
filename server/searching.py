"""The thread of an API process that lets searches go on when the job of their newest step has ended.

It runs here and not in the workers, which run strangers' job files and may queue nothing (`server/roles.sql`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy.orm import Session

from server.database.sessions import Database
from server.errors import TooManyError
from server.jobs.limits import check_queue
from server.repeating import Repeating
from server.searches.record import advance, waiting
from server.settings import Settings

_log = logging.getLogger(__name__)
Ring = Callable[[str], None]


class Searcher(Repeating):
    """The thread of an API process that looks once every second at searches that run, or every `reconcile_seconds` if that is less."""

    def __init__(self, settings: Settings, database: Database, ring: Ring) -> None:
        seconds = min(1.0, settings.reconcile_seconds)
        super().__init__("searches", self._look, seconds, "searches could not be looked at")
        self._settings = settings
        self._database = database
        self._ring = ring

    def _look(self) -> None:
        advance_all(self._settings, self._database, self._ring)


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
