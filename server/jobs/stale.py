"""What becomes of a run whose trainer, the user's own, has fallen silent: shown as stale, and failed in the end.

Stale is not crashed: a trainer that can't reach the server goes on and brings everything later, so the patience is long.
"""

from __future__ import annotations

import logging
import math

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from server.database import clock
from server.database.sessions import Database
from server.database.states import end_attempt, move_run
from server.database.tables import Run, RunState
from server.jobs.external import STALE, tell
from server.settings import Settings

_log = logging.getLogger(__name__)


def end_silent(settings: Settings, database: Database) -> list[str]:
    """Mark attached runs without data as stale, and fail those that were silent for too long; returns the ids of the failed."""
    with database.read() as session:
        silent = [run.id for run in session.scalars(_silent(session))]
    failed = []
    for run_id in silent:
        with database.write() as session:
            run = session.scalars(_silent(session).where(Run.id == run_id).with_for_update(skip_locked=True)).first()
            if run and _end_silent(session, settings, run):
                _log.warning("run %s has failed: it was silent for %g s", run_id, settings.external_silence_seconds)
                failed.append(run_id)
    return failed


def _silent(session: Session) -> Select[Run]:
    states = ("running", "awaiting_data")
    return select(Run).where(Run.capability == "external", Run.state.in_(states), Run.lease_expires_at < clock.now(session))


def _end_silent(session: Session, settings: Settings, run: Run) -> bool:
    assert run.lease_expires_at is not None  # noqa: S101 (only rows that have one are asked for)
    last_data_at = run.lease_expires_at - settings.external_stale_seconds
    seconds = clock.now(session) - last_data_at
    if seconds < settings.external_silence_seconds:
        if run.code is None:
            run.code, run.message = STALE, f"no data for {_duration(seconds)}; it goes on as soon as some comes"
            tell(session, run, run.state, code=run.code, message=run.message)
        return False
    before = f"; before: {run.code}: {run.message}" if run.code not in (None, STALE) else ""
    message = f"it was attached and then brought no data for {_duration(settings.external_silence_seconds)}{before}"
    start: RunState = run.state
    if not move_run(session, run.id, (start,), "failed", holder=run.epoch, code="SILENT", message=message, finished_at=clock.now(session)):
        return False
    end_attempt(session, run.id, run.epoch, "lost", "SILENT", message)
    tell(session, run, "failed", code="SILENT", message=message)
    return True


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{math.floor(seconds / size)} {unit}"
    return f"{seconds:.0f} seconds"
