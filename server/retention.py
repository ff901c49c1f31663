"""What the PARITY_RETENTION settings no longer keep, listed or deleted in bounded batches: `python
-m server.retention [--apply]`.
"""

import argparse
import logging
import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    CursorResult,
    Delete,
    Select,
    Table,
    and_,
    case,
    delete,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
    union,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from parity.extensions import lab
from parity.frozen import frozen
from server.database import sessions, store
from server.database.sessions import Database
from server.database.states import JOB_ENDED, RUN_ENDED
from server.database.tables import (
    Arm,
    Attempt,
    Base,
    BaselineRun,
    BrowserSession,
    Chunk,
    ChunkColumn,
    Event,
    IdempotencyKey,
    Job,
    Run,
    WebhookDelivery,
    Worker,
    is_id,
)
from server.settings import Settings

# One deletion of retention: some rows of one kind, in one short transaction.

ROWS_AT_ONCE = 2000
DAY = 86_400.0

Kind = Literal["attempt", "curve", "job", "events", "keys", "deliveries", "workers", "sessions"]
Item = TypeVar("Item")


@frozen
class Batch:
    """What may be deleted now, and why: of run or job `of` ("": of several).

    `delete` is called in a transaction of its own, maybe much later than the plan was made: it
    checks again, and returns the number of rows that it deleted. `size_bytes` counts recorded
    values only, without the database's own overhead.
    """

    what: Kind
    rows: int
    why: str
    delete: Callable[[Session], int]
    of: str = ""
    size_bytes: int = 0


@frozen
class Cutoffs:
    """The times (unix seconds) before which things are old; None: they are kept."""

    events: float
    keys: float
    curves: float | None
    jobs: float | None


def cutoffs(settings: Settings, now: float) -> Cutoffs:
    """What is old at a time, by the settings."""
    curves, jobs = settings.retention_days, settings.retention_job_days
    return Cutoffs(
        events=now - settings.retention_event_days * DAY,
        keys=now - settings.retention_key_days * DAY,
        curves=None if curves is None else now - curves * DAY,
        jobs=None if jobs is None else now - jobs * DAY,
    )


def run_delete(statement: Delete, session: Session) -> int:
    """Delete rows in the database; returns their number."""
    result = session.execute(statement.execution_options(synchronize_session=False))
    if not isinstance(result, CursorResult):
        return 0
    return result.rowcount


def slices(items: Sequence[Item], size: int = ROWS_AT_ONCE) -> Iterator[Sequence[Item]]:
    """A sequence in parts of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


# Rows that only matter for a while: events of jobs, idempotency keys, finished deliveries of
# webhooks, workers that are gone, logins.
#
# No verdict, evidence or page of an ended job needs them. Kept as long as they are in use: the last
# event of each job (it ends the streams that follow it), the newest worker of each kind (what would
# train a job is read from it) and workers that an attempt names.

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
        old = [
            and_(Event.job_id == part.job_id, Event.sequence.between(part.first, part.last))
            for part in chosen
        ]
        drop = partial(run_delete, delete(Event).where(or_(*old)))
        yield Batch(
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


def others(database: Database, cutoff: float, now: float) -> Iterator[Batch]:
    """Old rows of the other tables: those from before the cutoff that nothing shows or names, and
    logins that have expired.
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
    for what, moment, end, conditions, why in tables:
        with database.read() as session:
            times = session.scalars(
                select(moment).where(moment < end, *conditions).order_by(moment)
            ).all()
        # By their times: a worker may not read the keys of all of these tables.
        for some in slices(times):
            drop = partial(run_delete, delete(moment.class_).where(moment <= some[-1], *conditions))
            yield Batch(what=what, rows=len(some), why=why, delete=drop)


# Curves that no verdict needs.
#
# Never deleted before their job: curves of finished runs behind a verdict, of baseline arms, of
# named baselines (controls too), and curves that another run reuses. So every verdict can be judged
# again and its evidence downloaded. Deleted, PARITY_RETENTION_DAYS after the job has ended:
# attempts that a newer one replaced, curves of runs that failed or were cancelled, and finished
# candidates of jobs without a verdict.

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
_USER = aliased(Run)
_REPLACED = "a newer attempt of the run has recorded the same steps"


def curve_batches(database: Database, cutoff: float) -> Iterator[Batch]:
    """Some chunks each, of a run of a job that ended before the cutoff."""
    with database.read() as session:
        unneeded: dict[str, str] = {row[0]: row[1] for row in session.execute(_unneeded(cutoff))}
        several = session.scalars(_with_several_attempts(cutoff)).all()
    for run_id, why in (
        unneeded | {run_id: _REPLACED for run_id in several if run_id not in unneeded}
    ).items():
        what: Kind = "curve" if run_id in unneeded else "attempt"
        for keys, size in _parts_of_runs(database, run_id, what):
            drop = partial(_drop, what, run_id, cutoff, keys)
            yield Batch(what=what, of=run_id, rows=len(keys), size_bytes=size, why=why, delete=drop)


def _kept_for_others(*by_whom: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a run belongs to a named baseline, another run (`_USER`) reuses its curve, or a fork
    begins where its curve is.
    """
    named = select(BaselineRun.run_id).where(BaselineRun.run_id == Run.id).exists()
    uses = or_(_USER.reused_from == Run.id, _USER.forked_from == Run.id)
    return or_(named, select(_USER.id).where(uses, *by_whom).exists())


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
            ~_kept_for_others(),
        )
        .order_by(Run.id)
    )


def _with_several_attempts(cutoff: float) -> Select[str]:
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
        for attempt_number, limit in store.superseded_from(session, run_id, kind).items()
        if limit < math.inf
    ]
    return or_(false(), *conditions)


# Files of ended runs on this machine: logs, profiles, checkpoints, and compiled programs that are
# made again when they are needed.

_IDS_AT_ONCE = 500


@frozen
class OldFile:
    """A file or folder that may be deleted, the run that it is of ("": of several), its size, and
    why.
    """

    what: Literal["log", "profiles", "checkpoints", "program"]
    size_bytes: int
    why: str
    path: Path
    of: str = ""

    def delete(self) -> None:
        """Delete it; another worker that shares the folder may have done so already."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path.unlink(missing_ok=True)


def old_files(settings: Settings, database: Database) -> Iterator[OldFile]:
    """What may be deleted now. A file of a run that the database does not have is left alone,
    unless jobs are deleted too.
    """
    with database.read() as session:
        # the database's clock, because a machine's may jump ahead
        old = cutoffs(settings, sessions.now(session))
    for path in sorted((settings.state_dir / "jax-cache").glob("*")):
        if path.is_file() and _changed_at(path) < old.keys:
            why = "compiled PARITY_RETENTION_KEY_DAYS ago"
            yield OldFile(what="program", size_bytes=path.stat().st_size, why=why, path=path)
    if old.curves is None:
        return
    folders: Mapping[Literal["log", "profiles", "checkpoints"], Sequence[Path]] = {
        "log": sorted((settings.state_dir / "logs" / "runs").glob("*.log")),
        "profiles": sorted(settings.artifacts.glob("*")),
        "checkpoints": sorted(settings.checkpoints.glob("*")),
    }
    for what, paths in folders.items():
        aged = [
            (path, path.name if what == "checkpoints" else path.stem.rsplit("-", 1)[0])
            for path in paths
            if _changed_at(path) < old.curves
        ]
        for some in slices(
            [(path, run_id) for path, run_id in aged if is_id("r", run_id)], _IDS_AT_ONCE
        ):
            states = _states(database, [run_id for _, run_id in some])
            for path, run_id in some:
                state = states.get(run_id)
                if state in RUN_ENDED or (state is None and old.jobs is not None):
                    why = f"the run has ended ({state})" if state else "the run's job was deleted"
                    yield OldFile(what=what, of=run_id, size_bytes=_size(path), why=why, path=path)


def _states(database: Database, run_ids: Sequence[str]) -> dict[str, str]:
    """The states of these runs; that of a run is `forked` while a run that has not ended, or the
    lab, needs its checkpoint.
    """
    with database.read() as session:
        states: dict[str, str] = {
            row.id: row.state
            for row in session.execute(select(Run.id, Run.state).where(Run.id.in_(run_ids)))
        }
        forked = select(Run.forked_from).where(
            Run.forked_from.in_(run_ids), Run.state.not_in(RUN_ENDED)
        )
        tables = lab().part("tables")
        needed = tables.parents_in_use(session).intersection(run_ids) if tables else ()
        return states | {
            run_id: "forked" for run_id in (*session.scalars(forked), *needed) if run_id
        }


def _changed_at(path: Path) -> float:
    """When it changed last, unix seconds; never if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _size(path: Path) -> int:
    inside = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in inside)


# Whole jobs: with PARITY_RETENTION_JOB_DAYS, a job goes with everything that belongs to it.
#
# All in one transaction, except for long curves: SQLite would refuse other writers for seconds.
# Their chunks go first, a few at a time, in the order of steps, so the window of the verdict goes
# last; their runs' messages say so, and no other run reuses them any more.
#
# A judged job that counts as a look at its question (`server.jobs.ledger`) keeps its own row, arms,
# runs, verdicts, tags, notes and sign-offs, without curves: if looks could be forgotten, a question
# could be judged again until it passes.
#
# Kept: open jobs, jobs with a run that belongs to a named baseline, whose curve a run of another
# job reuses or from which one is forked, jobs that an analysis explains, and jobs with a delivery
# that is still to be sent. An analysis starts from runs of the job that it explains, or from those
# whose curves that job reuses, so all of them stay.
#
# What belongs to a job is read from the foreign keys of the tables, so a new table needs no line
# here: a row whose `job_id` or `run_id` names it goes with it, and any other key to a job is a
# reference of something else, which keeps it. What still refers to a deleted row makes the database
# refuse the deletion.

_log = logging.getLogger(__name__)
_IS_A_LOOK = and_(Job.look.is_not(None), Job.status == "concluded")
_OF_A_LOOK = (
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
_MARK = "its curve was deleted (PARITY_RETENTION_JOB_DAYS)"


def job_batches(database: Database, cutoff: float) -> Iterator[Batch]:
    """One for each job that ended before the cutoff and that nothing else needs; the newest first,
    because they may reuse older ones.
    """
    with database.read() as session:
        if not _may_delete(session):
            _log.warning(
                "this role may not delete jobs: run `python -m server.retention --apply` as the "
                "owner of the tables"
            )
            return
        old = session.scalars(_unneeded_jobs(cutoff).order_by(Job.finished_at.desc(), Job.id)).all()
    for job_id in old:
        with database.read() as session:
            runs = select(Run.id).where(Run.job_id == job_id)
            size = bytes_of(session, Chunk.run_id.in_(runs), ChunkColumn.run_id.in_(runs))
            parts = chunk_keys(session, runs)
        why = "jobs are kept for PARITY_RETENTION_JOB_DAYS after their end"
        for keys in parts[:-1]:
            yield Batch(
                what="curve",
                of=job_id,
                rows=len(keys),
                why=why,
                delete=partial(_drop_chunks, job_id, cutoff, keys),
            )
        yield Batch(
            what="job",
            of=job_id,
            rows=1,
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
    own = select(Run.id).where(Run.job_id == Job.id)
    to_send = select(WebhookDelivery.id).where(
        WebhookDelivery.job_id == Job.id, WebhookDelivery.state == "pending"
    )
    lab().part("tables")  # before the references are read: its tables have some too
    needed = [select(column).where(column == Job.id).exists() for column in _references_of_others()]
    has_curves = own.where(
        or_(
            Run.reused_from.is_not(None),
            select(Chunk.run_id).where(Chunk.run_id == Run.id).exists(),
        )
    )
    return select(Job.id).where(
        or_(~_IS_A_LOOK, has_curves.exists()),
        Job.status.in_(JOB_ENDED),
        Job.finished_at < cutoff,
        ~own.where(_kept_for_others(_USER.job_id != Job.id)).exists(),
        ~to_send.exists(),
        *(~each for each in needed),
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
    for table in reversed(Base.metadata.sorted_tables):
        if is_a_look and table.name in _OF_A_LOOK:
            continue
        if table is Run.__table__:
            belonging = [table.c.job_id == job_id]
        elif table is Job.__table__:
            belonging = [table.c.id == job_id]
        else:
            belonging = [*_owned_by(table, "run_id", runs), *_owned_by(table, "job_id", [job_id])]
        if belonging:
            rows += run_delete(delete(table).where(or_(*belonging)), session)
    return rows


def _mark(runs: Sequence[Run]) -> None:
    """Say in the message of runs that their curves are gone."""
    for run in runs:
        if _MARK not in (run.message or ""):
            run.message = f"{run.message}; {_MARK}" if run.message else _MARK


def _owned_by(table: Table, name: str, values: list[str]) -> Iterator[ColumnElement[bool]]:
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


# All deletions of retention: the plan, one bounded batch after another, and who does them when.
#
# The elected keeper deletes from the database, a few seconds at a time between its other duties;
# every worker deletes from its own disk.

_REST_SECONDS = 3600.0
_SECONDS_AT_ONCE = 2.0


def plan(settings: Settings, database: Database) -> Iterator[Batch]:
    """Every deletion that the settings ask for now; nothing is deleted, and each step of the
    iteration reads only its own part.
    """
    with database.read() as session:
        now = sessions.now(session)  # the database's clock, because a machine's may jump ahead
    old = cutoffs(settings, now)
    if old.jobs is not None:
        yield from job_batches(database, old.jobs)
    if old.curves is not None:
        yield from curve_batches(database, old.curves)
    yield from events(database, old.events)
    yield from others(database, old.keys, now)


def delete_batch(database: Database, batch: Batch) -> int:
    """Make one deletion in a transaction of its own; returns the number of rows. Safe to repeat,
    and in several workers at once.
    """
    with database.write() as session:
        return batch.delete(session)


class Keeper:
    """Retention in the database, as the elected worker does it: once an hour, in turns of a few
    seconds.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._rest_until = 0.0
        self._left: Iterator[Batch] | None = None
        self._deleted: Counter[str] = Counter()

    def work(self) -> None:
        """Delete for at most about two seconds if an hour has passed since the last time; the rest
        waits for the next turn.
        """
        began = time.monotonic()
        if began < self._rest_until:
            return
        self._left = self._left or plan(self._settings, self._database)
        while time.monotonic() - began < _SECONDS_AT_ONCE:
            try:
                batch = next(self._left, None)
            except Exception:
                self._left = None
                raise
            if batch is None:
                self._finish()
                return
            try:
                self._deleted[batch.what] += delete_batch(self._database, batch)
            except Exception:  # noqa: BLE001
                _log.exception(
                    "retention could not delete %s %s and will try again", batch.what, batch.of
                )

    def _finish(self) -> None:
        if deleted := {what: number for what, number in self._deleted.items() if number}:
            _log.info(
                "retention deleted rows: %s",
                ", ".join(f"{number} of {what}" for what, number in deleted.items()),
            )
        self._left, self._deleted = None, Counter()
        self._rest_until = time.monotonic() + _REST_SECONDS


class Files:
    """Retention on this machine's disk: once an hour."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._rest_until = 0.0

    def work(self) -> list[OldFile]:
        """Delete old files if an hour has passed since the last time; returns what was deleted."""
        if time.monotonic() < self._rest_until:
            return []
        old = [*old_files(self._settings, self._database)]
        for one in old:
            one.delete()
        if old:
            _log.info(
                "retention deleted %d files, %d bytes", len(old), sum(one.size_bytes for one in old)
            )
        self._rest_until = time.monotonic() + _REST_SECONDS
        return old


# The command that lists or deletes what the PARITY_RETENTION settings no longer keep.
#
# python -m server.retention # lists; --apply deletes


def main() -> int:
    """List what retention would delete, or delete it; returns the exit status."""
    what = (
        "List or delete what the PARITY_RETENTION settings no longer keep: rows of the database, "
        "and files on this machine."
    )
    parser = argparse.ArgumentParser(prog="python -m server.retention", description=what)
    parser.add_argument("--apply", action="store_true", help="delete it (default: list only)")
    arguments = parser.parse_args()
    settings = Settings()
    database = Database(settings.database, statement_seconds=3600)
    try:
        number, size = _list(settings, database, apply=arguments.apply)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", error)
        print(
            f"the database cannot be used: {reason}; set PARITY_DATABASE_URL or PARITY_STATE_DIR "
            "as for the server",
            file=sys.stderr,
        )
        return 1
    finally:
        database.close()
    done = "deleted" if arguments.apply else "would be deleted; --apply does it"
    print(f"{number} rows and files, {size:,} bytes of values {done}", file=sys.stderr)
    return 0


def _list(settings: Settings, database: Database, *, apply: bool) -> tuple[int, int]:
    """Print each deletion, and make it if `apply`; returns the number of rows and files, and the
    bytes of their values.
    """
    number = size = 0
    for batch in plan(settings, database):
        rows = delete_batch(database, batch) if apply else batch.rows
        if rows:
            print(f"{batch.what}\t{batch.of or f'{rows} rows'}\t{batch.size_bytes}\t{batch.why}")
            number, size = number + rows, size + batch.size_bytes
    for file in old_files(settings, database):
        print(f"{file.what}\t{file.of or file.path.name}\t{file.size_bytes}\t{file.why}")
        number, size = number + 1, size + file.size_bytes
        if apply:
            file.delete()
    return number, size


if __name__ == "__main__":
    sys.exit(main())
