"""Jobs over REST: submit, list, read, cancel, verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import Field

from parity.design.document import plan_document
from parity.design.sentences import one_line
from parity.judging.evidence import bundle_bytes
from server.database.lookup import find_job
from server.database.tables import Job, JobStatus
from server.documents.job import JobDocument, job_document
from server.documents.remarks import remarks_of
from server.documents.runs import RunDocument
from server.documents.verdicts import verdict_documents
from server.errors import ForbiddenError, NotFoundError
from server.jobs.baselines import BaselineChoice, resolve
from server.jobs.cancel import cancel_job
from server.jobs.conclude import case_of
from server.jobs.limits import check_queue, check_size
from server.jobs.planning import Known, known_before, lenders_for, planned
from server.jobs.submit import Labels, Order, Submission, submit_job_once
from server.overviews.job_list import JobPage, job_list
from server.overviews.wanted import Sort, Wanted
from server.records import Body, frozen, of
from server.remarks.tags import MOST_TAGS
from server.routes.evaluations import criteria_of
from server.turns import Turns
from server.web.auth import Principal, Sender
from server.web.context import Context, InContext
from server.web.strict_body import BodyRoute, StrictBody
from training.spec import JobSpec

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_packing = Turns("packing evidence")


@frozen
class JobRequest(Body):
    """The server's part of `parity.yaml`: the job and the policy that judges it.

    `baseline` names a promoted baseline, or has `reuse: false` to train the job's own in any case; `priority` puts the job
    before others (above 0 requires scope admin); `max_run_seconds` limits the training time of one run. `tags` and `branch` (that of the
    code) are what the job is found by.
    """

    job: JobSpec
    criteria: Mapping[str, Any]
    baseline: BaselineChoice | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_run_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    tags: Annotated[list[str], Field(max_length=MOST_TAGS)] = dataclasses.field(default_factory=list)
    branch: Annotated[str, Field(max_length=200)] | None = None


@frozen
class CandidatePlan:
    """The answer for one candidate in a line, and its plan as `parity plan --json` has it; null where none can be computed."""

    name: str
    line: str
    plan: Mapping[str, Any] | None


@frozen
class JobPlan:
    """What a job can decide, for its first 8 candidates; `known` has the loss (nats) and step time of an equal earlier run, or is null."""

    known: Known | None
    candidates: list[CandidatePlan]


@frozen
class VerdictPage:
    """The verdicts of a job; empty until its last run has ended. `status` and `message` give the reason."""

    status: JobStatus
    code: str | None
    message: str | None
    verdicts: list[Mapping[str, Any]]


@router.post("/jobs", status_code=202)
def submit(
    request: StrictBody[JobRequest],
    response: Response,
    context: InContext,
    submitter: Sender,
    idempotency_key: Annotated[str | None, Header(max_length=200, description="the same key and body return the same job")] = None,
) -> JobDocument:
    """Queue a job: 202 with its URL. Its runs start as soon as a suitable worker is free."""
    wanted = Submission(**wanted_of(request, submitter))
    lease_seconds = context.settings.lease_seconds
    check_size(context.settings, request.job)
    with context.database.write() as session:
        job, is_new = submit_job_once(session, wanted, submitter.id, idempotency_key, lease_seconds)
        if is_new:
            check_queue(session, context.settings, submitter.id)
        document = job_document(session, job, lease_seconds)
    if is_new:
        ring(context, job)
    response.headers["Location"] = document.links["self"]
    return document


@router.post("/jobs:plan")
def plan(request: StrictBody[JobRequest], context: InContext) -> JobPlan:
    """What a job could decide, before it is submitted: nothing is queued. Uses reruns on record and an equal earlier run.

    409 if the job cannot use the baseline that it names.
    """
    criteria = criteria_of(request.criteria)
    with context.database.read() as session:
        named = resolve(session, request.baseline, request.job, context.settings.lease_seconds)
        known, lenders = known_before(session, request.job, criteria, named), lenders_for(session, request.job)
        controls = len(named.controls) if named else 0
    candidates = []
    for one in planned(request.job, criteria, known, lenders, controls):
        line = f"No chances before the runs: {one.why_not}" if one.plan is None else one_line(one.plan)
        candidates.append(CandidatePlan(name=one.candidate, line=line, plan=None if one.plan is None else plan_document(one.plan)))
    return JobPlan(known=known, candidates=candidates)


def wanted_of(request: JobRequest, submitter: Principal) -> dict[str, Any]:
    """The fields of a submission; ForbiddenError if the sender may not set one of them, InvalidError for a tag that cannot be shown."""
    if request.priority > 0 and not submitter.may("admin"):
        raise ForbiddenError(f"priority is {request.priority}, but more than 0 requires scope admin; leave it out, or ask an admin")
    reuse = request.baseline is None or request.baseline.reuse
    return {
        "spec": request.job,
        "criteria": criteria_of(request.criteria),
        "order": Order(priority=request.priority, max_run_seconds=request.max_run_seconds, reuse=reuse),
        "choice": request.baseline,
        "labels": Labels(tags=request.tags, branch=request.branch),
    }


def ring(context: Context, job: Job) -> None:
    """Wake the workers for a committed job; does nothing for engine external."""
    if job.engine != "external":
        context.doorbell.ring(job.capability, times=len(job.runs))


@router.get("/jobs")
def index(
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    sort: Annotated[Sort, Query(description="order; `gap`: the largest gap of a candidate, in % of the loss, first")] = "newest",
    cursor: Annotated[str | None, Query(max_length=1000, description="`next_cursor` of the previous page")] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="jobs per page")] = 50,
    count: Annotated[bool, Query(description="whether to count all jobs that match")] = False,
) -> JobPage:
    """Jobs, newest first unless sorted otherwise. All filters that are given must hold."""
    with context.database.read() as session:
        return job_list(session, filters, sort, cursor, limit, counted=count)


@router.get("/jobs/{job_id}")
def show(job_id: str, context: InContext) -> JobDocument:
    """One job with its arms, runs and verdicts."""
    return _document(context, job_id)


@router.get("/jobs/{job_id}/runs")
def runs(job_id: str, context: InContext) -> list[RunDocument]:
    """Every run of a job, arm by arm, with its attempts; an arm's noise runs follow its full runs."""
    return [run for arm in _document(context, job_id).arms for run in (*arm.runs, *arm.noise_runs)]


@router.post("/jobs/{job_id}:cancel")
def cancel(job_id: str, context: InContext) -> JobDocument:
    """Cancel a job, as its owner or an admin. Cancelling an ended job changes nothing and is not an error."""
    with context.database.write() as session:
        cancel_job(session, job_id)
    return _document(context, job_id)


@router.get("/jobs/{job_id}/verdict")
def verdict(job_id: str, context: InContext) -> VerdictPage:
    """The verdict of each candidate, as the judge wrote it."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        return of(VerdictPage, job, verdicts=[*verdict_documents(job)])


@router.get("/jobs/{job_id}/evidence.zip", response_class=Response)
def evidence(job_id: str, context: InContext) -> Response:
    """The evidence bundle (curves, policy, verdicts, sign-offs), which can be recomputed offline. `parity verify FILE` checks it."""
    with _packing.take():
        with context.database.read() as session:
            job = find_job(session, job_id)
            documents = verdict_documents(job)
            if not documents:
                raise NotFoundError(f"job {job_id} is {job.status} and has no verdict, so it has no evidence")
            signed = [dataclasses.asdict(each) for each in remarks_of(session, job).sign_offs]
            case = case_of(session, job)
        bundle = bundle_bytes(case, documents, signed)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-evidence.zip"'}
    return Response(bundle, media_type="application/zip", headers=headers)


def _document(context: Context, job_id: str) -> JobDocument:
    with context.database.read() as session:
        return job_document(session, find_job(session, job_id), context.settings.lease_seconds)
