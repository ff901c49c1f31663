"""Metrics for Prometheus, counted from the database and the broker at each scrape, so that all API
processes agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import ColumnElement, Select, case, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.database import clock
from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_MOVES
from server.database.tables import HOUSEKEEPING, Attempt, Duty, Job, Run, Verdict, Worker
from server.jobs.conclude import unjudged_jobs
from server.jobs.workers import live_workers
from server.queue import queue_name, redis_client
from server.web.context import Context, InContext
from server.web.middleware import REQUESTS

router = APIRouter(tags=["health"])

_OUTCOMES = ("pass", "fail", "inconclusive")


@router.get("/metrics", response_class=Response)
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
        labelled = Gauge(name, meaning, [label], registry=registry)
        for key, value in values.items():
            labelled.labels(key).set(value)

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
    counts = {capability: len(sizes) for capability, sizes in slots.items()}
    gauges("parity_workers_alive", "Workers with a heartbeat within the last lease period", counts)
    gauges(
        "parity_worker_slots",
        "Slots of live workers",
        {capability: sum(sizes) for capability, sizes in slots.items()},
    )
    depths, ages = (
        {capability: waiting.get(capability, (0, 0.0))[part] for capability in capabilities}
        for part in (0, 1)
    )
    gauges("parity_queued_runs", "Runs that wait for a worker", depths)
    gauges("parity_oldest_queued_seconds", "Seconds that the oldest queued run has waited", ages)
    messages = _waiting_messages(context, capabilities)
    gauges("parity_waiting_messages", "Messages that no worker has received", messages or {})
    gauge("parity_broker_up", "1 if the broker responds, else 0", messages is not None)
    gauge(
        "parity_degraded",
        "1 if the service works without a part that makes it faster: the broker; else 0",
        messages is None,
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
    statement = select(Duty.name).where(
        Duty.name == HOUSEKEEPING, Duty.expires_at > clock.now(session)
    )
    return session.scalar(statement) is not None


def _bytes(session: Session) -> int:
    if session.get_bind().dialect.name == "postgresql":
        return session.scalar(select(func.pg_database_size(func.current_database()))) or 0
    return (session.scalar(text("PRAGMA page_count")) or 0) * (
        session.scalar(text("PRAGMA page_size")) or 0
    )


def _waiting_messages(context: Context, capabilities: Sequence[str]) -> dict[str, float] | None:
    """The messages in each queue; None if the broker does not respond."""
    try:
        client = redis_client(context.settings.redis, seconds=1.0)
        client.ping()
        return {capability: client.llen(queue_name(capability)) for capability in capabilities}
    except redis.RedisError:
        return None
