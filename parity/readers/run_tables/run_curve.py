"""The curve of one run of a table.

Rows of one run that repeat a step are refused, because then the columns do not tell its runs
apart.
"""

import dataclasses
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray
from parity.readers.columns.absence import columns_of, training_records
from parity.readers.columns.long_table import METRIC_NAMES, VALUE_NAMES
from parity.readers.columns.names import LOSS, STEP, find_columns, listed
from parity.readers.columns.number import step_number
from parity.readers.columns.second_losses import losses_beside
from parity.readers.curve.curve import curve_of
from parity.readers.curve.plausibility import check_stated
from parity.readers.errors import ReadError
from parity.readers.run_tables.cells import TableCells
from parity.readers.run_tables.known_columns import CONDITIONS, NAMES_OF_RUNS, is_size
from parity.readers.run_tables.layout import OPTION, RunTable
from parity.readers.run_tables.runs import TableRun, only_value

_SHOWN = 6


def quantities_of(cells: TableCells, layout: RunTable) -> dict[str, str]:
    """The column of each quantity; those that name the arm, the run, the seed or a condition hold
    no quantity.
    """
    named_columns = {
        quantity: column
        for quantity, column in ((STEP, layout.step), (LOSS, layout.loss))
        if column is not None
    }
    taken = {layout.arm, *layout.run, layout.seed, *layout.keep}
    conditions = {name for name in cells.names if name.strip().lower() in CONDITIONS} - set(
        named_columns.values()
    )
    names = [name for name in cells.names if name not in taken | conditions]
    columns = find_columns(names, named_columns, cells.source, OPTION)
    _refuse_metrics(cells, names, columns[LOSS])
    both = columns[STEP], columns[LOSS]
    return {
        quantity: column
        for quantity, column in columns.items()
        if quantity in (STEP, LOSS) or column not in both
    }


def run_curve(
    cells: TableCells, run: TableRun, quantities: Mapping[str, str], layout: RunTable
) -> Curve:
    """The curve of a run; raises ReadError where its rows are not those of one run."""
    found = [name for name in cells.names if name not in layout.keep]
    loss = quantities[LOSS]
    if all(cells.is_empty(row, loss) for row in run.rows):
        raise ReadError(
            f"{cells.where(run.rows[0])}: run {run.label} of {run.arm} has no loss in the column "
            f"{loss!r}; expected a number in at least one of its rows; write nan for a run that "
            "diverged"
        )
    rows = [
        row
        for row in run.rows
        if not (cells.is_empty(row, loss) and cells.is_empty(row, quantities[STEP]))
    ]
    values = {STEP: _steps(cells, rows, quantities[STEP])}
    values |= {
        quantity: cells.numbers(rows, column)
        for quantity, column in quantities.items()
        if quantity not in values
    }
    _refuse_sizes(cells, run, (layout.arm, *layout.run, *quantities.values()))
    _refuse_repeats(cells, run, [row for row in rows if not cells.is_empty(row, loss)], quantities)
    for column in cells.names:
        if column.strip().lower() in NAMES_OF_RUNS and column not in (
            layout.arm,
            *quantities.values(),
        ):
            only_value(cells, run, column, may_be_empty=True)
    about = {layout.arm, layout.seed, *layout.run, *layout.keep}
    names = [name for name in found if name not in about and name.strip().lower() not in CONDITIONS]
    present = {
        name: np.array([bool(cells.text(row, name)) for row in rows])
        for name in names
        if np.isnan(values[LOSS]).any()
    }
    where = f"{cells.source}, run {run.label} of {run.arm}"
    written = np.array([not cells.is_empty(row, loss) for row in rows])
    beside = {name: cells.losses(rows, name) for name in losses_beside(names, quantities[LOSS])}
    records = training_records(values, quantities, present, where, written=written, beside=beside)
    arms = set(cells.texts(layout.arm)) if cells.remarks else set()
    columns = dataclasses.replace(
        columns_of(records, quantities, found),
        option=OPTION,
        said_not_finite=cells.rows_that_say(run.rows)
        + sum(_is_about(remark, run.arm, arms) for remark in cells.remarks),
    )
    if layout.loss is not None:
        check_stated(layout.loss, where, OPTION)
    return curve_of(columns, where, label=run.label, stated=layout.loss is not None)


def _is_about(remark: str, arm: str, arms: Collection[str]) -> bool:
    """Whether a remark names an arm, or none of the arms of its table."""
    words = set(re.split(r"[^\w.+-]+", remark))
    return arm in words or not words & {*arms}


def _refuse_metrics(cells: TableCells, names: Sequence[str], loss: str) -> None:
    """Raise ReadError where the values of several metrics stand in one column, because they would
    be read as losses of one run.
    """
    if loss.strip().lower() not in VALUE_NAMES:
        return
    for name in names:
        metrics = (
            list(dict.fromkeys(cells.texts(name))) if name.strip().lower() in METRIC_NAMES else []
        )
        if len(metrics) > 1:
            raise ReadError(
                f"{cells.source}: the column {name!r} names {len(metrics)} metrics "
                f"({listed(metrics[:_SHOWN])}); expected the loss alone; "
                "remove the rows of other metrics, or export one column per metric"
            )


def _refuse_sizes(cells: TableCells, run: TableRun, named: Collection[str]) -> None:
    """Raise ReadError where the rows of one run are of models of several sizes."""
    for column in cells.names:
        if is_size(column) and column not in named:
            values = list(dict.fromkeys(cells.text(row, column) for row in run.rows))
        else:
            values = []
        if len(values) > 1:
            raise ReadError(
                f"{cells.source}: run {run.label} of {run.arm} has {len(values)} values in the "
                f"column {column!r}, the size of a model; `parity compare` compares the final "
                f"losses of each size with --size-by {shlex.quote(column)}, or the runs of one "
                f"with --where {shlex.quote(f'{column}={values[0]}')}"
            )


def _refuse_repeats(
    cells: TableCells, run: TableRun, rows: Sequence[int], quantities: Mapping[str, str]
) -> None:
    """Raise ReadError where a run has a step twice, with the columns in which the two rows
    differ.
    """
    seen: dict[float, int] = {}
    for row, step in zip(rows, _steps(cells, rows, quantities[STEP]).tolist(), strict=True):
        first = seen.setdefault(step, row)
        if first == row:
            continue
        others = {
            name: column
            for name, column in cells.columns.items()
            if name not in quantities.values()
        }
        remedy = "they differ in no column that could name another run: remove one of them"
        if differ := [name for name, column in others.items() if column[first] != column[row]]:
            run_columns = [name for name in differ if name.strip().lower() in NAMES_OF_RUNS]
            remedy = (
                f"the rows also differ in {listed(differ[:_SHOWN])}: name what tells runs apart "
                "with --run-by"
            )
            remedy += f", such as --run-by {shlex.quote(run_columns[0])}" if run_columns else ""
        raise ReadError(
            f"{cells.source}: run {run.label} of {run.arm} has step {step:,.0f} twice "
            f"({cells.place}s {cells.lines[first]} and "
            f"{cells.lines[row]}); expected one row per run and step; {remedy}"
        )


def _steps(cells: TableCells, rows: Sequence[int], column: str) -> FloatArray:
    return np.array(
        [step_number(cells.number(row, column), cells.where(row), OPTION) for row in rows],
        np.float64,
    )
