"""Steps that a user's trainer sends: in any order, in batches of any size, possibly more than
once.

The chunks of one attempt never overlap: a batch among recorded steps is merged into the chunks
that it touches. Recorded values never change: the same step with the same numbers is ignored, with
other numbers it is an error. A column that a batch lacks is NaN there.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from server.database.metrics import chunk_tables, replaced_steps, store
from server.database.metrics.coverage import Range, stride_of


class DifferentError(Exception):
    """A step is already recorded with another value; `step` and `column` name it."""

    def __init__(self, step: int, column: str) -> None:
        super().__init__(f"step {step} is already recorded with another {column}")
        self.step = step
        self.column = column


def merge(
    session: Session,
    run_id: str,
    kind: str,
    attempt_number: int,
    steps: NDArray[np.int64],
    columns: Mapping[str, NDArray[np.float64]],
) -> int:
    """Record the new steps of a batch; returns their number. Call it under the run's fence.

    Args:
        steps: (n,) in any order, n >= 1.
        columns: name -> (n,) float64, NaN and Inf allowed.

    Raises:
        DifferentError: a step is given twice, or was recorded before, with different numbers;
            nothing is written.
    """
    batch = _distinct({"step": steps.astype(np.float64), **columns})
    first, last = int(batch["step"][0]), int(batch["step"][-1])
    touched = [
        piece
        for piece in store.pieces(session, run_id, kind, first, last)
        if piece.attempt_number == attempt_number
    ]
    if not touched:
        store.append_all(session, chunk_tables.cut(run_id, kind, attempt_number, batch))
        return len(batch["step"])
    recorded = chunk_tables.join(store.load(session, run_id, kind, touched))
    merged = _distinct(chunk_tables.join([recorded, batch]))
    new = len(merged["step"]) - len(recorded["step"])
    if new:
        store.replace(session, run_id, kind, touched, merged)
    return new


def ranges(session: Session, curve_id: str, kind: str) -> Sequence[Range]:
    """The ranges of steps that the chunks of a curve (`curve_of`) cover, ascending; the
    newest attempt wins.
    """
    whole = store.pieces(session, curve_id, kind)
    if len({piece.attempt_number for piece in whole}) < 2:
        return whole
    limits, stride = replaced_steps.superseded_from(session, curve_id, kind), stride_of(whole) or 1
    parts = (piece.part_below(limits[piece.attempt_number], max(1, stride)) for piece in whole)
    return [part for part in parts if part is not None]


def _distinct(table: chunk_tables.Columns) -> chunk_tables.Columns:
    """A table by ascending step, each once; DifferentError if the rows of a step differ in
    any bit.
    """
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
    is_first = np.append(True, step[1:] != step[:-1])
    return {name: values[is_first] for name, values in ordered.items()}
