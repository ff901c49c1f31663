"""What happens to a job, as server-sent events; the only async route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from server import jobs
from server.auth import requires
from server.context import Context, InContext
from server.database.states import JOB_ENDED
from server.documents import event_document

router = APIRouter(prefix="/api/v1", tags=["jobs"], dependencies=[Depends(requires("view"))])


def _known(job_id: str, context: InContext) -> str:
    """The job's id, once it is certain that the job exists: after the first byte a stream can't say 404."""
    with context.database.read() as session:
        return jobs.find(session, job_id).id


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse)
async def follow(
    job_id: Annotated[str, Depends(_known)],
    context: InContext,
    after: Annotated[int, Query(ge=0, description="number of the last event that was seen, where no header can say it")] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, description="number of the last event that was seen")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Events after `Last-Event-ID`: `status`, `run`, `metric`, `verdict`. The stream closes when the job has ended."""
    cursor = after if last_event_id is None else last_event_id
    if await run_in_threadpool(_all_told, context, job_id, cursor):
        return
    async for event in context.broadcast.follow(job_id, cursor):
        yield ServerSentEvent(raw_data=json.dumps(event_document(event)), event=event.kind, id=str(event.sequence))
        if event.kind == "status" and event.payload.get("status") in JOB_ENDED:
            return


def _all_told(context: Context, job_id: str, cursor: int) -> bool:
    with context.database.read() as session:
        job = jobs.find(session, job_id)
        return job.status in JOB_ENDED and cursor >= job.event_sequence
