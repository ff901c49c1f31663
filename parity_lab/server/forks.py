"""Forks on the record: from which runs a question can start, the job that trains its forks, what a
worker is told, and what it has measured.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity_lab.forks import ForkPlan, ForkRequest
from parity_lab.server.replays import record_requests
from parity_lab.server.tables import AnalysisResult
from server.database import tables
from server.database.tables import Arm, Job, Run
from server.errors import ConflictError
from server.jobs.fingerprint import job_spec, run_spec, unsound
from server.jobs.submit import Order, announce_new, arm_rows
from training.spec import JobSpec

DEFAULT_SHARE = 0.6  # of the steps: the checkpoint from which to fork
MOST_PARENTS = 3  # runs of an arm that are forked


def fork_parents(session: Session, arm: Arm, step: int) -> Sequence[Run]:
    """The runs of an arm that kept a checkpoint of this step. Raises ConflictError, which says how
    to keep one, where none did.
    """
    reasons = []
    parents = []
    for run in arm.runs:
        trained = run.source or run
        reason = unsound(session, trained)
        if reason is None and step not in (trained.kept_checkpoints or ()):
            kept_steps = ", ".join(map(str, trained.kept_checkpoints or ())) or "none"
            reason = f"run {trained.id} kept no checkpoint of step {step} (kept: {kept_steps})"
        if reason is None:
            parents.append(trained)
        else:
            reasons.append(reason)
    if not parents:
        reason = reasons[0] if reasons else "it has no runs trained from step 0"
        remedy = (
            f"add keep_checkpoints: [{step}] to its job file and train it again, on one process "
            "per run"
        )
        raise ConflictError(
            f"arm {arm.name} of job {arm.job_id} cannot be forked at step {step}: {reason}; "
            f"{remedy}"
        )
    return parents


def kept_step(arm: Arm, requested: int | None, steps: int) -> int:
    """The checkpoint to fork from: the one that is wanted, else the kept one nearest to 60 % of the
    steps.
    """
    kept_steps = {
        step
        for run in arm.runs
        for step in (run.source or run).kept_checkpoints or ()
        if step < steps
    }
    target = DEFAULT_SHARE * steps
    if requested is not None:
        return requested
    return min(kept_steps, key=lambda step: abs(step - target), default=max(1, round(target)))


def seconds_of(parents: Sequence[Run], steps: float) -> float | None:
    """About how long so many steps take on one device, at the speed of the fastest of these runs;
    None while that is unknown.
    """
    speeds = [
        run.length / (run.finished_at - run.started_at)
        for run in parents
        if run.started_at and run.finished_at and run.finished_at > run.started_at
    ]
    return steps / max(speeds) if speeds else None


def derived_job(
    session: Session,
    origin: Job,
    spec: JobSpec,
    submitted_by: str | None,
    order: Order,
    runs: Sequence[tuple[int, Mapping[str, Any]]],
) -> Job:
    """Queue a job with the arms of `spec` and these runs, for the engine, devices and revision of
    `origin`.

    It reuses no runs. `runs`: the position of the arm of each, and its kind, seed, replicate,
    parent and steps; and its state, if that is not queued.
    """
    row = Job(
        id=tables.new_id("j"),
        name=spec.name,
        status="queued",
        spec=spec.document(),
        submitted_by=submitted_by,
        max_run_seconds=order.max_run_seconds,
        reuse=False,
        created_at=time.time(),
        # the same as the origin's
        engine=origin.engine,
        capability=origin.capability,
        devices=origin.devices,
        policy=origin.policy,
        revision=origin.revision,
        branch=origin.branch,
        model=origin.model,
        device_class=origin.device_class,
        threads=origin.threads,
    )
    row.arms.extend(arm_rows(spec))
    for position, (arm, columns) in enumerate(runs):
        row.runs.append(
            Run(
                id=tables.new_id("r"),
                arm=row.arms[arm],
                position=position,
                capability=origin.capability,
                priority=order.priority,
                created_at=row.created_at,
                **{"state": "queued", **columns},
            )
        )
    announce_new(session, row)
    return row


def fork_request(session: Session, run: Run, plan: ForkPlan) -> ForkRequest:
    """What the training process of a run measures for a plan: the arms of its forks are the
    candidates of the run's job, by name.
    """
    spec, results = job_spec(run.job), results_of(session, run.job_id)
    return {
        "plan": plan.document(),
        "parents": {
            parent: run_spec(session.get_one(Run, parent)).document() for parent in plan.parents
        },
        "arms": {arm.name: spec.run_of(arm, run.replicate).document() for arm in spec.candidates},
        "records": record_requests(session, plan.replays),
        "results": results,
        "spent": plan.steps_spent(results),
    }


def results_of(session: Session, job_id: str) -> dict[str, Any]:
    """What the run of a job has measured, by key."""
    rows = session.execute(
        select(AnalysisResult.key, AnalysisResult.value)
        .join(Run, Run.id == AnalysisResult.run_id)
        .where(Run.job_id == job_id)
    )
    return {row.key: row.value for row in rows}
