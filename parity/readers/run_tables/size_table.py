"""Tables of final losses: each arm at each size of a model."""

import shlex
from collections.abc import Sequence
from functools import partial

from parity.judging.curves.curve import Curve
from parity.readers.columns.names import LOSS, STEP, is_known, listed
from parity.readers.errors import ReadError
from parity.readers.run_tables.cells import TableCells
from parity.readers.run_tables.final_losses import loss_column, number_of
from parity.readers.run_tables.known_columns import NAMES_OF_RUNS
from parity.readers.run_tables.layout import RunTable, selected_cells
from parity.readers.run_tables.run_curve import quantities_of, run_curve
from parity.readers.run_tables.runs import TableRun, arms_of, runs_by_arm, runs_of

MAX_SIZES = 100


def read_sizes(
    source: str, layout: RunTable, size: Sequence[str]
) -> dict[str, dict[str, list[Curve]]]:
    """The final losses of each arm at each size of a model, which the columns in `size` together
    name, in order of appearance.

    Each row is a run of one evaluation at its own step, or a number like one that is typed where
    the table has no column of steps. Raises ReadError as `read_run_table`, and where a run has two
    rows at one size, or there are more than 100 sizes.
    """
    cells = selected_cells(source, layout)
    arms = arms_of(cells, layout)
    texts = []
    for column in size:
        cells.require(column, "the size")
        if column in (layout.arm, layout.loss, *layout.run):
            raise ReadError(
                f"{source}: the column {column!r} was given for the size and for something else; "
                "expected a column for each"
            )
        texts.append(cells.full_texts(column, "the size of the model"))
    has_steps = layout.step is not None or any(is_known(name, STEP) for name in cells.names)
    if has_steps:
        loss = quantities_of(cells, layout)[LOSS]
    else:
        loss = loss_column(cells, layout)
    rows: dict[str, list[int]] = {}
    for row, values in enumerate(zip(*texts, strict=True)):
        rows.setdefault(
            ", ".join(f"{column}={value}" for column, value in zip(size, values, strict=True)), []
        ).append(row)
    if len(rows) > MAX_SIZES:
        raise ReadError(
            f"{source}: {listed(size)} {'has' if len(size) == 1 else 'have'} {len(rows):,} values; "
            f"expected at most {MAX_SIZES} sizes; name the columns that name the size of a model"
        )
    sizes: dict[str, dict[str, list[Curve]]] = {}
    for label, size_rows in rows.items():
        part = cells.select_rows(size_rows)
        for run in runs_of(part, layout):
            if len(run.rows) > 1:
                _refuse_two_losses(part, run, label, size, loss)
        at_size = [arm for arm in arms if arm in part.texts(layout.arm)]
        if has_steps:
            curve = partial(_curve_at_size, part, layout)
        else:
            curve = partial(number_of, part, loss=loss)
        sizes[label] = runs_by_arm(part, layout, at_size, curve)
    return sizes


def _curve_at_size(cells: TableCells, layout: RunTable, run: TableRun) -> Curve:
    return run_curve(cells, run, quantities_of(cells, layout), layout)


def _refuse_two_losses(
    cells: TableCells, run: TableRun, label: str, size: Sequence[str], loss: str
) -> None:
    """Raise ReadError for two rows of a run at one size, with what tells them apart."""
    first, second = run.rows[:2]
    differ = [
        name
        for name, column in cells.columns.items()
        if name != loss and column[first] != column[second]
    ]
    others = [name for name in differ if not is_known(name, STEP)]
    remedy = "they differ in nothing but the loss: remove one of them"
    if others and others[0].strip().lower() in NAMES_OF_RUNS:
        remedy = f"name what tells its runs apart: --run-by {shlex.quote(others[0])}"
    elif others:
        remedy = (
            f"name what else makes a size: --size-by {shlex.quote(','.join((*size, others[0])))}"
        )
    elif differ:
        where = [
            f"--where {shlex.quote(f'{column}={cells.text(first, column)}')}" for column in size
        ]
        remedy = (
            "of one training keep the last row alone, or compare its curves at one size: "
            f"{' '.join(where)}"
        )
    raise ReadError(
        f"{cells.source}: {run.label} has two losses at {label} ({cells.place}s "
        f"{cells.lines[first]} and {cells.lines[second]}); "
        f"expected the final one of each run; {remedy}"
    )
