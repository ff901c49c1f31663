"""When and where a run trained, from its attempts: what the judge needs before it compares step
times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.curves.training_time import seconds_of
from server.database.metrics import replaced_steps
from server.database.metrics.replaced_steps import superseded_in_each
from server.database.tables import Attempt, Run, Worker, table_of

_attempts, _workers = table_of(Attempt).c, table_of(Worker)
_ATTEMPTS = (
    select(_attempts.run_id, _attempts.attempt_number, _attempts.started_at, _workers.c.name)
    .outerjoin(_workers, _workers.c.id == _attempts.worker_id)
    .where(_attempts.run_id.in_(bindparam("runs", expanding=True)))
)


@frozen(eq=False)
class Trained:
    """When each of (n,) steps of a run's curve ended, Unix seconds, NaN where unknown; and on which
    machines, by name, None if unknown.
    """

    unix_seconds: NDArray[np.float64]
    host: str | None


Times = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The steps (n,) of a run's curve, and how many seconds each took (n,)."""


def trained_each(session: Session, runs: Sequence[Run], curves: Sequence[Times]) -> list[Trained]:
    """When and where each run's curve was trained: a step ends at its attempt's start plus the
    training since.

    Of a run that has another's curve it is the time at which that one trained. A run whose step
    times are not recorded has no times.
    """
    stored_as = [replaced_steps.curve_of(session, run.id) for run in runs]
    attempts: dict[str, dict[int, float]] = {}
    machines: dict[str, set[str]] = {}
    for run_id, attempt_number, started_at, name in session.connection().execute(
        _ATTEMPTS, {"runs": list({*stored_as})}
    ):
        attempts.setdefault(run_id, {})[attempt_number] = started_at
        if name:  # a worker's name is its machine's and its process's number
            machines.setdefault(run_id, set()).add(name.rpartition(":")[0] or name)
    limits = superseded_in_each(session, stored_as, "train")
    trained = []
    for curve_id, (steps, step_seconds) in zip(stored_as, curves, strict=True):
        at = np.full(len(steps), np.nan)
        if curve_id in attempts and not np.isnan(step_seconds).all():
            _fill(at, attempts[curve_id], limits[curve_id], steps, step_seconds)
        trained.append(
            Trained(unix_seconds=at, host=", ".join(sorted(machines.get(curve_id, ()))) or None)
        )
    return trained


def _fill(
    at: NDArray[np.float64],
    started: Mapping[int, float],
    limits: Mapping[int, float],
    steps: NDArray[np.int64],
    step_seconds: NDArray[np.float64],
) -> None:
    """Write the times of each attempt's steps, up to the first step that a newer one replaces."""
    begin = 0
    for attempt_number, limit in sorted(limits.items()):
        end = len(steps) if math.isinf(limit) else int(np.searchsorted(steps, limit))
        if attempt_number in started and end > begin:
            at[begin:end] = started[attempt_number] + seconds_of(
                steps[begin:end], step_seconds[begin:end]
            )
        begin = max(begin, end)
