"""When gap charts are stored: by the elected worker, a few seconds at a time between its other duties.

A job that has ended gets its chart once. A job in training with many steps gets one whenever its runs are half a percent longer, so that
there is nearly always one that counts (`server.gaps.stored`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from sqlalchemy import Select, exists, func, select

from server.database import clock
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Job, Run, StoredGapChart
from server.gaps.stored import store_chart

_log = logging.getLogger(__name__)
_SECONDS_AT_ONCE = 2.0
_LOOKS_PER_SEARCH = 60
_LONGEST_TRANSACTION_SECONDS = 60.0  # between the time that a job's end states and its commit
_GROWTH = 1.005
_MANY_STEPS = 1_000_000  # of all runs of a job in training; fewer are read in a tenth of a second


class ChartKeeper:
    """Stores the charts that are due. The first look, and one in `_LOOKS_PER_SEARCH`, searches all ended jobs, newest first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looks = 0
        self._since = 0.0
        self._due: dict[str, int] = {}
        self._stored: dict[str, int] = {}
        self._failed: set[str] = set()

    def work(self, in_training: Collection[str]) -> None:
        """Store charts for about two seconds; the rest waits for the next turn. `in_training` are jobs that have new steps."""
        began = time.monotonic()
        everything = self._looks % _LOOKS_PER_SEARCH == 0
        self._looks += 1
        if everything:
            self._failed.clear()
        with self._database.read() as session:
            now = clock.now(session)
            ended = session.scalars(_ended_without(None if everything else self._since)).all()
            grown = {job_id: int(steps) for job_id, steps in session.execute(_steps_of(in_training)) if self._has_grown(job_id, steps)}
        self._since = now - _LONGEST_TRANSACTION_SECONDS
        for job_id in ended:
            self._stored.pop(job_id, None)
        self._due = dict.fromkeys((job_id for job_id in ended if job_id not in self._failed), 0) | grown | self._due
        while self._due and time.monotonic() - began < _SECONDS_AT_ONCE:
            job_id = next(iter(self._due))
            steps = self._due.pop(job_id)
            try:
                store_chart(self._database, job_id)
            except Exception:  # noqa: BLE001 (one chart that cannot be computed must not block the others)
                _log.exception("the gap chart of job %s could not be stored and will be tried again", job_id)
                self._failed.add(job_id)  # until the next search: otherwise it would come first in every turn
            if steps:
                self._stored[job_id] = steps

    def _has_grown(self, job_id: str, steps: int) -> bool:
        return steps >= _MANY_STEPS and steps > _GROWTH * self._stored.get(job_id, 0)


def _ended_without(since: float | None) -> Select[str]:
    """The jobs that ended after `since` and have runs to compare but no chart, newest first."""
    compared = exists().where(Run.job_id == Job.id, Run.kind == "full")
    without = ~exists().where(StoredGapChart.job_id == Job.id)
    jobs = select(Job.id).where(Job.status.in_(JOB_ENDED), compared, without).order_by(Job.finished_at.desc(), Job.id)
    return jobs if since is None else jobs.where(Job.finished_at >= since)


def _steps_of(job_ids: Collection[str]) -> Select[str, int]:
    """The steps that the runs of these jobs have done."""
    return select(Run.job_id, func.sum(Run.steps_done)).where(Run.job_id.in_(job_ids)).group_by(Run.job_id)
