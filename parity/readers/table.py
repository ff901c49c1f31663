"""CSV and its relatives (tab, semicolon, blanks): a header line of names, or two bare columns of step and loss."""

import csv
import io
from collections.abc import Mapping

import numpy as np

from parity.judging.curve import FloatArray, whole_steps
from parity.readers.columns import LOSS, STEP, find_columns, step_number
from parity.readers.source import ReadError

DELIMITERS = ("\t", ";", ",", "|")


def read_table(text: str, source: str, wanted: Mapping[str, str]) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Columns by quantity (T,), and notes; a row without a loss value is left out and counted, NaN and inf are kept."""
    first = text.lstrip("\r\n").split("\n", 1)[0].rstrip("\r")
    start = text.index(first)
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else None
    names = _fields(first, delimiter)
    if all(_is_number(name) for name in names):
        columns = _columns_without_header(names, wanted, source)
        body, first_line = text[start:], text.count("\n", 0, start) + 1
    else:
        by_quantity = find_columns(names, wanted, source)
        columns = {quantity: names.index(name) for quantity, name in by_quantity.items()}
        body, first_line = text[start + len(first) + 1 :].lstrip("\r\n"), text.count("\n", 0, start) + 2
    if not body.strip():
        raise ReadError(f"{source}: a header but no rows; expected one row per training step")
    values = _parse_fast(body, delimiter, list(columns.values()))
    notes: tuple[str, ...] = ()
    if values is None or not whole_steps(values[list(columns).index(STEP)]).all():
        values, notes = _parse_slowly(body, delimiter, columns, source, first_line)
    return dict(zip(columns, values, strict=True)), notes


def _parse_fast(body: str, delimiter: str | None, indices: list[int]) -> FloatArray | None:
    """All columns (C, T), or None where some cell is no plain number."""
    try:
        table: FloatArray = np.loadtxt(io.StringIO(body), delimiter=delimiter, usecols=indices, comments=None, ndmin=2, dtype=np.float64)
    except (ValueError, IndexError):
        return None
    return table.T


def _parse_slowly(
    body: str, delimiter: str | None, columns: Mapping[str, int], source: str, first_line: int
) -> tuple[FloatArray, tuple[str, ...]]:
    """Row by row, to name the line of what is wrong; empty cells are allowed except for the step."""
    rows: list[list[float]] = []
    skipped = 0
    for number, line in enumerate(io.StringIO(body), first_line):
        if not line.strip():
            continue
        cells = _fields(line.rstrip("\r\n"), delimiter)
        where = f"{source}, line {number}"
        if columns[LOSS] < len(cells) and not cells[columns[LOSS]].strip():
            skipped += 1
            continue
        rows.append([_cell(cells, index, quantity, where) for quantity, index in columns.items()])
    if not rows:
        raise ReadError(f"{source}: no row has a loss; expected one row per training step")
    notes = (f"{skipped} rows without a loss left out",) if skipped else ()
    return np.array(rows, dtype=np.float64).T, notes


def _cell(cells: list[str], index: int, quantity: str, where: str) -> float:
    required = quantity in (STEP, LOSS)
    text = cells[index].strip() if index < len(cells) else ""
    if not text and not required:
        return float("nan")
    try:
        value = float(text.replace("_", "?"))  # Python reads 1_0 as 10; nobody who writes a table means that
        return step_number(value, where) if quantity == STEP else value
    except ValueError as error:
        if isinstance(error, ReadError):
            raise
        if not required:
            return float("nan")
        shown = repr(text[:40]) if text else "nothing"
        raise ReadError(f"{where}: {shown} in the {quantity} column; expected a number (nan and inf are allowed)") from None


def _columns_without_header(cells: list[str], wanted: Mapping[str, str], source: str) -> dict[str, int]:
    if wanted:
        raise ReadError(f"{source}: there is no header line, so no column {next(iter(wanted.values()))!r}; expected names in line 1")
    if len(cells) != 2:
        raise ReadError(f"{source}: no header and {len(cells)} columns; expected two (step, loss), or a first line with names")
    return {STEP: 0, LOSS: 1}


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:  # a stray carriage return or an endless quoted cell: no row of numbers
        return [cell.strip() for cell in line.split(delimiter)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
