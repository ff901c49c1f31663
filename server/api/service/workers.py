"""The registered workers over REST."""

from fastapi import APIRouter

from server.documents.workers import WorkerDocument, worker_documents
from server.web.context import InContext

router = APIRouter()


@router.get("/api/v1/workers", tags=["workers"])
def workers(context: InContext) -> list[WorkerDocument]:
    """Every registered worker, newest first."""
    with context.database.read() as session:
        return worker_documents(session, context.settings.lease_seconds, limit=500)
