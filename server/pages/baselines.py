"""The pages of named baselines: the list of versions, and one version with its runs, noise,
history and differences from another.
"""

from typing import Annotated

from fastapi import Query, Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.document_types import VerdictDocument
from server.database.clock import time_text
from server.database.tables import Baseline, Job, is_id
from server.documents.baselines import WHOLE, baseline_document, diff, parsed_version, summaries
from server.documents.goldens import newest_goldens
from server.errors import InvalidError, NotFoundError
from server.jobs import baselines
from server.jobs.verdict_rows import verdict_documents
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()
VERSIONS_SHOWN = 200
JOBS_JUDGED = 50


@frozen
class JudgedCandidate:
    """A candidate that was judged against a baseline: the judge's verdict document and the job."""

    job: Job
    finished_at: str | None
    verdict: VerdictDocument


@router.get("/baselines")
def index(request: Request, context: InContext) -> Response:
    """The list of versions, newest promotion first, and that of goldens."""
    with context.database.read() as session:
        rows = session.scalars(
            select(Baseline).options(*WHOLE).order_by(Baseline.id.desc()).limit(VERSIONS_SHOWN)
        ).all()
        versions = summaries(session, rows)
        newest = newest_goldens(session, VERSIONS_SHOWN)
    values = {"baselines": versions, "goldens": newest, "shown": VERSIONS_SHOWN}
    return templates.TemplateResponse(request, "baselines.html", values)


@router.get("/baselines/{name}/{version}")
def show(
    name: str,
    version: int,
    request: Request,
    context: InContext,
    other: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """One version, optionally with its differences from another version or a job."""
    requested, difference, problem = other.strip(), None, None
    with context.database.read() as session:
        row = baselines.find(session, name, version)
        document = baseline_document(session, row, context.settings.lease_seconds)
        try:
            if requested:
                difference = diff(
                    session,
                    row,
                    requested
                    if is_id("j", requested)
                    else baselines.find(session, *parsed_version(requested)),
                )
        except (NotFoundError, InvalidError) as error:
            problem = error.detail
        candidates = judged(session, row)
    values = {
        "baseline": document,
        "judged": candidates,
        "judged_of": JOBS_JUDGED,
        "requested": requested,
        "difference": difference,
        "problem": problem,
    }
    return templates.TemplateResponse(request, "baseline.html", values)


def judged(session: Session, baseline: Baseline) -> list[JudgedCandidate]:
    """The candidates of the jobs that name a version, newest first, and of the job that
    trained it.
    """
    trained_in = {one.run.job.id: one.run.job for one in baseline.runs if one.role == "member"}
    jobs: list[Job] = [*baselines.used_by(session, baseline, JOBS_JUDGED), *trained_in.values()]
    return [
        JudgedCandidate(job=job, finished_at=time_text(job.finished_at), verdict=verdict)
        for job in jobs
        for verdict in verdict_documents(job)
    ]
