"""Looks up rows by an id from a request."""

from sqlalchemy.orm import Session, joinedload

from server.database.tables import Job, Run, is_id
from server.errors import NotFoundError


def find_job(session: Session, job_id: str) -> Job:
    """The job of this id; NotFoundError names the id."""
    job = session.get(Job, job_id) if is_id("j", job_id) else None
    if job is None:
        raise NotFoundError(f"job {job_id!r} does not exist; `parity status` lists the jobs")
    return job


def find_run(session: Session, run_id: str, *, lock: bool = False) -> Run:
    """The run of this id; NotFoundError names the id."""
    # With its arm, which nearly every response names; FOR UPDATE would lock the arm too.
    options = () if lock else (joinedload(Run.arm, innerjoin=True),)
    if is_id("r", run_id):
        run = session.get(Run, run_id, options=options, with_for_update=lock or None)
    else:
        run = None
    if run is None:
        raise NotFoundError(
            f"run {run_id!r} does not exist; the job's page and `parity status JOB` list the runs"
        )
    return run
