"""Repairs the effects of crashes from the database alone: runs of dead workers, lost doorbells, unjudged jobs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Select, select

from server.database import clock
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Job, Run
from server.jobs import futility
from server.jobs.conclude import conclude
from server.settings import Settings
from workers import lease

_log = logging.getLogger(__name__)


def give_back_expired(settings: Settings, database: Database) -> list[str]:
    """Queue (or fail) every run whose lease has ended; returns their ids."""
    with database.read() as session:
        expired = [run.id for run in session.scalars(_expired(clock.now(session)))]
    moved = []
    why = f"its worker was silent for {settings.lease_seconds:g} s"
    for run_id in expired:
        # One transaction each: it locks the run and then its job, like every other writer.
        with database.write() as session:
            run = session.scalars(_expired(clock.now(session)).where(Run.id == run_id).with_for_update(skip_locked=True)).first()
            if run and lease.give_back(session, run, why, attempt="lost", max_attempts=settings.max_attempts):
                _log.warning("run %s: %s", run_id, why)
                moved.append(run_id)
    return moved


def _expired(now: float) -> Select[Run]:
    return select(Run).where(Run.state == "running", Run.capability != "external", Run.lease_expires_at < now)


def conclude_ended(database: Database) -> None:
    """Conclude every job whose last run has ended."""
    with database.read() as session:
        open_jobs: Sequence[str] = session.scalars(select(Job.id).where(Job.status.not_in(JOB_ENDED))).all()
    for job_id in open_jobs:
        try:
            conclude(database, job_id)
        except Exception:  # noqa: BLE001 (one job that cannot be concluded must not block the others)
            _log.exception("job %s could not be concluded and will be tried again", job_id)


def watch_running(database: Database) -> None:
    """Look for futile pairs in every running job."""
    with database.read() as session:
        running = session.scalars(select(Job.id).where(Job.status == "running")).all()
    for job_id in running:
        try:
            with database.write() as session:
                futility.watch(session, job_id)
        except Exception:  # noqa: BLE001 (a failure for one job must not block the others)
            _log.exception("job %s could not be watched for early stop", job_id)
