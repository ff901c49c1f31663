"""Submitting jobs over REST: a new job, an ended one again with a change, and what a job could
decide before it is submitted.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import Field
from sqlalchemy.orm import Session

from parity.design.plan_document import plan_document
from parity.design.plan_words import one_line
from parity.frozen import frozen
from parity.judging.policy import Policy
from server.api.evaluations import policy_of
from server.database.lookups import find_job
from server.database.tables import Job
from server.documents.jobs import JobDocument, job_document
from server.errors import ForbiddenError
from server.jobs.again import merged, origin_note, request_of
from server.jobs.baselines import BaselineChoice, NamedBaseline, resolve
from server.jobs.cost import price_of
from server.jobs.device_hours import PEAKS, device_hours
from server.jobs.fits import refusal, suited
from server.jobs.needs import sentences
from server.jobs.notes import add_note
from server.jobs.outlook import Known, known_before, noise_families_for, planned
from server.jobs.submission_limits import check_queue, check_size
from server.jobs.submit import JobLabels, JobSubmission, Order, submit_job_once
from server.jobs.tags import MOST_TAGS
from server.records import Body, Sent
from server.web.access.authorization import Sender
from server.web.access.principals import Principal
from server.web.context import Context, InContext
from server.web.requests.bodies import BodyRoute, StrictBody, validated
from training.spec import JobSpec, capability

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)


@frozen
class JobRequest(Sent):
    """The server's part of `parity.yaml`: the job and the policy that judges it.

    `baseline` names a promoted baseline, or has `reuse: false` to train the job's own in any case;
    `priority` puts the job before others (above 0 requires scope admin); `max_run_seconds` limits
    the training time of one run. `tags` and `branch` (that of the code) are what the job is found
    by.
    """

    job: JobSpec
    policy: Mapping[str, Any]
    baseline: BaselineChoice | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_run_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tags: Annotated[list[str], Field(max_length=MOST_TAGS)] = field(default_factory=list)
    branch: Annotated[str, Field(max_length=200)] | None = None


@frozen
class CandidatePlan:
    """The answer for one candidate in a line, and its plan as `parity plan --json` has it; null
    where none can be computed.
    """

    name: str
    line: str
    plan: Mapping[str, Any] | None


@frozen
class JobPlan:
    """What a job can decide, for its first 8 candidates; `known` has the loss (nats) and step time
    of an equal earlier run, or is null.

    `needs` are sentences: memory of a device, checkpoints, cut documents, device hours. `refused`
    is why no live worker with the job's devices can hold it, or null.
    """

    known: Known | None
    candidates: list[CandidatePlan]
    needs: list[str]
    refused: str | None


@router.post("/jobs", status_code=202)
def submit(
    request: StrictBody[JobRequest],
    response: Response,
    context: InContext,
    submitter: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key and body return the same job")
    ] = None,
) -> JobDocument:
    """Queue a job: 202 with its URL. Its runs start as soon as a suitable worker is free."""
    document = _submitted(
        context, JobSubmission(**submission_fields(request, submitter)), submitter, idempotency_key
    )
    response.headers["Location"] = document.links["self"]
    return document


def _submitted(
    context: Context,
    submission: JobSubmission,
    submitter: Principal,
    key: str | None,
    note: str = "",
) -> JobDocument:
    """Submit a job, once for a key, and wake the workers; a new one gets the note."""
    lease_seconds = context.settings.lease_seconds
    check_size(context.settings, submission.spec)
    with context.database.write() as session:
        job, is_new = submit_job_once(session, submission, submitter.id, key, lease_seconds)
        if is_new:
            check_queue(session, context.settings, submitter.id)
        if is_new and note:
            add_note(session, job.id, submitter.id, note)
        document = job_document(session, job, lease_seconds, price_of(context.settings))
    if is_new:
        notify_workers(context, job)
    return document


@frozen
class AgainRequest(Body):
    """A JSON merge patch (RFC 7396) of what a job was submitted with: `job`, `policy`, `baseline`,
    `max_run_seconds`, `tags`, `branch`.

    Null removes a field, which then has its default; a list replaces the whole list, so
    `candidates` are stated in full.
    """

    patch: Mapping[str, Any] = field(default_factory=dict)


@router.post("/jobs/{job_id}:again", status_code=202)
def again(
    job_id: str,
    request: StrictBody[AgainRequest],
    response: Response,
    context: InContext,
    submitter: Sender,
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key and body return the same job")
    ] = None,
) -> JobDocument:
    """Queue a new job with the specification of one that has ended, and a change of it: 202 with
    its URL.

    It is submitted like any other job, and a note on it says which job it is made from. 409 for a
    job that has not ended, and for a look at its question that is not registered.
    """
    document = submit_again(context, job_id, request.patch, submitter, idempotency_key)
    response.headers["Location"] = document.links["self"]
    return document


def submit_again(
    context: Context, job_id: str, patch: Mapping[str, Any], submitter: Principal, key: str | None
) -> JobDocument:
    """Submit a job that has ended again, with a merge patch."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        submitted, revision = request_of(job), job.revision or ""
    request: JobRequest = validated(StrictBody[JobRequest], merged(submitted, patch))
    submission = JobSubmission(**submission_fields(request, submitter), revision=revision)
    return _submitted(context, submission, submitter, key, origin_note(job_id, patch))


@router.post("/jobs:plan")
def plan(request: StrictBody[JobRequest], context: InContext) -> JobPlan:
    """What a job could decide, before it is submitted: nothing is queued. Uses reruns on record and
    an equal earlier run.

    409 if the job cannot use the baseline that it names.
    """
    policy = policy_of(request.policy)
    with context.database.read() as session:
        named = resolve(session, request.baseline, request.job, context.settings.lease_seconds)
        known, noise_families = (
            known_before(session, request.job, policy, named),
            noise_families_for(session, request.job),
        )
        controls = len(named.controls) if named else 0
        needs, refused = _machines(session, request.job, policy, named, context)
    candidates = []
    for one in planned(request.job, policy, known, noise_families, controls):
        line = (
            f"No chances before the runs: {one.why_not}" if one.plan is None else one_line(one.plan)
        )
        candidates.append(
            CandidatePlan(
                name=one.candidate,
                line=line,
                plan=None if one.plan is None else plan_document(one.plan),
            )
        )
    return JobPlan(known=known, candidates=candidates, needs=needs, refused=refused)


def _machines(
    session: Session,
    spec: JobSpec,
    policy: Policy,
    named: NamedBaseline | None,
    context: Context,
) -> tuple[list[str], str | None]:
    """What a job needs of machines, and why none that is registered can hold it, or None."""
    kind = capability(spec)[0]
    unsaved = Job(engine=spec.engine, spec=spec.document(), devices=spec.devices, capability=kind)
    workers = suited(session, unsaved, context.settings.lease_seconds)
    found = list(sentences(spec, workers))
    if kind in PEAKS:
        trained = [arm for arm, _ in spec.runs() if named is None or arm is not spec.baseline]
        short = spec.short_steps / spec.schedule.steps
        lengths = [1.0] * len(trained) + [short for _ in spec.early_runs()]
        found += device_hours(session, spec, policy, kind, lengths)
    return found, refusal(unsaved, spec, workers)


def submission_fields(
    request: JobRequest, submitter: Principal, *, fresh: bool = False
) -> dict[str, Any]:
    """The fields of a submission; one that is `fresh` reuses no curve.

    ForbiddenError if the sender may not set one of them, InvalidError for a tag that cannot be
    shown.
    """
    if request.priority > 0 and not submitter.may("admin"):
        raise ForbiddenError(
            f"priority is {request.priority}, but more than 0 requires scope admin; leave it out, "
            "or ask an admin"
        )
    reuse = not fresh and (request.baseline is None or request.baseline.reuse)
    return {
        "spec": request.job,
        "sent": request.sent["job"],
        "policy": policy_of(request.policy),
        "order": Order(
            priority=request.priority, max_run_seconds=request.max_run_seconds, reuse=reuse
        ),
        "choice": request.baseline,
        "labels": JobLabels(tags=request.tags, branch=request.branch),
        "repository": submitter.repository,
    }


def notify_workers(context: Context, job: Job) -> None:
    """Wake the workers for a committed job; does nothing for engine external."""
    if job.engine != "external":
        context.notifier.notify(job.capability, times=len(job.runs))
