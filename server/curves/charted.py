"""The losses of a job's arms as charts show them: of all runs that have begun, however they ended, in any range of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlalchemy.orm import Session

from parity import Curve, curve_from_arrays
from parity.judging.window import LEARNING_RATE
from server.database import store
from server.database.tables import Arm, Run


def begun(arm: Arm) -> list[Run]:
    """The runs of an arm that may have recorded a step, in their order."""
    return [run for run in arm.runs if run.epoch or run.state not in ("queued", "awaiting_data")]


def losses(
    session: Session, runs: Sequence[Run], first_step: int = 0, last_step: float = math.inf, *, learning_rate: bool = False
) -> list[Curve]:
    """The judged loss of each run (nats a token) in a range of steps, with the learning rate where that is asked for and recorded.

    One curve a run; one without a step in the range is empty.
    """
    names = ["lm_loss", LEARNING_RATE] if learning_rate else ["lm_loss"]
    return [_losses(session, run, first_step, last_step, names) for run in runs]


def _losses(session: Session, run: Run, first_step: int, last_step: float, names: list[str]) -> Curve:
    steps, columns = store.read_range(session, run.id, "train", first_step, last_step, names)
    loss = columns.pop("lm_loss")
    recorded = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    label = f"{run.arm.name} replicate {run.replicate}"
    return curve_from_arrays(
        steps, loss, columns=recorded, label=label, seed=run.seed, replicate=run.replicate, recipe=run.arm.stated_recipe
    )
