"""Claims, leases and the fence: a worker's operations on the run that it holds.

A claim gives a run to one worker for as long as its lease is renewed. Each claim raises the run's epoch and makes a run token. Every write
of a worker checks both in the same transaction, so a worker that was declared dead and wakes up cannot write, and neither can another one
that only knows the run and its epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, exists, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from server.database import clock, run_tokens
from server.database.states import RUN_ENDED
from server.database.tables import Attempt, Job, Run, RunState, Worker
from server.jobs import lifecycle
from server.jobs.fingerprint import columns_of_reused, equal_run, run_spec, unsound
from server.jobs.kinds import needed_kind
from server.jobs.workers import devices_fit, refused_recipe
from training.spec import RunSpec
from workers.queue_order import next_run, token_allows

BASELINE_DIFFERS = "BASELINE_DIFFERS"
_FORGIVEN = 20
_MOST_FAILED = 100  # runs that one claim fails, so that its transaction stays short


class LeaseLostError(Exception):
    """The run was cancelled, or given to another worker, while this one was training it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that this worker holds until its lease ends. `max_seconds` is the rest of the job's time limit; None: no limit.

    `keep` are the numbers of steps after which a checkpoint is kept. A run of the lab has
    `token` is the run token of this attempt. `steps` is how many steps to train: for a noise run fewer than its schedule has.
    `steps_done` is what the run had when it was claimed, `seconds_trained` the time that earlier attempts took. `reuses`: the curve of an
    equal earlier run may be reused, for a candidate only that of an earlier look at its `question`.
    """

    run_id: str
    job_id: str
    arm: str
    epoch: int
    token: str = field(repr=False)
    spec: RunSpec
    steps: int
    steps_done: int = 0
    max_seconds: float | None = None
    seconds_trained: float = 0.0
    reuses: bool = False
    question: str | None = None
    keep: tuple[int, ...] = ()
    measure: Mapping[str, Any] | None = None


def claim(session: Session, worker: Worker, lease_seconds: float) -> Claim | None:
    """Take the next run that this worker can train: by priority, then age, then place in its job. None if no run fits.

    The first claim of a job binds it to the worker's device class and thread count, because other machines compute other bits. Runs that
    nobody could train fail with the reason, and the next one is taken: none of them blocks the queue.
    """
    for _ in range(_MOST_FAILED):
        run = next_run(session, worker)
        if run is None:
            return None
        claimed = _claim(session, worker, run, lease_seconds)
        if claimed is not None or run.state != "failed":
            return claimed
    return None


def _claim(session: Session, worker: Worker, run: Run, lease_seconds: float) -> Claim | None:
    """Take a run; None if this worker cannot take it now, or if it failed instead."""
    # A second claim for the same job waits here for the first, so that both see the same binding.
    job = session.get_one(Job, run.job_id, with_for_update=True, populate_existing=True)
    if not _fits(job, worker) or not token_allows(session, job):
        return None
    try:
        spec, measure = run_spec(run), None if run.kind in ("full", "noise") else needed_kind(job).request(session, run)
    except DBAPIError:
        raise  # of the database: it says nothing about the run
    except Exception as error:  # noqa: BLE001 (whatever is wrong with one stored run must not block the queue)
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else repr(error)
        lifecycle.fail(session, run, code="SPEC_UNREADABLE", message=f"this version cannot read the stored run: {reason}")
        return None
    # The queue knows an arm's own recipe; those of its overrides are checked here.
    refused = refused_recipe(worker, spec.engine, spec.recipes)
    if refused is not None:
        lifecycle.fail(session, run, code="RECIPE_REFUSED", message=f"worker {worker.name} cannot train an override of this arm: {refused}")
        return None
    trained = _seconds_trained(session, run.id) if run.epoch else 0.0
    further = job.look is not None and job.look > 1
    epoch = lifecycle.claim(session, run, worker, lease_seconds)
    if epoch is None:
        return None
    return Claim(
        run_id=run.id,
        job_id=job.id,
        arm=run.arm.name,
        epoch=epoch,
        token=run_tokens.issue(session, run.id, epoch),
        spec=spec,
        steps=run.planned_steps,
        steps_done=run.steps_done,
        max_seconds=None if job.max_run_seconds is None else job.max_run_seconds - trained,
        seconds_trained=trained,
        reuses=job.reuse and (run.arm.role == "baseline" or further) and run.kind == "full" and run.steps_done == 0,
        question=run.arm.question if run.arm.role == "candidate" else None,
        keep=tuple(job.spec.get("keep_checkpoints", ())) if run.kind == "full" else (),
        measure=measure,
    )


def _fits(job: Job, worker: Worker) -> bool:
    """Whether this worker has the job's devices, and the device class and thread count that it is bound to, if it is bound yet."""
    return (
        devices_fit(worker, job)
        and job.device_class in (None, worker.device["device_class"])
        and job.threads in (None, worker.device["threads_per_run"])
    )


def _seconds_trained(session: Session, run_id: str) -> float:
    spent = select(func.sum(Attempt.ended_at - Attempt.started_at)).where(Attempt.run_id == run_id)
    return float(session.scalar(spent) or 0.0)


def renew(
    session: Session, held: Claim, lease_seconds: float, *conditions: ColumnElement[bool], recorded: bool = False, **columns: object
) -> None:
    """Extend the lease (and set `columns` of the run) if this worker still holds it, under these conditions; LeaseLostError otherwise.

    This locks the run's row, so all writes in the same transaction are fenced. `recorded`: the transaction records training steps.
    """
    still = (Run.id == held.run_id, Run.epoch == held.epoch, Run.state == "running", _has_its_token(held), *conditions)
    held_still, now = update(Run).where(*still), clock.now_in(session)
    if recorded:
        columns["recorded_at"] = now
    statement = held_still.values(lease_expires_at=now + lease_seconds, **columns).returning(Run.id)
    if session.execute(statement.execution_options(synchronize_session=False)).first() is None:
        raise _lost(held)


def finish(session: Session, held: Claim, *, code: str | None = None, message: str | None = None) -> None:
    """End the attempt with the run finished; LeaseLostError if this worker no longer holds it."""
    lifecycle.finish(session, _held_run(session, held), code=code, message=message)


def fail(session: Session, held: Claim, *, code: str, message: str) -> None:
    """End the attempt with the run failed; LeaseLostError if this worker no longer holds it."""
    lifecycle.fail(session, _held_run(session, held), code=code, message=message)


def finish_with_equal_run(session: Session, held: Claim, fingerprint: str) -> bool:
    """Finish the run with the curve of an equal earlier one; False if there is none. Call it before the first step."""
    found = equal_run(session, fingerprint, held.question, held.keep) if held.reuses else None
    # Retention may have deleted the curve since it was read; once the run is locked, it finds that the curve is reused, and leaves it.
    source = session.get(Run, found.id, with_for_update=True, populate_existing=True) if found else None
    if source is None or unsound(session, source) is not None:
        return False
    note = f"not trained, because run {source.id} of job {source.job_id} has the same fingerprint; its curve is reused"
    lifecycle.finish(session, _held_run(session, held), note=note, **columns_of_reused(source))
    return True


def fail_with_job(session: Session, held: Claim, reason: str) -> None:
    """Fail a run that does not match the baseline of its job, and cancel the job's open runs, because none could be judged."""
    runs = session.scalars(select(Run).where(Run.job_id == held.job_id).order_by(Run.id).with_for_update()).all()
    fail(session, held, code=BASELINE_DIFFERS, message=reason)
    for run in runs:
        if run.id != held.run_id and run.state not in RUN_ENDED:
            lifecycle.cancel(session, run, message=f"run {held.run_id} of this job: {reason}")


def give_back(session: Session, run: Run, why: str, *, attempt: lifecycle.BrokenAttempt, max_attempts: int) -> RunState | None:
    """Queue a run again after an attempt that was `released`, `crashed` or `lost`, or fail it after too many crashes.

    Returns the run's new state; None if it is no longer running. Recorded steps stay: the next attempt resumes from the newest
    checkpoint and replaces the steps that it computes again.
    """
    if run.state != "running":
        return None
    if attempt == "released":
        return "queued" if lifecycle.requeue(session, run, attempt=attempt, code=None, message=why) else None
    crashes = run.crashes + 1
    code, message = "WORKER_CRASHED", f"{why} (attempt {run.epoch}, {crashes} of {max_attempts} crashes)"
    if crashes < max_attempts:
        again = lifecycle.requeue(session, run, attempt=attempt, code=code, message=message, crashes=crashes)
        return "queued" if again else None
    free = {"worker_id": None, "steps_per_second": None, "crashes": crashes}
    return "failed" if lifecycle.fail(session, run, code=code, message=message, attempt=attempt, **free) else None


def forgive(session: Session, held: Claim) -> None:
    """Take back the crash that was counted when the lease of this attempt ended, because its trainer and its worker lived.

    The machine had slept, or the database was away. A run that stops its machine each time must end as well, so at most `_FORGIVEN` of
    its attempts are forgiven; and one that has failed stays so.
    """
    run = session.get_one(Run, held.run_id, with_for_update=True, populate_existing=True)
    attempt = session.get(Attempt, (held.run_id, held.epoch))
    if attempt is None or attempt.state != "lost" or run.state in RUN_ENDED or run.crashes == 0:
        return
    lost = session.scalar(select(func.count()).where(Attempt.run_id == held.run_id, Attempt.state == "lost")) or 0
    if lost <= _FORGIVEN:
        run.crashes -= 1
        attempt.message = f"{attempt.message}; not counted as a crash, because its trainer lived"


def _held_run(session: Session, held: Claim) -> Run:
    """The run, with its row locked, if this worker still holds it; LeaseLostError otherwise."""
    run = session.get_one(Run, held.run_id, with_for_update=True, populate_existing=True)
    if run.state != "running" or not is_held(session, run, held):
        raise _lost(held)
    return run


def is_held(session: Session, run: Run, held: Claim) -> bool:
    """Whether this claim is the newest attempt of the run."""
    return run.epoch == held.epoch and bool(session.scalar(select(_has_its_token(held))))


def _has_its_token(held: Claim) -> ColumnElement[bool]:
    of_attempt = (Attempt.run_id == held.run_id, Attempt.epoch == held.epoch)
    return exists().where(*of_attempt, Attempt.token_digest == run_tokens.digest_of(held.token))


def _lost(held: Claim) -> LeaseLostError:
    return LeaseLostError(f"attempt {held.epoch} no longer holds run {held.run_id}, or the record was restored from an older copy")
