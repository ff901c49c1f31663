"""Tables of many runs, one row per run and step or evaluation."""

import dataclasses
from collections.abc import Mapping, Sequence

from parity.judging.curves.curve import Curve
from parity.readers.columns.names import LOSS, STEP
from parity.readers.errors import ColumnError, ReadError
from parity.readers.remedies import table_options, with_tried_options
from parity.readers.run_tables.cells import TableCells
from parity.readers.run_tables.layout import RunTable, selected_cells
from parity.readers.run_tables.run_curve import quantities_of, run_curve
from parity.readers.run_tables.runs import arms_of, refuse_sizes_of_runs, runs_by_arm

_MANY_ROWS = 20_000  # which are read again for few proposals


def read_run_table(source: str, layout: RunTable) -> dict[str, list[Curve]]:
    """The runs of each arm, arms in order of appearance, from a path or "-" (stdin): CSV, TSV, JSON
    lines, a JSON list or Parquet.

    A run's label is its values of `layout.run`, joined by "/", or its arm's name. Raises ReadError,
    one line, for a missing column, an arm column with one value or more than 20, an empty name, a
    step or loss that is not a number, and a run that repeats a step.
    """
    cells = selected_cells(source, layout)
    arms = arms_of(cells, layout)
    refuse_sizes_of_runs(cells, layout.run)
    try:
        return _runs(cells, layout, arms)
    except ReadError as error:
        names = error.names if isinstance(error, ColumnError) else cells.names

        def read(columns: Mapping[str, str]) -> Curve:
            named = dataclasses.replace(
                layout, step=columns.get(STEP, layout.step), loss=columns.get(LOSS, layout.loss)
            )
            return next(iter(_runs(cells, named, arms).values()))[0]

        stated = {STEP: layout.step, LOSS: layout.loss}
        named = {quantity: name for quantity, name in stated.items() if name is not None}
        is_large = len(cells.lines) > _MANY_ROWS
        raise with_tried_options(
            error, names, named, read, is_large=is_large, form=table_options
        ) from None


def _runs(cells: TableCells, layout: RunTable, arms: Sequence[str]) -> dict[str, list[Curve]]:
    quantities = quantities_of(cells, layout)
    return runs_by_arm(cells, layout, arms, lambda run: run_curve(cells, run, quantities, layout))
