"""Repairs the effects of crashes from the database alone: runs of dead workers, unjudged jobs."""

import logging
from collections.abc import Collection

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from server.concurrency.failures import log_failure
from server.database import clock
from server.database.sessions import Database
from server.database.tables import Job, Run
from server.jobs import forecasts
from server.jobs.conclude import conclude_each, unjudged_jobs
from server.settings import Settings
from workers import lease

_log = logging.getLogger(__name__)

_LOOKS_PER_SEARCH = 60
_LONGEST_TRANSACTION_SECONDS = 60.0  # between the time that a run's end states and its commit


def give_back_expired(settings: Settings, database: Database) -> list[str]:
    """Queue (or fail) every run whose lease has ended; returns their ids."""
    with database.read() as session:
        expired = [run.id for run in session.scalars(_expired(session, settings))]
    moved = []
    why = f"its worker was silent for {settings.lease_seconds:g} s"
    for run_id in expired:
        # One transaction each: it locks the run and then its job, like every other writer.
        with database.write() as session:
            run = session.scalars(
                _expired(session, settings)
                .where(Run.id == run_id)
                .with_for_update(skip_locked=True)
            ).first()
            if run and lease.give_back(
                session, run, why, attempt="lost", max_attempts=settings.max_attempts
            ):
                _log.warning("run %s: %s", run_id, why)
                moved.append(run_id)
    return moved


def _expired(session: Session, settings: Settings) -> Select[Run]:
    return select(Run).where(
        Run.state == "running",
        Run.capability != "external",
        clock.is_over(Run.lease_expires_at, clock.now(session), settings.lease_seconds),
    )


class EndedJobs:
    """Concludes every job whose last run has ended, where the worker that ended it did not, or its
    judge has died.

    The first look, and one in `_LOOKS_PER_SEARCH`, searches all open jobs; the others only those
    with a run that ended lately.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._since = 0.0
        self._again: set[str] = set()

    def conclude(self, database: Database) -> None:
        """Look once; a job that could not be concluded, or that another judge has, is looked at
        again the next time.
        """
        everything = self._looks % _LOOKS_PER_SEARCH == 0
        with database.read() as session:
            begun = clock.now(session)
            ended = session.scalars(
                _all_runs_ended(None if everything else self._since, self._again)
            ).all()
        self._again = conclude_each(database, ended)
        self._looks += 1
        self._since = begun - _LONGEST_TRANSACTION_SECONDS


def _all_runs_ended(since: float | None, again: Collection[str]) -> Select[str]:
    """The open jobs without an open run; with `since`, of those with a run that ended after it, and
    those named.
    """
    jobs = unjudged_jobs()
    if since is None:
        return jobs
    return jobs.where(
        or_(Job.id.in_(select(Run.job_id).where(Run.finished_at >= since)), Job.id.in_(again))
    )


class LiveWatch:
    """Forecasts the running jobs that have new steps since its last look; the last steps of a job
    are looked at when it is concluded.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self, database: Database) -> list[str]:
        """Look once; returns the jobs that were looked at. A job that could not be is tried
        again.
        """
        with database.read() as session:
            progress = {
                job_id: (steps, attempts)
                for job_id, steps, attempts in session.execute(_progress())
            }
        looked_at = [job_id for job_id, now in progress.items() if self._seen.get(job_id) != now]
        for job_id in looked_at:
            try:
                forecasts.watch(database, job_id)
            except Exception as error:  # noqa: BLE001
                log_failure(_log, error, f"job {job_id} could not be forecast")
                del progress[job_id]
        self._seen = progress
        return looked_at


def _progress() -> Select[str, int, int]:
    """How many steps and attempts the training runs of each job have, all together: either changes
    with every recorded step.
    """
    return (
        select(Run.job_id, func.sum(Run.steps_done), func.sum(Run.attempt_number))
        .where(Run.state == "running")
        .group_by(Run.job_id)
    )
