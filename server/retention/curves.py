"""Curves that no verdict needs.

Never deleted before their job: curves of finished runs behind a verdict, of baseline arms, of
named baselines (controls too), and curves that another run reuses. So every verdict can be judged
again and its evidence downloaded. Deleted, PARITY_RETENTION_DAYS after the job has ended:
attempts that a newer one replaced, curves of runs that failed or were cancelled, and finished
candidates of jobs without a verdict.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    delete,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, aliased

from server.database.metrics import replaced_steps
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Arm, BaselineRun, Chunk, ChunkColumn, Job, Run
from server.retention.batch import DeletionBatch, Kind, run_delete, slices

# SQLite has one writer at a time: it writes 50 chunks of 4,096 steps x 11 columns in tenths of a
# second.
CHUNKS_AT_ONCE = 50
CHUNK_KEY = (Chunk.run_id, Chunk.kind, Chunk.attempt_number, Chunk.first_step)
Key = tuple[str, str, int, int]

_COLUMN_KEY = (
    ChunkColumn.run_id,
    ChunkColumn.kind,
    ChunkColumn.attempt_number,
    ChunkColumn.first_step,
)
_SETTING = "PARITY_RETENTION_DAYS"
REUSING_RUN = aliased(Run)
_REPLACED = "a newer attempt of the run has recorded the same steps"


def curve_batches(
    database: Database, cutoff: float, old_jobs: Collection[str] = ()
) -> Iterator[DeletionBatch]:
    """Some chunks each, of a run of a job that ended before the cutoff; `old_jobs` are deleted with
    their curves.
    """
    with database.read() as session:
        unneeded: dict[str, str] = {
            run_id: why
            for run_id, why, job_id in session.execute(_unneeded(cutoff).add_columns(Run.job_id))
            if job_id not in old_jobs
        }
        several = [
            run_id
            for run_id, job_id in session.execute(
                _runs_with_several_attempts(cutoff).add_columns(Run.job_id)
            )
            if job_id not in old_jobs
        ]
    return _batches_of_runs(database, cutoff, unneeded, several)


def _batches_of_runs(
    database: Database, cutoff: float, unneeded: Mapping[str, str], several: Sequence[str]
) -> Iterator[DeletionBatch]:
    for run_id, why in (
        dict(unneeded) | {run_id: _REPLACED for run_id in several if run_id not in unneeded}
    ).items():
        what: Kind = "curve" if run_id in unneeded else "attempt"
        for keys, size in _parts_of_runs(database, run_id, what):
            drop = partial(_drop, what, run_id, cutoff, keys)
            yield DeletionBatch(
                what=what, of=run_id, rows=len(keys), size_bytes=size, why=why, delete=drop
            )


def kept_for_others(*by_whom: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a run belongs to a named baseline, another run (`_USER`) reuses its curve, or a fork
    begins where its curve is.
    """
    named = select(BaselineRun.run_id).where(BaselineRun.run_id == Run.id).exists()
    # One condition each: with both in one, PostgreSQL reads all runs for each run.
    uses = (
        select(REUSING_RUN.id).where(source == Run.id, *by_whom).exists()
        for source in (REUSING_RUN.reused_from, REUSING_RUN.forked_from)
    )
    return or_(named, *uses)


def _unneeded(cutoff: float) -> Select[str, str]:
    """The runs whose recorded curve neither a verdict nor a baseline needs, and why."""
    without_curve = Run.state != "finished"
    why = case(
        (
            without_curve,
            literal("the run has ended without a curve for the judge (") + Run.state + ")",
        ),
        else_=literal("the job has ended without a verdict (") + Job.status + ")",
    )
    without_verdict = and_(Job.status != "concluded", Arm.role != "baseline")
    recorded = select(Chunk.run_id).where(Chunk.run_id == Run.id).exists()
    return (
        select(Run.id, why)
        .join(Job, Run.job_id == Job.id)
        .join(Arm, Run.arm_id == Arm.id)
        .where(
            Job.status.in_(JOB_ENDED),
            Job.finished_at < cutoff,
            or_(without_curve, without_verdict),
            recorded,
            ~kept_for_others(),
        )
        .order_by(Run.id)
    )


def _runs_with_several_attempts(cutoff: float) -> Select[str]:
    """The runs in which an attempt may have replaced steps of another."""
    ended = (
        select(Run.id)
        .join(Job, Run.job_id == Job.id)
        .where(Job.status.in_(JOB_ENDED), Job.finished_at < cutoff, Run.attempt_number > 1)
    )
    attempts = (
        select(func.count(Chunk.attempt_number.distinct()))
        .where(Chunk.run_id == Run.id)
        .scalar_subquery()
    )
    return ended.where(attempts > 1).order_by(Run.id)


def _drop(what: Kind, run_id: str, cutoff: float, keys: Sequence[Key], session: Session) -> int:
    run = session.get(Run, run_id, with_for_update=True)
    if what == "attempt":
        return drop_chunks(session, keys, _superseded(session, run_id))
    still = session.execute(_unneeded(cutoff).where(Run.id == run_id)).first()
    if run is None or still is None:
        return 0
    if _SETTING not in (run.message or ""):
        day = time.strftime("%Y-%m-%d", time.gmtime())
        run.message = f"{run.message or still[1]}; its curve was deleted on {day} ({_SETTING})"
    return drop_chunks(session, keys)


def drop_chunks(session: Session, keys: Sequence[Key], *where: ColumnElement[bool]) -> int:
    """Delete chunks with their columns; returns the number of chunks."""
    return run_delete(delete(Chunk).where(tuple_(*CHUNK_KEY).in_(keys), *where), session)


def chunk_keys(
    session: Session, run_ids: Select[str] | Sequence[str], *where: ColumnElement[bool]
) -> list[Sequence[Key]]:
    """The keys of the chunks of some runs in the order of their steps, in parts that one
    transaction may delete.
    """
    chosen = select(*CHUNK_KEY).where(Chunk.run_id.in_(run_ids), *where).order_by(*CHUNK_KEY)
    return [
        *slices(
            [(row[0], row[1], row[2], row[3]) for row in session.execute(chosen)], CHUNKS_AT_ONCE
        )
    ]


def bytes_of(session: Session, chunks: ColumnElement[bool], columns: ColumnElement[bool]) -> int:
    """Bytes of the values of some chunks: of small ones, and of the columns of large ones."""
    packed = session.scalar(select(func.sum(func.length(Chunk.payload))).where(chunks))
    in_columns = session.scalar(select(func.sum(func.length(ChunkColumn.payload))).where(columns))
    return int(packed or 0) + int(in_columns or 0)


def _parts_of_runs(database: Database, run_id: str, what: Kind) -> list[tuple[Sequence[Key], int]]:
    """The chunks of a run in parts, of an attempt only those that newer ones replaced; and the
    bytes of the values of each part.
    """
    with database.read() as session:
        replaced = [_superseded(session, run_id)] if what == "attempt" else []
        parts = chunk_keys(session, [run_id], *replaced)
        return [
            (keys, bytes_of(session, tuple_(*CHUNK_KEY).in_(keys), tuple_(*_COLUMN_KEY).in_(keys)))
            for keys in parts
        ]


def _superseded(session: Session, run_id: str) -> ColumnElement[bool]:
    """The chunks of a run whose steps are all replaced by newer attempts."""
    conditions = [
        and_(Chunk.kind == kind, Chunk.attempt_number == attempt_number, Chunk.first_step >= limit)
        for kind in session.scalars(
            select(Chunk.kind).where(Chunk.run_id == run_id).distinct()
        ).all()
        for attempt_number, limit in replaced_steps.superseded_from(session, run_id, kind).items()
        if limit < math.inf
    ]
    return or_(false(), *conditions)
