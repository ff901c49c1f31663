"""Liveness, readiness, workers and the schema of a job file over REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter

from server.documents.parity_yaml import job_file_schema
from server.documents.workers import WorkerDocument, worker_documents
from server.errors import UnavailableError
from server.records import frozen
from server.web.context import InContext

router = APIRouter()


@frozen
class Health:
    """The process is running."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", tags=["health"])
async def healthz() -> Health:  # in the event loop: it takes no time, and waits for no thread
    """The process is running."""
    return Health()


@router.get("/readyz", tags=["health"])
def readyz(context: InContext) -> Health:
    """The database is migrated and can be written, and the broker answers; otherwise, within two seconds, 503 with the failing parts."""
    sentences = context.readiness.problems()
    if sentences:
        raise UnavailableError("; ".join(sentences))
    return Health()


@router.get("/api/v1/workers", tags=["workers"])
def workers(context: InContext) -> list[WorkerDocument]:
    """Every registered worker, newest first."""
    with context.database.read() as session:
        return worker_documents(session, context.settings.lease_seconds, limit=500)


@router.get("/api/v1/schemas/parity.json", tags=["jobs"])
def schema() -> Mapping[str, Any]:
    """JSON Schema of `parity.yaml`."""
    return job_file_schema()
