"""A job with its arms as the API and the pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session, selectinload

from parity.judging.live.rules import State
from parity.judging.live.words import sentence
from server.curves.buckets import Number
from server.database.tables import Arm, Job, JobStatus, Role
from server.documents.forecast import last_end, seconds_left, share_done
from server.documents.principals import principal_names
from server.documents.remarks import NoteDocument, SignOffEntry, remarks_of
from server.documents.runs import AttemptDocument, RunDocument, attempt_documents, run_document
from server.documents.verdicts import verdict_documents
from server.jobs.kinds import kind_of
from server.jobs.ledger import multiplicity_of
from server.jobs.live import latest
from server.jobs.workers import can_take, live_workers, why_waiting
from server.records import frozen, of
from training.overrides import phrase
from training.spec import Model


@frozen
class NamedDocument:
    """The promoted baseline that a job names, who promoted it, and the number of its reruns that the judge gets."""

    name: str
    version: int
    controls: int
    promoted_by: str


@frozen
class LiveState:
    """The last forecast of a candidate's final gap: its state, in words, and the probability of each verdict at the planned end.

    `low` to `high` is the 90 % forecast of the final gap, `gap` the gap at the step of the forecast, nats.
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
    """The baseline or a candidate, with totals over its runs; `live` is the last forecast of a candidate, `hopeless` its sentence
    if the final gap is surely above the margin; either may be null.

    `overrides` are the arm's rules for single blocks, projections and GEMMs, as phrases. `noise_runs` are reruns that stop early and
    measure run noise; they are not in the totals.
    """

    name: str
    role: Role
    recipe: str
    overrides: list[str]
    steps_done: int
    planned_steps: int
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    hopeless: str | None
    live: LiveState | None
    runs: list[RunDocument]
    noise_runs: list[RunDocument]


@frozen
class LookDocument:
    """Which of the registered looks at its question a job is, and how many candidates share the error."""

    number: int
    looks: int
    candidates: int


@frozen
class JobDocument:
    """A job: its status, why it waits, its arms, and its verdicts once the last run has ended."""

    id: str
    name: str
    status: JobStatus
    code: str | None
    message: str | None
    waiting: str | None
    engine: str
    layer_policy: str
    capability: str
    device_class: str | None
    max_run_seconds: float | None
    reuse: bool
    baseline: NamedDocument | None
    config_hash: str | None
    revision: str | None
    branch: str | None
    look: LookDocument | None
    parameters: int | None
    share_done: float
    eta_seconds: float | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    last_event: int
    spec: Mapping[str, Any]
    criteria: Mapping[str, Any]
    arms: list[ArmDocument]
    verdicts: list[Mapping[str, Any]]
    tags: list[str]
    notes: list[NoteDocument]
    sign_offs: list[SignOffEntry]
    links: Mapping[str, str]


# Load options for several jobs with their specifications: three queries for all jobs instead of three per job.
WHOLE = (selectinload(Job.arms), selectinload(Job.runs), selectinload(Job.verdicts))


def job_document(session: Session, job: Job, lease_seconds: float) -> JobDocument:
    """Everything that the pages and clients show about a job."""
    live = live_workers(session, lease_seconds)
    slots = sum(worker.slots for worker in live if can_take(worker, job))
    left = seconds_left(job.runs, slots)
    attempts, remarks = attempt_documents(session, job), remarks_of(session, job)
    shared = multiplicity_of(job)
    own = f"/api/v1/jobs/{job.id}"
    links = {"self": own, **{name: f"{own}/{name}" for name in ("events", "verdict", "gap")}}
    links |= {"evidence": f"{own}/evidence.zip", "cancel": f"{own}:cancel", "page": f"/jobs/{job.id}"}
    if kind := kind_of(job):
        links |= kind.links(session, job)
    return of(
        JobDocument,
        job,
        waiting=why_waiting(job, slots, live),
        layer_policy=job.spec["layer_policy"],
        baseline=_named_baseline(session, job),
        look=shared and of(LookDocument, shared, number=shared.look),
        # With engine external the specification need not have the model.
        parameters=None if job.engine == "external" else Model(**job.spec["model"]).parameters,
        share_done=share_done(job.runs),
        eta_seconds=last_end([*left.values()]),
        last_event=job.event_sequence,
        arms=[_arm_document(arm, left, attempts) for arm in job.arms],
        verdicts=[*verdict_documents(job)],
        tags=remarks.tags,
        notes=remarks.notes,
        sign_offs=remarks.sign_offs,
        links=links,
    )


def _arm_document(arm: Arm, left: Mapping[str, float | None], attempts: Mapping[str, list[AttemptDocument]]) -> ArmDocument:
    runs, noise_runs = (
        [run_document(run, arm.name, left[run.id], attempts[run.id]) for run in each] for each in (arm.runs, arm.noise_runs)
    )
    live = live_state(arm)
    begun = [run for run in runs if run.loss is not None]
    speeds = [run.steps_per_second for run in runs if run.state == "running" and run.steps_per_second]
    return of(
        ArmDocument,
        arm,
        overrides=[phrase(each) for each in arm.overrides],
        steps_done=sum(run.steps_done for run in runs),
        planned_steps=sum(run.planned_steps for run in runs),
        loss=begun[-1].loss if begun else None,
        steps_per_second=sum(speeds) if speeds else None,
        eta_seconds=last_end([run.eta_seconds for run in runs]),
        hopeless=live.sentence if live and live.state == "harmful" else None,
        live=live,
        runs=runs,
        noise_runs=noise_runs,
    )


def live_state(arm: Arm) -> LiveState | None:
    """The last forecast of a candidate; None before the first look, and for a baseline."""
    look = latest(arm.job, arm.name)
    return None if look is None else of(LiveState, look, sentence=sentence(look))


def _named_baseline(session: Session, job: Job) -> NamedDocument | None:
    named = job.named
    if named is None:
        return None
    who = named.events[0].who
    promoted_by = principal_names(session, {who}).get(who, who)
    return of(NamedDocument, named, controls=len(job.controls or ()), promoted_by=promoted_by)
