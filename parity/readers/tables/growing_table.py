"""CSV and its relatives as a run, while the file may still grow.

A table of several runs has a column that names them, or columns such as "run 7 - train/loss"; one
run is read, named as `file.csv:RUN`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from parity.readers.columns.absence import columns_of
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.long_table import long_layout, read_long
from parity.readers.columns.names import LOSS, NUMBERED, STEP, find_columns, is_known
from parity.readers.columns.number import is_number
from parity.readers.columns.planned_length import add_planned_length
from parity.readers.columns.several_runs import (
    arm_column,
    choose_run,
    loss_of_run,
    run_column,
)
from parity.readers.curve.plausibility import check_unnamed
from parity.readers.errors import ReadError
from parity.readers.files.growing import Growing, cut, left_out
from parity.readers.files.last_line import is_begin_of_larger, is_shorter, may_be_any
from parity.readers.tables.delimited import DelimitedTable, as_table, fields
from parity.readers.tables.rows import TableRows

_RUN_SEPARATOR = " - "
_BARE = {STEP: "column 1", LOSS: "column 2"}
"""The columns of a table without a header."""
_BARE_LOSS = {STEP: NUMBERED, LOSS: "column 1"}
_MLFLOW = {STEP: "column 3", LOSS: "column 2"}
# before a last row without its end: of fewer, such as those that a person types, nothing passes
_FEWEST_ROWS = 12
_EARLIEST = 1e11  # a time in milliseconds since 1970; no run has as many steps


class GrowingTable(Growing):
    """A table that may still grow: its first line decides which columns are read, and no later line
    revises a loss. Whether a row without a loss is a record may depend on later ones
    (`parity.readers.columns.absence`).

    A long table, or one with a column of runs, is read again each time that its columns are asked
    for: a second run is refused where none is named.
    """

    def __init__(
        self, source: str, named_columns: Mapping[str, str], run: str | None = None
    ) -> None:
        super().__init__(source)
        self._named_columns, self._run = named_columns, run
        self._first: DelimitedTable | None = None
        self._bodies: list[str] = []
        self._names: Sequence[str] = ()
        self._rows: TableRows | None = None

    def _take(self, text: str) -> None:
        if self._first is not None:
            table = dataclasses.replace(self._first, body=text, line=self._lines + 1)
        elif text.strip("\r\n"):
            table = as_table(text, self._source)
            self._first = dataclasses.replace(table, line=table.line + self._lines)
            table = self._first
            self._begin(table)
        else:
            return
        if self._rows is None:
            self._bodies.append(table.body)
        else:
            self._rows.take(table)

    def whole(self) -> RunColumns:
        last = "".join(self._torn)
        place = self._place_of_loss() if last.strip() else None
        if self._first is None or place is None:
            return super().whole()
        delimiter = self._first.delimiter
        cells = _plain_cells(last, delimiter)
        if len(cells) > place + 1:
            return super().whole()
        rows = [_plain_cells(line, delimiter) for line in self._before.splitlines()]
        earlier = [
            row[place]
            for row in rows
            if len(row) > place and is_number(row[place]) and _are_of_one_name(row, cells, place)
        ]
        if len(earlier) < _FEWEST_ROWS:
            return super().whole()
        loss = cells[place] if len(cells) > place else ""
        has_all_cells = len(cells) == len(self._first.first)
        if is_number(loss) and not is_shorter(loss, earlier):
            return super().whole()
        if has_all_cells and is_begin_of_larger(loss, earlier):
            return super().whole()
        if may_be_any(loss, earlier):
            return cut(self.columns())
        if not has_all_cells:
            return left_out(self.columns())
        return super().whole()

    def _place_of_loss(self) -> int | None:
        """Which cell of a row has the loss, or the value of a metric; None where none is known."""
        if self._first is None:
            return None
        if self._rows is not None:
            return self._rows.place_of_loss
        names = self._first.first
        if layout := long_layout(names, self._named_columns, self._source):
            return names.index(layout.value)
        try:
            return names.index(find_columns(names, self._named_columns, self._source)[LOSS])
        except ReadError:
            return None

    @property
    def column_names(self) -> Sequence[str]:
        """The names in the header."""
        return self._first.first if self._first is not None and self._first.has_header else ()

    def _begin(self, table: DelimitedTable) -> None:
        """Take the first line; the rows of a plain table of one run are read at once from here on,
        those of others are kept.
        """
        if not table.has_header:
            _refuse_bare(table, self._named_columns, self._run)
            header = [f"column {number}" for number in range(1, len(table.first) + 1)]
            self._rows = TableRows(_bare_names(table), header, header)
        elif long_layout(
            table.first, self._named_columns, self._source
        ) is None and not _column_of_runs(table.first, self._run):
            self._names = table.first
            if self._run is not None and not _exported_runs(table.first):
                loss = loss_of_run(table.first, self._run, self._source)
                self._named_columns = {**self._named_columns, LOSS: loss}
            else:
                self._names = _names_of_run(table, self._named_columns, self._run)
            by_quantity = self._columns_by_quantity()
            self._rows = TableRows(by_quantity, self._names, table.first)

    def _columns_by_quantity(self) -> dict[str, str]:
        return find_columns(self._names, self._named_columns, self._source, may_number=True)

    def columns(self) -> RunColumns:
        """The run so far; raises ReadError where it has no row with a loss, or the run is not in
        it.
        """
        if self._first is None:
            raise ReadError(
                f"{self._source}: the file is empty; expected one line per training step"
            )
        table, source = self._first, self._source
        if self._rows is not None and not table.has_header:
            return _bare_columns(self._rows, source, _bare_names(table))
        if self._rows is not None:
            by_quantity = self._columns_by_quantity()
            columns = columns_of(self._rows.records(source), by_quantity, self._names)
            return add_planned_length(columns, self._rows.planned)
        table = dataclasses.replace(table, body="".join(self._bodies))
        if layout := long_layout(table.first, self._named_columns, source):
            return read_long(table.rows(), layout, self._named_columns, source, self._run)
        by_quantity = find_columns(table.first, self._named_columns, source)
        rows = TableRows(by_quantity, table.first, table.first)
        rows.take(_rows_of_run(table, self._run))
        return columns_of(rows.records(source), by_quantity, table.first)


def _plain_cells(line: str, delimiter: str | None) -> list[str]:
    """The cells of a row, with decimal points."""
    cells = fields(line.rstrip("\r\n"), delimiter)
    return cells if delimiter == "," else [cell.replace(",", ".") for cell in cells]


def _are_of_one_name(row: Sequence[str], cells: Sequence[str], place: int) -> bool:
    """Whether two rows have the same words before a place, such as the name of a metric; the last
    one of a row that is cut may be half a word.
    """
    return all(
        one == other or is_number(one) or (at == len(cells) - 1 and one.startswith(other))
        for at, (one, other) in enumerate(zip(row[:place], cells, strict=False))
    )


def _column_of_runs(names: Sequence[str], run: str | None) -> str | None:
    return run_column(names) or (None if run is None else arm_column(names))


def _rows_of_run(table: DelimitedTable, run: str | None) -> DelimitedTable:
    """The rows of one run of a table with a column of runs; other rows become empty lines, so that
    line numbers stay.
    """
    index = table.first.index(_column_of_runs(table.first, run) or "")
    lines = [
        (line, fields(line, table.delimiter) if line.strip() else [])
        for line in table.body.splitlines()
    ]
    run_cells = [cells[index] if index < len(cells) else "" for _, cells in lines]
    runs = [name for name, (line, _) in zip(run_cells, lines, strict=True) if line.strip()]
    chosen = choose_run(runs, run, table.source) if runs else None
    return dataclasses.replace(
        table,
        body="\n".join(
            line if name == chosen else "" for name, (line, _) in zip(run_cells, lines, strict=True)
        ),
    )


def _exported_runs(names: Sequence[str]) -> list[str]:
    """The names of runs that stand before those of a loss."""
    exported = dict.fromkeys(
        before
        for before, _, name in (column.rpartition(_RUN_SEPARATOR) for column in names)
        if is_known(name, LOSS)
    )
    return [name for name in exported if name]


def _names_of_run(
    table: DelimitedTable, named_columns: Mapping[str, str], run: str | None
) -> Sequence[str]:
    """The columns of one run, where their names may begin with its name."""
    names = table.first
    exported = _exported_runs(names)
    has_loss = LOSS in named_columns or any(
        is_known(name, LOSS) for name in names if _RUN_SEPARATOR not in name
    )
    if run is None and (len(exported) < 2 or has_loss):
        return names
    chosen = choose_run(exported, run, table.source)
    return [
        name
        for name in names
        if _RUN_SEPARATOR not in name or name.rpartition(_RUN_SEPARATOR)[0] == chosen
    ]


def _refuse_bare(table: DelimitedTable, named_columns: Mapping[str, str], run: str | None) -> None:
    """Raise ReadError for a table without a header that cannot be read as one of step and loss."""
    source = table.source
    if named_columns:
        raise ReadError(
            f"{source}: there is no header line, so no column "
            f"{next(iter(named_columns.values()))!r}; expected names in line 1"
        )
    if run is not None:
        raise ReadError(
            f"{source}: there is no header line, so there is no run {run!r}; expected names in "
            "line 1"
        )
    if len(table.first) > 2 and not _is_of_mlflow(table):
        raise ReadError(
            f"{source}: no header and {len(table.first)} columns; expected two (step, loss), or a "
            "first line with names"
        )


def _bare_names(table: DelimitedTable) -> Mapping[str, str]:
    """The columns of a table without a header, by quantity."""
    if len(table.first) == 1:
        return _BARE_LOSS
    return _MLFLOW if _is_of_mlflow(table) else _BARE


def _is_of_mlflow(table: DelimitedTable) -> bool:
    """Whether a table without a header is a file of MLflow's store: a time in milliseconds, a
    value, and a step.
    """
    if len(table.first) != 3:
        return False
    time, value, step = table.first
    return (
        time.isdecimal()
        and float(time) > _EARLIEST
        and step.isdecimal()
        and float(step) < _EARLIEST
        and not value.isdecimal()
    )


def _bare_columns(rows: "TableRows", source: str, names: Mapping[str, str]) -> RunColumns:
    """Step and loss of a table without a header, or its loss alone."""
    records = rows.records(source)
    loss = records.values[LOSS]
    if names == _BARE_LOSS:
        if bool((np.floor(loss) == loss).all()):
            raise ReadError(
                f"{source}: no header, and the one column has whole numbers alone; expected losses"
            )
        check_unnamed(loss, _BARE_LOSS[LOSS], source)
        return columns_of(records, _BARE_LOSS).noted(
            "no header line: the one column is read as the loss"
        )
    if len(loss) > 1 and bool((np.floor(loss) == loss).all()) and bool((np.diff(loss) > 0).all()):
        raise ReadError(
            f"{source}: no header, and both columns could be the step; expected a first line with "
            "names, such as step,loss"
        )
    if names == _MLFLOW:
        return columns_of(records, _MLFLOW).noted(
            "no header line: read as time, value and step, as MLflow stores a metric"
        )
    return columns_of(records, _BARE).noted(
        "no header line: the first column is read as the step, the second as the loss"
    )
