"""Cancel a job and those of its runs that have not ended."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.lookup import find_job
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Run
from server.jobs import lifecycle


def cancel_job(session: Session, job_id: str) -> bool:
    """Cancel a job and its open runs; False, and no change, where it had ended already. NotFoundError names an unknown id.

    The trainer of a run finds at its next heartbeat that it was cancelled, and kills its process group.
    """
    job = find_job(session, job_id)
    # Every writer locks runs before their job; in the other order PostgreSQL would see a deadlock with a live trainer.
    open_runs = select(Run).where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED)).order_by(Run.id).with_for_update()
    runs = session.scalars(open_runs).all()
    session.refresh(job, with_for_update=True)
    if job.status in JOB_ENDED:
        return False
    for run in runs:
        lifecycle.cancel(session, run)
    return lifecycle.end_job(session, job_id, "cancelled", message="cancelled by request")
