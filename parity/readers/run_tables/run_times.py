"""The times of runs from a table with one row per run: time per step or sample, and time to the
target loss.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from parity.judging.evaluations.run_times import RunTimes
from parity.readers.columns.names import listed
from parity.readers.columns.number import MISSING
from parity.readers.errors import ReadError
from parity.readers.run_tables.cells import TableCells, read_cells
from parity.readers.run_tables.known_columns import HARDWARE

SECONDS_OF_COLUMN: Mapping[str, float] = {
    "seconds_to_target": 1.0,
    "minutes_to_target": 60.0,
    "hours_to_target": 3600.0,
}
PER_STEP: Mapping[str, float] = {
    "step_seconds": 1.0,
    "seconds_per_step": 1.0,
    "seconds_per_sample": 1.0,
    "seconds_per_sequence": 1.0,
    "ms_per_step": 1e-3,
    "ms_per_sample": 1e-3,
    "ms_per_sequence": 1e-3,
}
"""Columns of times, in lower case, and their units in seconds."""


def read_run_times(source: str, arm: str, run: Sequence[str]) -> list[RunTimes]:
    """The times of each run, from a path or "-" (stdin); `arm` and `run` name the columns of the
    arm and of the run, as in `RunTable`.

    Raises ReadError for a missing column, a table without a column of times, a time that is not
    positive, and a run with two rows.
    """
    cells = read_cells(source)
    cells.require(arm, "the arm")
    for column in run:
        cells.require(column, "the run")
    to_target, per_step = (
        _column(cells, time_columns) for time_columns in (SECONDS_OF_COLUMN, PER_STEP)
    )
    if to_target is None and per_step is None:
        raise ReadError(
            f"{source}: no column of times among {listed(cells.names)}; expected at least one of "
            f"{', '.join((*SECONDS_OF_COLUMN, *PER_STEP))}"
        )
    hardware = _column(cells, HARDWARE, may_be_several=True)
    arms = cells.full_texts(arm, "the name of an arm")
    names = (cells.full_texts(column, "the name of a run") for column in run)
    labels = ["/".join(parts) for parts in zip(*names, strict=True)] if run else arms
    rows: dict[tuple[str, str], int] = {}
    times = []
    for row, (arm_name, label) in enumerate(zip(arms, labels, strict=True)):
        if (first := rows.setdefault((arm_name, label), row)) != row:
            raise ReadError(
                f"{source}: run {label} of {arm_name} has two rows ({cells.place}s "
                f"{cells.lines[first]} and {cells.lines[row]}); expected one row per run"
            )
        times.append(
            RunTimes(
                arm=arm_name,
                run=label,
                hardware=(cells.text(row, hardware) or None) if hardware else None,
                step_seconds=_seconds(cells, row, per_step, PER_STEP),
                seconds_to_target=_seconds(cells, row, to_target, SECONDS_OF_COLUMN),
            )
        )
    return times


def _column(
    cells: TableCells, known_names: Iterable[str], *, may_be_several: bool = False
) -> str | None:
    """The column with a known name; raises ReadError where two columns could hold one time."""
    by_key = {name.strip().lower(): name for name in reversed(cells.names)}
    columns = [by_key[key] for key in known_names if key in by_key]
    if len(columns) > 1 and not may_be_several:
        raise ReadError(
            f"{cells.source}: {listed(columns)} hold the same time in other units; expected one of "
            "them; remove the others"
        )
    return columns[0] if columns else None


def _seconds(
    cells: TableCells, row: int, column: str | None, units: Mapping[str, float]
) -> float | None:
    """A time in seconds, None where the cell is empty; raises ReadError where it is not a positive
    number.
    """
    if column is None or cells.text(row, column).lower() in (*MISSING, "nan"):
        return None
    value = cells.number(row, column)
    if not 0.0 < value < math.inf:
        raise ReadError(
            f"{cells.where(row)}: {value:g} in the column {column!r}; expected a positive time, or "
            "an empty cell"
        )
    return value * units[column.strip().lower()]
