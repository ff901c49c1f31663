"""The gap chart of a whole run, stored: reading 90 runs of a million steps takes seconds, and a page opens with this chart.

A row holds what `gap_chart` gives of all candidates in `BINS` bins. It counts only while nothing that it was computed from has changed
(`server.gaps.inputs`), for a job in training also until its runs are 1 % longer. A chart of a part of the steps is never stored.
"""

from __future__ import annotations

from collections.abc import Collection

import zstandard
from pydantic import TypeAdapter
from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session

from server.cache import Cache
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Job, Run, StoredGapChart
from server.gaps.chart import GapChart, gap_chart
from server.gaps.inputs import OUTGROWN, Extents, extents, made_from, steps_of
from server.gaps.pairs import Range

BINS = 150
"""Bins of the chart that is stored: those of a request that names no number, such as the job page's first one."""

_CHART = TypeAdapter(GapChart)


def stored_chart(session: Session, job: Job, recorded: Extents) -> GapChart | None:
    """The stored chart of a job's candidates, None if there is none that counts."""
    row = session.get(StoredGapChart, job.id)
    if row is None or row.made_from != made_from(job, recorded):
        return None
    if job.status not in JOB_ENDED and steps_of(recorded) > OUTGROWN * row.steps:
        return None
    return _CHART.validate_json(zstandard.decompress(row.content))


def has_chart(session: Session, job_id: str) -> bool:
    """Whether a chart is stored, which may be out of date."""
    return session.scalar(select(StoredGapChart.job_id).where(StoredGapChart.job_id == job_id)) is not None


def store_chart(database: Database, job_id: str) -> bool:
    """Compute the chart of a job and store it in place of an earlier one; False if the job is gone or changed meanwhile."""
    with database.read() as session:
        job = session.get(Job, job_id)
        if job is None:
            return False
        recorded = extents(session, job)
        own = made_from(job, recorded)
        chart = gap_chart(Cache(1), session, job, job.arms[1:], Range(bins=BINS), recorded)
    row = {"made_from": own, "steps": steps_of(recorded), "content": zstandard.compress(_CHART.dump_json(chart))}
    with database.write() as session:
        job = session.get(Job, job_id, with_for_update=True)
        # PostgreSQL shows a reader what others commit meanwhile, so that the chart may be of other steps than `recorded`.
        if job is None or made_from(job, extents(session, job)) != own:
            return False
        session.execute(delete(StoredGapChart).where(StoredGapChart.job_id == job_id))
        session.add(StoredGapChart(job_id=job_id, **row))
    return True


def drop_charts(session: Session, run_ids: Collection[str]) -> None:
    """Delete the stored charts of the jobs that use the curves of these runs, in the transaction that deletes steps of them."""
    jobs = select(Run.job_id).where(or_(Run.id.in_(run_ids), Run.reused_from.in_(run_ids)))
    session.execute(delete(StoredGapChart).where(StoredGapChart.job_id.in_(jobs)).execution_options(synchronize_session=False))
