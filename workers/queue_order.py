"""Chooses the run that a worker claims next: by priority, then age, among those that it can train
and the job's token allows.
"""

from collections.abc import Collection
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, aliased, contains_eager

from server.database.locks import hold_lock
from server.database.states import JOB_OPEN
from server.database.tables import Arm, Job, Run, Token, Worker
from server.jobs import submissions
from server.jobs.workers import device_counts
from training.command import ENGINE as COMMAND
from training.spec import SPEC_VERSION


def next_run(
    session: Session, worker: Worker, left: Collection[str] = (), *, submitted: bool = False
) -> Run | None:
    """The run that a worker should claim, with its row locked, or None.

    `left` are the ids of jobs that it leaves to others. `submitted`: for a scheduler, not for one
    of its slots.

    Looks whether any open job fits the worker's device, which an index answers however long the
    queue is. Then searches one priority at a time, highest first. Within a priority the index
    returns the rows in order; the first match is taken.
    """
    registered: dict[str, Any] = worker.device.get("can_run", {})
    if registered:
        able = tuple(tuple(name.split("/")) for name, can in registered.items() if can["ok"])
    else:
        able = None
    devices = device_counts(worker, "maxtext"), device_counts(worker, "emulated")
    launchers = None
    if worker.capability == COMMAND:
        launchers = tuple(
            (name, "scheduler" in launcher) for name, launcher in worker.device["launchers"].items()
        )
    on = worker.device["device_class"], worker.device["threads_per_run"]
    highest, below, first = _statements(worker.capability, *on, able, devices, launchers, submitted)
    level = session.scalar(highest)
    while level is not None:
        run = session.scalars(first, {"level": level, "left": [*left]}).first()
        if run is not None:
            return run
        level = session.scalar(below, {"level": level})
    return None


@cache
def _statements(
    capability: str,
    device_class: str,
    threads: int,
    able: tuple[tuple[str, ...], ...] | None,
    devices: tuple[tuple[int, int], tuple[int, int]],
    launchers: tuple[tuple[str, bool], ...] | None,
    submitted: bool,
) -> tuple[Select[int], Select[int], Select[Run]]:
    """The highest priority, if an open job fits such a worker's device; the highest below a
    `level`; the first run of a `level` that fits.

    `able`: the (engine, recipe) pairs that the worker can train; None if it registered none.
    `devices`: the least and the most that a run has there, of MaxText and of other engines.
    `launchers`: the names of those that it has, each with whether it submits to a scheduler. A run
    that has a job with a scheduler goes on with that (`submitted`), whatever its launcher says by
    now.

    Cached, because building these statements takes longer than running them.
    """
    waiting = (Run.state == "queued", Run.capability == capability)
    maxtext_fits, others_fit = (Job.devices.between(*counts) for counts in devices)
    counts: ColumnElement[bool] = others_fit
    if devices[0] != devices[1]:
        counts = case((Job.engine == "maxtext", maxtext_fits), else_=others_fit)
    device_fits = (or_(Job.threads.is_(None), Job.threads == threads), counts)
    bound = (Job.device_class.is_(None), Job.device_class == device_class)
    open_jobs = exists().where(
        Job.capability == capability, Job.status.in_(sorted(JOB_OPEN)), *device_fits
    )
    any_fits = or_(*(open_jobs.where(condition) for condition in bound))
    highest = select(func.max(Run.priority)).where(*waiting)
    fits = [or_(*bound), *device_fits, Job.spec_version <= SPEC_VERSION]
    if able is not None:
        fits.append(tuple_(Job.engine, Arm.recipe).in_(able))
    if launchers is not None:
        names, has_a_job = Job.model.in_([name for name, _ in launchers]), submissions.is_open()
        same_way = Job.model.in_([name for name, submits in launchers if submits == submitted])
        fits.append(
            and_(names, or_(same_way, has_a_job)) if submitted else and_(same_way, ~has_a_job)
        )
    first = (
        select(Run)
        .join(Job, Run.job_id == Job.id)
        .join(Arm, Run.arm_id == Arm.id)
        .where(
            *waiting,
            Run.priority == bindparam("level"),
            *fits,
            Job.id.not_in(bindparam("left", expanding=True)),
            _below_its_limit(),
        )
        .options(contains_eager(Run.arm))
        .order_by(Run.created_at, Run.job_id, Run.position)
        .limit(1)
        .with_for_update(of=Run, skip_locked=True)
    )
    return (
        select(case((any_fits, highest.scalar_subquery()))),
        highest.where(Run.priority < bindparam("level")),
        first,
    )


def _below_its_limit() -> ColumnElement[bool]:
    """Whether the job's token allows one more training run."""
    token = select(Token.max_running).where(Token.id == Job.submitted_by).scalar_subquery()
    other_run, other_job = aliased(Run), aliased(Job)
    training = (
        select(func.count())
        .select_from(other_run)
        .join(other_job, other_run.job_id == other_job.id)
        .where(other_run.state == "running", other_job.submitted_by == Job.submitted_by)
        .scalar_subquery()
    )
    return or_(token.is_(None), training < token)


def token_allows(session: Session, job: Job) -> bool:
    """The same under a lock of the token, so that two simultaneous claims cannot both take the last
    place.
    """
    limit = select(Token.max_running).where(Token.id == job.submitted_by)
    if job.submitted_by is None or session.scalar(limit) is None:
        return True
    hold_lock(session, f"token {job.submitted_by}")  # a worker's role may not lock the row itself
    most = session.scalar(limit)
    count = (
        select(func.count())
        .select_from(Run)
        .join(Job)
        .where(Run.state == "running", Job.submitted_by == job.submitted_by)
    )
    return most is None or (session.scalar(count) or 0) < most
