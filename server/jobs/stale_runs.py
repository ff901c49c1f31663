"""Runs of a user's own trainer that stopped sending: marked as stale, and failed after
`external_silence_seconds`.

A stale run has not crashed: a trainer that cannot reach the server continues and sends everything
later, so the limit is long. Silence counts only while the service listened
(`server.jobs.external`).
"""

import logging
import math

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from server.database import clock
from server.database.sessions import Database
from server.database.states import SILENT
from server.database.tables import Run
from server.jobs import lifecycle
from server.jobs.external import STALE
from server.jobs.listening import UNENDED, listens
from server.settings import Settings

_log = logging.getLogger(__name__)


def mark_or_fail_stale(settings: Settings, database: Database) -> list[str]:
    """Mark attached runs without new data as stale and fail those that were silent for too long;
    returns the ids of the failed runs.

    Does nothing while no API process listens.
    """
    with database.read() as session:
        if not listens(session):
            return []
        stale = [run.id for run in session.scalars(_stale_runs(session))]
    failed: list[str] = []
    for run_id in stale:
        with database.write() as session:
            if not listens(session):  # this machine was suspended in between
                return failed
            run = session.scalars(
                _stale_runs(session).where(Run.id == run_id).with_for_update(skip_locked=True)
            ).first()
            if run and _mark_or_fail(session, settings, run):
                _log.warning(
                    "run %s has failed: it was silent for %g s",
                    run_id,
                    settings.external_silence_seconds,
                )
                failed.append(run_id)
    return failed


def _stale_runs(session: Session) -> Select[Run]:
    return select(Run).where(*UNENDED, Run.lease_expires_at < clock.now(session))


def _mark_or_fail(session: Session, settings: Settings, run: Run) -> bool:
    """Mark or fail one run; True if it was failed."""
    assert run.lease_expires_at is not None  # noqa: S101
    last_data_at = run.lease_expires_at - settings.external_stale_seconds
    seconds = clock.now(session) - last_data_at
    if seconds < settings.external_silence_seconds:
        if run.code is None:
            lifecycle.mark(
                session,
                run,
                STALE,
                f"no data for {_duration(seconds)}; the run continues when data arrives",
            )
        return False
    before = f"; before: {run.code}: {run.message}" if run.code not in (None, STALE) else ""
    message = (
        f"no data arrived for {_duration(settings.external_silence_seconds)} after the trainer "
        f"attached{before}"
    )
    return lifecycle.fail(session, run, code=SILENT, message=message, attempt="lost")


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{math.floor(seconds / size)} {unit}"
    return f"{seconds:.0f} seconds"
