"""Steps that a user's trainer sends: in any order, in batches of any size, possibly more than once.

The chunks of one attempt never overlap: a batch among recorded steps is merged into the chunks that it touches. Recorded values
never change: the same step with the same numbers is ignored, with other numbers it is an error. A column that a batch
lacks is NaN there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from server.database import store
from server.database.coverage import Range, stride_of
from server.database.tables import Chunk, table_of

_chunks = table_of(Chunk).c
_RANGES = (
    select(_chunks.epoch, _chunks.first_step, _chunks.last_step, _chunks.count.label("steps"))
    .where(_chunks.run_id == bindparam("curve"), _chunks.kind == bindparam("kind"))
    .order_by(_chunks.epoch, _chunks.first_step)
)


class DifferentError(Exception):
    """A step is already recorded with another value; `step` and `column` name it."""

    def __init__(self, step: int, column: str) -> None:
        super().__init__(f"step {step} is already recorded with another {column}")
        self.step = step
        self.column = column


def merge(
    session: Session, run_id: str, kind: str, epoch: int, steps: NDArray[np.int64], columns: Mapping[str, NDArray[np.float64]]
) -> int:
    """Record the new steps of a batch; returns their number. Call it under the run's fence.

    Args:
        steps: (n,) in any order, n >= 1.
        columns: name -> (n,) float64, NaN and Inf allowed.

    Raises:
        DifferentError: a step is given twice, or was recorded before, with different numbers; nothing is written.
    """
    batch = _distinct({"step": steps.astype(np.float64), **columns})
    first, last = int(batch["step"][0]), int(batch["step"][-1])
    touched = store.pieces(session, run_id, kind, first, last, epoch)
    if not touched:
        for start in range(0, len(batch["step"]), store.SEALED_STEPS):
            piece = {name: values[start : start + store.SEALED_STEPS] for name, values in batch.items()}
            store.append(session, run_id, kind, epoch, piece.pop("step").astype(np.int64), piece)
        return len(batch["step"])
    recorded = store.join(store.load(session, run_id, kind, touched))
    merged = _distinct(store.join([recorded, batch]))
    new = len(merged["step"]) - len(recorded["step"])
    if new:
        store.replace(session, run_id, kind, touched, merged)
    return new


def ranges(session: Session, curve_id: str, kind: str) -> list[Range]:
    """The ranges of steps that the chunks of a curve (`store.curve_of`) cover, ascending; the newest attempt wins."""
    rows = session.connection().execute(_RANGES, {"curve": curve_id, "kind": kind}).all()
    whole = [Range(first_step=row.first_step, last_step=row.last_step, count=row.steps) for row in rows]
    if len({row.epoch for row in rows}) < 2:
        return whole
    limits, stride = store.superseded_from(session, curve_id, kind), stride_of(whole) or 1
    parts = (one.up_to(limits[row.epoch], max(1, stride)) for row, one in zip(rows, whole, strict=True))
    return [part for part in parts if part is not None]


def _distinct(table: store.Columns) -> store.Columns:
    """A table by ascending step, each once; DifferentError if the rows of a step differ in any bit."""
    order = np.argsort(table["step"], kind="stable")
    ordered = {name: values[order] for name, values in table.items()}
    step = ordered["step"]
    again = np.flatnonzero(step[1:] == step[:-1])
    if not len(again):
        return ordered
    for name, values in ordered.items():
        bits = np.ascontiguousarray(values).view(np.int64)
        differing = again[bits[again] != bits[again + 1]]
        if len(differing):
            raise DifferentError(int(step[differing[0]]), name)
    kept = np.append(True, step[1:] != step[:-1])
    return {name: values[kept] for name, values in ordered.items()}
