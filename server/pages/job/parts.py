"""Parts of a job's page that are built when they are opened. Without a script each is a page."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from parity.judging.live.rules import Forecast
from server.database.lookups import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.documents.jobs import JobDocument, job_document
from server.errors import NotFoundError
from server.jobs import forecasts
from server.jobs.cost import price_of
from server.jobs.evaluations import check_has_runs
from server.pages.job.candidate_table import candidate_table
from server.pages.rendering import pages_router, templates
from server.web.context import InContext
from server.web.lab_additions import additions

router = pages_router()

Part = Literal["reasons", "forecasts", "runs"]
_FILES: Mapping[Part, str] = {
    "reasons": "candidate_reasons.html",
    "forecasts": "past_forecasts.html",
    "runs": "run_table.html",
}
_TITLES: Mapping[Part, str] = {
    "reasons": "Reasons and checks",
    "forecasts": "Forecasts while it trained",
    "runs": "Runs",
}


def part_address(job_id: str, part: Part, candidate: str = "") -> str:
    """Where a part of a job's page is; `candidate` for the part that has one."""
    query = f"?{urlencode({'candidate': candidate})}" if candidate else ""
    return f"/jobs/{job_id}/parts/{part}{query}"


@router.get("/jobs/{job_id}/parts/{part}")
def show_part(
    job_id: str,
    part: Part,
    request: Request,
    context: InContext,
    candidate: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """One part of a job's page; the page puts it in its place when it is opened."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "part of that name")
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
        values: dict[str, Any] = {
            "job": document,
            "many": len(document.arms) > 2,
            "file": _FILES[part],
            "title": _TITLES[part],
            "candidate": candidate,
            "lab": additions().about_job(session, job),
        }
        if part == "reasons":
            values["row"] = _row_of(document, candidate)
        elif part == "runs":
            values |= runs_values(document)
        else:
            values["past_forecasts"] = past_forecasts(job)
    return templates.TemplateResponse(request, "job_part.html", values)


def runs_values(document: JobDocument) -> Mapping[str, Any]:
    """What the table of runs needs."""
    return {
        "ended": document.status in JOB_ENDED,
        "runs": [(arm, run) for arm in document.arms for run in (*arm.runs, *arm.short_reruns)],
    }


def past_forecasts(job: Job) -> list[tuple[str, Forecast]]:
    """Every forecast of each candidate, oldest first."""
    return [(arm.name, look) for arm in job.arms[1:] for look in forecasts.forecasts(job, arm.name)]


def _row_of(document: JobDocument, candidate: str) -> Any:
    rows = [row for row in candidate_table(document).rows if row.verdict]
    row = next((row for row in rows if row.arm.name == candidate), None)
    if row is None:
        names = ", ".join(row.arm.name for row in rows) or "none yet"
        raise NotFoundError(
            f"job {document.id} has no verdict on candidate {candidate!r:.100}, expected one of: "
            f"{names}"
        )
    return row
