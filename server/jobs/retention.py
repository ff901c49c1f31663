"""Deletes what PARITY_RETENTION_DAYS no longer keeps.

Never deleted: curves of finished runs behind a verdict, of baseline arms, of named baselines (controls too), and curves that another
run reuses. So every verdict can be judged again and its evidence downloaded. Deleted, that many days after the job has ended:
attempts that a newer one replaced, curves of runs that failed or were cancelled, finished candidates of jobs without a verdict,
and (by each worker, its own) logs, profiles and checkpoints of runs that have ended.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import ColumnElement, and_, delete, false, func, or_, select
from sqlalchemy.orm import Session

from server.database import clock, store
from server.database.sessions import Database
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import BaselineRun, Chunk, ChunkColumn, Job, Run, is_id
from server.settings import Settings

_log = logging.getLogger(__name__)
_DAY = 86_400.0
_KINDS = ("train", "validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Droppable:
    """Something that may be deleted: its kind, its run, its size, and why it is not needed."""

    what: Literal["attempt", "curve", "log", "profiles", "checkpoints"]
    run_id: str
    size_bytes: int
    why: str
    path: Path | None = None


def droppable(settings: Settings, database: Database) -> list[Droppable]:
    """Everything that the policy would delete now; empty if PARITY_RETENTION_DAYS is not set."""
    if settings.retention_days is None:
        return []
    with database.read() as session:
        cutoff = clock.now(session) - settings.retention_days * _DAY  # the database's clock, because a machine's may jump ahead
        return [*_records(session, cutoff), *_files(session, settings, cutoff)]


def drop(settings: Settings, database: Database) -> list[Droppable]:
    """Delete it, in one short transaction per run. Safe to repeat, and to run in several workers at once."""
    dropped = droppable(settings, database)
    for run_id in dict.fromkeys(one.run_id for one in dropped if one.path is None):
        with database.write() as session:
            run = session.get_one(Run, run_id, with_for_update=True)
            if reason := _unneeded(session, run):
                session.execute(delete(Chunk).where(Chunk.run_id == run_id))
                day = time.strftime("%Y-%m-%d", time.gmtime())
                run.message = f"{run.message or reason}; its curve was deleted on {day} (PARITY_RETENTION_DAYS)"
            else:
                session.execute(delete(Chunk).where(Chunk.run_id == run_id, _superseded(session, run_id)))
    for one in dropped:
        if one.path is not None and one.path.is_dir():
            shutil.rmtree(one.path, ignore_errors=True)
        elif one.path is not None:
            one.path.unlink(missing_ok=True)
    if dropped:
        _log.info("retention deleted %d things, %d bytes", len(dropped), sum(one.size_bytes for one in dropped))
    return dropped


def _records(session: Session, cutoff: float) -> Iterator[Droppable]:
    runs = session.scalars(
        select(Run).join(Job, Run.job_id == Job.id).where(Job.status.in_(JOB_ENDED), Job.finished_at < cutoff).order_by(Run.id)
    ).all()
    for run in runs:
        reason = _unneeded(session, run)
        where = [] if reason else [_superseded(session, run.id)]
        size = _size(session, run.id, where)
        if size:
            why = reason or "a newer attempt of the run has recorded the same steps"
            yield Droppable(what="curve" if reason else "attempt", run_id=run.id, size_bytes=size, why=why)


def _unneeded(session: Session, run: Run) -> str | None:
    """Why the curve of a run of an ended job is not needed by a verdict or a baseline; None if it is needed."""
    named = session.scalar(select(BaselineRun.run_id).where(BaselineRun.run_id == run.id).limit(1))
    if named or session.scalar(select(Run.id).where(Run.reused_from == run.id).limit(1)):
        return None
    if run.state != "finished":
        return f"the run has ended without a curve for the judge ({run.state})"
    if run.job.status != "concluded" and run.arm.role != "baseline":
        return f"the job has ended without a verdict ({run.job.status})"
    return None


def _superseded(session: Session, run_id: str) -> ColumnElement[bool]:
    """The chunks of a run whose steps are all replaced by newer attempts."""
    conditions = [
        and_(Chunk.kind == kind, Chunk.epoch == epoch, Chunk.first_step >= limit)
        for kind in _KINDS
        for epoch, limit in store.superseded_from(session, run_id, kind).items()
        if limit < math.inf
    ]
    return or_(false(), *conditions)


def _size(session: Session, run_id: str, where: Sequence[ColumnElement[bool]]) -> int:
    key = and_(
        ChunkColumn.run_id == Chunk.run_id,
        ChunkColumn.kind == Chunk.kind,
        ChunkColumn.epoch == Chunk.epoch,
        ChunkColumn.first_step == Chunk.first_step,
    )
    sized = select(func.sum(func.length(ChunkColumn.payload))).select_from(Chunk).join(ChunkColumn, key)
    return int(session.scalar(sized.where(Chunk.run_id == run_id, *where)) or 0)


def _files(session: Session, settings: Settings, cutoff: float) -> Iterator[Droppable]:
    """Logs, profiles and checkpoints on this machine whose run has ended."""
    logs = sorted((settings.state_dir / "logs" / "runs").glob("*.log"))
    profiles, folders = sorted(settings.artifacts.glob("*")), sorted(settings.checkpoints.glob("*"))
    for path in (*logs, *profiles, *folders):
        run_id = path.name if path.parent == settings.checkpoints else path.stem.rsplit("-", 1)[0]
        run = session.get(Run, run_id) if is_id("r", run_id) else None
        if run is None or run.state not in RUN_ENDED or path.stat().st_mtime >= cutoff:
            continue
        inside = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        yield Droppable(
            what="log" if path in logs else "profiles" if path in profiles else "checkpoints",
            run_id=run_id,
            size_bytes=sum(each.stat().st_size for each in inside),
            why=f"the run has ended ({run.state})",
            path=path,
        )
