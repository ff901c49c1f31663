"""When and where a run trained, from its attempts: what the judge needs before it compares step times."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.curves.training_time import seconds_of
from server.database import store
from server.database.tables import Attempt, Run, Worker


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """When each of (n,) steps of a run's curve ended, Unix seconds, NaN where unknown; and on which machines, by name, None if unknown."""

    unix_seconds: NDArray[np.float64]
    host: str | None


def trained(session: Session, run: Run, steps: NDArray[np.int64], step_seconds: NDArray[np.float64]) -> Trained:
    """When and where (n,) steps of a run's curve were trained: a step ends at its attempt's start plus the training since.

    Of a run that has another's curve it is the time at which that one trained. A run whose step times are not recorded has no times.
    """
    own = store.curve_of(session, run.id)
    attempts = select(Attempt.epoch, Attempt.started_at, Worker.name).outerjoin(Worker, Worker.id == Attempt.worker_id)
    rows = session.execute(attempts.where(Attempt.run_id == own)).all()
    machines = {name.rpartition(":")[0] or name for _, _, name in rows if name}  # a worker's name is its machine's and its process's number
    at = np.full(len(steps), np.nan)
    if not np.isnan(step_seconds).all():
        _fill(at, {epoch: started for epoch, started, _ in rows}, store.superseded_from(session, own, "train"), steps, step_seconds)
    return Trained(unix_seconds=at, host=", ".join(sorted(machines)) or None)


def _fill(
    at: NDArray[np.float64],
    started: dict[int, float],
    limits: dict[int, float],
    steps: NDArray[np.int64],
    step_seconds: NDArray[np.float64],
) -> None:
    """Write the times of each attempt's steps, up to the first step that a newer one replaces."""
    begin = 0
    for epoch, limit in sorted(limits.items()):
        end = len(steps) if math.isinf(limit) else int(np.searchsorted(steps, limit))
        if epoch in started and end > begin:
            at[begin:end] = started[epoch] + seconds_of(steps[begin:end], step_seconds[begin:end])
        begin = max(begin, end)
