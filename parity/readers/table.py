"""CSV and its relatives (tab, semicolon, blanks): a header line of names, or two bare columns of step and loss.

A table of several runs has a column that names them, or columns such as "run 7 - train/loss"; one run is read, named as `file.csv:RUN`.
"""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from parity.judging.curve import FloatArray, whole_steps
from parity.readers.columns import KNOWN_NAMES, LOSS, STEP, VALIDATION, Columns, at_rows, find_columns, plain_number, step_number
from parity.readers.long_table import Row, choose_run, long_layout, read_long, run_column
from parity.readers.source import ReadError

DELIMITERS = ("\t", ";", ",", "|")
_MISSING = ("", "none", "null", "na", "n/a")
_OF_A_RUN = " - "


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as text: the cells of its first line, what separates them (None: blanks), and its rows with the number of the first one.

    Where the first line has numbers alone it is no header (`has_header`) but the first row.
    """

    source: str
    first: list[str]
    delimiter: str | None
    body: str
    line: int

    @property
    def has_header(self) -> bool:
        """Whether the first line names the columns."""
        return not all(is_number(name) for name in self.first)

    def rows(self) -> list[Row]:
        """(line, row by name) of each row; raises ReadError where one has other cells than the header."""
        rows: list[Row] = []
        try:
            marked = (
                csv.reader(io.StringIO(self.body), delimiter=self.delimiter) if self.delimiter else map(str.split, self.body.splitlines())
            )
            for number, cells in enumerate(marked, self.line):
                if not cells:
                    continue
                if len(cells) != len(self.first):
                    raise ReadError(f"{self.source}, line {number}: {len(cells)} cells; expected {len(self.first)}, as in the header")
                rows.append((number, dict(zip(self.first, (cell.strip() for cell in cells), strict=True))))
        except csv.Error:
            raise ReadError(f"{self.source}: not valid CSV; check the quotes in the file") from None
        return rows


def as_table(text: str, source: str) -> Table:
    """The table in a text that is not empty."""
    start = next(at for at, letter in enumerate(text) if letter not in "\r\n")
    head, _, rest = text[start:].partition("\n")
    first = head.rstrip("\r")
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else None
    line = text.count("\n", 0, start) + 1
    table = Table(source=source, first=_fields(first, delimiter), delimiter=delimiter, body=text[start:], line=line)
    if not table.has_header:
        return table
    body = rest.lstrip("\r\n")
    return dataclasses.replace(table, body=body, line=line + 1 + rest.count("\n", 0, len(rest) - len(body)))


def read_table(text: str, source: str, wanted: Mapping[str, str], run: str | None = None) -> Columns:
    """Columns of a table; a row without a loss value is left out and counted, NaN and inf are kept."""
    table = as_table(text, source)
    if not table.has_header:
        return _bare_columns(table, wanted, run)
    if layout := long_layout(table.first, wanted, source):
        return read_long(table.rows(), layout, wanted, source, run)
    table, shown = _rows_of_run(table, wanted, run)
    by_quantity = find_columns(shown, wanted, source)
    if not table.body or table.body.isspace():
        raise ReadError(f"{source}: a header but no rows; expected one row per training step")
    values, notes = _values(table, {quantity: table.first.index(name) for quantity, name in by_quantity.items()})
    return Columns(values=values, names=by_quantity, found=shown, notes=notes)


def _rows_of_run(table: Table, wanted: Mapping[str, str], run: str | None) -> tuple[Table, list[str]]:
    """The rows and the columns of one run; other rows become empty lines, so that line numbers stay."""
    names = table.first
    column = run_column(names)
    if column is not None:
        index = names.index(column)
        lines = [(line, _fields(line, table.delimiter) if line.strip() else []) for line in table.body.splitlines()]
        own = [cells[index] if index < len(cells) else "" for _, cells in lines]
        runs = [name for name, (line, _) in zip(own, lines, strict=True) if line.strip()]
        chosen = choose_run(runs, run, table.source) if runs else None
        body = "\n".join(line if name == chosen else "" for name, (line, _) in zip(own, lines, strict=True))
        return dataclasses.replace(table, body=body), names
    exported = dict.fromkeys(
        before for before, _, name in (each.rpartition(_OF_A_RUN) for each in names) if name.lower() in KNOWN_NAMES[LOSS]
    )
    exported.pop("", None)
    has_loss = LOSS in wanted or any(name.lower() in KNOWN_NAMES[LOSS] for name in names)
    if run is None and (len(exported) < 2 or has_loss):
        return table, names
    if not exported:
        raise ReadError(f"{table.source}: no column names the run, so there is no run {run!r}; expected a column such as run_id")
    chosen = choose_run(exported, run, table.source)
    return table, [name for name in names if _OF_A_RUN not in name or name.rpartition(_OF_A_RUN)[0] == chosen]


def _bare_columns(table: Table, wanted: Mapping[str, str], run: str | None) -> Columns:
    """Step and loss of a table without a header, where it can be read in no other way."""
    source = table.source
    if wanted:
        raise ReadError(f"{source}: there is no header line, so no column {next(iter(wanted.values()))!r}; expected names in line 1")
    if run is not None:
        raise ReadError(f"{source}: there is no header line, so there is no run {run!r}; expected names in line 1")
    if len(table.first) != 2:
        raise ReadError(f"{source}: no header and {len(table.first)} columns; expected two (step, loss), or a first line with names")
    values, notes = _values(table, {STEP: 0, LOSS: 1})
    loss = values[LOSS]
    if len(loss) > 1 and bool((np.floor(loss) == loss).all()) and bool((np.diff(loss) > 0).all()):
        raise ReadError(f"{source}: no header, and both columns could be the step; expected a first line with names, such as step,loss")
    notes = (*notes, "no header line: the first column is read as the step, the second as the loss")
    return Columns(values=values, names={STEP: "column 1", LOSS: "column 2"}, notes=notes)


def _values(table: Table, columns: Mapping[str, int]) -> tuple[Mapping[str, FloatArray], tuple[str, ...]]:
    """Values by quantity, and notes, of the columns with these places."""
    values = _parse_fast(table, columns)
    if values is None or not whole_steps(values[STEP]).all() or not _is_regular(table, len(values[STEP])):
        return _parse_slowly(table, columns)
    return values, ()


def _is_regular(table: Table, rows: int) -> bool:
    """Whether all rows have the first line's cells, as far as the number of delimiters shows it; of a table of blanks, the first row."""
    if table.delimiter is None:
        return len(table.body.split("\n", 1)[0].split()) == len(table.first)
    return table.body.count(table.delimiter) == rows * (len(table.first) - 1)


def _parse_fast(table: Table, columns: Mapping[str, int]) -> Mapping[str, FloatArray] | None:
    """All columns, or None where some cell is no plain number."""
    try:
        values = np.loadtxt(
            io.StringIO(table.body), delimiter=table.delimiter, usecols=list(columns.values()), comments=None, ndmin=2, dtype=np.float64
        )
    except (ValueError, IndexError):
        return None
    return dict(zip(columns, values.T, strict=True))


def _parse_slowly(table: Table, columns: Mapping[str, int]) -> tuple[Mapping[str, FloatArray], tuple[str, ...]]:
    """Row by row, to name the line of what is wrong; empty cells are allowed except for the step."""
    rows: list[list[float]] = []
    evaluated: list[tuple[float, float]] = []
    skipped, width = 0, len(table.first)
    for number, line in enumerate(io.StringIO(table.body), table.line):
        if not line.strip():
            continue
        cells = _fields(line.rstrip("\r\n"), table.delimiter)
        where = f"{table.source}, line {number}"
        if any(cell.strip() for cell in cells[width:]):
            raise ReadError(f"{where}: {len(cells)} cells; expected {width}, as in line 1 (write decimals with a point)")
        value = partial(_cell, cells, columns, where)
        if VALIDATION in columns and not np.isnan(loss := value(VALIDATION)):
            evaluated.append((value(STEP), loss))
        if columns[LOSS] < len(cells) and not cells[columns[LOSS]].strip():
            skipped += 1
            continue
        rows.append([value(quantity) for quantity in columns])
    if not rows:
        raise ReadError(f"{table.source}: no row has a loss; expected one row per training step")
    values = dict(zip(columns, np.array(rows, dtype=np.float64).T, strict=True))
    if VALIDATION in columns and skipped:
        values[VALIDATION] = at_rows(values[STEP], evaluated)
    return values, (f"{skipped} rows without a loss left out",) if skipped else ()


def _cell(cells: Sequence[str], columns: Mapping[str, int], where: str, quantity: str) -> float:
    text = cells[columns[quantity]].strip() if columns[quantity] < len(cells) else ""
    if quantity not in (STEP, LOSS) and text.lower() in _MISSING:
        return float("nan")
    value = plain_number(text)
    if value is None:
        shown = repr(text[:40]) if text else "nothing"
        raise ReadError(f"{where}: {shown} in the {quantity} column; expected a number (nan and inf are allowed)")
    return step_number(value, where) if quantity == STEP else value


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:  # a stray carriage return or an endless quoted cell: no row of numbers
        return [cell.strip() for cell in line.split(delimiter)]


def is_number(text: str) -> bool:
    """Whether a cell is a number, NaN or infinity."""
    try:
        float(text)
    except ValueError:
        return False
    return True
