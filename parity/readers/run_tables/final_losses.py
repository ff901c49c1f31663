"""Tables of final losses without a step: one number a run, such as those of several seeds."""

from collections.abc import Mapping

from parity.judging.curves.curve import Curve
from parity.readers.columns.names import LOSS, STEP, VALIDATION, find_columns, is_known
from parity.readers.errors import NoLossError
from parity.readers.run_tables.cells import TableCells
from parity.readers.run_tables.layout import OPTION, RunTable, selected_cells
from parity.readers.run_tables.runs import (
    TableRun,
    arms_of,
    refuse_sizes_of_runs,
    runs_by_arm,
    runs_of,
)
from parity.readers.run_tables.typed_number import number_curve


def read_final_losses(source: str, layout: RunTable) -> Mapping[str, list[Curve]] | None:
    """The runs of each arm, each of one number, in order of appearance; None for a table with a
    column of steps, or with several rows a run.

    A lone held-out loss is the loss. Raises ReadError as `read_run_table`.
    """
    cells = selected_cells(source, layout)
    arms = arms_of(cells, layout)
    if layout.step is not None or any(is_known(name, STEP) for name in cells.names):
        return None
    if any(len(run.rows) > 1 for run in runs_of(cells, layout)):
        return None
    refuse_sizes_of_runs(cells, [name for name in cells.names if name != layout.arm])
    loss = loss_column(cells, layout)
    return runs_by_arm(cells, layout, arms, lambda run: number_of(cells, run, loss))


def loss_column(cells: TableCells, layout: RunTable) -> str:
    """The column of the loss in a table without steps."""
    named_columns = {} if layout.loss is None else {LOSS: layout.loss}
    try:
        return find_columns([STEP, *cells.names], named_columns, cells.source, OPTION)[LOSS]
    except NoLossError:
        held_out = [name for name in cells.names if is_known(name, VALIDATION)]
        if len(held_out) != 1:
            raise
        return held_out[0]


def number_of(cells: TableCells, run: TableRun, loss: str) -> Curve:
    """The run of one number."""
    (row,) = run.rows
    cells.number(row, loss)
    return number_curve(str(cells.columns[loss][row]).strip(), run.label)
