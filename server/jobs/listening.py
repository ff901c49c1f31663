"""Until when the service has listened to the trainers of users: the silence of a run counts only
while somebody could have heard it.

Every API process renews the row `listening` of the duties. Whoever renews it after a gap (all
processes were stopped, the machine was suspended, the database was away) moves the leases of
external runs by the gap first. Nobody fails a silent run while the row is old.
"""

import logging

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from server.concurrency.repeating import Repeating
from server.database import clock
from server.database.sessions import Database
from server.database.tables import LISTENING, Duty, Run

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 3 * PERIOD_SECONDS  # between two renewals, if somebody listened in between
# A trainer that found nobody tries again after at most 60 s, give or take a half
# (`parity.client.run`).
_NEXT_TRY_SECONDS = 90.0
UNENDED = (Run.capability == "external", Run.state.in_(("running", "awaiting_data")))


def listens(session: Session) -> bool:
    """Whether an API process listens now."""
    until = session.scalar(select(Duty.expires_at).where(Duty.name == LISTENING)) or 0.0
    return clock.now(session) - until <= _LONGEST_PAUSE_SECONDS


def renew(session: Session, stale_seconds: float) -> float:
    """Note that the service listens. After a gap, move the leases of the runs that were attached
    before it; returns the gap in seconds.
    """
    row = session.get_one(Duty, LISTENING, with_for_update=True)
    now, until = clock.now(session), row.expires_at
    gap = now - until if until and now - until > _LONGEST_PAUSE_SECONDS else 0.0
    if gap:
        # Whose data came after the gap has a lease from then, and needs no other one.
        came_before = Run.lease_expires_at <= until + _LONGEST_PAUSE_SECONDS + stale_seconds
        moved = (
            update(Run)
            .where(*UNENDED, came_before)
            .values(lease_expires_at=Run.lease_expires_at + gap + _NEXT_TRY_SECONDS)
        )
        session.execute(moved.execution_options(synchronize_session=False))
    row.expires_at = now
    return gap


class Listener(Repeating):
    """The thread of an API process that renews the row, at once and then every few seconds."""

    def __init__(self, database: Database, stale_seconds: float) -> None:
        super().__init__(
            "listening",
            self._renew,
            PERIOD_SECONDS,
            "it could not be noted that this process listens",
            at_once=True,
        )
        self._database = database
        self._stale_seconds = stale_seconds

    def _renew(self) -> None:
        with self._database.write() as session:
            gap = renew(session, self._stale_seconds)
        if gap:
            _log.warning(
                "nobody listened to trainers for %.0f s; the silence of their runs in that time "
                "does not count",
                gap,
            )
