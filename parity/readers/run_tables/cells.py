"""The cells of a table as they stand in the file, with the line of each: CSV and its relatives,
JSON lines, a JSON list, Parquet, or a folder of MLPerf logs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.readers.columns.long_table import Row
from parity.readers.columns.names import closest, did_you_mean, listed
from parity.readers.columns.not_finite_columns import flag_number
from parity.readers.columns.number import MISSING, plain_number
from parity.readers.columns.second_losses import LossesOfRows
from parity.readers.errors import ReadError
from parity.readers.files.text import read_text
from parity.readers.logs.json_log.documents import is_json
from parity.readers.logs.json_log.lines import json_records
from parity.readers.logs.lines.said import says_not_finite
from parity.readers.logs.mlperf import rows_of_folder
from parity.readers.logs.tensorboard import is_tensorboard_file
from parity.readers.tables.delimited import as_table
from parity.readers.tables.npz import NPZ
from parity.readers.tables.parquet import is_parquet_file, parquet_cells
from parity.readers.tables.plain_table import plain_table


@frozen(eq=False)
class TableCells:
    """A table's `columns` by name, one cell per row; `lines` numbers the rows, and `place` is what
    is numbered: a line, record or row. `remarks` are lines between the rows that say that a loss
    was not finite.
    """

    source: str
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int]
    place: str
    remarks: Sequence[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the file."""
        return tuple(self.columns)

    def where(self, row: int) -> str:
        """The file and the line of a row, for errors."""
        return f"{self.source}, {self.place} {self.lines[row]}"

    def require(self, column: str, what: str) -> None:
        """Raise ReadError where a column is missing; `what` says what it was named for."""
        if column not in self.columns:
            error = ReadError(
                f"{self.source}: no column {column!r} for {what}; the columns are "
                f"{listed(self.names)}{did_you_mean(column, self.names)}"
            )
            if close := closest(column, self.names):
                error.instead = {column: close[0]}
            raise error

    def rows_that_say(self, rows: Sequence[int]) -> int:
        """How many of some rows say in words that a loss was NaN or infinite."""
        said = {
            row
            for cells in self.columns.values()
            for row in rows
            if isinstance(cell := cells[row], str) and "loss" in cell.lower()
            if says_not_finite(cell)
        }
        return len(said)

    def where_equal(self, column: str, values: Collection[str]) -> "TableCells":
        """The rows that have one of the values in a column; raises ReadError where the column is
        missing or no row has one.
        """
        self.require(column, "--where")
        texts = self.texts(column)
        rows = [row for row, text in enumerate(texts) if text in values]
        if not rows:
            there = listed(list(dict.fromkeys(texts)))
            raise ReadError(
                f"{self.source}: no row has {column}={' or '.join(values)}; the column has {there}"
            )
        return self.select_rows(rows)

    def select_rows(self, rows: Sequence[int]) -> "TableCells":
        """These rows alone."""
        columns = {name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        return TableCells(
            source=self.source,
            columns=columns,
            lines=[self.lines[row] for row in rows],
            place=self.place,
            remarks=self.remarks,
        )

    def text(self, row: int, column: str) -> str:
        """A cell as text, "" for an empty one; a whole number is written without a point."""
        return _text(self.columns[column][row])

    def texts(self, column: str) -> list[str]:
        """A column as text, as `text` gives it."""
        return [_text(value) for value in self.columns[column]]

    def full_texts(self, column: str, what: str) -> list[str]:
        """A column as text; raises ReadError with the line of an empty cell."""
        texts = self.texts(column)
        if "" in texts:
            raise ReadError(
                f"{self.where(texts.index(''))}: the column {column!r} is empty; expected {what} "
                "in every row"
            )
        return texts

    def is_empty(self, row: int, column: str) -> bool:
        """Whether a cell holds nothing; NaN is a value."""
        value = self.columns[column][row]
        return value is None or (isinstance(value, str) and not value.strip())

    def number(self, row: int, column: str) -> float:
        """A cell as a number; raises ReadError with its line where it is not one."""
        value = self.columns[column][row]
        number = plain_number(value)
        if number is None:
            shown = "nothing" if self.is_empty(row, column) else repr(value)
            raise ReadError(
                f"{self.where(row)}: {shown:.60} in the column {column!r}; expected a number (nan "
                "and inf are allowed)"
            )
        return number

    def numbers(self, rows: Sequence[int], column: str) -> FloatArray:
        """The cells of some rows as numbers (n,), NaN for an empty one; raises ReadError with the
        line of any other text.
        """
        values = self.columns[column]
        return np.array(
            [
                np.nan if _text(values[row]).lower() in MISSING else self.number(row, column)
                for row in rows
            ],
            np.float64,
        )

    def losses(self, rows: Sequence[int], column: str) -> LossesOfRows:
        """The numbers (n,) in some rows of a column that is not known to hold any, NaN where a cell
        has none, and in which of them (n,) one is, or NaN is written.
        """
        cells = [self.columns[column][row] for row in rows]
        numbers = [_number_or_flag(cell) for cell in cells]
        written = [number is not None for number in numbers]
        return np.array(
            [np.nan if number is None else number for number in numbers], np.float64
        ), np.array(written, dtype=bool)


def _number_or_flag(cell: object) -> float | None:
    return None if cell is None else flag_number(str(cell))


def read_cells(source: str) -> TableCells:
    """The cells of a table from a path, a .gz or "-" (stdin). Raises ReadError for a file that is
    not a table with a header.
    """
    if (source.endswith(NPZ) or is_tensorboard_file(source)) and Path(source).is_file():
        raise ReadError(
            f"{source}: not a table of many runs; expected CSV, TSV, JSON lines or Parquet, with a "
            "column for the arm"
        )
    if is_parquet_file(source) and Path(source).is_file():
        columns = parquet_cells(source)
        rows = len(next(iter(columns.values()), []))
        cells = TableCells(source=source, columns=columns, lines=range(1, rows + 1), place="row")
    elif Path(source).is_dir():
        runs = rows_of_folder(Path(source))
        if not runs:
            raise ReadError(
                f"{source}: a folder without an MLPerf log; expected result files, or a table of "
                "many runs"
            )
        names = dict.fromkeys(name for row in runs for name in row)
        columns = {name: [row.get(name) for row in runs] for name in names}
        cells = TableCells(
            source=source, columns=columns, lines=range(1, len(runs) + 1), place="row"
        )
    else:
        cells = _text_cells(read_text(source), source)
    if not cells.lines:
        raise ReadError(f"{source}: the table has no rows; expected one row per run and evaluation")
    return cells


def _text_cells(text: str, source: str) -> TableCells:
    rows: Sequence[Row]
    names: Iterable[str]
    if is_json(text):
        rows, place = json_records(text, source)
        names = dict.fromkeys(key for _, record in rows for key in record)
    else:
        table = as_table(plain_table(text, source), source)
        if not table.has_header:
            raise ReadError(
                f"{source}: there is no header line; expected names of columns in line 1"
            )
        names, place = table.first, "line"
        for name in names:
            if table.first.count(name) > 1:
                raise ReadError(
                    f"{source}: {table.first.count(name)} columns are called {name!r}; expected "
                    "one; rename the others"
                )
        rows = table.rows()
    columns = {name: [row.get(name) for _, row in rows] for name in names}
    return TableCells(
        source=source,
        columns=columns,
        lines=[number for number, _ in rows],
        place=place,
        remarks=_remarks(text),
    )


def _remarks(text: str) -> list[str]:
    """The remarks below the first line that say that a loss was not finite."""
    if "\n#" not in text:
        return []
    lines = text.splitlines()[1:]
    return [line for line in lines if line.startswith("#") and says_not_finite(line)]


def _text(value: object) -> str:
    if value is None or value != value:  # NaN names nothing
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
