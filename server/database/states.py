"""The states of jobs, runs and attempts, the legal moves between them, and the compare-and-set that
makes one.

A move names the states that it may start from; if another writer was faster, it changes nothing.
Only `server.jobs.lifecycle` calls these functions, because a move also ends the attempt and emits
an event. An arm has no state of its own; it follows from its runs. `docs/architecture.md` shows
these tables; a test keeps both equal.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Update, update
from sqlalchemy.orm import Session

from server.database.tables import Attempt, AttemptState, Job, JobStatus, Run, RunState, table_of

State = TypeVar("State", bound=str)
# On the tables: the mapper's updates take twice as long.
_jobs, _runs, _attempts = table_of(Job), table_of(Run), table_of(Attempt)

# job: queued until a run starts; its verdicts and its end are written in one transaction. `failed
# -> running` is for a job that only the judge failed on: an admin has it judged again.
JOB_MOVES: dict[JobStatus, frozenset[JobStatus]] = {
    "queued": frozenset({"running", "concluded", "failed", "cancelled"}),
    "running": frozenset({"concluded", "failed", "cancelled"}),
    "concluded": frozenset({"running"}),  # its verdict is damaged, and is computed again
    "failed": frozenset({"running"}),
    "cancelled": frozenset(),
}
# run: `running -> queued` is for a dead worker's run, which another worker takes; `queued ->
# failed` for a run that cannot be read. A run of engine external is never queued: it awaits its
# trainer, and waits again if the trainer stops early. `failed -> running` is for such a run that
# failed only because its trainer was silent: it goes on if the trainer comes back before the job
# has ended. A run of HELD_KINDS awaits what other runs of its job show: then it is queued, or
# cancelled if nobody needs it.
RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    "awaiting_data": frozenset({"queued", "running", "failed", "cancelled"}),
    "queued": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"finished", "failed", "cancelled", "queued", "awaiting_data"}),
    "finished": frozenset(),
    "failed": frozenset({"running"}),
    "cancelled": frozenset(),
}
# attempt: one claim of a run. `crashed` ended by itself, `lost` was silent until its lease ended (a
# later claim fences it), `released` was returned by a stopped worker; after these three the run is
# queued again or failed. `lost -> running` goes with `failed -> running`.
ATTEMPT_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    "running": frozenset({"finished", "failed", "cancelled", "crashed", "lost", "released"}),
    "finished": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "crashed": frozenset(),
    "lost": frozenset({"running"}),
    "released": frozenset(),
}
JOB_ENDED: frozenset[JobStatus] = frozenset({"concluded", "failed", "cancelled"})
RUN_ENDED: frozenset[RunState] = frozenset({"finished", "failed", "cancelled"})
JOB_OPEN, RUN_OPEN = frozenset(JOB_MOVES) - JOB_ENDED, frozenset(RUN_MOVES) - RUN_ENDED
HELD_KINDS = ("heal",)
EARLY_STOP = "EARLY_STOP"  # the code of a run that the live rules ended
# of finished runs whose trainers ended before their last step, and said that they had succeeded
ENDED_EARLY = ("ENDED_EARLY", "MAXTEXT_ENDED_EARLY")
SILENT = "SILENT"  # of a run that its own trainer sent no data for too long
JUDGE_FAILED = "JUDGE_FAILED"  # of a job that the judge cannot judge, however often it tries
RECORD_DAMAGED = "RECORD_DAMAGED"  # of a job with recorded steps that are not as they were written
# the runs of such a job have ended well, so that it can be judged again
JUDGED_IN_VAIN = frozenset({JUDGE_FAILED, RECORD_DAMAGED})
# of an open job that could not be judged for a reason that may pass
JUDGING_AGAIN = "JUDGING_AGAIN"


def move_job(
    session: Session, job_id: str, start: Iterable[JobStatus], end: JobStatus, **values: Any
) -> bool:
    """Move a job from one of `start` to `end` and set `values`; False if it was in none of these
    states.
    """
    starts = _checked(JOB_MOVES, start, end)
    return _changed(
        session,
        update(_jobs)
        .where(_jobs.c.id == job_id, _jobs.c.status.in_(starts))
        .values(status=end, **values),
    )


def move_run(
    session: Session,
    run_id: str,
    start: Iterable[RunState],
    end: RunState,
    *,
    holder: int | None = None,
    **values: Any,
) -> bool:
    """Move a run; with `holder`, only while the attempt of that attempt_number holds it. False if
    nothing was moved.
    """
    starts = _checked(RUN_MOVES, start, end)
    statement = update(_runs).where(_runs.c.id == run_id, _runs.c.state.in_(starts))
    if holder is not None:
        statement = statement.where(_runs.c.attempt_number == holder)
    return _changed(session, statement.values(state=end, **values))


def begin_attempt(
    session: Session,
    run_id: str,
    attempt_number: int,
    worker_id: str | None,
    key: str | None = None,
) -> None:
    """Record that attempt `attempt_number` of a run has begun."""
    session.add(
        Attempt(
            run_id=run_id,
            attempt_number=attempt_number,
            state="running",
            worker_id=worker_id,
            key=key,
            started_at=time.time(),
        )
    )


def end_attempt(
    session: Session,
    run_id: str,
    attempt_number: int,
    end: AttemptState,
    code: str | None = None,
    message: str | None = None,
) -> bool:
    """End a running attempt; False if it had already ended. Call it in the transaction that moves
    the run.
    """
    # keep a note from earlier in the attempt
    noted = {} if message is None else {"message": message}
    return _move_attempt(
        session, run_id, attempt_number, "running", end, code=code, ended_at=time.time(), **noted
    )


def resume_attempt(session: Session, run_id: str, attempt_number: int) -> bool:
    """Let an attempt that was given up for lost go on; False if it ended otherwise. Call it in the
    transaction that moves the run.
    """
    return _move_attempt(
        session, run_id, attempt_number, "lost", "running", code=None, message=None, ended_at=None
    )


def _move_attempt(
    session: Session,
    run_id: str,
    attempt_number: int,
    start: AttemptState,
    end: AttemptState,
    **values: Any,
) -> bool:
    starts = _checked(ATTEMPT_MOVES, (start,), end)
    statement = update(_attempts).where(
        _attempts.c.run_id == run_id,
        _attempts.c.attempt_number == attempt_number,
        _attempts.c.state.in_(starts),
    )
    return _changed(session, statement.values(state=end, **values))


def _checked(
    moves: Mapping[State, frozenset[State]], start: Iterable[State], end: State
) -> list[State]:
    starts = list(start)
    for state in starts:
        if end not in moves[state]:
            raise ValueError(
                f"move {state} -> {end} is not allowed, expected one of {sorted(moves[state])}; "
                "see server/database/states.py"
            )
    return starts


def _changed(session: Session, statement: Update) -> bool:
    session.flush()  # what the transaction has changed before comes before
    return session.connection().execute(statement).rowcount == 1
