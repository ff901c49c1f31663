"""CSV and its relatives (tab, semicolon, blanks): a header line of names, or two bare columns of step and loss.

A table of several runs has a column that names them, or columns such as "run 7 - train/loss"; one run is read, named as `file.csv:RUN`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import FloatArray, whole_steps
from parity.readers.columns import KNOWN_NAMES, LOSS, STEP, VALIDATION, Columns, at_rows, find_columns, other_losses, step_number
from parity.readers.long_table import choose_run, long_layout, read_long, run_column, table_rows
from parity.readers.source import ReadError

DELIMITERS = ("\t", ";", ",", "|")
_MISSING = ("", "none", "null", "na", "n/a")
_OF_A_RUN = " - "


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a table that is not empty: its cells, what separates them (None: blanks), its number, and the text from it on."""

    names: list[str]
    delimiter: str | None
    line: int
    text: str

    def body(self) -> tuple[str, int]:
        """The text after the header and any empty lines, and the number of its first line."""
        rest = self.text.partition("\n")[2]
        body = rest.lstrip("\r\n")
        return body, self.line + 1 + rest.count("\n", 0, len(rest) - len(body))


def read_header(text: str) -> Header:
    """The header of a table that is not empty."""
    start = next(at for at, letter in enumerate(text) if letter not in "\r\n")
    end = text.find("\n", start)
    first = text[start : end if end >= 0 else len(text)].rstrip("\r")
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else None
    return Header(names=_fields(first, delimiter), delimiter=delimiter, line=text.count("\n", 0, start) + 1, text=text[start:])


def read_table(text: str, source: str, wanted: Mapping[str, str], run: str | None = None) -> Columns:
    """Columns of a table; a row without a loss value is left out and counted, NaN and inf are kept."""
    header = read_header(text)
    names, delimiter, line = header.names, header.delimiter, header.line
    if all(is_number(name) for name in names):
        return _bare_columns(header.text, delimiter, names, wanted, source, line, run)
    body, line = header.body()
    if layout := long_layout(names, wanted, source):
        return read_long(table_rows(body, names, delimiter, line, source), layout, wanted, source, run)
    body, shown = _rows_of_run(body, delimiter, names, wanted, source, run)
    by_quantity = find_columns(shown, wanted, source)
    if not body or body.isspace():
        raise ReadError(f"{source}: a header but no rows; expected one row per training step")
    indices = {quantity: names.index(name) for quantity, name in by_quantity.items()}
    values, notes = _values(body, delimiter, indices, len(names), source, line)
    return Columns(values=values, names=by_quantity, others=other_losses(shown, by_quantity[LOSS]), notes=notes)


def _rows_of_run(
    body: str, delimiter: str | None, names: list[str], wanted: Mapping[str, str], source: str, run: str | None
) -> tuple[str, list[str]]:
    """The rows and the columns of one run; other rows become empty lines, so that line numbers stay."""
    column = run_column(names)
    if column is not None:
        lines = body.splitlines()
        index = names.index(column)
        own = [cells[index] if line.strip() and index < len(cells := _fields(line, delimiter)) else "" for line in lines]
        chosen = choose_run((name for name, line in zip(own, lines, strict=True) if line.strip()), run, source) if body.strip() else None
        return "\n".join(line if name == chosen else "" for name, line in zip(own, lines, strict=True)), names
    runs = dict.fromkeys(name.rpartition(_OF_A_RUN)[0] for name in names if name.rpartition(_OF_A_RUN)[2].lower() in KNOWN_NAMES[LOSS])
    runs.pop("", None)
    has_loss = LOSS in wanted or any(name.lower() in KNOWN_NAMES[LOSS] for name in names)
    if run is None and (len(runs) < 2 or has_loss):
        return body, names
    if not runs:
        raise ReadError(f"{source}: no column names the run, so there is no run {run!r}; expected a column such as run_id")
    chosen = choose_run(runs, run, source)
    return body, [name for name in names if _OF_A_RUN not in name or name.rpartition(_OF_A_RUN)[0] == chosen]


def _bare_columns(
    body: str, delimiter: str | None, cells: list[str], wanted: Mapping[str, str], source: str, line: int, run: str | None
) -> Columns:
    """Step and loss of a table without a header, where it can be read in no other way."""
    if wanted:
        raise ReadError(f"{source}: there is no header line, so no column {next(iter(wanted.values()))!r}; expected names in line 1")
    if run is not None:
        raise ReadError(f"{source}: there is no header line, so there is no run {run!r}; expected names in line 1")
    if len(cells) != 2:
        raise ReadError(f"{source}: no header and {len(cells)} columns; expected two (step, loss), or a first line with names")
    values, notes = _values(body, delimiter, {STEP: 0, LOSS: 1}, len(cells), source, line)
    loss = values[LOSS]
    if len(loss) > 1 and bool((np.floor(loss) == loss).all()) and bool((np.diff(loss) > 0).all()):
        raise ReadError(f"{source}: no header, and both columns could be the step; expected a first line with names, such as step,loss")
    notes = (*notes, "no header line: the first column is read as the step, the second as the loss")
    return Columns(values=values, names={STEP: "column 1", LOSS: "column 2"}, notes=notes)


def _values(
    body: str, delimiter: str | None, columns: Mapping[str, int], width: int, source: str, first_line: int
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Values by quantity, and notes, of rows that have as many cells as the header (`width`)."""
    values = _parse_fast(body, delimiter, list(columns.values()))
    if (
        values is None
        or not whole_steps(values[list(columns).index(STEP)]).all()
        or not _is_regular(body, delimiter, width, values.shape[1])
    ):
        return _parse_slowly(body, delimiter, columns, width, source, first_line)
    return dict(zip(columns, values, strict=True)), ()


def _is_regular(body: str, delimiter: str | None, width: int, rows: int) -> bool:
    """Whether all rows have `width` cells, as far as the number of delimiters shows it; of a table of blanks, the first row."""
    if delimiter is None:
        return len(body.split("\n", 1)[0].split()) == width
    return body.count(delimiter) == rows * (width - 1)


def _parse_fast(body: str, delimiter: str | None, indices: list[int]) -> FloatArray | None:
    """All columns (C, T), or None where some cell is no plain number."""
    try:
        table: FloatArray = np.loadtxt(io.StringIO(body), delimiter=delimiter, usecols=indices, comments=None, ndmin=2, dtype=np.float64)
    except (ValueError, IndexError):
        return None
    return table.T


def _parse_slowly(
    body: str, delimiter: str | None, columns: Mapping[str, int], width: int, source: str, first_line: int
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Row by row, to name the line of what is wrong; empty cells are allowed except for the step."""
    rows: list[list[float]] = []
    evaluated: list[tuple[float, float]] = []
    skipped = 0
    for number, line in enumerate(io.StringIO(body), first_line):
        if not line.strip():
            continue
        cells = _fields(line.rstrip("\r\n"), delimiter)
        where = f"{source}, line {number}"
        if any(cell.strip() for cell in cells[width:]):
            raise ReadError(f"{where}: {len(cells)} cells; expected {width}, as in line 1 (write decimals with a point)")
        if VALIDATION in columns and not np.isnan(loss := _cell(cells, columns[VALIDATION], VALIDATION, where)):
            evaluated.append((_cell(cells, columns[STEP], STEP, where), loss))
        if columns[LOSS] < len(cells) and not cells[columns[LOSS]].strip():
            skipped += 1
            continue
        rows.append([_cell(cells, index, quantity, where) for quantity, index in columns.items()])
    if not rows:
        raise ReadError(f"{source}: no row has a loss; expected one row per training step")
    values = dict(zip(columns, np.array(rows, dtype=np.float64).T, strict=True))
    if VALIDATION in columns and skipped:
        values[VALIDATION] = at_rows(values[STEP], evaluated)
    return values, (f"{skipped} rows without a loss left out",) if skipped else ()


def _cell(cells: Sequence[str], index: int, quantity: str, where: str) -> float:
    text = cells[index].strip() if index < len(cells) else ""
    if quantity not in (STEP, LOSS) and text.lower() in _MISSING:
        return float("nan")
    try:
        value = float(text.replace("_", "?"))  # Python reads 1_0 as 10; nobody who writes a table means that
        return step_number(value, where) if quantity == STEP else value
    except ValueError as error:
        if isinstance(error, ReadError):
            raise
        shown = repr(text[:40]) if text else "nothing"
        raise ReadError(f"{where}: {shown} in the {quantity} column; expected a number (nan and inf are allowed)") from None


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
