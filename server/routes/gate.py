"""The one request of a gate: returns a job whose verdict can be reused, else a new one."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field

from server.database.clock import time_text
from server.documents.job import JobDocument, job_document
from server.jobs.reuse import Question, answer
from server.routes.evaluations import criteria_of
from server.routes.jobs import JobRequest, Submitter, order_of, ring
from server.web.context import InContext
from server.web.strict_body import StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"])
_DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest(JobRequest):
    """A job, and when an earlier one can replace it: same `revision`, at most `max_age_days` old, and not `fresh`.

    `fresh` trains every run again, also the baseline's, unless a promoted baseline is named.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    revision: Annotated[str, Field(max_length=200, pattern="^[ -~]*$")] = ""
    max_age_days: Annotated[float, Field(ge=0, le=3650)] = 7.0
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDocument:
    """The job for the gate and the reason for choosing it; for a concluded job also the age of its verdict and its expiry."""

    found: Literal["concluded", "running", "new"]
    reason: str
    age_seconds: float | None
    expires_at: str | None
    job: JobDocument


@router.post("/jobs:gate", status_code=202, responses={200: {"model": GateDocument, "description": "an earlier job"}})
def gate(
    request: StrictBody[GateRequest],
    response: Response,
    context: InContext,
    submitter: Submitter,
    idempotency_key: Annotated[str | None, Header(max_length=200, description="makes a repeated `fresh` call safe")] = None,
) -> GateDocument:
    """The job for this request: 200 with an earlier job, 202 with a newly queued one."""
    criteria, lease_seconds = criteria_of(request.criteria), context.settings.lease_seconds
    order = order_of(request, submitter)
    order = replace(order, reuse=order.reuse and not request.fresh)
    with context.database.write() as session:
        question = Question(
            spec=request.job,
            criteria=criteria,
            revision=request.revision,
            max_age_days=request.max_age_days,
            fresh=request.fresh,
            choice=request.baseline,
        )
        reply = answer(session, question, submitter.id, idempotency_key, order, lease_seconds)
        finished_at = reply.job.finished_at if reply.found == "concluded" else None
        document = GateDocument(
            found=reply.found,
            reason=reply.reason,
            age_seconds=None if finished_at is None else max(0.0, time.time() - finished_at),
            expires_at=None if finished_at is None else time_text(finished_at + request.max_age_days * _DAY),
            job=job_document(session, reply.job, lease_seconds),
        )
    if reply.found == "new":
        ring(context, reply.job)
    else:
        response.status_code = 200
    response.headers["Location"] = document.job.links["self"]
    return document
