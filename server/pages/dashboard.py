"""The dashboard: pages rendered on the server and updated live by small ES modules; nothing is loaded from another host."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from server.database import store
from server.database.clock import time_text
from server.database.lookup import find_job
from server.database.states import JOB_ENDED
from server.documents.job import job_document
from server.documents.workers import worker_documents
from server.jobs.kinds import kind_of
from server.pages import (
    baselines,
    candidates,
    differences,
    floors,
    job_lists,
    modules,
    queue,
    refusals,
    remarks,
    site,
    tokens,
)
from server.pages.rendering import HERE, LoginNeededError, templates, visitor
from server.settings import Settings
from server.web import auth
from server.web.additions import additions
from server.web.context import InContext
from server.web.limits import BODY_BYTES

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
doors = APIRouter(include_in_schema=False)
WORKERS_SHOWN = 100
CHARTS = ("parity.report", "static")  # charts and style, which `parity compare --open` writes into a page of its own
JOB_MODULES = modules.imported_by("job.js", HERE / "static", Path(str(files(CHARTS[0]))) / CHARTS[1])


def install(app: FastAPI, settings: Settings) -> None:
    """Add the pages and their assets; the chart library is served from the folder into which npm installed it."""
    app.mount("/static/vendor/uplot", StaticFiles(directory=settings.assets_dir / "uplot" / "dist", check_dir=False))
    site.install(app, settings)
    app.mount("/static", StaticFiles(directory=HERE / "static", packages=[CHARTS]))
    own = (module.router for module in (job_lists, remarks, baselines, floors, tokens))
    for pages in (router, doors, *own, *additions().pages):
        app.include_router(pages, max_body_size=min(BODY_BYTES, settings.max_body_bytes))
    refusals.install(app)
    app.add_exception_handler(LoginNeededError, _to_login)


def _to_login(request: Request, _: Exception) -> Response:
    """A redirect to the login, which leads back to the requested page with its query."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/login?next={quote(request.url.path + query)}", 303)


@router.get("/")
def home() -> Response:
    """The list of jobs is the home page."""
    return RedirectResponse("/jobs")


@router.get("/jobs/{job_id}/compare")
def compare(job_id: str, request: Request, context: InContext) -> Response:
    """All candidates of a job against its baseline, side by side."""
    with context.database.read() as session:
        document = job_document(session, find_job(session, job_id), context.settings.lease_seconds)
    return templates.TemplateResponse(request, "compare.html", {"job": document, "table": candidates.candidate_table(document)})


@router.get("/jobs/{job_id}")
def show(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: Annotated[str, Query(max_length=100)] = "",
    order: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """One job: its candidates with what decided, then the evidence; `candidate` is the one whose details are shown."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        kind = kind_of(job)
        if kind is not None:
            return RedirectResponse(kind.page(session, job), 303)
        added = additions().about_job(session, job)
        document = job_document(session, job, context.settings.lease_seconds)
        recorded = store.names_by_kind(session, [run.id for run in job.runs])
    values = {
        "job": document,
        "lab": added,
        "modules": JOB_MODULES,
        "table": candidates.candidate_table(document, candidate, cast(candidates.Order, order) if order in candidates.ORDERS else ""),
        "there": {kind: set(names) for kind, names in recorded.items()},
        "ended": document.status in JOB_ENDED,
        "runs": [(arm, run) for arm in document.arms for run in (*arm.runs, *arm.noise_runs)],
        "pairs": list(dict.fromkeys((run.seed, run.replicate) for arm in document.arms for run in arm.runs)),
        "ground": differences.compare(document.arms, document.criteria.get("may_differ", ())),
        **remarks.values(request, context, document),
        "requested_arms": [document.spec["baseline"], *document.spec["candidates"]],
    }
    return templates.TemplateResponse(request, "job.html", values)


@router.get("/workers")
def workers(request: Request, context: InContext) -> Response:
    """The workers and the queue: who trains what, and why jobs wait."""
    with context.database.read() as session:
        values = {
            "workers": worker_documents(session, context.settings.lease_seconds, limit=WORKERS_SHOWN),
            "training": queue.training(session),
            "queue": queue.queue(session, context.settings.lease_seconds),
            "shown": queue.JOBS_SHOWN,
            "time_text": time_text,
        }
        return templates.TemplateResponse(request, "workers.html", values)


@doors.get("/login")
def login_form(request: Request, following: Annotated[str, Query(alias="next")] = "/jobs") -> Response:
    """The login form."""
    return templates.TemplateResponse(request, "login.html", {"following": following, "wrong": False})


@doors.post("/login")
def login(request: Request, context: InContext, token: Annotated[str, Form()], following: Annotated[str, Form()] = "/jobs") -> Response:
    """Exchange a token for a session that lasts twelve hours; the token itself is not stored."""
    with context.database.read() as session:  # nobody without a token may ask for SQLite's one lock
        known = auth.authenticate(session, token.strip()) is not None
    cookie = None
    if known:
        with context.database.write() as session:
            row = auth.authenticate(session, token.strip())  # it may have been revoked in between
            cookie = auth.open_session(session, row) if row else None
    if cookie is None:
        return templates.TemplateResponse(request, "login.html", {"following": following, "wrong": True}, status_code=401)
    # Only a path of this site; `//elsewhere` and `https://elsewhere` lead to other sites.
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
