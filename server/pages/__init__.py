"""The dashboard: pages rendered here, made live by small ES modules; nothing is loaded from another host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from sqlalchemy import select

from parity.report import headline
from server import auth, jobs
from server.context import InContext
from server.database.models import Job, is_id
from server.documents import WHOLE, job_document, job_summary, worker_documents
from server.errors import NotFoundError, UnauthorizedError
from server.pages import differences, words
from server.settings import Settings

_HERE = Path(__file__).parent
_JOBS_A_PAGE = 50


class LoginNeededError(Exception):
    """A visitor without a session, where one is asked for."""


def _visitor(request: Request, context: InContext) -> None:
    """Somebody who may look; anybody else is sent to the login."""
    try:
        asking = auth.principal(request, context)
    except UnauthorizedError as error:
        raise LoginNeededError from error
    if not asking.may("view"):
        raise LoginNeededError
    request.state.can_log_out = auth.tokens_required(context.settings)


router = APIRouter(include_in_schema=False, dependencies=[Depends(_visitor)])
doors = APIRouter(include_in_schema=False)
templates = Jinja2Templates(_HERE / "templates")
templates.env.filters |= words.FILTERS
templates.env.globals["headline"] = headline


def install(app: FastAPI, settings: Settings) -> None:
    """Add the pages and their assets; the chart library is served from where npm put it."""
    app.mount("/static/vendor/uplot", StaticFiles(directory=settings.assets_dir / "uplot" / "dist", check_dir=False))
    app.mount("/static", StaticFiles(directory=_HERE / "static"))
    app.include_router(router)
    app.include_router(doors, max_body_size=settings.max_body_bytes)
    app.add_exception_handler(LoginNeededError, lambda request, _: RedirectResponse(f"/login?next={quote(request.url.path)}", 303))


@router.get("/")
def home() -> Response:
    """The list of jobs is the home page."""
    return RedirectResponse("/jobs")


@router.get("/jobs")
def index(request: Request, context: InContext, before: Annotated[str | None, Query()] = None) -> Response:
    """Jobs, newest first."""
    statement = select(Job).options(*WHOLE).order_by(Job.id.desc()).limit(_JOBS_A_PAGE + 1)
    if before and is_id("j", before):
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
    pairs = list(dict.fromkeys((run.seed, run.replicate) for arm in document.arms for run in arm.runs))
    values = {
        "job": document,
        "pairs": pairs,
        "ground": differences.compare(document.arms, document.criteria.get("may_differ", ())),
        "arms_asked": [document.spec["baseline"], *document.spec["candidates"]],
    }
    return templates.TemplateResponse(request, "job.html", values)


@router.get("/workers")
def workers(request: Request, context: InContext) -> Response:
    """Who trains: the registered workers and what they run on."""
    with context.database.read() as session:
        found = worker_documents(session, context.settings.lease_seconds, limit=100)
    return templates.TemplateResponse(request, "workers.html", {"workers": found})


@doors.get("/login")
def login_form(request: Request, following: Annotated[str, Query(alias="next")] = "/jobs") -> Response:
    """Ask for a token."""
    return templates.TemplateResponse(request, "login.html", {"following": following, "wrong": False})


@doors.post("/login")
def login(request: Request, context: InContext, token: Annotated[str, Form()], following: Annotated[str, Form()] = "/jobs") -> Response:
    """Exchange a token for a session that lasts twelve hours; the token itself is not kept."""
    with context.database.write() as session:
        known = auth.authenticate(session, token.strip())
        cookie = auth.open_session(session, known) if known else None
    if cookie is None:
        return templates.TemplateResponse(request, "login.html", {"following": following, "wrong": True}, status_code=401)
    # Only a path of this site: `//elsewhere` and `https://elsewhere` are addresses of others.
    inside = following if following.startswith("/") and not following.startswith(("//", "/\\")) else "/jobs"
    answer = RedirectResponse(inside, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(auth.COOKIE, cookie, max_age=int(auth.SESSION_SECONDS), httponly=True, samesite="strict", secure=secure)
    return answer


@doors.post("/logout")
def logout(request: Request, context: InContext) -> Response:
    """End the session."""
    cookie = request.cookies.get(auth.COOKIE)
    if cookie:
        with context.database.write() as session:
            auth.close_session(session, cookie)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(auth.COOKIE)
    return answer
