"""The events of a job, numbered without gaps.

The number is taken by updating the job's row, so two writers of one job are ordered by that row's lock and numbers are
committed in order. (Autoincrement ids commit out of order on PostgreSQL, and a reader that follows them loses events.)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from server.database.tables import Event, Job

# Largest number of events per query.
AT_ONCE = 500


def emit(session: Session, job_id: str, kind: str, payload: dict[str, Any]) -> int:
    """Record an event of a job; returns its number, counted from 1."""
    statement = update(Job).where(Job.id == job_id).values(event_sequence=Job.event_sequence + 1).returning(Job.event_sequence)
    sequence = session.execute(statement.execution_options(synchronize_session=False)).scalar_one()
    session.add(Event(job_id=job_id, sequence=sequence, kind=kind, payload=payload, created_at=time.time()))
    return sequence


def first_kept(session: Session, job_id: str) -> int:
    """The number of the oldest event of a job that retention has not deleted; it never deletes the last one."""
    return session.scalar(select(func.min(Event.sequence)).where(Event.job_id == job_id)) or 1


def after(session: Session, job_id: str, sequence: int, limit: int = AT_ONCE) -> Sequence[Event]:
    """The events of a job after number `sequence`, oldest first."""
    return session.scalars(
        select(Event).where(Event.job_id == job_id, Event.sequence > sequence).order_by(Event.sequence).limit(limit)
    ).all()
