"""The jobs of schedulers (Slurm, Kubernetes) that train runs: their record, where each waits and
why, and what they took.

A worker writes each step of a submission down before, or right after, it asks the scheduler for it
(`workers.submitting`), always behind the fence of the run. So whoever claims the run later finds
the job again, by its key, and nothing is submitted twice.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Exists, exists, func, select, update
from sqlalchemy.orm import Session

from server.database import clock
from server.database.states import RUN_ENDED
from server.database.tables import DEPLOYMENT, Duty, Run, Submission
from server.logs import without_secrets

KEY_PREFIX = "parity"


def deployment(session: Session) -> str:
    """The name of this record in the keys of its jobs, so that two services on one cluster leave
    each other's alone.
    """
    return f"{KEY_PREFIX}-{session.get_one(Duty, DEPLOYMENT).holder}"


def open_of(session: Session, run_id: str) -> Submission | None:
    """The open submission of a run."""
    return session.scalars(
        select(Submission).where(Submission.run_id == run_id, Submission.state != "ended")
    ).first()


def is_open() -> Exists:
    """Whether a run (of the query around it) has an open submission."""
    return exists().where(Submission.run_id == Run.id, Submission.state != "ended")


def next_number(session: Session, run_id: str) -> int:
    """The number of the next submission of a run."""
    return 1 + (
        session.scalar(select(func.max(Submission.number)).where(Submission.run_id == run_id)) or 0
    )


def change(session: Session, run_id: str, number: int, **columns: object) -> None:
    """Set columns of a submission. Call it behind the fence of the run, or for a run that has
    ended.
    """
    if isinstance(reason := columns.get("reason"), str):
        columns["reason"] = without_secrets(reason)  # as a scheduler says it
    session.execute(
        update(Submission)
        .where(Submission.run_id == run_id, Submission.number == number)
        .values(columns)
        .execution_options(synchronize_session=False)
    )


def end(
    session: Session,
    run_id: str,
    number: int,
    *,
    ended_at: float | None,
    exit_status: int | None = None,
) -> None:
    """End a submission; `ended_at` (unix seconds) is when its last start ended, None where that is
    now.
    """
    now = clock.now(session)
    change(
        session,
        run_id,
        number,
        state="ended",
        exit_status=exit_status,
        ended_at=now if ended_at is None else ended_at,
    )


def open_ones(session: Session) -> Sequence[tuple[Submission, bool]]:
    """All open submissions, each with whether its run has ended."""
    rows = session.execute(
        select(Submission, Run.state)
        .join(Run, Run.id == Submission.run_id)
        .where(Submission.state != "ended")
    )
    return [(submission, state in RUN_ENDED) for submission, state in rows]


def grouped_by_run(session: Session, run_ids: Collection[str]) -> Mapping[str, list[Submission]]:
    """The submissions of these runs, oldest first; runs without one have no entry."""
    found: dict[str, list[Submission]] = {}
    if run_ids:
        order = Submission.run_id, Submission.number
        for submission in session.scalars(
            select(Submission).where(Submission.run_id.in_(run_ids)).order_by(*order)
        ):
            found.setdefault(submission.run_id, []).append(submission)
    return found


def device_seconds(submission: Submission, now: float) -> float:
    """How long its trainer ran so far, on all of its starts."""
    if submission.started_at is None:
        return submission.earlier_seconds
    return submission.earlier_seconds + max(
        0.0, (submission.ended_at or now) - submission.started_at
    )


def queued_seconds(submission: Submission, now: float) -> float:
    """How long it was with the scheduler without training."""
    return max(
        0.0, (submission.ended_at or now) - submission.created_at - device_seconds(submission, now)
    )


def why_not_training(submission: Submission) -> str | None:
    """Where an open submission waits and why, in the scheduler's own words; None while it trains,
    and once it has ended.
    """
    if submission.state == "ended" or (submission.started_at is not None and not submission.reason):
        return None
    where = submission.scheduler.capitalize()
    if submission.scheduler_id is None:
        return f"to be submitted to {where}: {submission.reason or 'its files are written'}"
    return (
        f"in {where}'s queue as job {submission.scheduler_id}: {submission.reason or 'submitted'}"
    )
