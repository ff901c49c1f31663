"""Claims, leases and the fence: a worker's operations on the run that it holds.

A claim gives a run to one worker for as long as its lease is renewed. Each claim begins an
attempt and makes a run token. Every write of a worker checks both in the same transaction, so a
worker that was declared dead and wakes up cannot write, and neither can another one that only
knows the run and its attempt_number.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, exists, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database import clock, run_tokens
from server.database.states import RUN_ENDED
from server.database.tables import Attempt, Job, Run, RunState, Worker
from server.errors import StoredFormError
from server.jobs import lifecycle, submissions
from server.jobs.fingerprint import columns_of_reused, equal_run, run_spec, unsound
from server.jobs.job_kinds import needed_kind
from server.jobs.workers import (
    devices_fit,
    is_bound_to,
    is_left_to_another,
    refused_mesh,
    refused_recipe,
    slices_of,
)
from server.logs import without_secrets
from training.command import ENGINE as COMMAND
from training.spec import RunSpec
from workers.protocol import ForkStartRequest
from workers.queue_order import next_run, token_allows

BASELINE_DIFFERS = "BASELINE_DIFFERS"
_FORGIVEN = 20
_MOST_FAILED = 100  # runs that one claim fails, so that its transaction stays short
_RECORD = (
    update(Run)
    .where(Run.id == bindparam("of_run"))
    .values({name: bindparam(name) for name in ("steps_done", "last_loss", "steps_per_second")})
)


class LeaseLostError(Exception):
    """The run was cancelled, or given to another worker, while this one was training it."""


@frozen
class Claim:
    """A run that this worker holds until its lease ends. `max_seconds` is the rest of the job's
    time limit; None: no limit.

    `slices` has the number of devices on each node of the worker.
    `keep` are the numbers of steps after which a checkpoint is kept, `measure` is what a run of the
    lab measures, `fork` where one starts that goes on from another run. `token` is the run token of
    this attempt. `steps` is how many steps to train: for a short rerun fewer than its schedule has.
    `steps_done` is what the run had when it was claimed, `seconds_trained` the time that earlier
    attempts took. `reuses`: the curve of an equal earlier run may be reused, for a candidate only
    that of an earlier look at its `question`; under engine command that of any arm, because a
    commit that changes nothing in the training has the runs of the one before.
    """

    run_id: str
    job_id: str
    arm: str
    attempt_number: int
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
    fork: ForkStartRequest | None = None
    slices: tuple[int, ...] = ()


def claim(
    session: Session,
    worker: Worker,
    lease_seconds: float,
    left: set[str] | None = None,
    *,
    submitted: bool = False,
) -> Claim | None:
    """Take the next run that this worker can train: by priority, then age, then place in its job.
    None if no run fits.

    `submitted`: of those that a scheduler trains, not of those for the worker's slots.

    The first claim of a job binds it to the worker's device class and thread count, because other
    machines compute other bits. Runs that nobody could train fail with the reason, and the next one
    is taken: none of them blocks the queue. A job whose files another live worker may read, and
    this one may not, or whose mesh this one's nodes can't hold, is added to `left`, and left alone
    until it is no longer there.
    """
    left, failed = set() if left is None else left, 0
    while (
        failed < _MOST_FAILED
        and (run := next_run(session, worker, left, submitted=submitted)) is not None
    ):
        claimed = _claim(session, worker, run, lease_seconds, left)
        if claimed is not None or (run.state != "failed" and run.job_id not in left):
            return claimed
        failed += run.state == "failed"
    return None


def _claim(
    session: Session, worker: Worker, run: Run, lease_seconds: float, left: set[str]
) -> Claim | None:
    """Take a run; None if this worker cannot take it now, or if it failed instead."""
    # A second claim for the same job waits here for the first, so that both see the same binding.
    job = session.get_one(Job, run.job_id, with_for_update=True, populate_existing=True)
    if (
        not devices_fit(worker, job)
        or not is_bound_to(worker, job)
        or not token_allows(session, job)
    ):
        return None
    if refused_mesh(worker, job) or is_left_to_another(session, worker, job, lease_seconds):
        left.add(job.id)
        return None
    try:
        spec, measure = (
            run_spec(run),
            None if run.kind in ("full", "short") else needed_kind(job).request(session, run),
        )
        fork = None if measure is not None else _fork_request(session, run, spec)
    except DBAPIError:
        raise  # of the database: it says nothing about the run
    except Exception as error:  # noqa: BLE001
        reason = error.detail if isinstance(error, StoredFormError) else repr(error)
        lifecycle.fail(
            session,
            run,
            code="SPEC_UNREADABLE",
            message=f"this version cannot read the stored run: {reason}",
        )
        return None
    # The queue knows an arm's own recipe; those of its overrides are checked here.
    refused = refused_recipe(worker, spec.engine, spec.recipes)
    if refused is not None:
        lifecycle.fail(
            session,
            run,
            code="RECIPE_REFUSED",
            message=f"worker {worker.name} cannot train an override of this arm: {refused}",
        )
        return None
    trained = _seconds_trained(session, run.id) if run.attempt_number else 0.0
    further = job.look is not None and job.look > 1
    attempt_number = lifecycle.claim(session, run, worker, lease_seconds)
    if attempt_number is None:
        return None
    return Claim(
        run_id=run.id,
        job_id=job.id,
        arm=run.arm.name,
        attempt_number=attempt_number,
        token=run_tokens.issue(session, run.id, attempt_number),
        spec=spec,
        steps=run.length,
        steps_done=run.steps_done,
        max_seconds=None if job.max_run_seconds is None else job.max_run_seconds - trained,
        seconds_trained=trained,
        reuses=job.reuse
        and (run.arm.role == "baseline" or further or spec.engine == COMMAND)
        and run.kind == "full"
        and run.steps_done == 0,
        question=run.arm.question if run.arm.role == "candidate" else None,
        keep=tuple(job.spec.get("keep_checkpoints", ())) if run.kind == "full" else (),
        measure=measure,
        fork=fork,
        slices=slices_of(worker),
    )


def _fork_request(session: Session, run: Run, spec: RunSpec) -> ForkStartRequest | None:
    """Where a run goes on from another one, at the step of its later recipe; None if it starts at
    step 0.
    """
    if run.forked_from is None or spec.then is None:
        return None
    parent = session.get_one(Run, run.forked_from)
    return {
        "parent": parent.id,
        "spec": run_spec(parent).document(),
        "step": spec.then.from_step,
    }


def _seconds_trained(session: Session, run_id: str) -> float:
    spent = select(func.sum(Attempt.ended_at - Attempt.started_at)).where(Attempt.run_id == run_id)
    return float(session.scalar(spent) or 0.0)


def renew(
    session: Session,
    claim: Claim,
    lease_seconds: float,
    *conditions: ColumnElement[bool],
    recorded: bool = False,
    **columns: object,
) -> None:
    """Extend the lease (and set `columns` of the run) if this worker still holds it, under these
    conditions; LeaseLostError otherwise.

    This locks the run's row, so all writes in the same transaction are fenced. `recorded`: the
    transaction records training steps.
    """
    still = (
        Run.id == claim.run_id,
        Run.attempt_number == claim.attempt_number,
        Run.state == "running",
        _has_its_token(claim),
        *conditions,
    )
    held_still, now = update(Run).where(*still), clock.now_in(session)
    if recorded:
        columns["recorded_at"] = now
    statement = held_still.values(lease_expires_at=now + lease_seconds, **columns).returning(Run.id)
    if session.execute(statement.execution_options(synchronize_session=False)).first() is None:
        raise _lost(claim)


def renew_all(session: Session, claims: Collection[Claim], lease_seconds: float) -> set[str]:
    """Extend the leases of many runs at once; the ids of those that this worker no longer holds.
    `claims`: of different runs.
    """
    if not claims:
        return set()
    # Locked in the order that everybody has.
    session.execute(
        select(Run.id)
        .where(Run.id.in_([claim.run_id for claim in claims]))
        .order_by(Run.id)
        .with_for_update()
    ).all()
    newest = (Attempt.run_id == Run.id, Attempt.attempt_number == Run.attempt_number)
    has_token = exists().where(
        *newest, Attempt.token_digest.in_([run_tokens.digest_of(claim.token) for claim in claims])
    )
    still = (Run.id.in_([claim.run_id for claim in claims]), Run.state == "running", has_token)
    statement = (
        update(Run)
        .where(*still)
        .values(lease_expires_at=clock.now_in(session) + lease_seconds)
        .returning(Run.id)
    )
    renewed = session.scalars(statement.execution_options(synchronize_session=False)).all()
    return {claim.run_id for claim in claims}.difference(renewed)


@frozen
class ProgressWrite:
    """What a write of steps makes of a run: its `columns`, `steps_done` among them, of which it has
    one of the `expected` before it.
    """

    claim: Claim
    expected: Collection[int]
    columns: Mapping[str, Any]


def record_all(session: Session, writes: Sequence[ProgressWrite], lease_seconds: float) -> set[str]:
    """Extend the leases of many runs and set their progress; the ids of those that this worker no
    longer holds, or that have other steps.

    As `renew` does for one. `writes`: of different runs.
    """
    newest = and_(Attempt.run_id == Run.id, Attempt.attempt_number == Run.attempt_number)
    running = (
        select(Run.id, Run.attempt_number, Run.steps_done, Attempt.token_digest)
        .join(Attempt, newest)
        .where(Run.id.in_([write.claim.run_id for write in writes]), Run.state == "running")
        .order_by(Run.id)
        .with_for_update(of=Run)
    )
    found = {row.id: row for row in session.execute(running)}
    still = [
        write
        for write in writes
        if write.claim.run_id in found and _is_as_expected(found[write.claim.run_id], write)
    ]
    if still:
        now = clock.now_in(session)
        statement = _RECORD.values(lease_expires_at=now + lease_seconds, recorded_at=now)
        session.connection().execute(
            statement, [{"of_run": write.claim.run_id, **write.columns} for write in still]
        )
    return {write.claim.run_id for write in writes}.difference(
        write.claim.run_id for write in still
    )


def _is_as_expected(run: Row[str, int, int, str | None], write: ProgressWrite) -> bool:
    is_held = (
        run.attempt_number == write.claim.attempt_number
        and run.token_digest == run_tokens.digest_of(write.claim.token)
    )
    return is_held and run.steps_done in write.expected


def next_attempt(
    session: Session, claim: Claim, worker: Worker, lease_seconds: float, why: str
) -> Claim:
    """End the attempt as released and begin the next in the same transaction; LeaseLostError if
    this worker no longer holds the run.
    """
    run = _claimed_run(session, claim)
    lifecycle.requeue(session, run, attempt="released", code=None, message=why)
    session.flush()
    attempt_number = lifecycle.claim(session, run, worker, lease_seconds)
    if attempt_number is None:
        raise _lost(claim)
    token = run_tokens.issue(session, run.id, attempt_number)
    return dataclasses.replace(
        claim, attempt_number=attempt_number, token=token, steps_done=run.steps_done
    )


def finish(
    session: Session, claim: Claim, *, code: str | None = None, message: str | None = None
) -> None:
    """End the attempt with the run finished; LeaseLostError if this worker no longer holds it."""
    lifecycle.finish(session, _claimed_run(session, claim), code=code, message=message)


def fail(session: Session, claim: Claim, *, code: str, message: str) -> None:
    """End the attempt with the run failed; LeaseLostError if this worker no longer holds it."""
    lifecycle.fail(session, _claimed_run(session, claim), code=code, message=message)


def finish_with_equal_run(session: Session, claim: Claim, fingerprint: str) -> bool:
    """Finish the run with the curve of an equal earlier one; False if there is none. Call it before
    the first step.
    """
    if not claim.reuses:
        return False
    any_arm = claim.spec.engine == COMMAND
    earlier = equal_run(session, fingerprint, claim.question, claim.keep, any_arm=any_arm)
    # Retention may have deleted the curve since it was read; once the run is locked, it finds that
    # the curve is reused, and leaves it.
    if earlier:
        source = session.get(Run, earlier.id, with_for_update=True, populate_existing=True)
    else:
        source = None
    if source is None or unsound(session, source) is not None:
        return False
    note = (
        f"not trained, because run {source.id} of job {source.job_id} has the same fingerprint; "
        "its curve is reused"
    )
    columns = columns_of_reused(source)
    if any_arm:  # the manifest names the run's own commit, which need not be that of the source
        del columns["manifest"]
    lifecycle.finish(session, _claimed_run(session, claim), note=note, **columns)
    return True


def fail_with_job(session: Session, claim: Claim, reason: str) -> None:
    """Fail a run that does not match the baseline of its job, and cancel the job's open runs,
    because none could be judged.
    """
    runs = session.scalars(
        select(Run).where(Run.job_id == claim.job_id).order_by(Run.id).with_for_update()
    ).all()
    fail(session, claim, code=BASELINE_DIFFERS, message=reason)
    for run in runs:
        if run.id != claim.run_id and run.state not in RUN_ENDED:
            lifecycle.cancel(session, run, message=f"run {claim.run_id} of this job: {reason}")


def give_back(
    session: Session, run: Run, why: str, *, attempt: lifecycle.BrokenAttempt, max_attempts: int
) -> RunState | None:
    """Queue a run again after an attempt that was `released`, `crashed` or `lost`, or fail it after
    too many crashes.

    Returns the run's new state; None if it is no longer running. Recorded steps stay: the next
    attempt resumes from the newest checkpoint and replaces the steps that it computes again.
    """
    if run.state != "running":
        return None
    # A job with a scheduler lives on without the worker that followed it.
    if attempt == "released" or (
        attempt == "lost" and submissions.open_of(session, run.id) is not None
    ):
        if lifecycle.requeue(session, run, attempt=attempt, code=None, message=why):
            return "queued"
        return None
    crashes = run.crashes + 1
    code, message = (
        "WORKER_CRASHED",
        f"{why} (attempt {run.attempt_number}, {crashes} of {max_attempts} crashes)",
    )
    if crashes < max_attempts:
        again = lifecycle.requeue(
            session, run, attempt=attempt, code=code, message=message, crashes=crashes
        )
        return "queued" if again else None
    free = {"worker_id": None, "steps_per_second": None, "crashes": crashes}
    if lifecycle.fail(session, run, code=code, message=message, attempt=attempt, **free):
        return "failed"
    return None


def forgive(session: Session, claim: Claim) -> None:
    """Take back the crash that was counted when the lease of this attempt ended, because its
    trainer and its worker lived.

    The machine had slept, or the database was away. A run that stops its machine each time must end
    as well, so at most `_FORGIVEN` of its attempts are forgiven; and one that has failed stays so.
    """
    run = session.get_one(Run, claim.run_id, with_for_update=True, populate_existing=True)
    attempt = session.get(Attempt, (claim.run_id, claim.attempt_number))
    if attempt is None or attempt.state != "lost" or run.state in RUN_ENDED or run.crashes == 0:
        return
    lost = (
        session.scalar(
            select(func.count()).where(Attempt.run_id == claim.run_id, Attempt.state == "lost")
        )
        or 0
    )
    if lost <= _FORGIVEN:
        run.crashes -= 1
        attempt.message = f"{attempt.message}; not counted as a crash, because its trainer lived"


def note(session: Session, claim: Claim, **columns: object) -> None:
    """Set columns of this attempt's row. Call it in a transaction that `renew` has fenced."""
    clean = {
        name: without_secrets(value) if isinstance(value, str) else value
        for name, value in columns.items()
    }
    session.execute(update(Attempt).where(*_attempt_of(claim)).values(clean))


def _claimed_run(session: Session, claim: Claim) -> Run:
    """The run, with its row locked, if this worker still holds it; LeaseLostError otherwise."""
    run = session.get_one(Run, claim.run_id, with_for_update=True, populate_existing=True)
    if run.state != "running" or not is_held(session, run, claim):
        raise _lost(claim)
    return run


def is_held(session: Session, run: Run, claim: Claim) -> bool:
    """Whether this claim is the newest attempt of the run."""
    return run.attempt_number == claim.attempt_number and bool(
        session.scalar(select(_has_its_token(claim)))
    )


def _has_its_token(claim: Claim) -> ColumnElement[bool]:
    return exists().where(
        *_attempt_of(claim), Attempt.token_digest == run_tokens.digest_of(claim.token)
    )


def _attempt_of(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return Attempt.run_id == claim.run_id, Attempt.attempt_number == claim.attempt_number


def _lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(
        f"attempt {claim.attempt_number} no longer holds run {claim.run_id}, or the record was "
        "restored from an older copy"
    )
