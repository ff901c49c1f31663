"""The service over REST: liveness, readiness, workers, the schema of a job file, metrics for
Prometheus, and tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import redis
from anyio.to_thread import run_sync
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, Select, case, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from parity.frozen import frozen
from parity.gate.rules import MAX_AGE_DAYS, GateRules
from parity.judging.policy import Policy
from server.database import clock
from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_MOVES
from server.database.tables import HOUSEKEEPING, Attempt, Duty, Job, Run, Token, Verdict, Worker
from server.errors import UnavailableError
from server.jobs.baselines import BaselineChoice
from server.jobs.conclude import unjudged_jobs
from server.jobs.tags import MOST_TAGS, TAG
from server.jobs.workers import live_workers
from server.queue import queue_name, redis_client
from server.readiness import NEEDED
from server.records import Body, of
from server.web import auth
from server.web.auth import SCOPES, Context, InContext, Scope
from server.web.middleware import REQUESTS
from server.web.requests import BodyRoute, StrictBody
from training.spec import JobSpec

# Registered workers as the API and the pages show them.


@frozen
class WorkerDocument:
    """A registered worker; `live` is false when it has been silent for longer than a lease,
    `stopped` true when it has signed off.
    """

    id: str
    name: str
    capability: str
    slots: int
    live: bool
    device: Mapping[str, Any]
    started_at: str
    heartbeat_at: str
    stopped: bool


def worker_documents(session: Session, lease_seconds: float, limit: int) -> list[WorkerDocument]:
    """The newest registered workers, newest first."""
    live = {worker.id for worker in live_workers(session, lease_seconds)}
    rows = session.scalars(select(Worker).order_by(Worker.id.desc()).limit(limit))
    return [
        of(WorkerDocument, row, live=row.id in live, stopped=row.heartbeat_at == 0.0)
        for row in rows
    ]


# The JSON Schema of `parity.yaml`. It is built in the server, the only package that imports both
# the job and the policy.


@frozen
class JobFile:
    """`parity.yaml`: the job for the server, the policy that judges it, the baseline that it names,
    how CI gates on it, and its tags.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "title": "parity.yaml"}

    job: JobSpec
    policy: Policy
    baseline: BaselineChoice | None = None
    gate: GateRules | None = None
    tags: (
        Annotated[list[Annotated[str, Field(pattern=TAG)]], Field(max_length=MOST_TAGS)] | None
    ) = None


# In a file, an amount is text or a number of nats, not the judge's object.
_AMOUNT = {
    "description": 'a share of the baseline\'s loss ("1.0 %") or nats ("0.014 nats", 0.014)',
    "anyOf": [
        {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*(%|nats?)?\s*$"},
        {"type": "number", "exclusiveMinimum": 0},
    ],
}


def job_file_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `parity.yaml`."""
    schema = TypeAdapter(JobFile).json_schema()
    schema["$defs"]["Amount"] = _AMOUNT
    for part in ("Policy", "GateRules"):
        schema["$defs"][part]["additionalProperties"] = False
    schema["$defs"]["GateRules"]["properties"]["max_age_days"] |= {
        "minimum": 0,
        "maximum": MAX_AGE_DAYS,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


# Liveness, readiness, workers and the schema of a job file over REST.

router = APIRouter()


@frozen
class Health:
    """The process is running."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", tags=["health"])
async def healthz() -> Health:  # in the event loop: it takes no time, and waits for no thread
    """The process is running."""
    return Health()


@frozen
class Ready:
    """The service works. `degraded` has a sentence for each part without which it works all the
    same, only slower.
    """

    status: Literal["ok", "degraded"]
    degraded: list[str]


@router.get("/readyz", tags=["health"])
async def readyz(context: InContext) -> Ready:
    """The database is migrated and can be written; otherwise, within two seconds, 503. Without the
    broker the service is `degraded`: workers look for work by themselves.
    """
    problems = await run_sync(context.readiness.problems, limiter=context.readiness.threads)
    if NEEDED in problems:
        raise UnavailableError("; ".join(problems.values()))
    return Ready(status="degraded" if problems else "ok", degraded=[*problems.values()])


@router.get("/api/v1/workers", tags=["workers"])
def workers(context: InContext) -> list[WorkerDocument]:
    """Every registered worker, newest first."""
    with context.database.read() as session:
        return worker_documents(session, context.settings.lease_seconds, limit=500)


@router.get("/api/v1/schemas/parity.json", tags=["jobs"])
def schema() -> Mapping[str, Any]:
    """JSON Schema of `parity.yaml`."""
    return job_file_schema()


# Metrics for Prometheus, counted from the database and the broker at each scrape, so that all API
# processes agree.

metrics_router = APIRouter(tags=["health"])

_OUTCOMES = ("pass", "fail", "inconclusive")


@metrics_router.get("/metrics", response_class=Response)
def metrics(context: InContext) -> Response:
    """Jobs, runs, attempts, verdicts, workers, queues, the recorder's lag and this process's
    requests, in Prometheus' text format.
    """
    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, value: float) -> None:
        Gauge(name, meaning, registry=registry).set(value)

    def gauges(
        name: str, meaning: str, values: Mapping[str, float], label: str = "capability"
    ) -> None:
        each = Gauge(name, meaning, [label], registry=registry)
        for key, value in values.items():
            each.labels(key).set(value)

    with context.database.read() as session:
        gauges("parity_jobs", "Jobs by status", _counted(session, Job.status, JOB_MOVES), "state")
        gauges("parity_runs", "Runs by state", _counted(session, Run.state, RUN_MOVES), "state")
        attempts = (
            "Attempts by state; `lost`: silent until the lease ended, `crashed`: ended by "
            "themselves"
        )
        gauges(
            "parity_attempts", attempts, _counted(session, Attempt.state, ATTEMPT_MOVES), "state"
        )
        gauges(
            "parity_verdicts",
            "Verdicts by outcome",
            _counted(session, Verdict.outcome, _OUTCOMES),
            "outcome",
        )
        lag = (
            "Seconds since the last recorded step, for the training job that has been silent for "
            "longest"
        )
        gauge("parity_recorder_lag_seconds", lag, _lag(session))
        waiting_for = session.execute(_waiting_for_verdicts()).one()
        gauge(
            "parity_unjudged_jobs",
            "Jobs whose runs have all ended and that wait for their verdict",
            waiting_for.jobs,
        )
        gauge(
            "parity_judged_again_jobs",
            "Of these, those that could not be judged and are tried again",
            waiting_for.again or 0,
        )
        since = 0.0 if waiting_for.since is None else clock.now(session) - waiting_for.since
        gauge(
            "parity_oldest_unjudged_seconds",
            "Seconds since the last run ended of the job that has waited longest",
            max(0.0, since),
        )
        gauge(
            "parity_housekeeper_up",
            "1 if a worker does the housekeeping for all, else 0",
            _is_kept(session),
        )
        gauge("parity_database_bytes", "Size of the database", _bytes(session))
        # 0 for a capability without workers: an alert on waiting runs without a live worker needs
        # both series.
        queued = (
            select(Run.capability, func.count(), func.min(Run.created_at))
            .where(Run.state == "queued")
            .group_by(Run.capability)
        )
        waiting = {row[0]: (row[1], clock.now(session) - row[2]) for row in session.execute(queued)}
        capabilities = sorted({*session.scalars(select(Worker.capability).distinct()), *waiting})
        live = live_workers(session, context.settings.lease_seconds)
        slots = {
            capability: [worker.slots for worker in live if worker.capability == capability]
            for capability in capabilities
        }
    counts = {capability: len(each) for capability, each in slots.items()}
    gauges("parity_workers_alive", "Workers with a heartbeat within the last lease period", counts)
    gauges(
        "parity_worker_slots",
        "Slots of live workers",
        {capability: sum(each) for capability, each in slots.items()},
    )
    depths, ages = (
        {capability: waiting.get(capability, (0, 0.0))[part] for capability in capabilities}
        for part in (0, 1)
    )
    gauges("parity_queued_runs", "Runs that wait for a worker", depths)
    gauges("parity_oldest_queued_seconds", "Seconds that the oldest queued run has waited", ages)
    doorbells = _doorbells(context, capabilities)
    gauges("parity_doorbells", "Doorbell messages that no worker has received", doorbells or {})
    gauge("parity_broker_up", "1 if the broker responds, else 0", doorbells is not None)
    gauge(
        "parity_degraded",
        "1 if the service works without a part that makes it faster: the broker; else 0",
        doorbells is None,
    )
    return Response(
        generate_latest(registry) + generate_latest(REQUESTS), media_type=CONTENT_TYPE_LATEST
    )


def _counted(
    session: Session, column: InstrumentedAttribute[Any], values: Iterable[str]
) -> dict[str, int]:
    """How many rows have each value, 0 if none has, because an alert cannot watch a missing
    series.
    """
    key: ColumnElement[str] = column.expression
    counted = {row[0]: row[1] for row in session.execute(select(key, func.count()).group_by(key))}
    return {value: counted.get(value, 0) for value in values}


def _lag(session: Session) -> float:
    """Seconds since the last step, or else the beginning, of the training job that has been silent
    for longest; 0 if no job trains.
    """
    # An external trainer may be silent for a while (`server.jobs.stale_runs`); that is no lag of
    # the server.
    training = (Run.state == "running", Run.capability != "external")
    began = (
        select(func.max(Attempt.started_at))
        .where(Attempt.run_id == Run.id)
        .correlate(Run)
        .scalar_subquery()
    )
    newest = (
        select(func.max(case((Run.recorded_at > began, Run.recorded_at), else_=began)))
        .where(*training)
        .group_by(Run.job_id)
    )
    return max((clock.now(session) - instant for instant in session.scalars(newest)), default=0.0)


def _waiting_for_verdicts() -> Select[int, Any, Any]:
    """How many jobs wait for their verdict, how many of them were tried in vain, and when the last
    run ended of the oldest one.
    """
    ended = (
        select(func.max(Run.finished_at))
        .where(Run.job_id == Job.id)
        .correlate(Job)
        .scalar_subquery()
    )
    tried = func.sum(case((Job.judge_tries > 0, 1), else_=0))
    waiting = (func.count().label("jobs"), tried.label("again"), func.min(ended).label("since"))
    return select(*waiting).select_from(Job).where(Job.id.in_(unjudged_jobs()))


def _is_kept(session: Session) -> bool:
    """Whether a worker holds the duty of housekeeping: it takes over runs of dead workers,
    concludes jobs and deletes old rows.
    """
    held = select(Duty.name).where(Duty.name == HOUSEKEEPING, Duty.expires_at > clock.now(session))
    return session.scalar(held) is not None


def _bytes(session: Session) -> int:
    if session.get_bind().dialect.name == "postgresql":
        return session.scalar(select(func.pg_database_size(func.current_database()))) or 0
    return (session.scalar(text("PRAGMA page_count")) or 0) * (
        session.scalar(text("PRAGMA page_size")) or 0
    )


def _doorbells(context: Context, capabilities: Sequence[str]) -> dict[str, float] | None:
    """The messages in each queue; None if the broker does not respond."""
    try:
        client = redis_client(context.settings.redis, seconds=1.0)
        client.ping()
        return {capability: client.llen(queue_name(capability)) for capability in capabilities}
    except redis.RedisError:
        return None


# Tokens over REST, for admins: create, list, rotate, revoke.

tokens_router = APIRouter(prefix="/api/v1", tags=["tokens"], route_class=BodyRoute)


@frozen
class TokenRequest(Body):
    """A new token; without `days` it does not expire, without `max_running` its runs may use every
    slot.

    `principal`: a further token for the jobs of that principal, such as one of scope `worker` for
    its trainers; default: a new principal. `repository`: gates with this token have the rules that
    the operator pinned for it.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))]
    days: Annotated[float | None, Field(gt=0, le=3650)] = None
    max_running: Annotated[int, Field(ge=1, le=10_000)] | None = None
    principal: Annotated[str, Field(max_length=100)] | None = None
    repository: Annotated[str, Field(min_length=1, max_length=200)] | None = None


@frozen
class RotateRequest(Body):
    """How long the old token stays valid next to the new one (0: it ends at once), and the days
    that the new one lasts.

    Without `days` the new one lasts as long as the old one was made for.
    """

    overlap_hours: Annotated[float, Field(ge=0, le=auth.LONGEST_OVERLAP_HOURS)] = auth.OVERLAP_HOURS
    days: Annotated[float | None, Field(gt=0, le=3650)] = None


@frozen
class TokenDocument:
    """A token without its secret. `principal` is whose it is: tokens of one principal share its
    jobs.
    """

    id: str
    principal: str
    name: str
    scopes: list[str]
    max_running: int | None
    repository: str | None
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


@frozen
class NewToken:
    """A token with its text, which is returned only once."""

    token: str
    about: TokenDocument


@tokens_router.post("/tokens", status_code=201)
def create(request: StrictBody[TokenRequest], response: Response, context: InContext) -> NewToken:
    """Create a token. Its text cannot be retrieved again."""
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        wanted = (
            request.name,
            request.scopes,
            request.days,
            request.max_running,
            request.principal,
            request.repository,
        )
        row, text = auth.create_token(session, *wanted)
        return NewToken(token=text, about=of(TokenDocument, row))


@tokens_router.get("/tokens")
def index(context: InContext) -> list[TokenDocument]:
    """Every token, newest first, including revoked ones."""
    with context.database.read() as session:
        return [
            of(TokenDocument, row)
            for row in session.scalars(select(Token).order_by(Token.id.desc()))
        ]


@tokens_router.post("/tokens/{token_id}:rotate", status_code=201)
def rotate(
    token_id: str, request: StrictBody[RotateRequest], response: Response, context: InContext
) -> NewToken:
    """Replace a token by a new one of the same principal, name and scopes; the old one is valid
    until the overlap ends.
    """
    response.headers["Cache-Control"] = "no-store"
    with context.database.write() as session:
        row, text = auth.rotate_token(session, token_id, request.overlap_hours, request.days)
        return NewToken(token=text, about=of(TokenDocument, row))


@tokens_router.post("/tokens/{token_id}:revoke")
def revoke(token_id: str, context: InContext) -> TokenDocument:
    """Revoke a token and end the browser sessions that it opened."""
    with context.database.write() as session:
        return of(TokenDocument, auth.revoke_token(session, token_id))
