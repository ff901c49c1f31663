"""What can be done with a job: submit, cancel, conclude. Plain functions of a session; the edge owns the transaction."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity import Criteria, criteria_from_mapping
from parity.judging.evidence import Case
from parity.version import ENGINE_VERSION
from server.curves import layer_snr, loading
from server.database import events, tables
from server.database.states import JOB_ENDED, RUN_ENDED, end_attempt, move_job, move_run
from server.database.tables import Arm, Baseline, IdempotencyKey, Job, Run
from server.database.turns import take_turn
from server.errors import InvalidError, NotFoundError
from server.jobs.fingerprint import taken
from server.jobs.webhooks import announce
from training.spec import JobSpec, capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a job is to be trained, which decides nothing of its verdict.

    `priority` is -100 to 100, the higher first; `max_run_seconds` is how long one run may train, all its attempts together;
    `reuse`: a baseline run may take the curve of an equal one that was trained before.
    """

    priority: int = 0
    max_run_seconds: float | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if not -100 <= self.priority <= 100:
            raise InvalidError(f"priority is {self.priority}, expected a whole number from -100 to 100")
        if self.max_run_seconds is not None and not 0 < self.max_run_seconds < math.inf:
            raise InvalidError(f"max_run_seconds is {self.max_run_seconds}, expected seconds above 0, or nothing for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A promoted baseline whose curves a job takes: the run for each replicate of its baseline arm, and ids of reruns for the judge."""

    baseline: Baseline
    runs: Mapping[int, Run]
    controls: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A promoted baseline as a caller named it; `take` looks it up. The same words may mean another version later, or none."""

    name: str
    version: int | None
    take: Callable[[], Named | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ends: its verdicts (each the judge's document and its canonical text), or why there is none."""

    verdicts: Sequence[tuple[Mapping[str, Any], str]]
    code: str | None = None
    message: str | None = None


def submit_once(
    session: Session,
    spec: JobSpec,
    criteria: Criteria,
    principal: str,
    key: str | None,
    order: Order | None = None,
    revision: str = "",
    choice: Choice | None = None,
) -> tuple[Job, bool]:
    """Submit, unless this principal did so under this key before: then the job of that time, and False.

    Raises InvalidError where the key was used for another body.
    """
    if key is None:
        return submit(session, spec, criteria, principal, order, revision, choice.take() if choice else None), True
    take_turn(session, f"key {principal} {key}")
    body: dict[str, Any] = {"asked": config_hash(spec, criteria, revision), "order": dataclasses.asdict(order or Order())}
    if choice is not None:
        body["baseline"] = [choice.name, choice.version]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    used = session.get(IdempotencyKey, (principal, key))
    if used is not None:
        if used.body_digest != digest:
            raise InvalidError(f"Idempotency-Key {key!r} was used for another job ({used.job_id}); take a new key for a new job")
        return find(session, used.job_id), False
    job = submit(session, spec, criteria, principal, order, revision, choice.take() if choice else None)
    session.add(IdempotencyKey(principal=principal, key=key, body_digest=digest, job_id=job.id, created_at=time.time()))
    return job, True


def config_hash(spec: JobSpec, criteria: Criteria, revision: str, named: Named | None = None) -> str:
    """SHA-256 of what a job asks: its specification, the policy, the version of the judge, the caller's code revision, a named baseline."""
    asked: dict[str, Any] = {
        "spec": dataclasses.asdict(spec),
        "criteria": criteria.document(),
        "judge": ENGINE_VERSION,
        "revision": revision,
    }
    if named is not None:
        asked["baseline"] = named.baseline.id  # not its controls: those that are attached later make no other question
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def submit(
    session: Session,
    spec: JobSpec,
    criteria: Criteria,
    submitted_by: str | None = None,
    order: Order | None = None,
    revision: str = "",
    named: Named | None = None,
) -> Job:
    """Write a job with its arms and runs, queued (or awaiting data, where the user trains). Ring the doorbell after the commit.

    The runs of a named baseline are finished at once: they have that baseline's curves, and bind the others to its machine. Runs are
    ordered by replicate before arm, so that the first runs to train already make pairs to look at.
    """
    now, order = time.time(), order or Order()
    needed, _ = capability(spec)
    job = Job(
        id=tables.new_id("j"),
        name=spec.name,
        status="queued",
        engine=spec.engine,
        capability=needed,
        spec=dataclasses.asdict(spec),
        criteria=criteria.document(),
        config_hash=config_hash(spec, criteria, revision, named),
        revision=revision or None,
        submitted_by=submitted_by,
        max_run_seconds=order.max_run_seconds,
        reuse=order.reuse,
        created_at=now,
    )
    if named is not None:
        trained_by = next(iter(named.runs.values())).job
        job.baseline_id, job.controls = named.baseline.id, list(named.controls)
        job.device_class, job.threads = trained_by.device_class, trained_by.threads
    arms = {
        arm.name: Arm(
            id=tables.new_id("a"), position=position, name=arm.name, role="candidate" if position else "baseline", recipe=arm.recipe
        )
        for position, arm in enumerate(spec.arms)
    }
    job.arms.extend(arms.values())
    runs = sorted(spec.runs(), key=lambda arm_and_run: arm_and_run[1].replicate)
    for position, (arm, run) in enumerate(runs):
        job.runs.append(
            Run(
                id=tables.new_id("r"),
                arm=arms[arm.name],
                position=position,
                seed=run.seed,
                replicate=run.replicate,
                capability=needed,
                priority=order.priority,
                state="awaiting_data" if needed == "external" else "queued",
                planned_steps=run.schedule.steps,
                created_at=now,
            )
        )
        if named is not None and arms[arm.name].role == "baseline":
            for name, value in {**taken(named.runs[run.replicate]), "state": "finished", "finished_at": now}.items():
                setattr(job.runs[-1], name, value)
    session.add(job)
    session.flush()
    events.emit(session, job.id, "status", {"status": "queued"})
    return job


def find(session: Session, job_id: str) -> Job:
    """The job of this id; NotFoundError names the id."""
    job = session.get(Job, job_id) if tables.is_id("j", job_id) else None
    if job is None:
        raise NotFoundError(f"there is no job {job_id!r}; `parity status` lists the jobs")
    return job


def cancel(session: Session, job_id: str) -> bool:
    """Cancel a job and those of its runs that have not ended; False (and no change) when it had ended already.

    A run that is training is told by its lease: the next heartbeat finds it cancelled and its process group is killed.
    """
    find(session, job_id)
    now = time.time()
    # Every writer locks runs before their job; in the other order PostgreSQL would see a deadlock with a live trainer.
    open_runs = select(Run.id).where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED)).order_by(Run.id).with_for_update()
    run_ids = session.scalars(open_runs).all()
    if not move_job(session, job_id, ("queued", "running"), "cancelled", finished_at=now, message="cancelled by request"):
        return False
    for run_id in run_ids:
        if move_run(session, run_id, ("awaiting_data", "queued", "running"), "cancelled", finished_at=now, lease_expires_at=None):
            end_attempt(session, run_id, session.get_one(Run, run_id).epoch, "cancelled")
    events.emit(session, job_id, "status", {"status": "cancelled"})
    announce(session, job_id, "job.ended")
    return True


def ready_to_conclude(session: Session, job_id: str) -> bool:
    """True when every run of the job has ended and nobody has concluded it."""
    job = session.get_one(Job, job_id)
    if job.status in JOB_ENDED:
        return False
    return session.scalar(select(Run.id).where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED)).limit(1)) is None


def decide(session: Session, job_id: str) -> Outcome:
    """Judge the finished runs of a job, without writing. An arm without a finished run leaves nothing to judge."""
    job = session.get_one(Job, job_id)
    for arm in job.arms:
        if not any(run.state == "finished" for run in arm.runs):
            failed = next((run for run in arm.runs if run.state == "failed"), None)
            why = f"{failed.code}: {failed.message}" if failed else "it was cancelled"
            return Outcome(verdicts=(), code=(failed and failed.code) or "CANCELLED", message=f"no run of arm {arm.name} finished: {why}")
    documents = case(session, job).documents()
    stopped = next((run for run in job.runs if run.code == "EARLY_STOP"), None)
    return Outcome(
        verdicts=[(document, json.dumps(document, sort_keys=True, allow_nan=False)) for document in documents],
        code=stopped.code if stopped else None,
        message=stopped.message if stopped else None,
    )


def case(session: Session, job: Job, criteria: Criteria | None = None) -> Case:
    """All that the judge is given of a job: the curves of its finished runs, the policy (its own by default) and the plan."""
    baseline, *candidates = job.arms
    return Case(
        baseline=loading.finished(session, baseline),
        candidates={arm.name: loading.finished(session, arm) for arm in candidates},
        criteria=criteria or criteria_from_mapping(job.criteria),
        controls=[loading.curve(session, session.get_one(Run, run_id)) for run_id in job.controls or ()],
        planned_steps=job.spec["schedule"]["steps"],
        layer_policy=job.spec["layer_policy"],
        baseline_name=baseline.name,
        layer_snr_db={arm.name: layer_snr.snr_db(session, arm) for arm in candidates},
    )


def conclude(session: Session, job_id: str, outcome: Outcome) -> bool:
    """Write how a job ends; False when somebody else ended it first."""
    now = time.time()
    end: tables.JobStatus = "concluded" if outcome.verdicts else "failed"
    if not move_job(session, job_id, ("queued", "running"), end, finished_at=now, code=outcome.code, message=outcome.message):
        return False
    rows = [_verdict_row(job_id, document, text, now) for document, text in outcome.verdicts]
    session.add_all(rows)
    if outcome.verdicts:
        events.emit(session, job_id, "verdict", {row.candidate: row.outcome for row in rows})
    events.emit(session, job_id, "status", {"status": end})
    announce(session, job_id, *(("verdict.given", "job.ended") if outcome.verdicts else ("job.ended",)))
    return True


def _verdict_row(job_id: str, document: Mapping[str, Any], text: str, now: float) -> tables.Verdict:
    return tables.Verdict(
        id=tables.new_id("v"),
        job_id=job_id,
        candidate=document["candidate"]["name"],
        outcome=document["verdict"],
        document=text,
        created_at=now,
    )
