"""The numbers in the rows of a table: all at once where every cell is a number, else row by row."""

import dataclasses
import io
import math
import re
from collections.abc import Mapping, Sequence, Set

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray, whole_steps
from parity.readers.columns.absence import Records, training_records
from parity.readers.columns.dates import UNIX_SECONDS, seconds_of_date
from parity.readers.columns.names import (
    EPOCH,
    LOSS,
    MICRO_STEP,
    NUMBERED,
    STEP,
    VALIDATION,
    is_held_out,
)
from parity.readers.columns.not_finite_columns import field_says_not_finite, flag_number
from parity.readers.columns.number import (
    MISSING,
    is_number,
    plain_number,
    step_number,
    step_of_total,
)
from parity.readers.columns.second_losses import LossesOfRows, losses_beside
from parity.readers.columns.splits import is_split_column
from parity.readers.errors import ReadError
from parity.readers.tables.delimited import DELIMITERS, DelimitedTable, fields

_THOUSANDS = (re.compile(r"\d{1,3}(?:,\d{3})+"), re.compile(r"\d{1,3}(?:\.\d{3})+"))
"""Steps with signs between thousands, next to losses with a decimal point, and with a comma."""
_LOSSES = frozenset((LOSS, VALIDATION))
_EMPTY_WORD = re.compile(r"\bnone\b|\bnull\b|\bn/?a\b|\bnan\b", re.IGNORECASE)


@frozen(eq=False)
class _Part:
    """Rows of a table that follow each other: values (R,) by quantity, the loss NaN where its cell
    is empty; in which rows other columns have a value, (R,) by name, no name where every cell has
    one; and in which the loss is written, NaN in so many letters too. `beside` are further losses
    (R,) by name, `splits` the cells (R,) of columns that may tell training and held-out losses
    apart. `planned` are the totals of steps such as "5/400", `comma` is where the first loss
    with a decimal comma is, and its text. `said` counts rows without a step that say that a loss
    was not finite.
    """

    values: Mapping[str, FloatArray]
    present: Mapping[str, BoolArray]
    written: BoolArray
    beside: Mapping[str, LossesOfRows]
    splits: Mapping[str, Sequence[str]]
    planned: Set[int] = frozenset()
    has_point: bool = False
    comma: tuple[str, str] | None = None
    said: int = 0


class TableRows:
    """The rows of a table that were read: `names` are the columns by quantity, `run_columns` all
    columns of the run, of those in the header.
    """

    def __init__(
        self, names: Mapping[str, str], run_columns: Sequence[str], header: Sequence[str]
    ) -> None:
        self._names = names
        self._run_columns = run_columns
        self._header = header
        self._places = {
            quantity: header.index(name) for quantity, name in names.items() if name != NUMBERED
        }
        self._beside = {
            name: header.index(name) for name in losses_beside(run_columns, names[LOSS])
        }
        self._splits = {
            name: header.index(name)
            for name in run_columns
            if is_split_column(name) and name not in names.values()
        }
        self._parts: list[_Part] = []
        self._numbered = self._blanks = 0

    def take(self, table: DelimitedTable) -> None:
        """Read the rows of a table, or of a part of it; raises ReadError with the line of what is
        wrong.
        """
        if len(table.first) == 1:
            table = self._whole_column(table)
        if not table.body or table.body.isspace():
            return
        places = [*self._places.values(), *self._beside.values()]
        numbers = None if _may_have_empty_cells(table) else _parse_fast(table, places)
        values = {} if numbers is None else dict(zip(self._places, numbers, strict=False))
        if (
            numbers is None
            or not whole_steps(values.get(STEP, np.empty(0))).all()
            or not _is_regular(table, len(values[LOSS]))
        ):
            part = _parse_slowly(
                table, self._places, self._header, self._run_columns, self._beside, self._splits
            )
        else:
            written = np.ones(len(values[LOSS]), dtype=bool)
            further = numbers[len(self._places) :]
            part = _Part(
                values=values,
                present={},
                written=written,
                beside={
                    name: (losses, written)
                    for name, losses in zip(self._beside, further, strict=True)
                },
                splits=_cells_of_columns(table, self._splits),
                has_point=any(_is_broken(values[name]).any() for name in _LOSSES & values.keys()),
            )
        self._parts.append(part if STEP in self._places else self._with_numbers(part))

    @property
    def planned(self) -> frozenset[int]:
        """The totals of steps such as "5/400"."""
        return frozenset().union(*(part.planned for part in self._parts))

    @property
    def place_of_loss(self) -> int:
        """Which cell of a row has the loss."""
        return self._places[LOSS]

    def _whole_column(self, table: DelimitedTable) -> DelimitedTable:
        """A table of one column, in which an empty line is a cell without a value, unless the file
        ends with it.
        """
        text = "\n" * self._blanks + table.body
        body = text.rstrip()
        line = table.line - self._blanks
        self._blanks = text.count("\n") - body.count("\n") - bool(body)
        return dataclasses.replace(table, body=f"{body}\n" if body else "", line=line)

    def _with_numbers(self, part: _Part) -> _Part:
        """The rows with their numbers as steps; that of an evaluation is the row before it."""
        evaluated = ~np.isnan(part.values.get(VALIDATION, np.full(len(part.written), np.nan)))
        for name, there in part.present.items():
            evaluated |= there & is_held_out(name)
        steps = self._numbered + np.cumsum(part.written | ~evaluated, dtype=np.float64)
        self._numbered = int(steps[-1]) if len(steps) else self._numbered
        return dataclasses.replace(part, values={STEP: steps, **part.values})

    def records(self, source: str) -> Records:
        """The records of training; raises ReadError where no row has a loss."""
        if not self._parts:
            raise ReadError(f"{source}: a header but no rows; expected one row per training step")
        self._check_decimal_marks()
        written = np.concatenate([part.written for part in self._parts])
        if not written.any():
            raise ReadError(f"{source}: no row has a loss; expected one row per training step")
        values = {
            quantity: np.concatenate([part.values[quantity] for part in self._parts])
            for quantity in self._names
        }
        further = dict.fromkeys(name for part in self._parts for name in part.present)
        present = {
            name: np.concatenate(
                [
                    part.present.get(name, np.ones(len(part.values[LOSS]), dtype=bool))
                    for part in self._parts
                ]
            )
            for name in further
        }
        beside = {name: self._losses_beside(name) for name in self._beside}
        splits = {
            name: [cell for part in self._parts for cell in part.splits[name]]
            for name in self._splits
        }
        records = training_records(
            values, self._names, present, source, written=written, beside=beside, splits=splits
        )
        said = records.further.said + sum(part.said for part in self._parts)
        return dataclasses.replace(records, further=dataclasses.replace(records.further, said=said))

    def _losses_beside(self, name: str) -> LossesOfRows:
        losses, written = zip(*(part.beside[name] for part in self._parts), strict=True)
        return np.concatenate(losses), np.concatenate(written)

    def _check_decimal_marks(self) -> None:
        """Raise ReadError where losses have decimal points and commas: "2,701" may be 2,701."""
        comma = next((part.comma for part in self._parts if part.comma is not None), None)
        if comma is not None and any(part.has_point for part in self._parts):
            where, text = comma
            raise ReadError(
                f"{where}: {text!r:.40} in a column of losses has a comma, and other losses have a "
                "decimal point; expected one decimal mark in a file; write this loss with a point, "
                "and without a comma between thousands"
            )


def _is_regular(table: DelimitedTable, rows: int) -> bool:
    """Whether all rows have the first line's cells, as far as the number of delimiters shows it; of
    a table of blanks, the first row.
    """
    if table.delimiter is None:
        return len(table.body.split("\n", 1)[0].split()) == len(table.first)
    return table.body.count(table.delimiter) == rows * (len(table.first) - 1)


def _parse_fast(table: DelimitedTable, places: Sequence[int]) -> FloatArray | None:
    """The columns (k, R) at these places, or None where some cell is no plain number."""
    try:
        values: FloatArray = np.loadtxt(
            io.StringIO(table.body),
            delimiter=table.delimiter,
            usecols=places,
            comments=None,
            ndmin=2,
            dtype=np.float64,
        )
    except (ValueError, IndexError):
        return None
    return values.T


def _cells_of_row(line: str, delimiter: str | None, width: int) -> list[str]:
    """The cells of a row. Another writer may separate them by another sign: by that one they are as
    many numbers as there are names, and by the sign of the first line fewer cells.
    """
    cells = fields(line, delimiter) or [""]
    if len(cells) >= width or width < 2:
        return cells
    # commas may be decimal ones, where no number has a point
    signs = [
        sign for sign in (*DELIMITERS, None) if sign != delimiter and ("." in line or sign != ",")
    ]
    others = {tuple(fields(line, sign)) for sign in signs}
    whole = [row for row in others if len(row) == width and all(map(is_number, row))]
    return [*whole[0]] if len(whole) == 1 else cells


def _cells_of_columns(table: DelimitedTable, places: Mapping[str, int]) -> dict[str, list[str]]:
    """The cells (R,) at these places by name, of a table whose rows are whole."""
    if not places:
        return {}
    rows = [fields(line, table.delimiter) for line in table.body.splitlines() if line.strip()]
    return {name: [cells[place] for cells in rows] for name, place in places.items()}


def _may_have_empty_cells(table: DelimitedTable) -> bool:
    """Whether a row may have a cell without a value, so that rows are read one by one."""
    body, mark = table.body, table.delimiter
    if len(table.first) == 1 and re.search(r"^\s*$", body[:-1], re.MULTILINE):
        return True
    if mark is not None and any(
        f"{before}{after}" in body
        for before in (mark, "\n")
        for after in (mark, f" {mark}", f"-{mark}", "--")
    ):
        return True
    if mark is not None and (
        body.startswith(mark) or any(f"{mark}{end}" in body for end in ("\n", "\r", " "))
    ):
        return True
    return ("n" in body or "N" in body) and _EMPTY_WORD.search(body) is not None


def _parse_slowly(
    table: DelimitedTable,
    columns: Mapping[str, int],
    header: Sequence[str],
    names: Sequence[str],
    beside: Mapping[str, int],
    splits: Mapping[str, int],
) -> _Part:
    """Row by row, to name the line of what is wrong; empty cells are allowed, but for the step of a
    row with a loss.

    Where the columns are those of one of several runs in the table, rows that have nothing of it
    are those of the others.
    """
    rows: list[list[float]] = []
    losses: list[list[float | None]] = []
    groups: list[list[str]] = []
    present: list[list[bool]] = []
    written: list[bool] = []
    planned: set[int] = set()
    comma: tuple[str, str] | None = None
    has_point = False
    said = 0
    width = len(table.first)
    # between the cells of a whole row: in a wider one, a cell may be empty
    whole_row = (line for line in io.StringIO(table.body) if len(line.split()) == width)
    widest_gap = _widest_gap(next(whole_row, "")) if table.delimiter is None else None
    step_place = columns.get(STEP)
    run_places = [
        place for place, name in enumerate(header) if name in names and place != step_place
    ]
    others = [place for place in run_places if place not in columns.values()]
    shares_rows = len(run_places) + (step_place is not None) < width
    for number, line in enumerate(io.StringIO(table.body), table.line):
        if not line.strip() and width > 1:
            continue
        cells = _cells_of_row(line.rstrip("\r\n"), table.delimiter, width)
        where = f"{table.source}, line {number}"
        if cells == table.first and table.has_header:
            continue  # a restart wrote the names again
        _check_number_of_cells(cells, line, width, widest_gap, columns[LOSS], where)
        if shares_rows and not any(cells[place] for place in run_places if place < len(cells)):
            continue
        without = cells[columns[LOSS]].lower() in MISSING
        first = cells if step_place is None else cells[step_place : step_place + 1]
        if without and width > 1 and first and all(cell.lower() in MISSING for cell in first):
            said += any(
                field_says_not_finite(name, cells[place])
                for name, place in beside.items()
                if place < len(cells)
            )
            continue  # a row without step and loss is no record of training
        # of a line that is cut there is none
        step = "".join(first) if step_place is not None else ""
        if (of_total := step_of_total(step)) is not None:
            planned.add(of_total[1])
        written.append(not without or cells[columns[LOSS]].lower() == "nan")
        values_of_row = [_cell(cells, columns, where, quantity) for quantity in columns]
        rows.append(values_of_row)
        groups.append([cells[place] if place < len(cells) else "" for place in splits.values()])
        losses.append([_written_number(cells, place) for place in beside.values()])
        for (quantity, place), value in zip(columns.items(), values_of_row, strict=True):
            if quantity in _LOSSES and place < len(cells) and not math.isnan(value):
                if _has_comma(cells[place]):
                    comma = comma or (where, cells[place])
                else:
                    has_point = has_point or (math.isfinite(value) and not value.is_integer())
        present.append(
            [place < len(cells) and cells[place].lower() not in MISSING for place in others]
        )
    values = dict(zip(columns, np.array(rows, np.float64).reshape(-1, len(columns)).T, strict=True))
    there = np.array(present, dtype=bool).reshape(len(present), len(others))
    by_name = {header[place]: there[:, at] for at, place in enumerate(others)}
    return _Part(
        values=values,
        present=by_name,
        written=np.array(written, dtype=bool),
        beside={
            name: _losses_of_rows(column)
            for name, column in zip(beside, zip(*losses, strict=True), strict=True)
        }
        if losses
        else {name: _losses_of_rows(()) for name in beside},
        splits={name: [cells[at] for cells in groups] for at, name in enumerate(splits)},
        planned=planned,
        has_point=has_point,
        comma=comma,
        said=said,
    )


def _check_number_of_cells(
    cells: Sequence[str],
    line: str,
    width: int,
    widest_gap: int | None,
    loss_place: int,
    where: str,
) -> None:
    """Raise ReadError where a row has more cells than names, none for the loss, or in a table of
    blanks fewer and a wider gap than whole rows have.
    """
    if any(cell.strip() for cell in cells[width:]):
        raise ReadError(
            f"{where}: {len(cells)} cells; expected {width}, as in line 1 (write decimals with "
            "a point)"
        )
    if widest_gap is not None and len(cells) < width and _widest_gap(line) > widest_gap + 1:
        raise ReadError(
            f"{where}: {len(cells)} cells with a gap between them; expected {width}, as in "
            "line 1; blanks do not tell which cell is empty: write nan in it, or separate the "
            "cells by commas"
        )
    if len(cells) <= loss_place:
        raise ReadError(
            f"{where}: nothing in the loss column; expected {width} cells, as in line 1"
        )


def _widest_gap(line: str) -> int:
    """How many blanks stand between two cells of a row, at most."""
    return max(map(len, re.findall(r" +", line.strip())), default=1)


def _is_broken(values: FloatArray) -> BoolArray:
    """Which values have digits behind their decimal mark."""
    broken: BoolArray = np.isfinite(values) & (values != np.floor(values))
    return broken


def _has_comma(text: str) -> bool:
    """Whether a number has a decimal comma."""
    return text.count(",") == 1 and "." not in text


def _written_number(cells: Sequence[str], place: int) -> float | None:
    """The number in a cell, NaN in so many letters too; None where there is none."""
    text = cells[place].strip() if place < len(cells) else ""
    if text.lower() in MISSING:
        return math.nan if text.lower() == "nan" else None
    number = flag_number(text)
    return plain_number(text.replace(",", ".")) if number is None and _has_comma(text) else number


def _losses_of_rows(column: Sequence[float | None]) -> LossesOfRows:
    """The numbers (R,) of a column, NaN where there are none, and where there are."""
    written = np.array([number is not None for number in column], dtype=bool)
    return np.array([math.nan if number is None else number for number in column]), written


def _cell(
    cells: Sequence[str],
    columns: Mapping[str, int],
    where: str,
    quantity: str,
) -> float:
    text = cells[columns[quantity]].strip() if columns[quantity] < len(cells) else ""
    if quantity != STEP and text.lower() in MISSING:
        return float("nan")
    loss = cells[columns[LOSS]] if columns[LOSS] < len(cells) else ""
    value = plain_number(text)
    if value is None and quantity == UNIX_SECONDS:
        value = seconds_of_date(text)
    if quantity == STEP and _THOUSANDS[_has_comma(loss)].fullmatch(text):
        value = float(re.sub("[.,]", "", text))
    elif value is None and quantity == STEP and (of_total := step_of_total(text)) is not None:
        value = float(of_total[0])
    elif value is None and quantity != STEP and _has_comma(text):
        # a decimal comma; of a step it could be one between thousands
        value = plain_number(text.replace(",", "."))
    if value is None and quantity in (EPOCH, MICRO_STEP):
        return math.nan
    if value is None:
        shown = repr(text[:40]) if text else "nothing"
        raise ReadError(
            f"{where}: {shown} in the {quantity} column; expected a number (nan and inf are "
            "allowed)"
        )
    if quantity == STEP:
        return step_number(value, where)
    return value
