"""Metrics for Prometheus, counted from the database and the broker at each scrape, so that all API processes agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import ColumnElement, case, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.database import clock
from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_MOVES
from server.database.tables import HOUSEKEEPING, Attempt, Duty, Job, Run, Verdict, Worker
from server.jobs.workers import live_workers
from server.queue import queue_name
from server.readiness import redis_client
from server.web.context import Context, InContext

router = APIRouter(tags=["health"])

_OUTCOMES = ("pass", "fail", "inconclusive")


@router.get("/metrics", response_class=Response)
def metrics(context: InContext) -> Response:
    """Jobs, runs, attempts, verdicts, workers, queues and the recorder's lag, in Prometheus' text format."""
    registry = CollectorRegistry()
    with context.database.read() as session:
        _by_label(registry, session, "parity_jobs", "Jobs by status", Job.status, tuple(JOB_MOVES))
        _by_label(registry, session, "parity_runs", "Runs by state", Run.state, tuple(RUN_MOVES))
        attempts = "Attempts by state; `lost`: silent until the lease ended, `crashed`: ended by themselves"
        _by_label(registry, session, "parity_attempts", attempts, Attempt.state, tuple(ATTEMPT_MOVES))
        _by_label(registry, session, "parity_verdicts", "Verdicts by outcome", Verdict.outcome, _OUTCOMES, label="outcome")
        lag = "Seconds since the last recorded step, for the training job that has been silent for longest"
        _gauge(registry, "parity_recorder_lag_seconds", lag).set(_lag(session))
        _gauge(registry, "parity_housekeeper_up", "1 if a worker does the housekeeping for all, else 0").set(_is_kept(session))
        _gauge(registry, "parity_database_bytes", "Size of the database").set(_bytes(session))
        capabilities = _workers(registry, session, context.settings.lease_seconds)
        _waiting(registry, session, capabilities)
    _doorbells(registry, context, capabilities)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _by_label(
    registry: CollectorRegistry,
    session: Session,
    name: str,
    meaning: str,
    column: InstrumentedAttribute[Any],
    values: tuple[str, ...],
    label: str = "state",
) -> None:
    """One gauge with a value for each label, 0 if nothing is counted, because an alert cannot watch a missing series."""
    gauge = Gauge(name, meaning, [label], registry=registry)
    key: ColumnElement[str] = column.expression
    counted = {row[0]: row[1] for row in session.execute(select(key, func.count()).group_by(key))}
    for value in values:
        gauge.labels(value).set(counted.get(value, 0))


def _lag(session: Session) -> float:
    """Seconds since the last step, or else the beginning, of the training job that has been silent for longest; 0 if no job trains."""
    # An external trainer may be silent for a while (server/jobs/stale.py); that is not a lag of the server.
    training = (Run.state == "running", Run.capability != "external")
    began = select(func.max(Attempt.started_at)).where(Attempt.run_id == Run.id).correlate(Run).scalar_subquery()
    newest = select(func.max(case((Run.recorded_at > began, Run.recorded_at), else_=began))).where(*training).group_by(Run.job_id)
    return max((clock.now(session) - instant for instant in session.scalars(newest)), default=0.0)


def _is_kept(session: Session) -> bool:
    """Whether a worker holds the duty of housekeeping: it takes over runs of dead workers, concludes jobs and deletes old rows."""
    held = select(Duty.name).where(Duty.name == HOUSEKEEPING, Duty.expires_at > clock.now(session))
    return session.scalar(held) is not None


def _bytes(session: Session) -> int:
    if session.get_bind().dialect.name == "postgresql":
        return session.scalar(select(func.pg_database_size(func.current_database()))) or 0
    return (session.scalar(text("PRAGMA page_count")) or 0) * (session.scalar(text("PRAGMA page_size")) or 0)


def _workers(registry: CollectorRegistry, session: Session, lease_seconds: float) -> list[str]:
    """Live workers and their slots by capability; returns all capabilities of past and present workers and of waiting runs."""
    alive = Gauge("parity_workers_alive", "Workers with a heartbeat within the last lease period", ["capability"], registry=registry)
    slots = Gauge("parity_worker_slots", "Slots of live workers", ["capability"], registry=registry)
    # 0 for a capability without workers: an alert on waiting runs without a live worker needs both series.
    waiting = session.scalars(select(Run.capability).where(Run.state == "queued").distinct())
    capabilities = sorted({*session.scalars(select(Worker.capability).distinct()), *waiting})
    live = live_workers(session, lease_seconds)
    for capability in capabilities:
        able = [worker for worker in live if worker.capability == capability]
        alive.labels(capability).set(len(able))
        slots.labels(capability).set(sum(worker.slots for worker in able))
    return capabilities


def _waiting(registry: CollectorRegistry, session: Session, capabilities: Sequence[str]) -> None:
    """Queued runs and the age of the oldest."""
    depth = Gauge("parity_queued_runs", "Runs that wait for a worker", ["capability"], registry=registry)
    age = Gauge("parity_oldest_queued_seconds", "Seconds that the oldest queued run has waited", ["capability"], registry=registry)
    oldest = select(Run.capability, func.count(), func.min(Run.created_at)).where(Run.state == "queued").group_by(Run.capability)
    by_capability = {row[0]: (row[1], clock.now(session) - row[2]) for row in session.execute(oldest)}
    for capability in capabilities:
        count, seconds = by_capability.get(capability, (0, 0.0))
        depth.labels(capability).set(count)
        age.labels(capability).set(seconds)


def _doorbells(registry: CollectorRegistry, context: Context, capabilities: Sequence[str]) -> None:
    gauge = Gauge("parity_doorbells", "Doorbell messages that no worker has received", ["capability"], registry=registry)
    up = _gauge(registry, "parity_broker_up", "1 if the broker responds, else 0")
    try:
        client = redis_client(context.settings.redis, seconds=1.0)
        for capability in capabilities:
            gauge.labels(capability).set(client.llen(queue_name(capability)))
        client.ping()
        up.set(1)
    except redis.RedisError:
        up.set(0)


def _gauge(registry: CollectorRegistry, name: str, meaning: str) -> Gauge:
    return Gauge(name, meaning, registry=registry)
