"""The events of a job, numbered without gaps; and the progress of its runs, which has no number.

The number is taken by updating the job's row, so two writers of one job are ordered by that row's lock and numbers are
committed in order. (Autoincrement ids commit out of order on PostgreSQL, and a reader that follows them loses events.)

Recorded steps are no events: all runs of a job would wait for each other's commit. They are read from the runs' rows. A reader that
misses one sees the next, or, when it connects again, the newest.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from server.database.tables import Arm, Event, Job, Run, table_of

# Largest number of events per query.
AT_ONCE = 500
# On the tables: the mapper takes twice as long.
_jobs = table_of(Job)
_INSERT = insert(table_of(Event))
_NUMBERED = (
    update(_jobs)
    .where(_jobs.c.id == bindparam("job"))
    .values(event_sequence=_jobs.c.event_sequence + bindparam("more"))
    .returning(_jobs.c.event_sequence)
)


def emit(session: Session, job_id: str, kind: str, payload: dict[str, Any]) -> int:
    """Record an event of a job; returns its number, counted from 1."""
    return emit_all(session, job_id, [(kind, payload)])


def emit_all(session: Session, job_id: str, some: Sequence[tuple[str, dict[str, Any]]]) -> int:
    """Record events of a job, each a kind and a payload, in this order; returns the last one's number."""
    session.flush()  # the job may be new in this transaction
    connection = session.connection()
    last: int = connection.execute(_NUMBERED, {"job": job_id, "more": len(some)}).scalar_one()
    first, now = last - len(some) + 1, time.time()
    rows = [
        {"job_id": job_id, "sequence": sequence, "kind": kind, "payload": payload, "created_at": now}
        for sequence, (kind, payload) in enumerate(some, first)
    ]
    connection.execute(_INSERT, rows)
    return last


def first_kept(session: Session, job_id: str) -> int:
    """The number of the oldest event of a job that retention has not deleted; it never deletes the last one."""
    return session.scalar(select(func.min(Event.sequence)).where(Event.job_id == job_id)) or 1


def after(session: Session, job_id: str, sequence: int, limit: int = AT_ONCE) -> Sequence[Event]:
    """The events of a job after number `sequence`, oldest first."""
    return session.scalars(
        select(Event).where(Event.job_id == job_id, Event.sequence > sequence).order_by(Event.sequence).limit(limit)
    ).all()


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True, eq=False)
class Progress:
    """Where a training run of a job is, as of `recorded_at`."""

    job_id: str
    run_id: str
    arm: str
    step: int
    steps_per_second: float | None
    recorded_at: float


def progress(session: Session, job_ids: Collection[str]) -> list[Progress]:
    """The progress of the runs of these jobs that train and have recorded steps."""
    columns = (Run.job_id, Run.id, Arm.name, Run.steps_done, Run.steps_per_second, Run.recorded_at)
    training = (Run.job_id.in_(job_ids), Run.state == "running", Run.recorded_at.is_not(None))
    rows = session.execute(select(*columns).join(Arm, Run.arm_id == Arm.id).where(*training))
    return [
        Progress(job_id=job, run_id=run, arm=arm, step=steps - 1, steps_per_second=speed, recorded_at=at)
        for job, run, arm, steps, speed, at in rows
        if at is not None
    ]
