"""The events of a job, numbered without gaps.

The number is taken by updating the job's row, so two writers of one job are ordered by that row's
lock and numbers are committed in order. (Autoincrement ids commit out of order on PostgreSQL, and
a reader that follows them loses events.)
"""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from server.database import clock
from server.database.tables import Event, Job, Webhook, WebhookDelivery, new_id, table_of
from server.settings import WebhookEvent

# Largest number of events per query.
EVENTS_AT_ONCE = 500
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
    """Record events of a job, each a kind and a payload, in this order; returns the last one's
    number.
    """
    session.flush()  # the job may be new in this transaction
    connection = session.connection()
    last: int = connection.execute(_NUMBERED, {"job": job_id, "more": len(some)}).scalar_one()
    first, now = last - len(some) + 1, time.time()
    rows = [
        {
            "job_id": job_id,
            "sequence": sequence,
            "kind": kind,
            "payload": payload,
            "created_at": now,
        }
        for sequence, (kind, payload) in enumerate(some, first)
    ]
    connection.execute(_INSERT, rows)
    return last


def announce(session: Session, job_id: str, *kinds: WebhookEvent) -> None:
    """Write a delivery for each webhook that receives one of these events. Call it in the
    transaction of the event.
    """
    for hook in session.scalars(select(Webhook).order_by(Webhook.id)):
        for kind in kinds:
            if kind in hook.events:
                now = clock.now(session)
                about = {"webhook_id": hook.id, "kind": kind, "job_id": job_id}
                session.add(
                    WebhookDelivery(id=new_id("d"), created_at=now, next_attempt_at=now, **about)
                )


def first_kept(session: Session, job_id: str) -> int:
    """The number of the oldest event of a job that retention has not deleted; it never deletes the
    last one.
    """
    return session.scalar(select(func.min(Event.sequence)).where(Event.job_id == job_id)) or 1


def after(
    session: Session, job_id: str, sequence: int, limit: int = EVENTS_AT_ONCE
) -> Sequence[Event]:
    """The events of a job after number `sequence`, oldest first."""
    return session.scalars(
        select(Event)
        .where(Event.job_id == job_id, Event.sequence > sequence)
        .order_by(Event.sequence)
        .limit(limit)
    ).all()
