"""Tables of steps in memory: float64 columns by name, cut into chunks and joined to curves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parity.frozen import frozen

Columns = dict[str, NDArray[np.float64]]
Recorded = tuple[NDArray[np.int64], Columns]
"""The steps (n,) of a run, and its columns: name -> (n,)."""
SEALED_STEPS = 4096


@frozen(eq=False)
class NewChunk:
    """A chunk to be written: `columns` are name -> (n,) float64, `step` first and ascending, n >=
    1.
    """

    run_id: str
    kind: str
    attempt_number: int
    columns: Columns

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Its primary key."""
        return self.run_id, self.kind, self.attempt_number, int(self.columns["step"][0])


def cut(run_id: str, kind: str, attempt_number: int, table: Columns) -> list[NewChunk]:
    """A table (`step` first, ascending) as chunks of up to 4,096 steps."""
    return [
        NewChunk(
            run_id=run_id,
            kind=kind,
            attempt_number=attempt_number,
            columns={name: values[at : at + SEALED_STEPS] for name, values in table.items()},
        )
        for at in range(0, len(table["step"]), SEALED_STEPS)
    ]


def steps_between(table: Columns, first: float, end: float) -> Columns:
    """The steps of a table from `first` to before `end`; the table itself if these are all."""
    steps = table["step"]
    if steps[0] >= first and steps[-1] < end:
        return table
    inside = (steps >= first) & (steps < end)
    return {name: values[inside] for name, values in table.items()}


def join(parts: Sequence[Columns], names: Sequence[str] | None = None) -> Columns:
    """Tables one after another, `step` first, then the named columns (default: all, in alphabetical
    order); NaN where a part lacks one.
    """
    if names is None:
        names = sorted({name for table in parts for name in table} - {"step"})
    return {name: _joined_column(parts, name) for name in ("step", *names)}


def joined(parts: Sequence[Columns], names: Sequence[str] | None = None) -> Recorded:
    """`join`, with the steps by themselves, as whole numbers."""
    whole = join(parts, names)
    return whole.pop("step").astype(np.int64), whole


def _joined_column(parts: Sequence[Columns], name: str) -> NDArray[np.float64]:
    if not parts:
        return np.empty(0)
    return np.concatenate(
        [table[name] if name in table else np.full(len(table["step"]), np.nan) for table in parts],
        dtype=np.float64,
    )
