"""Rows that only matter for a while: events of jobs, idempotency keys, finished deliveries of
webhooks, workers that are gone, logins.

No verdict, evidence or page of an ended job needs them. Kept as long as they are in use: the last
event of each job (it ends the streams that follow it), the newest worker of each kind (what would
train a job is read from it) and workers that an attempt names.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import ColumnElement, Delete, and_, delete, func, or_, select, union
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.database.sessions import Database
from server.database.tables import (
    Attempt,
    BrowserSession,
    Event,
    IdempotencyKey,
    Job,
    Run,
    WebhookDelivery,
    Worker,
)
from server.retention.batch import ROWS_AT_ONCE, DeletionBatch, Kind, run_delete, slices

_RANGES_AT_ONCE = 100  # terms of one condition


_Chosen = tuple[Kind, Sequence[float], Delete, InstrumentedAttribute[float], str]


class _Range(NamedTuple):
    """Events of a job, by number."""

    job_id: str
    first: int
    last: int


def events(
    database: Database, cutoff: float, gone: Collection[str] = ()
) -> Iterator[DeletionBatch]:
    """Events from before the cutoff, but for the last one of each job; those of jobs that are
    `gone` go with them.
    """
    with database.read() as session:
        ranges = [
            part
            for old in _old_events(session, cutoff)
            if old.job_id not in gone
            for part in _parts(old)
        ]
    return _event_batches(ranges)


def _event_batches(ranges: Sequence[_Range]) -> Iterator[DeletionBatch]:
    while ranges:
        chosen = [*ranges[:_RANGES_AT_ONCE]]
        while sum(part.last - part.first + 1 for part in chosen) > ROWS_AT_ONCE and len(chosen) > 1:
            chosen.pop()
        ranges = ranges[len(chosen) :]
        rows = sum(part.last - part.first + 1 for part in chosen)
        old = [
            and_(Event.job_id == part.job_id, Event.sequence.between(part.first, part.last))
            for part in chosen
        ]
        drop = partial(run_delete, delete(Event).where(or_(*old)))
        yield DeletionBatch(
            what="events",
            rows=rows,
            why="events are kept for PARITY_RETENTION_EVENT_DAYS",
            delete=drop,
        )


def _old_events(session: Session, cutoff: float) -> list[_Range]:
    """The old events of each job; one probe of the index for each job that has none."""
    first = (
        select(func.min(Event.sequence))
        .where(Event.job_id == Job.id)
        .correlate(Job)
        .scalar_subquery()
    )
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
            old = select(func.max(Event.sequence)).where(
                Event.job_id == job_id, Event.created_at < cutoff, Event.sequence <= last
            )
            last = session.scalar(old) or 0
        if last >= oldest:
            ranges.append(_Range(job_id, oldest, last))
    return ranges


def _parts(old: _Range) -> Iterator[_Range]:
    for first in range(old.first, old.last + 1, ROWS_AT_ONCE):
        yield _Range(old.job_id, first, min(first + ROWS_AT_ONCE - 1, old.last))


def others(
    database: Database, cutoff: float, now: float, old_jobs: Collection[str] = ()
) -> Iterator[DeletionBatch]:
    """Old rows of the other tables: those from before the cutoff that nothing shows or names, and
    logins that have expired; those of `old_jobs` go with them.
    """
    is_sent = (WebhookDelivery.state != "pending",)
    newest = select(func.max(Worker.id)).group_by(
        Worker.capability, Worker.device["device_class"].as_string()
    )
    named = union(
        *(
            select(column).where(column.is_not(None))
            for column in (Attempt.worker_id, Run.worker_id)
        )
    )
    is_gone = (Worker.started_at < cutoff, Worker.id.not_in(newest), Worker.id.not_in(named))
    days = "PARITY_RETENTION_KEY_DAYS"
    tables: list[
        tuple[Kind, InstrumentedAttribute[float], float, Sequence[ColumnElement[bool]], str]
    ] = [
        ("keys", IdempotencyKey.created_at, cutoff, (), f"idempotency keys are kept for {days}"),
        (
            "deliveries",
            WebhookDelivery.created_at,
            cutoff,
            is_sent,
            f"deliveries of webhooks are kept for {days} after they were sent or given up",
        ),
        ("workers", Worker.heartbeat_at, cutoff, is_gone, f"the worker has been gone for {days}"),
        ("sessions", BrowserSession.expires_at, now, (), "the login has expired"),
    ]
    chosen: list[_Chosen] = []
    with database.read() as session:
        for what, moment, end, conditions, why in tables:
            old = select(moment).where(moment < end, *conditions).order_by(moment)
            of_job = getattr(moment.class_, "job_id", None)
            if old_jobs and of_job is not None:  # only a role that deletes jobs may read it
                rows = session.execute(old.add_columns(of_job))
                times = [time for time, job_id in rows if job_id not in old_jobs]
            else:
                times = [*session.scalars(old)]
            chosen.append((what, times, delete(moment.class_).where(*conditions), moment, why))
    return _batches_of_others(chosen)


def _batches_of_others(chosen: Sequence[_Chosen]) -> Iterator[DeletionBatch]:
    # By their times: a worker may not read the keys of all of these tables.
    for what, times, statement, moment, why in chosen:
        for some in slices(times):
            drop = partial(run_delete, statement.where(moment.in_(some)))
            yield DeletionBatch(what=what, rows=len(some), why=why, delete=drop)
