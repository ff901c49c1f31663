"""The only place that moves a run or a job from one state to another.

Each function is one edge of `server.database.states`, or all edges to one state. In the caller's
transaction it moves the row, begins or ends the attempt and emits the event, so no reader sees one
without the others. It is a compare-and-set: if no edge starts at the state that `run` was read in,
or another writer has moved the run since, it changes nothing and returns False (or None).

Callers lock the run's row when they read it, and lock runs before their job.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.decision import State, worst
from server.database import clock, events
from server.database.events import announce
from server.database.lookups import find_job
from server.database.states import (
    HELD_KINDS,
    JOB_ENDED,
    JOB_OPEN,
    JUDGED_IN_VAIN,
    RUN_ENDED,
    RUN_MOVES,
    SILENT,
    begin_attempt,
    end_attempt,
    move_job,
    move_run,
    resume_attempt,
)
from server.database.tables import Attempt, AttemptState, Job, Run, RunState, Verdict, Worker
from server.database.verdict_digest import is_intact
from server.jobs.verdict_rows import has_its_lead
from server.logs import without_secrets

JobEnd = Literal["concluded", "failed", "cancelled"]
BrokenAttempt = Literal["crashed", "lost", "released"]
FailedAttempt = Literal["failed", "crashed", "lost"]


def claim(session: Session, run: Run, worker: Worker, lease_seconds: float) -> int | None:
    """queued -> running: begin an attempt of a worker, which holds the run until the lease ends;
    returns the attempt's number.

    The first run of a job starts the job and binds it to the worker's device class and thread
    count.
    """
    if run.state != "queued":
        return None
    binding = {
        "device_class": worker.device["device_class"],
        "threads": worker.device["threads_per_run"],
    }
    return _begin(
        session, run, lease_seconds, worker_id=worker.id, key=None, columns={}, binding=binding
    )


def attach(
    session: Session,
    run: Run,
    manifest: Mapping[str, str],
    fingerprint: str,
    key: str | None,
    lease_seconds: float,
) -> int | None:
    """awaiting_data -> running: begin an attempt of the user's own trainer; returns the attempt's
    number.

    `key` is the trainer's name for the attempt. The first run of a job starts the job. A run that
    failed for its silence may begin another attempt, too, while its job is open.
    """
    if run.state != "awaiting_data" and not may_go_on(session, run):
        return None
    columns = {"manifest": dict(manifest), "fingerprint": fingerprint, "finished_at": None}
    return _begin(session, run, lease_seconds, worker_id=None, key=key, columns=columns, binding={})


def go_on(session: Session, run: Run, lease_seconds: float) -> bool:
    """failed -> running: the attempt of a run that failed for its silence goes on, while its job is
    open.
    """
    attempt = session.get(Attempt, (run.id, run.attempt_number))
    if attempt is None or attempt.state != "lost" or not may_go_on(session, run):
        return False
    lease = {"lease_expires_at": clock.now(session) + lease_seconds}
    if not _move(
        session, run, "running", {**lease, "code": None, "message": None, "finished_at": None}
    ):
        return False
    resume_attempt(session, run.id, run.attempt_number)
    session.expire(attempt)
    _emit_run(session, run, "running", None, None, attempt=run.attempt_number)
    return True


def may_go_on(session: Session, run: Run) -> bool:
    """Whether a run has failed for its silence alone, and its job is open; the job stays locked, so
    that nobody ends it meanwhile.
    """
    if run.state != "failed" or run.code != SILENT:
        return False
    return (
        session.get_one(Job, run.job_id, with_for_update=True, populate_existing=True).status
        not in JOB_ENDED
    )


def finish(
    session: Session,
    run: Run,
    *,
    code: str | None = None,
    message: str | None = None,
    note: str | None = None,
    **columns: object,
) -> bool:
    """running -> finished: the run has a curve. A `code` gives the reason if that curve is short or
    unusable.

    A message is stored with the run and its attempt, a note with the attempt only. `columns` are
    further columns of the run.
    """
    return _end(
        session, run, "finished", "finished", {"code": code, "message": message, **columns}, note
    )


def fail(
    session: Session,
    run: Run,
    *,
    code: str,
    message: str,
    attempt: FailedAttempt = "failed",
    **columns: object,
) -> bool:
    """Any open state -> failed: there is no further attempt. `attempt` is how the running attempt
    ended, if there is one.
    """
    return _end(session, run, "failed", attempt, {"code": code, "message": message, **columns})


def cancel(
    session: Session, run: Run, *, code: str | None = None, message: str | None = None
) -> bool:
    """Any open state -> cancelled. Without a new code and message the run keeps its own; its
    attempt always does.
    """
    stated = {
        name: value for name, value in (("code", code), ("message", message)) if value is not None
    }
    return _end(session, run, "cancelled", "cancelled", stated)


def requeue(
    session: Session,
    run: Run,
    *,
    attempt: BrokenAttempt,
    code: str | None,
    message: str,
    **columns: object,
) -> bool:
    """running -> queued (awaiting_data for engine external): the attempt is over and another one
    may follow.

    Recorded steps stay. `columns` are further columns of the run.
    """
    if run.state != "running":
        return False
    end: RunState = "awaiting_data" if run.capability == "external" else "queued"
    free = {"worker_id": None, "lease_expires_at": None, "steps_per_second": None}
    return _leave(session, run, end, attempt, {**free, "code": code, "message": message, **columns})


def call_up(session: Session, run: Run) -> bool:
    """awaiting_data -> queued: a run of HELD_KINDS that is needed now."""
    if run.state != "awaiting_data" or run.kind not in HELD_KINDS:
        return False
    return _leave(session, run, "queued", "released", {})


def mark(session: Session, run: Run, code: str, message: str) -> None:
    """Set the code and message of a run that stays in its state, and emit the event."""
    run.code, run.message = code, without_secrets(message)
    _emit_run(session, run, run.state, code, run.message)


def tell_changed(session: Session, job: Job) -> None:
    """Tell open pages that a job has changed in something else than its status."""
    events.emit(session, job.id, "status", {"status": job.status})


def end_job(
    session: Session,
    job_id: str,
    end: JobEnd,
    *,
    code: str | None = None,
    message: str | None = None,
    verdicts: Mapping[str, str] | None = None,
) -> bool:
    """queued or running -> concluded, failed or cancelled; False if the job had already ended.
    `verdicts` are outcomes by candidate.

    Emits the verdicts, then the status, and writes the deliveries of both to webhooks.
    """
    text = message and without_secrets(message)
    if not move_job(
        session, job_id, JOB_OPEN, end, finished_at=clock.now(session), code=code, message=text
    ):
        return False
    if verdicts:
        events.emit(session, job_id, "verdict", dict(verdicts))
    events.emit(session, job_id, "status", {"status": end})
    announce(session, job_id, *(("verdict.given", "job.ended") if verdicts else ("job.ended",)))
    return True


def listed_answer(rows: Iterable[Verdict]) -> tuple[State | None, float | None]:
    """What lists show of a job by its verdicts: the worst of their states, and the widest relative
    gap; None without any.
    """
    verdicts = tuple(rows)
    answer = worst(row.outcome for row in verdicts) if verdicts else None
    gap = max((row.gap_rel for row in verdicts if row.gap_rel is not None), default=None)
    return answer, gap


def has_its_verdicts(job: Job) -> bool:
    """Whether each verdict of a concluded job is as the judge wrote it, none is gone, and lists
    show what they say.
    """
    judged = {arm.name for arm in job.arms[1:]} if job.is_judged else set[str]()
    return (
        judged <= {verdict.candidate for verdict in job.verdicts}
        and all(is_intact(verdict) for verdict in job.verdicts)
        and (job.answer, job.worst_gap) == listed_answer(job.verdicts)
        and has_its_lead(job)
    )


def reopen_job(session: Session, job: Job) -> bool:
    """failed -> running: a job that only the judge failed on is to be judged again, and
    concluded -> running: one whose recorded verdict is damaged, whose verdicts go; False for any
    other. Lock the job's row before.
    """
    if job.status == "concluded":
        if has_its_verdicts(job):
            return False
        for verdict in job.verdicts:
            session.delete(verdict)
        session.flush()
        session.expire(job, ["verdicts"])
    elif job.code not in JUDGED_IN_VAIN or job.status != "failed":
        return False
    fresh = {
        "code": None,
        "message": None,
        "finished_at": None,
        "judge_tries": 0,
        "judge_after": None,
        "answer": None,
        "worst_gap": None,
        "lead": None,
    }
    if not move_job(session, job.id, ("concluded", "failed"), "running", **fresh):
        return False
    session.expire(job, ["status", *fresh])
    events.emit(session, job.id, "status", {"status": "running"})
    return True


def _begin(
    session: Session,
    run: Run,
    lease_seconds: float,
    *,
    worker_id: str | None,
    key: str | None,
    columns: Mapping[str, object],
    binding: Mapping[str, object],
) -> int | None:
    """Move a run to running and begin its next attempt; the first run starts the job and binds it
    to a device class.
    """
    now, attempt_number = clock.now_in(session), run.attempt_number + 1
    lease = {
        "attempt_number": attempt_number,
        "lease_expires_at": now + lease_seconds,
        "worker_id": worker_id,
    }
    fresh = {"code": None, "message": None, "started_at": run.started_at or now}
    if not _move(session, run, "running", {**lease, **fresh, **columns}):
        return None
    # A job that runs is never queued again, so that a stale status can only cost a statement.
    is_first = run.job.status == "queued" and move_job(
        session, run.job_id, ("queued",), "running", started_at=now, **binding
    )
    status = [("status", {"status": "running"})] if is_first else []
    events.emit_all(
        session,
        run.job_id,
        [*status, ("run", _run_payload(run, "running", None, None, attempt=attempt_number))],
    )
    # last, so that its token is inserted with it
    begin_attempt(session, run.id, attempt_number, worker_id, key)
    return attempt_number


def _end(
    session: Session,
    run: Run,
    end: RunState,
    attempt: AttemptState,
    columns: Mapping[str, Any],
    note: str | None = None,
) -> bool:
    """Move a run to a final state."""
    return _leave(
        session,
        run,
        end,
        attempt,
        {"finished_at": clock.now(session), "lease_expires_at": None, **columns},
        note,
    )


def _leave(
    session: Session,
    run: Run,
    end: RunState,
    attempt: AttemptState,
    columns: Mapping[str, Any],
    note: str | None = None,
) -> bool:
    """Move an open run to `end`, end its attempt if one is running, and emit the event with the
    message, else with the note.
    """
    code, was_running = columns.get("code"), run.state == "running"
    message, note = (text and without_secrets(text) for text in (columns.get("message"), note))
    if not _move(
        session, run, end, {**columns, "message": message} if "message" in columns else columns
    ):
        return False
    if was_running:
        end_attempt(
            session,
            run.id,
            run.attempt_number,
            attempt,
            code,
            None if end == "cancelled" else message or note,
        )
    _emit_run(session, run, end, code, message or note)
    return True


def _move(session: Session, run: Run, end: RunState, columns: Mapping[str, object]) -> bool:
    if end not in RUN_MOVES[run.state]:
        return False
    moved = move_run(session, run.id, (run.state,), end, holder=run.attempt_number, **columns)
    if moved:
        session.expire(run, ["state", *columns])
    return moved


def _emit_run(
    session: Session,
    run: Run,
    state: RunState,
    code: str | None,
    message: str | None,
    **more: object,
) -> None:
    events.emit(session, run.job_id, "run", _run_payload(run, state, code, message, **more))


def _run_payload(
    run: Run, state: RunState, code: str | None, message: str | None, **more: object
) -> dict[str, object]:
    return {
        "run": run.id,
        "arm": run.arm.name,
        "state": state,
        "code": code,
        "message": message,
    } | more


def cancel_job(session: Session, job_id: str, message: str = "cancelled by request") -> bool:
    """Cancel a job and its open runs; False, without a change, if it had already ended.
    NotFoundError for an unknown id.

    At its next heartbeat the worker of a run notices the cancellation and kills the trainer's
    process group.
    """
    job = find_job(session, job_id)
    # Every writer locks runs before their job; the other order could deadlock with a live trainer
    # on PostgreSQL.
    open_runs = (
        select(Run)
        .where(Run.job_id == job_id, Run.state.not_in(RUN_ENDED))
        .order_by(Run.id)
        .with_for_update()
    )
    runs = session.scalars(open_runs).all()
    session.refresh(job, with_for_update=True)
    if job.status in JOB_ENDED:
        return False
    for run in runs:
        cancel(session, run)
    return end_job(session, job_id, "cancelled", message=message)
