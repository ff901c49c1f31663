"""What the API and the pages say of a job: plain values made from rows, with their types for OpenAPI."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from server.curves.buckets import Number, number
from server.database.clock import time_text
from server.database.tables import Arm, Attempt, AttemptState, Event, Job, JobStatus, Role, Run, RunState, Verdict, Worker
from server.documents.forecast import seconds_left
from server.jobs.workers import can_take, live_workers, why_waiting
from training.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """One claim of a run: where it trained, from which step on it recorded, and how it ended."""

    attempt: int
    state: AttemptState
    code: str | None
    message: str | None
    worker: str | None
    first_step: int | None
    fingerprint: str | None
    started_at: str
    ended_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusedDocument:
    """The run whose curve another has in place of training the same again, and how long ago that one was trained."""

    run: str
    job: str
    trained_at: str | None
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDocument:
    """The promoted baseline that a job names, and how many reruns of it the job's judge is given."""

    name: str
    version: int
    controls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """One training run. `loss` is the last judged loss in nats; a code and message say why a run ended early.

    `reused` is set where the run was not trained, because an equal one had been.
    """

    id: str
    arm: str
    seed: int
    replicate: int
    state: RunState
    code: str | None
    message: str | None
    attempt: int
    attempts: list[AttemptDocument]
    priority: int
    steps_done: int
    planned_steps: int
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    worker: str | None
    fingerprint: str | None
    manifest: Mapping[str, str] | None
    reused: ReusedDocument | None
    started_at: str | None
    finished_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmDocument:
    """The baseline or a candidate, with its runs summed up; `hopeless` is what the early-stop rule found of it, in words."""

    name: str
    role: Role
    recipe: str
    steps_done: int
    planned_steps: int
    loss: Number | None
    steps_per_second: float | None
    eta_seconds: float | None
    hopeless: str | None
    runs: list[RunDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument:
    """A job: where it stands, why it waits, its arms, and its verdicts once the last run has ended."""

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
    links: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSummary:
    """A verdict in a list of jobs."""

    candidate: str
    verdict: Literal["pass", "fail", "inconclusive"]
    gap_nats: Number | None
    ci_low: Number | None
    ci_high: Number | None
    margin_nats: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job in a list."""

    id: str
    name: str
    status: JobStatus
    engine: str
    baseline: str
    candidates: list[str]
    share_done: float
    created_at: str
    finished_at: str | None
    verdicts: list[VerdictSummary]


# Load options for a list of jobs: three queries for all of them in place of three for each.
WHOLE = (selectinload(Job.arms), selectinload(Job.runs), selectinload(Job.verdicts))


def job_document(session: Session, job: Job, lease_seconds: float) -> JobDocument:
    """Everything that a page or a watching client shows of a job."""
    live = live_workers(session, lease_seconds)
    slots = sum(worker.slots for worker in live if can_take(worker, job))
    left = seconds_left(job.runs, slots)
    attempts = attempt_documents(session, job)
    arms = [_arm_document(arm, left, attempts) for arm in job.arms]
    return JobDocument(
        id=job.id,
        name=job.name,
        status=job.status,
        code=job.code,
        message=job.message,
        waiting=why_waiting(job, slots, live),
        engine=job.engine,
        layer_policy=job.spec["layer_policy"],
        capability=job.capability,
        device_class=job.device_class,
        max_run_seconds=job.max_run_seconds,
        reuse=job.reuse,
        baseline=_named(job),
        config_hash=job.config_hash,
        revision=job.revision,
        parameters=_parameters(job),
        share_done=_share(job.runs),
        eta_seconds=_latest([arm.eta_seconds for arm in arms]),
        created_at=time_text(job.created_at),
        started_at=time_text(job.started_at),
        finished_at=time_text(job.finished_at),
        last_event=job.event_sequence,
        spec=job.spec,
        criteria=job.criteria,
        arms=arms,
        verdicts=verdict_documents(job),
        links=_links(job.id),
    )


def job_summary(job: Job) -> JobSummary:
    """A job in one line."""
    baseline, *candidates = job.arms
    return JobSummary(
        id=job.id,
        name=job.name,
        status=job.status,
        engine=job.engine,
        baseline=baseline.name,
        candidates=[arm.name for arm in candidates],
        share_done=_share(job.runs),
        created_at=time_text(job.created_at),
        finished_at=time_text(job.finished_at),
        verdicts=[_verdict_summary(document) for document in verdict_documents(job)],
    )


def verdict_documents(job: Job) -> list[Mapping[str, Any]]:
    """The verdicts of a job as the judge wrote them, in the order of the arms."""
    position = {arm.name: arm.position for arm in job.arms}
    rows: Sequence[Verdict] = sorted(job.verdicts, key=lambda row: position[row.candidate])
    return [json.loads(row.document) for row in rows]


def event_document(event: Event) -> dict[str, Any]:
    """The data of one server-sent event."""
    return {"at": time_text(event.created_at), **event.payload}


def attempt_documents(session: Session, job: Job) -> Mapping[str, list[AttemptDocument]]:
    """The attempts of each run of a job, oldest first."""
    rows = session.execute(
        select(Attempt, Worker.name)
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Worker, Worker.id == Attempt.worker_id)
        .where(Run.job_id == job.id)
        .order_by(Attempt.run_id, Attempt.epoch)
    )
    found: dict[str, list[AttemptDocument]] = {run.id: [] for run in job.runs}
    for row, worker in rows:
        found[row.run_id].append(
            AttemptDocument(
                attempt=row.epoch,
                state=row.state,
                code=row.code,
                message=row.message,
                worker=worker,
                first_step=row.first_step,
                fingerprint=row.fingerprint,
                started_at=time_text(row.started_at),
                ended_at=time_text(row.ended_at),
            )
        )
    return found


def _arm_document(arm: Arm, left: Mapping[str, float | None], attempts: Mapping[str, list[AttemptDocument]]) -> ArmDocument:
    runs = [_run_document(run, arm.name, left[run.id], attempts[run.id]) for run in arm.runs]
    ids = {run.id for run in runs}
    begun = [run for run in runs if run.loss is not None]
    speeds = [run.steps_per_second for run in runs if run.state == "running" and run.steps_per_second]
    return ArmDocument(
        name=arm.name,
        role=arm.role,
        recipe=arm.recipe,
        steps_done=sum(run.steps_done for run in runs),
        planned_steps=sum(run.planned_steps for run in runs),
        loss=begun[-1].loss if begun else None,
        steps_per_second=sum(speeds) if speeds else None,
        eta_seconds=_latest([run.eta_seconds for run in runs]),
        hopeless=next((pair["hopeless"] for run, pair in (arm.job.early_stop or {}).items() if pair["hopeless"] and run in ids), None),
        runs=runs,
    )


def _run_document(run: Run, arm: str, eta_seconds: float | None, attempts: list[AttemptDocument]) -> RunDocument:
    return RunDocument(
        id=run.id,
        arm=arm,
        seed=run.seed,
        replicate=run.replicate,
        state=run.state,
        code=run.code,
        message=run.message,
        attempt=run.epoch,
        attempts=attempts,
        priority=run.priority,
        steps_done=run.steps_done,
        planned_steps=run.planned_steps,
        loss=_loss(run.last_loss),
        steps_per_second=run.steps_per_second,
        eta_seconds=eta_seconds,
        worker=attempts[-1].worker if attempts and run.worker_id else None,
        fingerprint=run.fingerprint,
        manifest=run.manifest,
        reused=_reused(run.source) if run.source else None,
        started_at=time_text(run.started_at),
        finished_at=time_text(run.finished_at),
    )


def _reused(source: Run) -> ReusedDocument:
    ended = source.finished_at
    age = None if ended is None else max(0.0, time.time() - ended)
    return ReusedDocument(run=source.id, job=source.job_id, trained_at=time_text(ended), age_seconds=age)


def _named(job: Job) -> NamedDocument | None:
    if job.named is None:
        return None
    return NamedDocument(name=job.named.name, version=job.named.version, controls=len(job.controls or ()))


def _verdict_summary(document: Mapping[str, Any]) -> VerdictSummary:
    gap = document.get("gap") or {}
    low, high = gap.get("ci95") or (None, None)
    return VerdictSummary(
        candidate=document["candidate"]["name"],
        verdict=document["verdict"],
        gap_nats=gap.get("mean"),
        ci_low=low,
        ci_high=high,
        margin_nats=(document.get("margin") or {}).get("nats"),
    )


def _parameters(job: Job) -> int | None:
    """Size of the model; None where the user trains it and the specification need not say."""
    return None if job.engine == "external" else Model(**job.spec["model"]).parameters


def _share(runs: Sequence[Run]) -> float:
    planned = sum(run.planned_steps for run in runs)
    return sum(run.steps_done for run in runs) / planned if planned else 0.0


def _latest(etas: Sequence[float | None]) -> float | None:
    known = [eta for eta in etas if eta is not None]
    return max(known) if len(known) == len(etas) and known else None


def _loss(stored: str | None) -> Number | None:
    return None if stored is None else number(float(stored))


def _links(job_id: str) -> Mapping[str, str]:
    own = f"/api/v1/jobs/{job_id}"
    return {
        "self": own,
        "events": f"{own}/events",
        "verdict": f"{own}/verdict",
        "gap": f"{own}/gap",
        "evidence": f"{own}/evidence.zip",
        "cancel": f"{own}:cancel",
        "page": f"/jobs/{job_id}",
    }
