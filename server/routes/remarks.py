"""What people add to a job over REST: tags, notes, and sign-offs of inconclusive verdicts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from server.database.lookup import find_job
from server.documents.remarks import Remarks, remarks_of
from server.records import Body, frozen
from server.remarks import notes, sign_offs, tags
from server.remarks.tags import MOST_TAGS
from server.web.auth import Sender
from server.web.context import InContext
from server.web.strict_body import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)


@frozen
class TagsRequest(Body):
    """All tags of a job, in place of those that it has."""

    tags: Annotated[list[str], Field(max_length=MOST_TAGS)]


@frozen
class NoteRequest(Body):
    """A note: plain text, shown with its author and time."""

    text: Annotated[str, Field(min_length=1, max_length=notes.MOST_CHARACTERS)]


@frozen
class SignOffRequest(Body):
    """Accept the inconclusive verdict on a candidate: why, and for how many days."""

    candidate: Annotated[str, Field(min_length=1, max_length=200)]
    reason: Annotated[str, Field(min_length=sign_offs.LEAST_REASON, max_length=sign_offs.MOST_REASON)]
    days: Annotated[float, Field(gt=0, le=sign_offs.MOST_DAYS)]


@frozen
class RevokeRequest(Body):
    """Why a sign-off ends."""

    reason: Annotated[str, Field(min_length=sign_offs.LEAST_REASON, max_length=sign_offs.MOST_REASON)]


@router.get("/jobs/{job_id}/remarks")
def show(job_id: str, context: InContext) -> Remarks:
    """The tags, notes and sign-offs of a job. `state` of a sign-off is by the server's clock."""
    with context.database.read() as session:
        return remarks_of(session, find_job(session, job_id))


@router.put("/jobs/{job_id}/tags")
def set_tags(job_id: str, request: StrictBody[TagsRequest], context: InContext) -> Remarks:
    """Set all tags of a job, as its owner or an admin."""
    with context.database.write() as session:
        return remarks_of(session, tags.set_tags(session, job_id, request.tags))


@router.post("/jobs/{job_id}/notes", status_code=201)
def add_note(job_id: str, request: StrictBody[NoteRequest], context: InContext, sender: Sender) -> Remarks:
    """Add a note to a job. Notes are never changed or deleted on their own."""
    with context.database.write() as session:
        return remarks_of(session, notes.add_note(session, job_id, sender.id, request.text))


@router.post("/jobs/{job_id}/sign-offs", status_code=201)
def sign_off(job_id: str, request: StrictBody[SignOffRequest], context: InContext, sender: Sender) -> Remarks:
    """Accept an inconclusive verdict for some days, with scope approve, and not for a job of one's own: a gate then lets it through.

    409 `sign-off` for a pass, a fail, a verdict without a measured gap, and one that is signed off already.
    """
    with context.database.write() as session:
        job = sign_offs.sign_off(session, job_id, request.candidate, sender.id, request.reason, request.days)
        return remarks_of(session, job)


@router.post("/jobs/{job_id}/sign-offs/{sign_off_id}:revoke")
def revoke(job_id: str, sign_off_id: str, request: StrictBody[RevokeRequest], context: InContext, sender: Sender) -> Remarks:
    """End a sign-off now. Revoking twice changes nothing."""
    with context.database.write() as session:
        return remarks_of(session, sign_offs.revoke(session, job_id, sign_off_id, sender.id, request.reason))
