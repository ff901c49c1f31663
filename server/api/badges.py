"""Badges over REST: the worst verdict of a job as shields.io's endpoint badge reads it."""

from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.report.candidates import deciding
from parity.report.number_words import mean_words
from parity.report.view import views_of
from parity.report.words import MARKS
from parity.wording import minus
from server.database.lookups import find_job
from server.database.tables import EVALUATIONS, Job, is_id
from server.errors import NotFoundError
from server.jobs.verdict_rows import verdict_documents
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["images"])

# The colors of the pages, dark enough for white letters.
_COLORS = {"pass": "#0b6e4f", "fail": "#b3261e", "inconclusive": "#7a5c00", "none": "#5f6368"}

Named = Annotated[
    str,
    PathParameter(
        max_length=200,
        description="a job's id, or a job name, which selects the newest concluded job of that "
        "name",
    ),
]


@frozen
class Badge:
    """A badge in the format of shields.io's endpoint (schemaVersion 1)."""

    schemaVersion: int  # noqa: N815
    label: str
    message: str
    color: str


@router.get("/badges/{named:path}.json")
def badge_endpoint(named: Named, context: InContext) -> Badge:
    """The worst verdict of a job, for shields.io's endpoint badge."""
    with context.database.read() as session:
        return badge(session, named)


def badge(session: Session, job_or_name: str) -> Badge:
    """The badge of a job, or of the newest concluded job of this name, of trainings where there are
    any; the worst candidate decides.
    """
    if is_id("j", job_or_name):
        job: Job | None = find_job(session, job_or_name)
    else:
        newest = (
            select(Job)
            .where(Job.name == job_or_name, Job.status == "concluded")
            # held-out losses take the place of no training of their name
            .order_by(Job.engine == EVALUATIONS, Job.id.desc())
            .limit(1)
        )
        job = session.scalars(newest).first()
    if job is None:
        raise NotFoundError(
            f"{job_or_name!r} is neither the id of a job nor the name of a concluded job; `parity "
            "status` lists the jobs"
        )
    documents = verdict_documents(job)
    message, color = f"no verdict, {job.status}", _COLORS["none"]
    if documents:
        view = deciding(views_of(documents))
        unit = "nats of held-out loss" if job.has_evaluations else "nats"
        gap = f", gap {minus(mean_words(view))} {unit}" if view.gap else ""
        message, color = (
            f"{MARKS[view.state]} {view.candidate.name} {view.state}{gap}",
            _COLORS[view.state],
        )
    return Badge(schemaVersion=1, label="parity", message=message, color=color)
