"""Which columns of a table name the arm, the run, the step and the loss of each row."""

from collections.abc import Collection, Mapping
from dataclasses import field

from parity.frozen import frozen
from parity.readers.errors import ReadError
from parity.readers.run_tables.cells import TableCells, read_cells

OPTION = "--{} NAME"


@frozen
class RunTable:
    """The columns of a table of many runs: `arm` names the arm of a row, the values of `run`
    together name its run (none: one run an arm).

    `step` and `loss` (nats per token) default to the well-known names. Runs of two arms with one
    value of `seed` share data and initialization. The columns in `keep`, such as the cluster of a
    run, become part of each run's context. `where` selects rows: those with one of the values in
    each of its columns.
    """

    arm: str
    run: tuple[str, ...] = ()
    step: str | None = None
    loss: str | None = None
    seed: str | None = None
    keep: tuple[str, ...] = ()
    where: Mapping[str, Collection[str]] = field(default_factory=dict)


def selected_cells(source: str, layout: RunTable) -> TableCells:
    """The rows of a table that its layout selects, with the columns that it names."""
    cells = read_cells(source)
    for column, values in layout.where.items():
        cells = cells.where_equal(column, values)
    _check_columns(cells, layout)
    return cells


def _check_columns(cells: TableCells, layout: RunTable) -> None:
    """Raise ReadError where a column is missing, or is named both for a value and for a name."""
    seed = () if layout.seed is None else (layout.seed,)
    parts = {
        "the arm": (layout.arm,),
        "the run": layout.run,
        "the seed": seed,
        "the cluster": layout.keep,
    }
    for what, names in parts.items():
        for name in names:
            cells.require(name, what)
            if name == layout.arm and what in ("the seed", "the cluster"):
                raise ReadError(
                    f"{cells.source}: the column {name!r} names the arm, so it cannot name {what}; "
                    "name another column"
                )
    for what, column in (("the step", layout.step), ("the loss", layout.loss)):
        if column is not None:
            cells.require(column, what)
            other = next((role for role, names in parts.items() if column in names), "the loss")
            if other != "the loss" or layout.step == layout.loss:
                raise ReadError(
                    f"{cells.source}: the column {column!r} was given for {what} and for {other}; "
                    "expected one column for each"
                )
