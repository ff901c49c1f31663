"""The one request of a gate: returns a job whose verdict can be reused, else a new one; and the
exit code that the gate then has.
"""

from dataclasses import field, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field
from sqlalchemy.orm import Session

from parity.canonical_json import fields_of, json_value
from parity.frozen import frozen
from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import GateOutcome, Result, ended
from parity.gate.rules import GateRules
from server.api.submit import JobRequest, notify_workers, submission_fields
from server.database.clock import time_text
from server.database.lookups import find_job
from server.database.states import JOB_ENDED
from server.documents.jobs import JobDocument, job_document
from server.documents.runs import seconds_since
from server.errors import ForbiddenError, InvalidError
from server.jobs.cost import price_of
from server.jobs.evaluations import check_takes_runs
from server.jobs.pinned_gates import PinnedDocument, pinned, pinned_job
from server.jobs.pinned_question import asked_by
from server.jobs.requesters import requesters_of
from server.jobs.reuse import GateAnswer, GateSubmission, answer, look_up, note_lookup
from server.jobs.submission_limits import check_queue, check_size
from server.records import from_attributes
from server.settings import Settings
from server.web.access.authorization import Sender
from server.web.context import InContext
from server.web.requests.bodies import BodyRoute, StrictBody

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)

_DAY = 86_400.0


@frozen
class GateRequest(JobRequest):
    """A job, and when an earlier one can replace it: same `revision`, at most `max_age_days` old,
    and not `fresh`.

    `fresh` trains every run again, also the baseline's, unless a promoted baseline is named.
    `lookup` queues nothing: it returns a recorded verdict or none. `group` names what asks, such as
    a pull request: jobs that its earlier gates queued, and that nobody else asked for, are
    cancelled.
    """

    revision: Annotated[str, Field(max_length=200, pattern="^[ -~]*$")] = ""
    max_age_days: Annotated[float, Field(ge=0, le=3650)] = 7.0
    fresh: bool = False
    lookup: bool = False
    group: Annotated[str, Field(max_length=200, pattern="^[ -~]*$")] = ""


@frozen
class GateDocument:
    """The job for the gate and the reason for choosing it; for a concluded job also the age of its
    verdict and its expiry.

    A repeated `fresh` call returns its job as it is, also `failed` or `cancelled`. A lookup without
    a recorded verdict returns `none`, no job, and why. `pinned` is what the operator pinned of the
    exit code for the repository that the token is for. `earlier` names the other jobs that answered
    the same question, in whichever words, newest first.
    """

    found: Literal["concluded", "running", "failed", "cancelled", "new", "none"]
    reason: str
    age_seconds: float | None
    expires_at: str | None
    job: JobDocument | None
    pinned: PinnedDocument | None = None
    earlier: list[str] = field(default_factory=list)


@router.post(
    "/jobs:gate",
    status_code=202,
    responses={200: {"model": GateDocument, "description": "an earlier job"}},
)
def gate(
    request: StrictBody[GateRequest],
    response: Response,
    context: InContext,
    submitter: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="makes a repeated `fresh` call safe")
    ] = None,
) -> GateDocument:
    """The job for this request: 200 with an earlier job, or none for a lookup; 202 with a newly
    queued one.
    """
    if request.lookup and request.fresh:
        raise InvalidError(
            "lookup and fresh are both true; a lookup trains nothing, so send one of them"
        )
    lease_seconds = context.settings.lease_seconds
    question = from_attributes(
        GateSubmission,
        request,
        **submission_fields(request, submitter, fresh=request.fresh),
        by_gate=True,
    )
    check_size(context.settings, request.job)
    rules = None
    if submitter.repository is not None:
        question_sent = asked_by(
            question.spec,
            question.policy,
            question.sent,
            request.baseline,
            request.max_run_seconds,
            request.max_age_days,
        )
        rules = pinned(context.settings.gate_rules, submitter.repository, question_sent)
    if request.lookup:
        response.status_code = 200
        with context.database.read() as session:
            recorded = look_up(session, question, lease_seconds)
            if isinstance(recorded, str):
                return GateDocument(
                    found="none",
                    reason=recorded,
                    age_seconds=None,
                    expires_at=None,
                    job=None,
                    pinned=rules,
                )
            document = _gated_document(session, recorded, request, response, context.settings)
            is_known = submitter.id in requesters_of(recorded.job)
        if not is_known:
            with context.database.write() as session:
                note_lookup(session, recorded.job.id, submitter.id)
        return replace(document, pinned=rules)
    with context.database.write() as session:
        reply = answer(session, question, submitter.id, idempotency_key, lease_seconds)
        if reply.found == "new":
            check_queue(session, context.settings, submitter.id)
        document = _gated_document(session, reply, request, response, context.settings)
    if reply.found == "new":
        notify_workers(context, reply.job)
    else:
        response.status_code = 200
    return replace(document, pinned=rules)


@frozen
class GateExitDocument:
    """How a gate of the token's repository leaves for a job: None for both while the job has not
    ended.

    `note` says what the pinned rules make of the result, or of the job that has none.
    """

    repository: str
    result: Result | None
    exit_code: int | None
    note: str


@router.get("/jobs/{job_id}/gate")
def gate_exit(job_id: str, context: InContext, asker: Sender) -> GateExitDocument:
    """The exit code of a gate under the rules that the operator pinned for the token's repository;
    422 for a job that asks for less.

    403 for a token that names no repository.
    """
    if asker.repository is None:
        raise ForbiddenError(
            f"token {asker.name!r} names no repository, so nothing is pinned for it; expected a "
            "token of a repository"
        )
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_takes_runs(job, "ask with the job file of a training: `parity gate parity.yaml`")
        rules = pinned_job(context.settings.gate_rules, asker.repository, job)
        document = json_value(job_document(session, job, context.settings.lease_seconds))
    if document["status"] not in JOB_ENDED:
        return GateExitDocument(
            repository=rules.repository,
            result=None,
            exit_code=None,
            note=f"job {job_id} is {document['status']}",
        )
    outcome = ended(
        GateOutcome(result="infrastructure", revision="", pinned=fields_of(rules)), document
    )
    code, note = exit_code_under(
        outcome,
        GateRules(
            on_inconclusive=rules.on_inconclusive, on_infra=rules.on_infra, advisory=rules.advisory
        ),
    )
    return GateExitDocument(
        repository=rules.repository,
        result=outcome.result,
        exit_code=code,
        note=note or outcome.trouble or "",
    )


def _gated_document(
    session: Session,
    reply: GateAnswer,
    request: GateRequest,
    response: Response,
    settings: Settings,
) -> GateDocument:
    finished_at = reply.job.finished_at if reply.found == "concluded" else None
    job = job_document(session, reply.job, settings.lease_seconds, price_of(settings))
    response.headers["Location"] = job.links["self"]
    return GateDocument(
        found=reply.found,
        reason=reply.reason,
        age_seconds=seconds_since(finished_at),
        expires_at=None
        if finished_at is None
        else time_text(finished_at + request.max_age_days * _DAY),
        job=job,
        earlier=[*reply.earlier],
    )
