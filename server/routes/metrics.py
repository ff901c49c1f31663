"""What to watch, for Prometheus: counted from the database and the broker at each scrape, so that every API process agrees."""

from __future__ import annotations

import time

import redis
from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.auth import requires
from server.context import Context, InContext
from server.database.models import Event, Job, Run, Verdict, Worker
from server.database.states import JOB_MOVES, RUN_MOVES
from server.documents import live_workers
from server.queue import queue_name
from server.readiness import redis_client

router = APIRouter(tags=["health"], dependencies=[Depends(requires("view"))])

_OUTCOMES = ("pass", "fail", "inconclusive")


@router.get("/metrics", response_class=Response)
def metrics(context: InContext) -> Response:
    """Jobs, runs, verdicts, workers, crashes, doorbells and the recorder's lag, in Prometheus' text format."""
    registry = CollectorRegistry()
    with context.database.read() as session:
        _by_label(registry, session, "parity_jobs", "Jobs by status", Job.status, tuple(JOB_MOVES))
        _by_label(registry, session, "parity_runs", "Runs by state", Run.state, tuple(RUN_MOVES))
        _by_label(registry, session, "parity_verdicts", "Verdicts by outcome", Verdict.outcome, _OUTCOMES)
        crashes = session.scalar(select(func.coalesce(func.sum(Run.crashes), 0)))
        _gauge(registry, "parity_run_crashes", "Attempts that broke off or lost their lease").set(float(crashes or 0))
        _gauge(registry, "parity_recorder_lag_seconds", "Oldest last write among the runs that train").set(_lag(session))
        live = live_workers(session, context.settings.lease_seconds)
        _gauge(registry, "parity_worker_slots", "Slots of live workers").set(sum(worker.slots for worker in live))
        capabilities = sorted(set(session.scalars(select(Worker.capability))))
    _queues(registry, context, capabilities)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _by_label(
    registry: CollectorRegistry, session: Session, name: str, meaning: str, column: InstrumentedAttribute[str], labels: tuple[str, ...]
) -> None:
    """One gauge with a value for each label, 0 where there is none: an alert can't watch a series that does not exist."""
    gauge = Gauge(name, meaning, ["state"], registry=registry)
    key: ColumnElement[str] = column.expression
    counted = {row[0]: row[1] for row in session.execute(select(key, func.count()).group_by(key))}
    for label in labels:
        gauge.labels(label).set(counted.get(label, 0))


def _lag(session: Session) -> float:
    """Seconds since the last event of the job that has been silent for longest among those that train; 0 when none does."""
    running = select(Run.job_id).where(Run.state == "running").distinct()
    newest = select(func.max(Event.created_at)).where(Event.job_id.in_(running)).group_by(Event.job_id)
    return max((time.time() - instant for instant in session.scalars(newest)), default=0.0)


def _queues(registry: CollectorRegistry, context: Context, capabilities: list[str]) -> None:
    gauge = Gauge("parity_doorbells", "Doorbells that no worker has answered", ["capability"], registry=registry)
    up = _gauge(registry, "parity_broker_up", "1 while the broker answers")
    try:
        client = redis_client(context.settings.redis)
        for capability in capabilities:
            gauge.labels(capability).set(client.llen(queue_name(capability)))
        client.ping()
        up.set(1)
    except redis.RedisError:
        up.set(0)


def _gauge(registry: CollectorRegistry, name: str, meaning: str) -> Gauge:
    return Gauge(name, meaning, registry=registry)
