"""Cancels a job and its open runs."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.lookup import find_job
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Run
from server.jobs import lifecycle


def cancel_job(session: Session, job_id: str, message: str = "cancelled by request") -> bool:
    """Cancel a job and its open runs; False, without a change, if it had already ended. NotFoundError for an unknown id.

    At its next heartbeat the worker of a run notices the cancellation and kills the trainer's process group.
    """
    job = find_job(session, job_id)
    # Every writer locks runs before their job; the other order could deadlock with a live trainer on PostgreSQL.
    open_runs = select(Run).where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED)).order_by(Run.id).with_for_update()
    runs = session.scalars(open_runs).all()
    session.refresh(job, with_for_update=True)
    if job.status in JOB_ENDED:
        return False
    for run in runs:
        lifecycle.cancel(session, run)
    return lifecycle.end_job(session, job_id, "cancelled", message=message)
