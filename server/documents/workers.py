"""Registered workers as the API and the pages show them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database.tables import Worker
from server.jobs.workers import live_workers
from server.records import from_attributes


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
        from_attributes(WorkerDocument, row, live=row.id in live, stopped=row.heartbeat_at == 0.0)
        for row in rows
    ]
