"""Submits forks: runs that start from kept checkpoints of another job's runs, as a job of its own.

The first arm goes on unchanged: with draws above 0 its forks are A/A forks, whose spread is the noise of forks. Every other arm changes
something from the fork's step on. Parents are the finished runs of one arm that were trained in their job and kept that checkpoint.

A fork's record begins at its step and refers to its parent's for the steps before it: nothing is recorded twice, and a curve without a
beginning can be taken for no run of its own, even where somebody loses the reference. The judge, baselines, run floors and forecasts never
count one. The job ends without a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError
from sqlalchemy.orm import Session

from server.database import tables
from server.database.lookup import find_job
from server.database.tables import Arm, Job, Run
from server.errors import ConflictError, InvalidError
from server.jobs.derived import derived_job
from server.jobs.fingerprint import job_spec, run_spec, unsound
from server.jobs.submit import Order, announce_new
from training.forks import Fork, check_fork_step
from training.overrides import Override
from training.rules import SpecError
from training.spec import JobSpec

UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedArm:
    """Forks that differ from their parents by `changes` from the fork's step on; `draws` of them for each parent, numbered from 1."""

    name: str
    changes: tuple[Override, ...]
    draws: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Forks:
    """What to fork: the runs of an arm of a job, after how many steps, and up to which step; and the arms that are changed.

    `draws` is the number of unchanged forks for each parent.
    """

    job: str
    arm: str
    step: int
    until: int
    draws: int
    arms: tuple[ForkedArm, ...]


def submit_forks(session: Session, forks: Forks, submitted_by: str | None = None, order: Order | None = None) -> Job:
    """Write a job with the forks, queued on the device class of their parents. Ring the doorbell after the commit.

    Raises InvalidError for forks that cannot be, ConflictError if no parent kept the checkpoint.
    """
    job, order = find_job(session, forks.job), order or Order()
    arm = next((each for each in job.arms if each.name == forks.arm), None)
    if arm is None:
        raise InvalidError(f"job {job.id} has no arm {forks.arm!r}, expected one of {', '.join(each.name for each in job.arms)}")
    parents = fork_parents(session, job, arm, forks.step)
    try:
        spec = _specification(job, arm, parents[0], forks)
    except SpecError as error:
        raise InvalidError(f"these runs cannot be forked: {error}") from error
    row = derived_job(job, spec, submitted_by, order.max_run_seconds)
    draws = {spec.baseline.name: forks.draws} | {each.name: each.draws for each in forks.arms}
    # By draw before arm and parent, so that the first ones already are pairs.
    planned = [
        (draw, of_arm, parent)
        for draw in range(1, max(draws.values()) + 1)
        for of_arm in row.arms
        for parent in parents
        if draw <= draws[of_arm.name]
    ]
    for position, (draw, of_arm, parent) in enumerate(planned):
        row.runs.append(_fork_row(row, of_arm, position, parent, forks, draw, order.priority))
    announce_new(session, row)
    return row


def fork_parents(session: Session, job: Job, arm: Arm, step: int) -> Sequence[Run]:
    """The runs of an arm from which forks can start; ConflictError with the way to get one if there is none."""
    reasons = []
    parents = []
    for run in arm.runs:
        trained = run.source or run
        reason = unsound(session, trained)
        if reason is None and step not in (trained.kept_checkpoints or ()):
            kept = ", ".join(map(str, trained.kept_checkpoints or ())) or "none"
            reason = f"run {trained.id} kept no checkpoint of step {step} (kept: {kept})"
        if reason is None:
            parents.append(trained)
        else:
            reasons.append(reason)
    if not parents:
        reason = reasons[0] if reasons else "it has no runs trained from step 0"
        remedy = f"add keep_checkpoints: [{step}] to its job file and train it again, on one process per run"
        raise ConflictError(f"arm {arm.name} of job {job.id} cannot be forked at step {step}: {reason}; {remedy}")
    return parents


def _specification(job: Job, arm: Arm, parent: Run, forks: Forks) -> JobSpec:
    """The job of these forks: each arm is what a run from step 0 would need to be equal to the fork. SpecError if one cannot be."""
    try:
        whole = job_spec(job)
    except ValidationError as error:
        raise ConflictError(f"this version cannot read the specification of job {job.id}: {error.errors()[0]['msg']}") from error
    own = whole.arms[arm.position]
    before = run_spec(parent)
    check_fork_step(before, forks.step)
    if not forks.step < forks.until <= whole.schedule.steps:
        raise SpecError("forks.until", forks.until, f"a step after {forks.step} and at most schedule.steps = {whole.schedule.steps}")
    if forks.draws < 0 or any(each.draws < 1 for each in forks.arms):
        raise SpecError("forks.draws", forks.draws, "at least 1 fork for each arm that is changed, and 0 or more unchanged ones")
    changed = tuple(replace(own, name=each.name, replicates=1, overrides=(*own.overrides, *each.changes)) for each in forks.arms)
    spec = replace(
        whole,
        name=f"forks of {job.name}"[:200],
        baseline=replace(own, name=UNCHANGED, replicates=1),
        candidates=changed,
        noise=None,
        family=None,
        keep_checkpoints=(),
    )
    for each in spec.arms:
        Fork(parent=before, step=forks.step, draw=0).check(spec.run_of(each, before.replicate))
    return spec


def _fork_row(job: Job, arm: Arm, position: int, parent: Run, forks: Forks, draw: int, priority: int) -> Run:
    return Run(
        id=tables.new_id("r"),
        arm=arm,
        position=position,
        kind="fork",
        seed=parent.seed,
        replicate=parent.replicate,
        capability=job.capability,
        priority=priority,
        forked_from=parent.id,
        fork_step=forks.step,
        fork_draw=draw,
        steps_done=forks.step,
        planned_steps=forks.until,
        created_at=job.created_at,
        state="queued",
    )
