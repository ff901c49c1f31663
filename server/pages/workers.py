"""The page of workers and of the queue: jobs that train or wait, in the order in which workers take
their runs, with what each waits for and who trains it.
"""

from collections.abc import Mapping, Sequence

from fastapi import Request, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from parity.frozen import frozen
from server.database.clock import time_text
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run
from server.documents.jobs import WHOLE
from server.documents.principals import principal_names
from server.documents.progress import last_end, seconds_left, share_done
from server.documents.workers import worker_documents
from server.jobs.workers import can_take, live_workers, why_waiting
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()

JOBS_SHOWN = 100
WORKERS_SHOWN = 100


@frozen
class QueueRow:
    """An open job: how many of its runs train and wait, why they wait, and the seconds until the
    last run ends.
    """

    job: Job
    who: str
    priority: int
    training: int
    waiting: int
    reason: str | None
    share_done: float
    eta_seconds: float | None


@router.get("/workers")
def workers(request: Request, context: InContext) -> Response:
    """The workers and the queue: who trains what, and why jobs wait."""
    with context.database.read() as session:
        values = {
            "workers": worker_documents(
                session, context.settings.lease_seconds, limit=WORKERS_SHOWN
            ),
            "training": training(session),
            "queue": queue(session, context.settings.lease_seconds),
            "shown": JOBS_SHOWN,
            "time_text": time_text,
        }
        return templates.TemplateResponse(request, "workers.html", values)


def queue(session: Session, lease_seconds: float) -> list[QueueRow]:
    """The first 100 jobs of the queue: the highest priority of an open run first, then the
    oldest.
    """
    priority = (
        select(func.max(Run.priority))
        .where(Run.job_id == Job.id, Run.state.not_in(RUN_ENDED))
        .scalar_subquery()
    )
    statement = (
        select(Job)
        .options(*WHOLE)
        .where(Job.status.not_in(JOB_ENDED))
        .order_by(priority.desc(), Job.created_at, Job.id)
    )
    jobs = session.scalars(statement.limit(JOBS_SHOWN)).all()
    live, names = (
        live_workers(session, lease_seconds),
        principal_names(session, {job.submitted_by for job in jobs}),
    )
    rows = []
    for job in jobs:
        slots = sum(worker.slots for worker in live if can_take(worker, job))
        rows.append(
            QueueRow(
                job=job,
                who=names.get(job.submitted_by or "", ""),
                priority=max(
                    (run.priority for run in job.runs if run.state not in RUN_ENDED), default=0
                ),
                training=sum(run.state == "running" for run in job.runs),
                waiting=sum(run.state in ("queued", "awaiting_data") for run in job.runs),
                reason=why_waiting(job, slots, live),
                share_done=share_done(job.runs),
                eta_seconds=last_end([*seconds_left(job.runs, slots).values()]),
            )
        )
    return rows


def training(session: Session) -> Mapping[str, Sequence[Run]]:
    """The runs that each worker is training, by the worker's id."""
    runs_by_worker: dict[str, list[Run]] = {}
    statement = (
        select(Run)
        .options(joinedload(Run.job), joinedload(Run.arm))
        .where(Run.state == "running")
        .order_by(Run.started_at, Run.id)
    )
    for run in session.scalars(statement):
        runs_by_worker.setdefault(run.worker_id or "", []).append(run)
    return runs_by_worker
