"""Whole jobs: with PARITY_RETENTION_JOB_DAYS, a job goes with everything that belongs to it.

All in one transaction, except for long curves: SQLite would refuse other writers for seconds.
Their chunks go first, a few at a time, in the order of steps, so the window of the verdict goes
last; their runs' messages say so, and no other run reuses them any more.

A judged job that counts as a look at its question (`server.jobs.ledger`) keeps its own row, arms,
runs, verdicts, tags, notes and sign-offs, without curves: if looks could be forgotten, a question
could be judged again until it passes.

Kept: open jobs, jobs with a run that belongs to a named baseline, whose curve a run of another
job reuses or from which one is forked, jobs that an analysis explains, and jobs with a delivery
that is still to be sent. An analysis starts from runs of the job that it explains, or from those
whose curves that job reuses, so all of them stay.

What belongs to a job is read from the foreign keys of the tables, so a new table needs no line
here: a row whose `job_id` or `run_id` names it goes with it, and any other key to a job is a
reference of something else, which keeps it. What still refers to a deleted row makes the database
refuse the deletion.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy import ColumnElement, Select, Table, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from parity.extensions import lab
from parity.frozen import frozen
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Base, Chunk, ChunkColumn, Job, Run, WebhookDelivery, table_of
from server.retention.batch import DeletionBatch, run_delete
from server.retention.curves import (
    REUSING_RUN,
    Key,
    bytes_of,
    chunk_keys,
    drop_chunks,
    kept_for_others,
)

_log = logging.getLogger(__name__)

_IS_A_LOOK = and_(Job.look.is_not(None), Job.status == "concluded")
_LOOK_TABLES = (
    "jobs",
    "arms",
    "runs",
    "verdicts",
    "events",
    "job_tags",
    "job_notes",
    "new_questions",
    "sign_offs",
    "statements",
)  # of its events only the last is left by then
_COLUMNS = table_of(ChunkColumn)  # rows of chunks, with which they go uncounted
_MARK = "its curve was deleted (PARITY_RETENTION_JOB_DAYS)"


@frozen
class OldJob:
    """A job that is to be deleted; one that is a look keeps its verdicts."""

    id: str
    is_a_look: bool


def old_jobs(database: Database, cutoff: float) -> Sequence[OldJob]:
    """The jobs that ended before the cutoff and that nothing else needs; the newest first, because
    they may reuse older ones.
    """
    with database.read() as session:
        if not _may_delete(session):
            _log.warning(
                "this role may not delete jobs: run `python -m server.retention --apply` as the "
                "owner of the tables"
            )
            return ()
        unneeded = _unneeded_jobs(cutoff).order_by(Job.finished_at.desc(), Job.id)
        chosen = session.execute(unneeded.add_columns(_IS_A_LOOK))
        return [OldJob(id=job_id, is_a_look=is_a_look) for job_id, is_a_look in chosen]


def job_batches(
    database: Database, cutoff: float, jobs: Sequence[OldJob]
) -> Iterator[DeletionBatch]:
    """One for each of these jobs, after those of its longest curves."""
    for job in jobs:
        job_id = job.id
        with database.read() as session:
            runs = session.scalars(select(Run.id).where(Run.job_id == job_id)).all()
            size = bytes_of(session, Chunk.run_id.in_(runs), ChunkColumn.run_id.in_(runs))
            parts = chunk_keys(session, runs)
            rows = 0
            for table, belonging in _tables_of(job_id, runs, is_a_look=job.is_a_look):
                if table is _COLUMNS:
                    continue
                rows += (
                    session.scalar(select(func.count()).select_from(table).where(belonging)) or 0
                )
        why = "jobs are kept for PARITY_RETENTION_JOB_DAYS after their end"
        if job.is_a_look:
            why = "curves of looks are kept for PARITY_RETENTION_JOB_DAYS, their verdicts for good"
        for keys in parts[:-1]:
            yield DeletionBatch(
                what="curve",
                of=job_id,
                rows=len(keys),
                why=why,
                delete=partial(_drop_chunks, job_id, cutoff, keys),
            )
        yield DeletionBatch(
            what="curve" if job.is_a_look else "job",
            of=job_id,
            rows=rows - sum(len(keys) for keys in parts[:-1]),
            size_bytes=size,
            why=why,
            delete=partial(_drop_jobs, job_id, cutoff),
        )


def _may_delete(session: Session) -> bool:
    """Whether this database role may delete whole jobs; that of workers may not
    (`server/roles.sql`).
    """
    return session.get_bind().dialect.name != "postgresql" or bool(
        session.scalar(select(func.has_table_privilege("jobs", "delete")))
    )


def _unneeded_jobs(cutoff: float) -> Select[str]:
    run_ids = select(Run.id).where(Run.job_id == Job.id)
    to_send = select(WebhookDelivery.id).where(
        WebhookDelivery.job_id == Job.id, WebhookDelivery.state == "pending"
    )
    lab().part("tables")  # before the references are read: its tables have some too
    needed = [select(column).where(column == Job.id).exists() for column in _references_of_others()]
    has_curves = run_ids.where(
        or_(
            Run.reused_from.is_not(None),
            select(Chunk.run_id).where(Chunk.run_id == Run.id).exists(),
        )
    )
    return select(Job.id).where(
        or_(~_IS_A_LOOK, has_curves.exists()),
        Job.status.in_(JOB_ENDED),
        Job.finished_at < cutoff,
        ~run_ids.where(kept_for_others(REUSING_RUN.job_id != Run.job_id)).exists(),
        ~to_send.exists(),
        *(~is_needed for is_needed in needed),
    )


def _locked(job_id: str, cutoff: float, session: Session) -> Sequence[Run] | None:
    """The runs of a job, locked before their job as every writer does; None if the job is
    needed.
    """
    runs = session.scalars(
        select(Run).where(Run.job_id == job_id).order_by(Run.id).with_for_update()
    ).all()
    unneeded = session.scalar(
        _unneeded_jobs(cutoff).where(Job.id == job_id).with_for_update(of=Job)
    )
    return None if unneeded is None else runs


def _drop_chunks(job_id: str, cutoff: float, keys: Sequence[Key], session: Session) -> int:
    runs = _locked(job_id, cutoff, session)
    if runs is None:
        return 0
    named = {run_id for run_id, *_ in keys}
    _mark([run for run in runs if run.id in named])
    return drop_chunks(session, keys)


def _drop_jobs(job_id: str, cutoff: float, session: Session) -> int:
    locked = _locked(job_id, cutoff, session)
    if locked is None:
        return 0
    runs, rows = [run.id for run in locked], 0
    is_a_look = session.scalar(select(Job.id).where(Job.id == job_id, _IS_A_LOOK)) is not None
    if is_a_look:
        _mark(locked)
        for run in locked:
            run.reused_from = None
        session.flush()
    for table, belonging in _tables_of(job_id, runs, is_a_look=is_a_look):
        deleted = run_delete(delete(table).where(belonging), session)
        rows += 0 if table is _COLUMNS else deleted
    return rows


def _tables_of(
    job_id: str, runs: Sequence[str], *, is_a_look: bool
) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables from which rows go with a job, the referring ones first, and which rows."""
    for table in reversed(Base.metadata.sorted_tables):
        if is_a_look and table.name in _LOOK_TABLES:
            continue
        if table is Run.__table__:
            belonging = [table.c.job_id == job_id]
        elif table is Job.__table__:
            belonging = [table.c.id == job_id]
        else:
            belonging = [*_owned_by(table, "run_id", runs), *_owned_by(table, "job_id", [job_id])]
        if belonging:
            yield table, or_(*belonging)


def _mark(runs: Sequence[Run]) -> None:
    """Say in the message of runs that their curves are gone."""
    for run in runs:
        if _MARK not in (run.message or ""):
            run.message = f"{run.message}; {_MARK}" if run.message else _MARK


def _owned_by(table: Table, name: str, values: Sequence[str]) -> Iterator[ColumnElement[bool]]:
    """That the foreign key of this name, which says whose a row is, has one of these values;
    nothing if the table has no such key.
    """
    if name in table.columns and table.columns[name].foreign_keys:
        yield table.columns[name].in_(values)


def _references_of_others() -> list[ColumnElement[str]]:
    """Every foreign key to a job that does not say whose its row is."""
    columns = (
        column
        for table in Base.metadata.sorted_tables
        for column in table.columns
        if column.name != "job_id"
    )
    return [
        column
        for column in columns
        if any(foreign.target_fullname == "jobs.id" for foreign in column.foreign_keys)
    ]
