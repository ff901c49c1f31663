"""The one request of a gate: returns a job whose verdict can be reused, else a new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field
from sqlalchemy.orm import Session

from server.database.clock import time_text
from server.documents.job import JobDocument, job_document
from server.documents.runs import seconds_since
from server.errors import InvalidError
from server.jobs.limits import check_queue, check_size
from server.jobs.requesters import requesters_of
from server.jobs.reuse import Answer, Question, answer, look_up, note_lookup
from server.records import frozen, of
from server.routes.jobs import JobRequest, ring, wanted_of
from server.web.auth import Sender
from server.web.context import InContext
from server.web.strict_body import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_DAY = 86_400.0


@frozen
class GateRequest(JobRequest):
    """A job, and when an earlier one can replace it: same `revision`, at most `max_age_days` old, and not `fresh`.

    `fresh` trains every run again, also the baseline's, unless a promoted baseline is named. `lookup` queues nothing: it returns a
    recorded verdict or none. `group` names what asks, such as a pull request: jobs that its earlier gates queued, and that nobody else
    asked for, are cancelled.
    """

    revision: Annotated[str, Field(max_length=200, pattern="^[ -~]*$")] = ""
    max_age_days: Annotated[float, Field(ge=0, le=3650)] = 7.0
    fresh: bool = False
    lookup: bool = False
    group: Annotated[str, Field(max_length=200, pattern="^[ -~]*$")] = ""


@frozen
class GateDocument:
    """The job for the gate and the reason for choosing it; for a concluded job also the age of its verdict and its expiry.

    A repeated `fresh` call returns its job as it is, also `failed` or `cancelled`. A lookup without a recorded verdict returns `none`, no
    job, and why.
    """

    found: Literal["concluded", "running", "failed", "cancelled", "new", "none"]
    reason: str
    age_seconds: float | None
    expires_at: str | None
    job: JobDocument | None


@router.post("/jobs:gate", status_code=202, responses={200: {"model": GateDocument, "description": "an earlier job"}})
def gate(
    request: StrictBody[GateRequest],
    response: Response,
    context: InContext,
    submitter: Sender,
    idempotency_key: Annotated[str | None, Header(max_length=200, description="makes a repeated `fresh` call safe")] = None,
) -> GateDocument:
    """The job for this request: 200 with an earlier job, or none for a lookup; 202 with a newly queued one."""
    if request.lookup and request.fresh:
        raise InvalidError("lookup and fresh are both true; a lookup trains nothing, so send one of them")
    lease_seconds = context.settings.lease_seconds
    question = of(Question, request, **wanted_of(request, submitter))
    question = replace(question, order=replace(question.order, reuse=question.order.reuse and not request.fresh))
    check_size(context.settings, request.job)
    if request.lookup:
        response.status_code = 200
        with context.database.read() as session:
            recorded = look_up(session, question, lease_seconds)
            if isinstance(recorded, str):
                return GateDocument(found="none", reason=recorded, age_seconds=None, expires_at=None, job=None)
            document = _document(session, recorded, request, response, lease_seconds)
            is_known = submitter.id in requesters_of(recorded.job)
        if not is_known:
            with context.database.write() as session:
                note_lookup(session, recorded.job.id, submitter.id)
        return document
    with context.database.write() as session:
        reply = answer(session, question, submitter.id, idempotency_key, lease_seconds)
        if reply.found == "new":
            check_queue(session, context.settings, submitter.id)
        document = _document(session, reply, request, response, lease_seconds)
    if reply.found == "new":
        ring(context, reply.job)
    else:
        response.status_code = 200
    return document


def _document(session: Session, reply: Answer, request: GateRequest, response: Response, lease_seconds: float) -> GateDocument:
    finished_at = reply.job.finished_at if reply.found == "concluded" else None
    job = job_document(session, reply.job, lease_seconds)
    response.headers["Location"] = job.links["self"]
    return GateDocument(
        found=reply.found,
        reason=reply.reason,
        age_seconds=seconds_since(finished_at),
        expires_at=None if finished_at is None else time_text(finished_at + request.max_age_days * _DAY),
        job=job,
    )
