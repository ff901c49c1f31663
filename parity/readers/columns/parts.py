"""The files of one run joined, where a restart replaces what it repeats."""

import math
from collections.abc import Sequence

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import STEP


def join_parts(parts: Sequence[RunColumns], notes: tuple[str, ...]) -> RunColumns:
    """The files of one run in their order. A restart replaces everything from its first step on,
    also what it did not reach again.
    """
    masks: list[BoolArray] = []
    limit = math.inf
    for part in reversed(parts):
        steps = part.values[STEP]
        masks.insert(0, steps < limit)
        limit = min(limit, float(steps[0]))

    def joined(quantity: str) -> FloatArray:
        full = [
            part.values.get(quantity, np.full(len(part.values[STEP]), np.nan)) for part in parts
        ]
        return np.concatenate(
            [values[mask] for values, mask in zip(full, masks, strict=True)], dtype=np.float64
        )

    return RunColumns(
        values={
            quantity: joined(quantity)
            for quantity in sorted({name for part in parts for name in part.values})
        },
        names=parts[-1].names,
        found=parts[-1].found,
        notes=(*dict.fromkeys(note for part in parts for note in part.notes), *notes),
        overwritten=sum(int((~mask).sum()) for mask in masks),
    )
