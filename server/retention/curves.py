"""Curves that no verdict needs.

Never deleted before their job: curves of finished runs behind a verdict, of baseline arms, of named baselines (controls too), and curves
that another run reuses. So every verdict can be judged again and its evidence downloaded. Deleted, PARITY_RETENTION_DAYS after the job
has ended: attempts that a newer one replaced, curves of runs that failed or were cancelled, and finished candidates of jobs without
a verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy import ColumnElement, CursorResult, Select, and_, case, delete, false, func, literal, or_, select
from sqlalchemy.orm import Session, aliased

from server.database import store
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Arm, BaselineRun, Chunk, ChunkColumn, Job, Run
from server.retention.batch import Batch

_REPLACED = "a newer attempt of the run has recorded the same steps"


def batches(database: Database, cutoff: float) -> Iterator[Batch]:
    """One for each run of a job that ended before the cutoff and that has something to delete."""
    with database.read() as session:
        unneeded = session.execute(_unneeded(cutoff)).all()
        several = session.scalars(_with_several_attempts(cutoff)).all()
        sizes = {run_id: _size(session, run_id, []) for run_id, _ in unneeded}
        replaced = {run_id: _size(session, run_id, [_superseded(session, run_id)]) for run_id in several if run_id not in sizes}
    for run_id, why in unneeded:
        rows, size = sizes[run_id]
        yield Batch(what="curve", of=run_id, rows=rows, size_bytes=size, why=why, delete=partial(_drop_curve, run_id, cutoff))
    for run_id, (rows, size) in replaced.items():
        if rows:
            yield Batch(what="attempt", of=run_id, rows=rows, size_bytes=size, why=_REPLACED, delete=partial(_drop_replaced, run_id))


def kept_for_others(run: type[Run]) -> ColumnElement[bool]:
    """Whether a run belongs to a named baseline, or another run reuses its curve."""
    user = aliased(Run)
    named = select(BaselineRun.run_id).where(BaselineRun.run_id == run.id).exists()
    return or_(named, select(user.id).where(user.reused_from == run.id).exists())


def _unneeded(cutoff: float) -> Select[str, str]:
    """The runs whose recorded curve neither a verdict nor a baseline needs, and why."""
    without_curve = Run.state != "finished"
    why = case(
        (without_curve, literal("the run has ended without a curve for the judge (") + Run.state + ")"),
        else_=literal("the job has ended without a verdict (") + Job.status + ")",
    )
    without_verdict = and_(Job.status != "concluded", Arm.role != "baseline")
    recorded = select(Chunk.run_id).where(Chunk.run_id == Run.id).exists()
    return (
        select(Run.id, why)
        .join(Job, Run.job_id == Job.id)
        .join(Arm, Run.arm_id == Arm.id)
        .where(Job.status.in_(JOB_ENDED), Job.finished_at < cutoff, or_(without_curve, without_verdict), recorded, ~kept_for_others(Run))
        .order_by(Run.id)
    )


def _with_several_attempts(cutoff: float) -> Select[str]:
    """The runs in which an attempt may have replaced steps of another."""
    ended = select(Run.id).join(Job, Run.job_id == Job.id).where(Job.status.in_(JOB_ENDED), Job.finished_at < cutoff, Run.epoch > 1)
    epochs = select(func.count(Chunk.epoch.distinct())).where(Chunk.run_id == Run.id).scalar_subquery()
    return ended.where(epochs > 1).order_by(Run.id)


def _drop_curve(run_id: str, cutoff: float, session: Session) -> int:
    run = session.get(Run, run_id, with_for_update=True)
    still = session.execute(_unneeded(cutoff).where(Run.id == run_id)).first()
    if run is None or still is None:
        return 0
    day = time.strftime("%Y-%m-%d", time.gmtime())
    run.message = f"{run.message or still[1]}; its curve was deleted on {day} (PARITY_RETENTION_DAYS)"
    return count(session.execute(delete(Chunk).where(Chunk.run_id == run_id)))


def _drop_replaced(run_id: str, session: Session) -> int:
    session.get(Run, run_id, with_for_update=True)
    return count(session.execute(delete(Chunk).where(Chunk.run_id == run_id, _superseded(session, run_id))))


def _superseded(session: Session, run_id: str) -> ColumnElement[bool]:
    """The chunks of a run whose steps are all replaced by newer attempts."""
    conditions = [
        and_(Chunk.kind == kind, Chunk.epoch == epoch, Chunk.first_step >= limit)
        for kind in session.scalars(select(Chunk.kind).where(Chunk.run_id == run_id).distinct()).all()
        for epoch, limit in store.superseded_from(session, run_id, kind).items()
        if limit < math.inf
    ]
    return or_(false(), *conditions)


def _size(session: Session, run_id: str, where: Sequence[ColumnElement[bool]]) -> tuple[int, int]:
    """Chunks of a run, and bytes of their values."""
    rows = session.scalar(select(func.count()).select_from(Chunk).where(Chunk.run_id == run_id, *where)) or 0
    key = and_(
        ChunkColumn.run_id == Chunk.run_id,
        ChunkColumn.kind == Chunk.kind,
        ChunkColumn.epoch == Chunk.epoch,
        ChunkColumn.first_step == Chunk.first_step,
    )
    sized = select(func.sum(func.length(ChunkColumn.payload))).select_from(Chunk).join(ChunkColumn, key)
    return rows, int(session.scalar(sized.where(Chunk.run_id == run_id, *where)) or 0)


def count(result: object) -> int:
    """How many rows a DELETE deleted."""
    return result.rowcount if isinstance(result, CursorResult) else 0
