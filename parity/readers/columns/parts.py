"""The files of one run that was resumed: what a later one replaces, and what is known of each."""

import math
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray, risen_before_restart
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, STEP
from parity.readers.columns.second_losses import further_of_parts


def join_parts(parts: Sequence[RunColumns], notes: tuple[str, ...]) -> RunColumns:
    """The files of one run in their order. A restart replaces everything from its first step on,
    also what it did not reach again; what was said of losses that are not finite counts with that
    of each file.
    """
    masks: list[BoolArray] = []
    limit = math.inf
    for part in reversed(parts):
        steps = part.values[STEP]
        masks.insert(0, steps < limit)
        limit = min(limit, float(steps[0]))
    kept = np.concatenate(masks)

    def whole(quantity: str) -> FloatArray:
        missing = (np.full(len(part.values[STEP]), np.nan) for part in parts)
        return np.concatenate(
            [
                part.values.get(quantity, nothing)
                for part, nothing in zip(parts, missing, strict=True)
            ],
            dtype=np.float64,
        )

    absent = [
        np.zeros(len(part.values[STEP]), dtype=bool) if part.absent is None else part.absent
        for part in parts
    ]
    last = parts[-1]
    return RunColumns(
        values={
            quantity: whole(quantity)[kept]
            for quantity in sorted({name for part in parts for name in part.values})
        },
        names=last.names,
        found=last.found,
        notes=(*dict.fromkeys(note for part in parts for note in part.notes), *notes),
        overwritten=sum(part.overwritten for part in parts) + int((~kept).sum()),
        rolled_back=_risen(whole(STEP), whole(LOSS), kept),
        between=sum(part.between for part in parts),
        unread=sum(part.unread for part in parts),
        said_not_finite=sum(part.said_not_finite for part in parts),
        is_cut=last.is_cut,
        absent=np.concatenate(absent)[kept],
        further=further_of_parts([part.further for part in parts]),
        option=last.option,
        planned_steps=last.planned_steps,
        config={key: value for part in parts for key, value in part.config.items()},
    )


def _risen(steps: FloatArray, loss: FloatArray, kept: BoolArray) -> float:
    """How far the losses (T,) that were replaced had risen above those that count, nats."""
    if kept.all() or not np.isfinite(steps).all():
        return 0.0
    order = np.flatnonzero(kept)
    return risen_before_restart(steps, loss, order[np.argsort(steps[order], kind="stable")])
