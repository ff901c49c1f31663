"""The dashboard: pages of jobs, runs, workers and the queue, rendered on the server and updated
live by small ES modules.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import quote, urlencode

from fastapi import APIRouter, FastAPI, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from markupsafe import Markup
from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from parity.frozen import frozen
from parity.judging.curves.context import (
    COMPARISONS,
    confounding_keys,
    is_compared,
    values_by_key,
    values_of,
)
from parity.judging.document_types import VerdictDocument
from parity.report.candidates import safest_first
from parity.report.svg import Axis, Estimate, axis_of, estimate_of, head_svg, row_svg
from parity.report.view import TrainingView, view_of, views_of
from parity.wording import count
from server.api.jobs import (
    WHOLE,
    ArmDocument,
    JobDocument,
    job_document,
    last_end,
    seconds_left,
    share_done,
)
from server.api.lists import principal_names
from server.api.service import worker_documents
from server.database.clock import time_text
from server.database.lookups import find_job
from server.database.metrics import store
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import Job, Run
from server.jobs import added_runs, forecasts, statements
from server.jobs.cost import price_of
from server.jobs.job_kinds import kind_of
from server.jobs.judge_input import compared_of
from server.jobs.proposal import proposal
from server.jobs.workers import can_take, live_workers, why_waiting
from server.pages import (
    baselines,
    forms,
    job_lists,
    job_page,
    noise_tables,
    public_verdicts,
    rendering,
)
from server.pages.rendering import HERE, LoginNeededError, pages_router, templates
from server.settings import Settings
from server.web import auth
from server.web.auth import InContext, additions
from server.web.limits import BODY_BYTES

# The table of a job's candidates: one row each with verdict or forecast, and the gap on a shared
# axis.

STYLED = 8  # candidates that a chart shows in a colour and line style of their own at a time
_LIT = 4  # of more, how many are highlighted at first


@frozen
class Row:
    """A candidate. `verdict` is the judge's document; without one, the forecast may be there, while
    the job trains.
    """

    arm: ArmDocument
    verdict: VerdictDocument | None
    estimate: Estimate | None
    axis: Axis | None
    link: str
    selected: bool

    @property
    def figure(self) -> Markup:
        """The gap on the axis of all rows."""
        return (
            Markup(row_svg(self.estimate, self.axis)) if self.estimate and self.axis else Markup()  # noqa: S704
        )

    @property
    def live(self) -> bool:
        """Whether the row shows a forecast."""
        return self.estimate is not None and self.estimate.state == "forecast"


@frozen
class Table:
    """The rows, the head of the figures' column, and what the charts highlight at first."""

    rows: list[Row]
    head: Markup | None
    lit: list[str]


def candidate_table(job: JobDocument, candidate: str = "") -> Table:
    """The table of a job, judged candidates safest first; `candidate` is the one that is
    highlighted, by default the only one.
    """
    arms = job.arms[1:]
    chosen = arms[0].name if len(arms) == 1 else candidate
    views = safest_first(views_of(cast("Sequence[VerdictDocument]", job.verdicts or ())))
    verdicts = {
        view.candidate.name: view.document for view in views if isinstance(view, TrainingView)
    }
    estimates = {arm.name: _estimate(job, arm, verdicts.get(arm.name)) for arm in arms}
    axis = axis_of([each for each in estimates.values() if each])
    rows = [
        Row(
            arm=arm,
            verdict=verdicts.get(arm.name),
            estimate=estimates[arm.name],
            axis=axis,
            link="?" + urlencode({"candidate": arm.name}),
            selected=arm.name == chosen,
        )
        for arm in arms
    ]
    places = {name: place for place, name in enumerate(verdicts)}
    return Table(
        rows=sorted(rows, key=lambda row: places.get(row.arm.name, len(places))),
        head=Markup(head_svg(axis)) if axis else None,  # noqa: S704
        lit=_lit(sorted(rows, key=_badness), chosen),
    )


def _lit(ranked: Sequence[Row], chosen: str) -> list[str]:
    """What the charts highlight at first: every candidate, or of many the selected one and those
    that end worst.
    """
    names = [row.arm.name for row in ranked]
    if len(ranked) <= STYLED:
        return names
    worst = [row.arm.name for row in ranked if row.estimate] or names
    return list(dict.fromkeys([*({chosen} & {*names}), *worst[:_LIT]]))


def _badness(row: Row) -> tuple[bool, float]:
    """Worst first; a candidate without a number comes before all others if it failed, else after
    them.
    """
    if row.estimate is None:
        return not (row.verdict and row.verdict["verdict"] == "fail"), float(
            "inf"
        ) if row.verdict is None else -1.0
    return True, -row.estimate.mean


def _estimate(
    job: JobDocument, arm: ArmDocument, verdict: VerdictDocument | None
) -> Estimate | None:
    """The verdict's gap; while the job trains, the forecast of it. A job that ended without a
    verdict has neither.
    """
    if verdict is not None:
        return estimate_of(view_of(verdict))
    if arm.live is None or job.status in JOB_ENDED:
        return None
    live = arm.live
    return Estimate(mean=live.gap, lo=live.low, hi=live.high, margin=live.margin, state="forecast")


# The differences between a job's arms other than the recipe, from the manifests of their runs.


@frozen
class Difference:
    """A fact on which runs disagree, with the values of each arm; `declared` if what is compared or
    the policy's `may_differ` allows it.
    """

    key: str
    values: list[str]
    declared: bool

    def arms_by_value(self, arms: Sequence[ArmDocument]) -> dict[str, list[str]]:
        """The names of the arms that have each value, for a table with few columns."""
        grouped: dict[str, list[str]] = {}
        for arm, value in zip(arms, self.values, strict=True):
            grouped.setdefault(value, []).append(arm.name)
        return grouped


@frozen
class Comparison:
    """In what candidates differ by plan, facts that differ, facts that all share, and how many of
    the runs recorded a manifest.
    """

    question: str
    differences: list[Difference]
    shared: dict[str, str]
    recorded_runs: int
    runs: int

    @property
    def confounded(self) -> bool:
        """Whether a fact differs that the policy does not declare."""
        return any(not difference.declared for difference in self.differences)


def compare(
    arms: Sequence[ArmDocument], may_differ: Collection[str], compared: Collection[str] = ()
) -> Comparison:
    """Compare the manifests of all runs by the judge's rule (`parity.judging.curves.agreement`);
    `compared`: in what candidates differ by plan.
    """
    runs = [run for arm in arms for run in arm.runs]
    manifests = [run.manifest for run in runs if run.manifest]
    values = values_by_key(manifests)
    confounding, by_plan = (
        confounding_keys(manifests),
        {
            key
            for key in values
            if any(is_compared(key, each) for each in COMPARISONS if each in compared)
        },
    )
    differing = [
        key for key in values if len(values[key]) > 1 and (key in confounding or key in by_plan)
    ]
    return Comparison(
        question=" or the ".join(each for each in COMPARISONS if each in compared) or "recipe",
        differences=[
            Difference(
                key=key,
                values=[_of_arm(arm, key) for arm in arms],
                declared=key in by_plan or key in may_differ,
            )
            for key in differing
        ],
        shared={key: min(values[key]) for key in values if len(values[key]) == 1},
        recorded_runs=len(manifests),
        runs=len(runs),
    )


def _asked(job: Job) -> set[str]:
    """In what the candidates of a job differ from the arms that they are judged against."""
    others = compared_of(job)
    return {*others.values(), *({"recipe"} if len(others) < len(job.arms) - 1 else ())}


def _of_arm(arm: ArmDocument, key: str) -> str:
    return (
        ", ".join(sorted(values_of([run.manifest or {} for run in arm.runs], key)))
        or "not recorded"
    )


# The queue: jobs that train or wait, in the order in which workers take their runs, with what each
# waits for and who trains it.

JOBS_SHOWN = 100


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
    by_worker: dict[str, list[Run]] = {}
    statement = (
        select(Run)
        .options(joinedload(Run.job), joinedload(Run.arm))
        .where(Run.state == "running")
        .order_by(Run.started_at, Run.id)
    )
    for run in session.scalars(statement):
        by_worker.setdefault(run.worker_id or "", []).append(run)
    return by_worker


# The dashboard: pages rendered on the server and updated live by small ES modules; nothing is
# loaded from another host.

router = pages_router()
doors = APIRouter(include_in_schema=False)
WORKERS_SHOWN = 100
# charts and style; the verdict's are also in the page that `parity compare --open` writes
CHARTS = ("parity.report", "static")
JOB_MODULES = rendering.imported_by(
    "job.js", HERE / "static", Path(str(files(CHARTS[0]))) / CHARTS[1]
)


def install(app: FastAPI, settings: Settings) -> None:
    """Add the pages and their assets; the chart library is served from the folder into which npm
    installed it.
    """
    app.mount(
        "/static/vendor/uplot",
        StaticFiles(directory=settings.assets_dir / "uplot" / "dist", check_dir=False),
    )
    rendering.install_site(app, settings)
    app.mount("/static", StaticFiles(directory=HERE / "static", packages=[CHARTS]))
    own = (
        router,
        doors,
        job_lists.router,
        forms.router,
        baselines.router,
        noise_tables.router,
        public_verdicts.public,
        forms.tokens_router,
    )
    for pages in (*own, *additions().pages):
        app.include_router(pages, max_body_size=min(BODY_BYTES, settings.max_body_bytes))
    rendering.install_refusals(app)
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
def compare_jobs(job_id: str, request: Request, context: InContext) -> Response:
    """All candidates of a job against its baseline, side by side."""
    with context.database.read() as session:
        document = job_document(
            session,
            find_job(session, job_id),
            context.settings.lease_seconds,
            price_of(context.settings),
        )
    return templates.TemplateResponse(
        request, "compare.html", {"job": document, "table": candidate_table(document)}
    )


@router.get("/jobs/{job_id}")
def show(
    job_id: str,
    request: Request,
    context: InContext,
    candidate: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """One job: the answer with its picture, then the details; `candidate` is the one that the
    picture highlights.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        kind = kind_of(job)
        if kind is not None:
            return RedirectResponse(kind.page(session, job), 303)
        added = additions().about_job(session, job)
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
        recorded = store.names_by_kind(session, [run.id for run in job.runs])
        unstated, compared = statements.unstated(job), _asked(job)
        dots = job_page.verdict_dots(context.cache, session, job) if document.verdicts else {}
        live = {} if document.verdicts else job_page.live_paths(job)
        past = [
            (arm.name, look) for arm in job.arms[1:] for look in forecasts.forecasts(job, arm.name)
        ]
        proposed, added_means, run_count = proposal(job), added_runs.meaning(job), len(job.runs)
    remarks = forms.values(request, context, document)
    may = remarks["may"]
    actions = job_page.Actions(
        key=secrets.token_hex(16),
        runs=run_count,
        add_run=added_means if may["add_run"] else "",
        proposal=proposed if may["again"] else None,
        acceptable=remarks["acceptable"] if may["sign_off"] else (),
    )
    buttons = job_page.buttons_of(document, actions)
    signed = list(remarks["accepted"].values())
    values = {
        "job": document,
        "lab": added,
        "unstated": unstated,
        "modules": JOB_MODULES,
        "screen": job_page.first_screen(document, dots or live, candidate, signed, buttons),
        "table": candidate_table(document, candidate),
        "past_forecasts": past,
        "verdicts": {each["candidate"]["name"]: each["verdict"] for each in document.verdicts},
        "forecast_count": count(len(past), "forecast"),
        "there": {kind: set(names) for kind, names in recorded.items()},
        "ended": document.status in JOB_ENDED,
        "runs": [(arm, run) for arm in document.arms for run in (*arm.runs, *arm.short_reruns)],
        "pairs": list(
            dict.fromkeys((run.seed, run.replicate) for arm in document.arms for run in arm.runs)
        ),
        "ground": compare(document.arms, document.policy.get("may_differ", ()), compared),
        **remarks,
        "requested_arms": [document.spec["baseline"], *document.spec["candidates"]],
    }
    return templates.TemplateResponse(request, "job.html", values)


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


@doors.get("/login")
def login_form(
    request: Request, following: Annotated[str, Query(alias="next")] = "/jobs"
) -> Response:
    """The login form."""
    return templates.TemplateResponse(
        request, "login.html", {"following": following, "wrong": False}
    )


@doors.post("/login")
def login(
    request: Request,
    context: InContext,
    token: Annotated[str, Form()],
    following: Annotated[str, Form()] = "/jobs",
) -> Response:
    """Exchange a token for a session that lasts twelve hours; the token itself is not stored."""
    with context.database.read() as session:  # nobody without a token may ask for SQLite's one lock
        known = auth.authenticate(session, token.strip()) is not None
    cookie = None
    if known:
        with context.database.write() as session:
            row = auth.authenticate(session, token.strip())  # it may have been revoked in between
            cookie = auth.open_session(session, row) if row else None
    if cookie is None:
        return templates.TemplateResponse(
            request, "login.html", {"following": following, "wrong": True}, status_code=401
        )
    # Only a path of this site; `//elsewhere` and `https://elsewhere` lead to other sites.
    if following.startswith("/") and not following.startswith(("//", "/\\")):
        inside = following
    else:
        inside = "/jobs"
    answer = RedirectResponse(inside, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(
        auth.COOKIE,
        cookie,
        max_age=int(auth.SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=secure,
    )
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
