"""What people add to a job over REST: tags, notes, sign-offs and what its owner states of external
runs.
"""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from parity.frozen import frozen
from parity.judging.verdict.sign_offs import LEAST_REASON, MOST_DAYS
from server.database.lookups import find_job
from server.documents.remarks import Remarks, remarks_of
from server.jobs import answers, statements
from server.jobs import notes as job_notes
from server.jobs import sign_offs as job_sign_offs
from server.jobs import tags as job_tags
from server.jobs.pinned_gates import check_statements
from server.jobs.statements import StatementRequest
from server.jobs.tags import MOST_TAGS
from server.records import Body
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_Reason = Annotated[str, Field(min_length=LEAST_REASON, max_length=job_sign_offs.MOST_REASON)]


@frozen
class TagsRequest(Body):
    """All tags of a job, in place of those that it has."""

    tags: Annotated[list[str], Field(max_length=MOST_TAGS)]


@frozen
class NoteRequest(Body):
    """A note: plain text, shown with its author and time."""

    text: Annotated[str, Field(min_length=1, max_length=job_notes.MOST_CHARACTERS)]


@frozen
class SignOffRequest(Body):
    """Accept the inconclusive verdict on a candidate: why, and for how many days."""

    candidate: Annotated[str, Field(min_length=1, max_length=200)]
    reason: _Reason
    days: Annotated[float, Field(gt=0, le=MOST_DAYS)]


@frozen
class RevokeRequest(Body):
    """Why a sign-off ends."""

    reason: _Reason


@frozen
class NewQuestionRequest(Body):
    """Why the question of a job is to be asked again."""

    reason: _Reason


@router.get("/jobs/{job_id}/remarks")
def show(job_id: str, context: InContext) -> Remarks:
    """The tags, notes, sign-offs and statements of a job. `state` of a sign-off is by the server's
    clock.
    """
    with context.database.read() as session:
        return remarks_of(session, find_job(session, job_id))


@router.put("/jobs/{job_id}/tags")
def set_tags(job_id: str, request: StrictBody[TagsRequest], context: InContext) -> Remarks:
    """Set all tags of a job, as its owner or an admin."""
    with context.database.write() as session:
        return remarks_of(session, job_tags.set_tags(session, job_id, request.tags))


@router.post("/jobs/{job_id}/notes", status_code=201)
def add_note(
    job_id: str, request: StrictBody[NoteRequest], context: InContext, sender: Sender
) -> Remarks:
    """Add a note to a job. Notes are never changed or deleted on their own."""
    with context.database.write() as session:
        return remarks_of(session, job_notes.add_note(session, job_id, sender.id, request.text))


@router.post("/jobs/{job_id}/statements", status_code=201)
def state(
    job_id: str, request: StrictBody[StatementRequest], context: InContext, sender: Sender
) -> Remarks:
    """State facts of a job's external runs that nobody has stated, as its owner or an admin;
    `:rejudge` then answers with them.

    All of the request is recorded or nothing: 409 where a fact is on record, because nothing is
    overwritten. After the job's end each further request about the same fact is a further look at
    the question.
    """
    if sender.repository is not None:
        check_statements(context.settings.gate_rules, sender.repository, request)
    with context.database.write() as session:
        return remarks_of(session, statements.record_statement(session, job_id, request, sender.id))


@router.post("/jobs/{job_id}:new-question", status_code=201)
def new_question(
    job_id: str, request: StrictBody[NewQuestionRequest], context: InContext, sender: Sender
) -> Remarks:
    """Register a new question, as an admin: what a job answered may be asked again, and its fail
    stands against no later pass.

    A note of the job logs who did and why. 409 for a job without a verdict.
    """
    with context.database.write() as session:
        return remarks_of(
            session, answers.register_new_question(session, job_id, sender.id, request.reason)
        )


@router.post("/jobs/{job_id}/sign-offs", status_code=201)
def sign_off(
    job_id: str, request: StrictBody[SignOffRequest], context: InContext, sender: Sender
) -> Remarks:
    """Accept an inconclusive verdict for some days, with scope approve, and not for a job of one's
    own: a gate then lets it through.

    409 `sign-off` for a pass, a fail, a verdict without a measured gap, and one that is signed off
    already.
    """
    with context.database.write() as session:
        job = job_sign_offs.sign_off(
            session, job_id, request.candidate, sender.id, request.reason, request.days
        )
        return remarks_of(session, job)


@router.post("/jobs/{job_id}/sign-offs/{sign_off_id}:revoke")
def revoke(
    job_id: str,
    sign_off_id: str,
    request: StrictBody[RevokeRequest],
    context: InContext,
    sender: Sender,
) -> Remarks:
    """End a sign-off now. Revoking twice changes nothing."""
    with context.database.write() as session:
        return remarks_of(
            session,
            job_sign_offs.revoke(session, job_id, sign_off_id, sender.id, request.reason),
        )
