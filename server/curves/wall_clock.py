"""When and where a run trained, from its attempts: what the judge needs before it compares step times."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.curves.training_time import seconds_of
from server.database import store
from server.database.tables import Attempt, Run, Worker


def unix_seconds(session: Session, run: Run, steps: NDArray[np.int64], step_seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """When each of (n,) steps of a run's curve ended, Unix seconds: its attempt's start plus the training since; NaN where unknown.

    Of a run that has another's curve it is the time at which that one trained. A run whose step times are not recorded has no times.
    """
    at = np.full(len(steps), np.nan)
    if np.isnan(step_seconds).all():
        return at
    own = store.curve_of(session, run.id)
    started = {attempt.epoch: attempt.started_at for attempt in _attempts(session, own)}
    begin = 0
    for epoch, limit in sorted(store.superseded_from(session, own, "train").items()):
        end = len(steps) if math.isinf(limit) else int(np.searchsorted(steps, limit))
        if epoch in started and end > begin:
            at[begin:end] = started[epoch] + seconds_of(steps[begin:end], step_seconds[begin:end])
        begin = max(begin, end)
    return at


def host(session: Session, run: Run) -> str | None:
    """The machines that trained a run's curve, by name; None where that is not known."""
    workers = {attempt.worker_id for attempt in _attempts(session, store.curve_of(session, run.id))}
    names = session.scalars(select(Worker.name).where(Worker.id.in_(workers - {None})))
    machines = {name.rpartition(":")[0] or name for name in names}  # a worker's name is its machine's and its process's number
    return ", ".join(sorted(machines)) or None


def _attempts(session: Session, run_id: str) -> list[Attempt]:
    return [*session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.epoch))]
