"""The dashboard: pages rendered here, made live by small ES modules; nothing is loaded from another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from sqlalchemy import select

from parity.report import headline
from server import jobs
from server.context import InContext
from server.database.models import Job, Worker
from server.documents import job_document, job_summary, worker_document
from server.errors import NotFoundError
from server.pages import words
from server.settings import Settings

_HERE = Path(__file__).parent
_JOBS_A_PAGE = 50

router = APIRouter(include_in_schema=False)
templates = Jinja2Templates(_HERE / "templates")
templates.env.filters |= words.FILTERS
templates.env.globals["headline"] = headline


def install(app: FastAPI, settings: Settings) -> None:
    """Add the pages and their assets; the chart library is served from where npm put it."""
    app.mount("/static/vendor/uplot", StaticFiles(directory=settings.assets_dir / "uplot" / "dist", check_dir=False))
    app.mount("/static", StaticFiles(directory=_HERE / "static"))
    app.include_router(router)


@router.get("/")
def home() -> Response:
    """The list of jobs is the home page."""
    return RedirectResponse("/jobs")


@router.get("/jobs")
def index(request: Request, context: InContext, before: Annotated[str | None, Query()] = None) -> Response:
    """Jobs, newest first."""
    statement = select(Job).order_by(Job.id.desc()).limit(_JOBS_A_PAGE + 1)
    if before:
        statement = statement.where(Job.id < before)
    with context.database.read() as session:
        found = [job_summary(job) for job in session.scalars(statement)]
    older = found[_JOBS_A_PAGE - 1].id if len(found) > _JOBS_A_PAGE else None
    return templates.TemplateResponse(request, "jobs.html", {"jobs": found[:_JOBS_A_PAGE], "older": older, "paged": before is not None})


@router.get("/jobs/{job_id}")
def show(job_id: str, request: Request, context: InContext) -> Response:
    """One job: the verdict, why, what next, then the evidence."""
    try:
        with context.database.read() as session:
            document = job_document(session, jobs.find(session, job_id), context.settings.lease_seconds)
    except NotFoundError as error:
        return templates.TemplateResponse(request, "missing.html", {"detail": error.detail}, status_code=404)
    return templates.TemplateResponse(request, "job.html", {"job": document})


@router.get("/workers")
def workers(request: Request, context: InContext) -> Response:
    """Who trains: the registered workers and what they run on."""
    with context.database.read() as session:
        rows = session.scalars(select(Worker).order_by(Worker.id.desc()).limit(100))
        found = [worker_document(row, context.settings.lease_seconds) for row in rows]
    return templates.TemplateResponse(request, "workers.html", {"workers": found})
