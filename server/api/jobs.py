"""Jobs over REST: submit, list, read, cancel, verdict, gate; a job as API and pages show it, with
its forecast end.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import Field
from sqlalchemy.orm import Session, selectinload

from parity.canonical_json import json_value
from parity.design.plan_document import plan_document
from parity.design.plan_words import one_line
from parity.frozen import frozen
from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import Outcome, Result, ended
from parity.gate.rules import GateRules
from parity.judging.bundles.evidence import bundle_bytes
from parity.judging.live.forecast_words import sentence
from parity.judging.live.rules import State
from parity.recipes import UNSTATED
from server.api.lists import JobPage, Sort, Wanted, job_list, principal_names
from server.api.remarks import NoteDocument, SignOffEntry, StatementEntry, remarks_of
from server.api.runs import (
    AttemptDocument,
    RunDocument,
    attempt_documents,
    run_document,
    seconds_since,
)
from server.api.verdicts import policy_of
from server.concurrency.turns import Turns
from server.curves.loading import multiplicity_of
from server.database import tables
from server.database.clock import time_text
from server.database.lookups import find_job
from server.database.states import JOB_ENDED, JOB_OPEN, RUN_ENDED
from server.database.tables import Arm, Job, JobStatus, Role, Run
from server.errors import ForbiddenError, InvalidError, NotFoundError
from server.jobs import projects, submissions
from server.jobs.added_runs import AddedRunRequest, add_runs
from server.jobs.again import merged, origin_note, request_of
from server.jobs.applied_statements import of_arm, tokens_per_step
from server.jobs.baselines import BaselineChoice, resolve
from server.jobs.conclude import judge_again
from server.jobs.cost import CostDocument, Price, cost_of, price_of
from server.jobs.fingerprint import job_spec
from server.jobs.forecasts import latest
from server.jobs.gate_rules import PinnedDocument, pinned, pinned_job
from server.jobs.job_kinds import kind_of
from server.jobs.judge_input import case_of
from server.jobs.lifecycle import cancel_job
from server.jobs.missing import missing
from server.jobs.notes import add_note
from server.jobs.outlook import Known, known_before, lenders_for, planned
from server.jobs.pinned_question import asked_by
from server.jobs.requesters import requesters_of
from server.jobs.reuse import Answer, Question, answer, look_up, note_lookup, standing_fail_of
from server.jobs.submission_limits import check_queue, check_size
from server.jobs.submit import Labels, Order, Submission, submit_job_once
from server.jobs.tags import MOST_TAGS
from server.jobs.verdict_rows import shown_documents, verdict_documents
from server.jobs.workers import can_take, live_workers, why_waiting
from server.records import Body, Number, Sent, of
from server.settings import Settings
from server.web.auth import RULES, Context, InContext, Principal, Sender, check_rule
from server.web.requests import BodyRoute, StrictBody, validated
from training.overrides import phrase
from training.rules import OTHERS_TRAINERS
from training.spec import JobSpec, Model

# Progress and end time of a job, from a simulation of its queue on the free slots with each run's
# measured speed.


def seconds_left(runs: Sequence[Run], slots: int) -> Mapping[str, float | None]:
    """Seconds until each run of a job ends: 0 if it has ended, None while no speed is known.

    A queued run is assumed to be as fast as the measured runs of its arm, else as the mean of all
    measured runs. Other jobs in the queue are not counted.

    Args:
        runs: all runs of the job in the order of their claim.
        slots: how many runs train at once.
    """
    running = [run for run in runs if run.state == "running"]
    free_at = [0.0] * max(1, slots, len(running))
    left: dict[str, float | None] = {
        run.id: 0.0 if run.state in RUN_ENDED else None for run in runs
    }
    for run in [*running, *(run for run in runs if run.state == "queued")]:
        speed = None if run.planned_steps is None else _speed(run, runs)
        if speed is None:
            left[run.id] = None
            continue
        end = heapq.heappop(free_at) + max(0, run.length - run.steps_done) / speed
        heapq.heappush(free_at, end)
        left[run.id] = end
    return left


def last_end(ends: Sequence[float | None]) -> float | None:
    """Seconds until the last of these runs ends; None if one of them is unknown, or for an empty
    list.
    """
    known_ends = [end for end in ends if end is not None]
    if known_ends and len(known_ends) == len(ends):
        return max(known_ends)
    return None


def share_done(runs: Sequence[Run]) -> float:
    """The share of the planned steps of these runs that is done, 0 to 1; of the runs where nobody
    has stated their steps.
    """
    planned = [run for run in runs if run.planned_steps]
    if planned:
        return sum(run.steps_done for run in planned) / sum(run.length for run in planned)
    if not runs:
        return 0.0
    return sum(run.state in RUN_ENDED for run in runs) / len(runs)


def _speed(run: Run, runs: Sequence[Run]) -> float | None:
    for like_it in ([run], [other for other in runs if other.arm_id == run.arm_id], runs):
        speeds = [other.steps_per_second for other in like_it if other.steps_per_second]
        if speeds:
            return sum(speeds) / len(speeds)
    return None


# A job with its arms as the API and the pages show it.


@frozen
class NamedDocument:
    """The promoted baseline that a job names, who promoted it, and the number of its reruns that
    the judge gets.
    """

    name: str
    version: int
    controls: int
    promoted_by: str


@frozen
class LiveState:
    """The last forecast of a candidate's final gap: its state, in words, and the probability of
    each verdict at the planned end.

    `low` to `high` is the 90 % forecast of the final gap, `gap` the gap at the step of the
    forecast, nats.
    """

    state: State
    sentence: str
    step: int
    passes: float
    fails: float
    inconclusive: float
    gap: float
    low: float
    high: float
    margin: float


@frozen
class ArmDocument:
    """The baseline or a candidate, with totals over its runs; `live` is the last forecast of a
    candidate, `will_fail` its sentence if the final gap is surely above the margin; either may be
    null.

    `title` is the arm's name with what it does from which step on, where the name does not say
    that. `judged_against` is the arm that a candidate is judged against, which under engine command
    may be another candidate. `overrides` are the arm's rules for single blocks, projections and
    GEMMs, as phrases. `short_reruns` are reruns that stop early and measure run-to-run noise; they
    are not in the totals.
    """

    name: str
    title: str
    role: Role
    recipe: str
    overrides: list[str]
    steps_done: int
    planned_steps: int | None
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    judged_against: str | None
    will_fail: str | None
    live: LiveState | None
    runs: list[RunDocument]
    short_reruns: list[RunDocument]


@frozen
class LookDocument:
    """Which of the registered looks at its question a job is, and how many candidates share the
    error.
    """

    number: int
    looks: int
    candidates: int


@frozen
class JobDocument:
    """A job: its status, why it waits, its arms, and its verdicts once the last run has ended.

    While it is queued, `missing` has a sentence for each thing that it lacks, or that nobody has
    tried: a worker, a tokenizer, its data, the engine on a GPU, and what it takes in device hours.
    `awaits_conclusion`: all runs of a project have ended; it takes further ones until somebody
    concludes it. `failed_by` is the job whose fail on the same question stands against a pass of
    this one. To each verdict as the judge wrote it are added `path`, the gap and its interval as of
    steps on the way to its end, and `chances`, of what one more pair of runs would make of it.
    Neither is part of the verdict's digest.
    """

    id: str
    name: str
    status: JobStatus
    code: str | None
    message: str | None
    waiting: str | None
    missing: list[str]
    engine: str
    layer_policy: str | None
    capability: str
    device_class: str | None
    max_run_seconds: float | None
    is_open: bool
    awaits_conclusion: bool
    reuse: bool
    baseline: NamedDocument | None
    config_hash: str | None
    revision: str | None
    branch: str | None
    look: LookDocument | None
    failed_by: str | None
    parameters: int | None
    planned_steps: int | None
    tokens_per_step: int | None
    share_done: float
    eta_seconds: float | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    last_event: int
    spec: Mapping[str, Any]
    policy: Mapping[str, Any]
    arms: list[ArmDocument]
    verdicts: list[Mapping[str, Any]]
    cost: CostDocument
    tags: list[str]
    notes: list[NoteDocument]
    sign_offs: list[SignOffEntry]
    statements: list[StatementEntry]
    links: Mapping[str, str]


# Load options for several jobs with their specifications: three queries for all jobs instead of
# three per job.
WHOLE = (selectinload(Job.arms), selectinload(Job.runs), selectinload(Job.verdicts))


def job_document(
    session: Session, job: Job, lease_seconds: float, price: Price | None = None
) -> JobDocument:
    """Everything that the pages and clients show about a job; `price` is that of a device hour,
    where one is stated.
    """
    live = live_workers(session, lease_seconds)
    slots = sum(worker.slots for worker in live if can_take(worker, job))
    left = seconds_left(job.runs, slots)
    attempts, remarks = attempt_documents(session, job), remarks_of(session, job)
    submitted = submissions.by_run(session, [run.id for run in job.runs])
    shared = multiplicity_of(job)
    own = f"/api/v1/jobs/{job.id}"
    links = {"self": own, **{name: f"{own}/{name}" for name in ("events", "verdict", "gap")}}
    links |= {
        "evidence": f"{own}/evidence.zip",
        "cancel": f"{own}:cancel",
        "again": f"{own}:again",
        "page": f"/jobs/{job.id}",
    }
    if kind := kind_of(job):
        links |= kind.links(session, job)
    waiting = why_waiting(job, slots, live)
    return of(
        JobDocument,
        job,
        waiting=waiting,
        missing=missing(session, job, None if slots else waiting),
        layer_policy=job.spec.get("layer_policy"),
        awaits_conclusion=job.is_open
        and job.status in JOB_OPEN
        and len(job.arms) > 1
        and all(run.finished_at for run in job.runs),
        baseline=_named_baseline(session, job),
        failed_by=None
        if (failed := standing_fail_of(session, job, lease_seconds)) is None
        else failed.id,
        look=shared and of(LookDocument, shared, number=shared.look),
        # With a trainer of the user's own the specification need not have the model.
        tokens_per_step=tokens_per_step(job),
        parameters=None if job.engine in OTHERS_TRAINERS else Model(**job.spec["model"]).parameters,
        share_done=share_done(job.runs),
        eta_seconds=last_end([*left.values()]),
        last_event=job.event_sequence,
        arms=[_arm_document(arm, left, attempts, submitted) for arm in job.arms],
        verdicts=[*shown_documents(session, job)],
        cost=cost_of(session, job, price),
        tags=remarks.tags,
        notes=remarks.notes,
        sign_offs=remarks.sign_offs,
        statements=remarks.statements,
        links=links,
    )


def _arm_document(
    arm: Arm,
    left: Mapping[str, float | None],
    attempts: Mapping[str, list[AttemptDocument]],
    submitted: Mapping[str, Sequence[tables.Submission]],
) -> ArmDocument:
    runs, short_reruns = (
        [
            run_document(run, arm.name, left[run.id], attempts[run.id], submitted.get(run.id, ()))
            for run in each
        ]
        for each in (arm.runs, arm.short_reruns)
    )
    live = live_state(arm)
    begun = [run for run in runs if run.loss is not None]
    speeds = [
        run.steps_per_second for run in runs if run.state == "running" and run.steps_per_second
    ]
    return of(
        ArmDocument,
        arm,
        recipe=(of_arm(arm).recipe or arm.recipe) if arm.recipe == UNSTATED else arm.recipe,
        overrides=[phrase(each) for each in arm.overrides],
        steps_done=sum(run.steps_done for run in runs),
        planned_steps=None
        if any(run.planned_steps is None for run in arm.runs)
        else sum(run.length for run in arm.runs),
        loss=begun[-1].loss if begun else None,
        steps_per_second=sum(speeds) if speeds else None,
        eta_seconds=last_end([run.eta_seconds for run in runs]),
        judged_against=arm.judged_against.name if arm.role == "candidate" else None,
        will_fail=live.sentence if live and live.state == "will_fail" else None,
        live=live,
        runs=runs,
        short_reruns=short_reruns,
    )


def live_state(arm: Arm) -> LiveState | None:
    """The last forecast of a candidate; None before the first look, and for a baseline."""
    look = latest(arm.job, arm.name)
    if look is None:
        return None
    return of(LiveState, look, sentence=sentence(look))


def _named_baseline(session: Session, job: Job) -> NamedDocument | None:
    named = job.named
    if named is None:
        return None
    who = named.events[0].who
    promoted_by = principal_names(session, {who}).get(who, who)
    return of(NamedDocument, named, controls=len(job.controls or ()), promoted_by=promoted_by)


# Jobs over REST: submit, list, read, cancel, verdict.

router = APIRouter(prefix="/api/v1", tags=["jobs"], route_class=BodyRoute)
_packing = Turns("packing evidence")


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
    """

    known: Known | None
    candidates: list[CandidatePlan]


@frozen
class VerdictPage:
    """The verdicts of a job; empty until its last run has ended. `status` and `message` give the
    reason.
    """

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
    idempotency_key: Annotated[
        str | None, Header(max_length=200, description="the same key and body return the same job")
    ] = None,
) -> JobDocument:
    """Queue a job: 202 with its URL. Its runs start as soon as a suitable worker is free."""
    document = _submitted(
        context, Submission(**_wanted_of(request, submitter)), submitter, idempotency_key
    )
    response.headers["Location"] = document.links["self"]
    return document


def _submitted(
    context: Context, wanted: Submission, submitter: Principal, key: str | None, note: str = ""
) -> JobDocument:
    """Submit a job, once for a key, and wake the workers; a new one gets the note."""
    lease_seconds = context.settings.lease_seconds
    check_size(context.settings, wanted.spec)
    with context.database.write() as session:
        job, is_new = submit_job_once(session, wanted, submitter.id, key, lease_seconds)
        if is_new:
            check_queue(session, context.settings, submitter.id)
        if is_new and note:
            add_note(session, job.id, submitter.id, note)
        document = job_document(session, job, lease_seconds, price_of(context.settings))
    if is_new:
        ring(context, job)
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
        own, revision = request_of(job), job.revision or ""
    wanted: JobRequest = validated(StrictBody[JobRequest], merged(own, patch))
    submission = Submission(**_wanted_of(wanted, submitter), revision=revision)
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
        known, lenders = (
            known_before(session, request.job, policy, named),
            lenders_for(session, request.job),
        )
        controls = len(named.controls) if named else 0
    candidates = []
    for one in planned(request.job, policy, known, lenders, controls):
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
    return JobPlan(known=known, candidates=candidates)


def _wanted_of(request: JobRequest, submitter: Principal, *, fresh: bool = False) -> dict[str, Any]:
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
        "labels": Labels(tags=request.tags, branch=request.branch),
        "repository": submitter.repository,
    }


def ring(context: Context, job: Job) -> None:
    """Wake the workers for a committed job; does nothing for engine external."""
    if job.engine != "external":
        context.doorbell.ring(job.capability, times=len(job.runs))


@router.get("/jobs")
def index(
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    sort: Annotated[
        Sort,
        Query(description="order; `gap`: the largest gap of a candidate, in % of the loss, first"),
    ] = "newest",
    cursor: Annotated[
        str | None, Query(max_length=1000, description="`next_cursor` of the previous page")
    ] = None,
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
    """Every run of a job, arm by arm, with its attempts; an arm's short reruns follow its full
    runs.
    """
    return [
        run for arm in _document(context, job_id).arms for run in (*arm.runs, *arm.short_reruns)
    ]


@router.post("/jobs/{job_id}:cancel")
def cancel(job_id: str, context: InContext) -> JobDocument:
    """Cancel a job, as its owner or an admin. Cancelling an ended job changes nothing and is not an
    error.
    """
    with context.database.write() as session:
        cancel_job(session, job_id)
    return _document(context, job_id)


@router.post("/jobs/{job_id}:add-run", status_code=202)
def add_run(
    job_id: str, request: StrictBody[AddedRunRequest], context: InContext, sender: Sender
) -> JobDocument:
    """Add a run to each arm of a job that has no verdict yet, as its owner or an admin.

    Once a candidate has trained this takes a look that the policy registered; 409 where none is
    left, and for a job that takes no run.
    """
    return submit_run(context, job_id, request, sender)


def submit_run(
    context: Context, job_id: str, request: AddedRunRequest, sender: Principal
) -> JobDocument:
    """Add a run to each arm of an open job, within the limits of one job and one sender, and wake
    the workers.
    """
    with context.database.write() as session:
        job = add_runs(session, job_id, request, sender.id)
        check_size(context.settings, job_spec(job))
        check_queue(session, context.settings, sender.id)
        document = job_document(
            session, job, context.settings.lease_seconds, price_of(context.settings)
        )
    ring(context, job)
    return document


@router.post("/jobs/{job_id}:conclude", status_code=202)
def conclude(job_id: str, context: InContext, sender: Sender) -> JobDocument:
    """Close a project, as its owner or an admin: its finished runs are judged soon after, and it
    takes no further run. An admin has a job that failed with `JUDGE_FAILED` judged again, so that
    it gets its verdict.

    409 for another job, while a run of the project trains, and where an arm has no finished run.
    """
    with context.database.write() as session:
        if find_job(session, job_id).status == "failed":
            check_rule(context, RULES["POST /api/v1/tokens"], sender, {})
            judge_again(session, job_id)
        else:
            projects.close(session, job_id)
    context.judge.wake(job_id)
    return _document(context, job_id)


@router.get("/jobs/{job_id}/verdict")
def verdict(job_id: str, context: InContext) -> VerdictPage:
    """The verdict of each candidate, as the judge wrote it, with its path and the chances of one
    more pair of runs.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        return of(VerdictPage, job, verdicts=[*shown_documents(session, job)])


@router.get("/jobs/{job_id}/evidence.zip", response_class=Response)
def evidence(job_id: str, context: InContext) -> Response:
    """The evidence bundle (curves, policy, verdicts, sign-offs), which can be recomputed offline.
    `parity verify FILE` checks it.
    """
    with _packing.take():
        with context.database.read() as session:
            job = find_job(session, job_id)
            documents = verdict_documents(job)
            if not documents:
                raise NotFoundError(
                    f"job {job_id} is {job.status} and has no verdict, so it has no evidence"
                )
            signed = [asdict(each) for each in remarks_of(session, job).sign_offs]
            case = case_of(session, job)
        bundle = bundle_bytes(case, documents, signed)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-evidence.zip"'}
    return Response(bundle, media_type="application/zip", headers=headers)


def _document(context: Context, job_id: str) -> JobDocument:
    with context.database.read() as session:
        return job_document(
            session,
            find_job(session, job_id),
            context.settings.lease_seconds,
            price_of(context.settings),
        )


# The one request of a gate: returns a job whose verdict can be reused, else a new one.

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
    question = of(
        Question, request, **_wanted_of(request, submitter, fresh=request.fresh), by_gate=True
    )
    check_size(context.settings, request.job)
    rules = None
    if submitter.repository is not None:
        given = asked_by(
            question.spec,
            question.policy,
            question.sent,
            request.baseline,
            request.max_run_seconds,
            request.max_age_days,
        )
        rules = pinned(context.settings.gate_rules, submitter.repository, given)
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
        ring(context, reply.job)
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
        rules = pinned_job(context.settings.gate_rules, asker.repository, job)
        document = json_value(job_document(session, job, context.settings.lease_seconds))
    if document["status"] not in JOB_ENDED:
        return GateExitDocument(
            repository=rules.repository,
            result=None,
            exit_code=None,
            note=f"job {job_id} is {document['status']}",
        )
    outcome = ended(Outcome(result="infrastructure", revision=""), document)
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
    session: Session, reply: Answer, request: GateRequest, response: Response, settings: Settings
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
