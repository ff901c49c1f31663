"""The loss of a run late in training, as one number."""

from __future__ import annotations

import math

from sqlalchemy.orm import Session

from parity import criteria_from_mapping
from server.curves import loading
from server.database.tables import Job, Run
from server.errors import ConflictError


def late_loss(session: Session, run: Run, job: Job) -> float:
    """The mean loss (nats) of a run in the last part of its steps, which the policy of the job names."""
    curve = loading.losses(session, run)
    first = run.planned_steps * (1.0 - criteria_from_mapping(job.criteria).window_fraction)
    value = float(curve.loss[curve.steps >= first].mean())
    if not math.isfinite(value):
        raise ConflictError(f"the loss of run {run.id} is not finite at its end")
    return value
