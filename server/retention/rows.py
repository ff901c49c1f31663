"""Rows that only matter for a while: events of jobs, idempotency keys, finished deliveries of webhooks, workers that are gone, logins.

No verdict, evidence or page of an ended job needs them. Kept as long as they are in use: the last event of each job (it ends the streams
that follow it), the newest delivery of each webhook (the list of webhooks shows it), the newest worker of each kind (what would train a
job is read from it) and workers that an attempt names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import Delete, and_, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session

from server.database.sessions import Database
from server.database.tables import Attempt, BrowserSession, Event, IdempotencyKey, Job, Run, WebhookDelivery, Worker
from server.retention.batch import ROWS_AT_ONCE, Batch, slices
from server.retention.curves import count

_RANGES_AT_ONCE = 100  # terms of one condition


class _Range(NamedTuple):
    """Events of a job, by number."""

    job_id: str
    first: int
    last: int


def events(database: Database, cutoff: float) -> Iterator[Batch]:
    """Events from before the cutoff, but for the last one of each job."""
    with database.read() as session:
        ranges = [part for old in _old_events(session, cutoff) for part in _parts(old)]
    while ranges:
        chosen = ranges[:_RANGES_AT_ONCE]
        while sum(part.last - part.first + 1 for part in chosen) > ROWS_AT_ONCE and len(chosen) > 1:
            chosen.pop()
        ranges = ranges[len(chosen) :]
        rows = sum(part.last - part.first + 1 for part in chosen)
        why = "events are kept for PARITY_RETENTION_EVENT_DAYS"
        yield Batch(what="events", of="", rows=rows, size_bytes=0, why=why, delete=partial(_drop_events, chosen))


def _old_events(session: Session, cutoff: float) -> list[_Range]:
    """The old events of each job; one probe of the index for each job that has none."""
    first = select(func.min(Event.sequence)).where(Event.job_id == Job.id).correlate(Job).scalar_subquery()
    begins_old = (
        select(Job.id, Event.sequence, Job.event_sequence, Job.finished_at)
        .join(Event, and_(Event.job_id == Job.id, Event.sequence == first))
        .where(Event.created_at < cutoff, Event.sequence < Job.event_sequence)
        .order_by(Job.id)
    )
    ranges = []
    for job_id, oldest, newest, finished_at in session.execute(begins_old):
        last = newest - 1
        if finished_at is None or finished_at >= cutoff:
            old = select(func.max(Event.sequence)).where(Event.job_id == job_id, Event.created_at < cutoff, Event.sequence <= last)
            last = session.scalar(old) or 0
        if last >= oldest:
            ranges.append(_Range(job_id, oldest, last))
    return ranges


def _parts(old: _Range) -> Iterator[_Range]:
    for first in range(old.first, old.last + 1, ROWS_AT_ONCE):
        yield _Range(old.job_id, first, min(first + ROWS_AT_ONCE - 1, old.last))


def _drop_events(ranges: Sequence[_Range], session: Session) -> int:
    chosen = [and_(Event.job_id == each.job_id, Event.sequence.between(each.first, each.last)) for each in ranges]
    return count(session.execute(delete(Event).where(or_(*chosen)).execution_options(synchronize_session=False)))


def keys(database: Database, cutoff: float) -> Iterator[Batch]:
    """Idempotency keys from before the cutoff."""
    key = (IdempotencyKey.principal, IdempotencyKey.key)
    with database.read() as session:
        old = [tuple(row) for row in session.execute(select(*key).where(IdempotencyKey.created_at < cutoff))]
    why = "idempotency keys are kept for PARITY_RETENTION_KEY_DAYS"
    for some in slices(old):
        drop = partial(_drop, delete(IdempotencyKey).where(tuple_(*key).in_(some)))
        yield Batch(what="keys", of="", rows=len(some), size_bytes=0, why=why, delete=drop)


def deliveries(database: Database, cutoff: float) -> Iterator[Batch]:
    """Deliveries from before the cutoff that were sent or given up."""
    ended = (WebhookDelivery.state != "pending", WebhookDelivery.created_at < cutoff)
    with database.read() as session:
        old = session.scalars(select(WebhookDelivery.id).where(*ended)).all()
    why = "deliveries of webhooks are kept for PARITY_RETENTION_KEY_DAYS after they were sent or given up"
    for some in slices(old):
        drop = partial(_drop, delete(WebhookDelivery).where(WebhookDelivery.id.in_(some), *ended))
        yield Batch(what="deliveries", of="", rows=len(some), size_bytes=0, why=why, delete=drop)


def workers(database: Database, cutoff: float) -> Iterator[Batch]:
    """Workers without a sign of life since the cutoff that no attempt and no run names, but for the newest of each kind."""
    with database.read() as session:
        newest: dict[tuple[str, str], str] = {}
        silent = []
        for row in session.scalars(select(Worker).order_by(Worker.id)):
            newest[row.capability, row.device.get("device_class", "")] = row.id
            if max(row.started_at, row.heartbeat_at) < cutoff:
                silent.append(row.id)
        named = {*_named(session, silent), *newest.values()}
    why = "the worker has been gone for PARITY_RETENTION_KEY_DAYS"
    for some in slices([row for row in silent if row not in named]):
        gone = (Worker.id.in_(some), Worker.started_at < cutoff, Worker.heartbeat_at < cutoff)
        yield Batch(what="workers", of="", rows=len(some), size_bytes=0, why=why, delete=partial(_drop, delete(Worker).where(*gone)))


def _named(session: Session, ids: Sequence[str]) -> Iterator[str]:
    """Those of the workers that an attempt or a run names."""
    for some in slices(ids, 500):
        for column in (Attempt.worker_id, Run.worker_id):
            yield from (row for row in session.scalars(select(column).where(column.in_(some)).distinct()) if row is not None)


def sessions(database: Database, now: float) -> Iterator[Batch]:
    """Logins that have expired."""
    expired = BrowserSession.expires_at < now
    with database.read() as session:
        rows = session.scalar(select(func.count()).select_from(BrowserSession).where(expired)) or 0
    if rows:
        drop = partial(_drop, delete(BrowserSession).where(expired))
        yield Batch(what="sessions", of="", rows=rows, size_bytes=0, why="the login has expired", delete=drop)


def _drop(statement: Delete, session: Session) -> int:
    return count(session.execute(statement.execution_options(synchronize_session=False)))
