"""The events of a job over REST, as server-sent events."""

import json
import math
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, NamedTuple
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from server.database.clock import time_text
from server.database.events import first_kept
from server.database.lookups import find_job
from server.database.run_progress import RunProgress
from server.database.states import JOB_ENDED
from server.database.tables import Event
from server.web.access.authorization import is_still_known
from server.web.context import Context, InContext
from server.web.streams import PAGES, Stream

_IDLE_SECONDS = 15.0
# A revoked or expired token also ends its open streams.
_KNOWN_SECONDS = 45.0
# An event, not a comment: pages do not receive comments, and must tell a silent stream from a dead
# one. It has no id, so that the client's Last-Event-ID stays.
_ALIVE = b"event: alive\ndata: {}\n\n"
_TEXT = {"type": "string"}
_EVENT = {
    "type": "object",
    "properties": {"id": _TEXT, "event": _TEXT, "data": _TEXT},
    "required": ["event", "data"],
}
_DESCRIBED = {
    "description": "Server-sent events",
    "content": {"text/event-stream": {"itemSchema": _EVENT}},
}
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
# Pages that follow the same job get the same objects, so each is serialized once for all of them.
_FRAMES: WeakKeyDictionary[Event | RunProgress, bytes] = WeakKeyDictionary()

router = APIRouter(prefix="/api/v1", tags=["jobs"])


class _StoredEvents(NamedTuple):
    """The numbers of the first event of a job that retention has kept, of the newest, and of the
    last one (infinite until it has ended).
    """

    first: int
    newest: int
    last: float


def _stored_events(job_id: str, context: InContext) -> _StoredEvents:
    """Which events of the job there are. Raises a 404 before the stream's first byte."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        newest = job.event_sequence
        return _StoredEvents(
            first_kept(session, job_id), newest, newest if job.status in JOB_ENDED else math.inf
        )


@router.get("/jobs/{job_id}/events", response_class=StreamingResponse, responses={200: _DESCRIBED})
async def follow(
    request: Request,
    job_id: str,
    stored: Annotated[_StoredEvents, Depends(_stored_events)],
    context: InContext,
    after: Annotated[
        int,
        Query(
            ge=0,
            le=2**53,
            description="the same as Last-Event-ID, for clients that cannot send a header",
        ),
    ] = 0,
    last_event_id: Annotated[
        int | None,
        Header(ge=0, le=2**53, description="number of the last event that the client has received"),
    ] = None,
) -> Response:
    """Events after `Last-Event-ID`: `status`, `run`, `verdict`, `forecast`, `futile`, `will_fail`.
    Without an id, and not repeated: `metric`, the newest recorded step of a run, and `alive`, at
    the start and after 15 s of silence. If events after `Last-Event-ID` are no longer kept
    (`PARITY_RETENTION_EVENT_DAYS`), `reload` comes first: read the job again; the stream continues
    with the events that are left. It closes when the job has ended, and within a minute after the
    token has expired. 429 and 503: too many are open.
    """
    cursor = after if last_event_id is None else last_event_id
    still_known = partial(is_still_known, request, context)
    stream = _stream(context, job_id, cursor, stored, still_known) if cursor < stored.last else ()
    return Stream(request, PAGES, stream, media_type="text/event-stream", headers=_HEADERS)


async def _stream(
    context: Context,
    job_id: str,
    cursor: int,
    stored: _StoredEvents,
    still_known: Callable[[], bool],
) -> AsyncIterator[bytes]:
    # Immediately, so that a page knows that it is connected.
    yield _ALIVE
    if cursor + 1 < stored.first:
        cursor = stored.first - 1
        detail = f"events up to {cursor} are no longer kept; read the job again"
        yield f"id: {cursor}\nevent: reload\ndata: {json.dumps({'detail': detail})}\n\n".encode()
    looked = time.monotonic()
    async for event in context.broadcast.follow(job_id, cursor, _IDLE_SECONDS):
        if time.monotonic() - looked > _KNOWN_SECONDS:
            if not await run_in_threadpool(still_known):
                return
            looked = time.monotonic()
        if event is None:
            yield _ALIVE
            continue
        frame = _FRAMES.get(event)
        if frame is None:
            frame = _FRAMES[event] = _frame(event)
        yield frame
        # An end that is followed by another event is none: a job that the judge failed on is judged
        # again.
        if (
            isinstance(event, Event)
            and event.sequence >= stored.newest
            and (event.sequence >= stored.last or _is_end(event))
        ):
            return


def _is_end(event: Event) -> bool:
    return event.kind == "status" and event.payload.get("status") in JOB_ENDED


def _frame(event: Event | RunProgress) -> bytes:
    if isinstance(event, RunProgress):
        where = {
            "run": event.run_id,
            "arm": event.arm,
            "step": event.step,
            "steps_per_second": event.steps_per_second,
        }
        return (
            f"event: metric\ndata: {json.dumps({'at': time_text(event.recorded_at), **where})}\n\n"
        ).encode()
    document = {"at": time_text(event.created_at), **event.payload}
    return f"id: {event.sequence}\nevent: {event.kind}\ndata: {json.dumps(document)}\n\n".encode()
