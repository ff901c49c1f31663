"""Who trains what: claims, leases and the fence.

A claim gives a run to one worker for as long as its lease is renewed. Each claim raises the run's epoch, and every write
of a trainer names its epoch in the same transaction, so a worker that was thought dead and wakes up can't write.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Select, bindparam, func, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased, contains_eager

from server.database import clock, events
from server.database.states import begin_attempt, end_attempt, move_job, move_run
from server.database.tables import Arm, Attempt, AttemptState, Job, Run, RunState, Token, Worker
from server.jobs.fingerprint import run_spec
from server.logs import without_secrets
from training.spec import RunSpec

_ABOVE_ALL = 2**31 - 1  # more than any priority


class LeaseLostError(Exception):
    """The run was cancelled, or given to another worker, while this one was training it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is ours until its lease ends. `max_seconds` is what the job's limit leaves to this attempt; None: no limit.

    `seconds_trained` is what earlier attempts took. `reuses`: an equal run that was trained before may serve in its place.
    """

    run_id: str
    job_id: str
    arm: str
    epoch: int
    spec: RunSpec
    max_seconds: float | None = None
    seconds_trained: float = 0.0
    reuses: bool = False


def claim(session: Session, worker: Worker, lease_seconds: float) -> Claim | None:
    """Take the next run that this worker can train: by priority, then age, then place in its job. None when there is none.

    The first claim of a job binds it to the worker's device class and thread count: another machine's bits differ.
    """
    device_class, threads = worker.device["device_class"], worker.device["threads_per_run"]
    run = _next(session, worker)
    if run is None:
        return None
    now, epoch = clock.now(session), run.epoch + 1
    # A second claim for the same job waits here for the first, so that both see the same binding.
    job = session.get_one(Job, run.job_id, with_for_update=True, populate_existing=True)
    if job.device_class not in (None, device_class) or job.threads not in (None, threads):
        return None
    if not _token_allows(session, job):
        return None
    try:
        spec = run_spec(run)
    except ValidationError as error:
        # A row that this version can't read must not hold up the queue behind it.
        message = f"the stored specification can't be read by this version: {error.errors()[0]['msg']}"
        move_run(session, run.id, ("queued",), "failed", code="SPEC_UNREADABLE", message=message, finished_at=now)
        events.emit(session, job.id, "run", {"run": run.id, "arm": run.arm.name, "state": "failed", "code": "SPEC_UNREADABLE"})
        return None
    fresh = {"code": None, "message": None, "started_at": run.started_at or now}
    lease = {"worker_id": worker.id, "lease_expires_at": now + lease_seconds}
    trained = _seconds_trained(session, run.id) if run.epoch else 0.0
    max_seconds = None if job.max_run_seconds is None else job.max_run_seconds - trained
    if not move_run(session, run.id, ("queued",), "running", holder=run.epoch, epoch=epoch, **lease, **fresh):
        return None
    begin_attempt(session, run.id, epoch, worker.id)
    if job.status == "queued":
        move_job(session, job.id, ("queued",), "running", started_at=now, device_class=device_class, threads=threads)
        events.emit(session, job.id, "status", {"status": "running"})
    events.emit(session, job.id, "run", {"run": run.id, "arm": run.arm.name, "state": "running", "attempt": epoch})
    reuses = job.reuse and run.arm.role == "baseline" and run.steps_done == 0
    return Claim(
        run_id=run.id,
        job_id=job.id,
        arm=run.arm.name,
        epoch=epoch,
        spec=spec,
        max_seconds=max_seconds,
        seconds_trained=trained,
        reuses=reuses,
    )


def _next(session: Session, worker: Worker) -> Run | None:
    """The run to claim, its row locked; None when there is none.

    One priority at a time, from the highest: within one, the index gives the rows in order and the first that fits ends the search.
    """
    told: dict[str, Any] = worker.device.get("can_run", {})
    able = tuple(tuple(name.split("/")) for name, can in told.items() if can["ok"]) if told else None
    highest, first = _questions(worker.capability, worker.device["device_class"], worker.device["threads_per_run"], able)
    level = session.scalar(highest, {"below": _ABOVE_ALL})
    while level is not None:
        run = session.scalars(first, {"level": level}).first()
        if run is not None:
            return run
        level = session.scalar(highest, {"below": level})
    return None


@cache
def _questions(
    capability: str, device_class: str, threads: int, able: tuple[tuple[str, ...], ...] | None
) -> tuple[Select[int], Select[Run]]:
    """The highest priority `below` which something waits for such a worker, and the first run of a `level` that it can train.

    `able`: (engine, recipe) of what the worker said it can train when it registered; None where it said nothing. Made once: making
    them costs more than asking them.
    """
    waiting = (Run.state == "queued", Run.capability == capability)
    fits = [or_(Job.device_class.is_(None), Job.device_class == device_class), or_(Job.threads.is_(None), Job.threads == threads)]
    if able is not None:
        fits.append(tuple_(Job.engine, Arm.recipe).in_(able))
    first = (
        select(Run)
        .join(Job, Run.job_id == Job.id)
        .join(Arm, Run.arm_id == Arm.id)
        .where(*waiting, Run.priority == bindparam("level"), *fits, _below_its_limit())
        .options(contains_eager(Run.arm))
        .order_by(Run.created_at, Run.job_id, Run.position)
        .limit(1)
        .with_for_update(of=Run, skip_locked=True)
    )
    return select(func.max(Run.priority)).where(*waiting, Run.priority < bindparam("below")), first


def _below_its_limit() -> ColumnElement[bool]:
    """Whether the token under which the job was submitted may have one more run train."""
    token = select(Token.max_running).where(Token.id == Job.submitted_by).scalar_subquery()
    other_run, other_job = aliased(Run), aliased(Job)
    training = (
        select(func.count())
        .select_from(other_run)
        .join(other_job, other_run.job_id == other_job.id)
        .where(other_run.state == "running", other_job.submitted_by == Job.submitted_by)
        .scalar_subquery()
    )
    return or_(token.is_(None), training < token)


def _token_allows(session: Session, job: Job) -> bool:
    """The same, asked again under a lock on the token, so that two claims at once can't both take the last place."""
    if job.submitted_by is None or session.scalar(select(Token.max_running).where(Token.id == job.submitted_by)) is None:
        return True
    token = session.get_one(Token, job.submitted_by, with_for_update=True, populate_existing=True)
    count = select(func.count()).select_from(Run).join(Job).where(Run.state == "running", Job.submitted_by == token.id)
    return token.max_running is None or (session.scalar(count) or 0) < token.max_running


def _seconds_trained(session: Session, run_id: str) -> float:
    spent = select(func.sum(Attempt.ended_at - Attempt.started_at)).where(Attempt.run_id == run_id)
    return float(session.scalar(spent) or 0.0)


def renew(session: Session, held: Claim, lease_seconds: float, **values: object) -> None:
    """Extend the lease (and set `values` on the run) if we still hold it; LeaseLostError otherwise.

    It locks the run's row, so what is written in the same transaction is fenced.
    """
    held_still = update(Run).where(Run.id == held.run_id, Run.epoch == held.epoch, Run.state == "running")
    statement = held_still.values(lease_expires_at=clock.now(session) + lease_seconds, **values).returning(Run.id)
    if session.execute(statement.execution_options(synchronize_session=False)).first() is None:
        raise LeaseLostError(f"run {held.run_id} is no longer ours (attempt {held.epoch})")


def end(
    session: Session,
    held: Claim,
    state: RunState,
    *,
    code: str | None = None,
    message: str | None = None,
    note: str | None = None,
    **values: object,
) -> None:
    """End our attempt in `state` (and set `values` on the run); LeaseLostError when it is no longer ours.

    A message is kept of the run and of its attempt, a note of the attempt alone; both without the secrets that a log may hold.
    """
    message, note = (text and without_secrets(text) for text in (message, note))
    kept = {"code": code, "message": message, "finished_at": time.time(), "lease_expires_at": None}
    if not move_run(session, held.run_id, ("running",), state, holder=held.epoch, **{**kept, **values}):
        raise LeaseLostError(f"run {held.run_id} is no longer ours (attempt {held.epoch})")
    end_attempt(session, held.run_id, held.epoch, "failed" if state == "failed" else "finished", code, message or note)
    told = {"run": held.run_id, "arm": held.arm, "state": state, "code": code, "message": message or note}
    events.emit(session, held.job_id, "run", told)


def give_back(session: Session, run: Run, why: str, *, attempt: AttemptState, max_attempts: int) -> RunState | None:
    """Queue a run again whose attempt is `released`, `crashed` or `lost`, or fail it when it broke too often; None when somebody did.

    What it has recorded stays: the next attempt goes on from its newest checkpoint, and replaces what it computes again.
    """
    broke, why = attempt != "released", without_secrets(why)
    crashes = run.crashes + (1 if broke else 0)
    state: RunState = "failed" if crashes >= max_attempts else "queued"
    code, message = ("WORKER_CRASHED", f"{why} (attempt {run.epoch}, {crashes} of {max_attempts} crashes)") if broke else (None, why)
    moved = move_run(
        session,
        run.id,
        ("running",),
        state,
        holder=run.epoch,
        crashes=crashes,
        code=code,
        message=message,
        lease_expires_at=None,
        worker_id=None,
        steps_per_second=None,
        finished_at=time.time() if state == "failed" else None,
    )
    if not moved:
        return None
    end_attempt(session, run.id, run.epoch, attempt, code, message)
    events.emit(session, run.job_id, "run", {"run": run.id, "arm": run.arm.name, "state": state, "code": code, "message": message})
    return state
