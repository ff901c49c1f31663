"""Tables of one run: CSV and its relatives, long tables with the metric's name in a column,
Parquet, and NumPy archives.
"""

import csv
import dataclasses
import importlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray, whole_steps
from parity.readers.absence import Records, columns_of, training_records
from parity.readers.columns import (
    KNOWN_NAMES,
    LOSS,
    STEP,
    Columns,
    ReadError,
    find_columns,
    plain_number,
    step_number,
)
from parity.readers.lines import Growing
from parity.readers.series import from_series
from parity.wording import first_few

# Long tables: one row per value, with the metric's name and perhaps the run's in columns of their
# own, and tables of several runs.
#
# MLflow's download has `run_id,key,value,step,timestamp`; others call the metric `metric`, `name`
# or `tag`. Such a table has as many loss columns as it has metrics: it is split by metric and run
# before a column is chosen, so that no metric or run is read as another.
#
# Source: `convertMetricsToCsv` in MLflow's web page (run_id, then the keys of a history entry).

METRIC_NAMES = ("key", "metric", "metric_name", "tag", "name")
VALUE_NAMES = ("value", "metric_value", "scalar")
RUN_NAMES = ("run_id", "run_uuid", "run", "run_name", "run id", "run name")
ARM_NAMES = ("arm", "precision", "recipe")
SHOWN = 10

Row = tuple[int, Mapping[str, object]]
"""A row with the number of its line."""


@frozen
class Layout:
    """Where a long table keeps the metric's name, its value, the step and, where there is one, the
    run.
    """

    metric: str
    value: str
    step: str
    run: str | None


def long_layout(names: Sequence[str], wanted: Mapping[str, str], source: str) -> Layout | None:
    """The layout of a long table, None for any other table, such as one with a loss column next to
    a name and a value.

    Raises ReadError for a long table without a step.
    """
    metric, value = _one_of(names, METRIC_NAMES), _one_of(names, VALUE_NAMES)
    has_loss = _one_of(
        names, [name for name in KNOWN_NAMES[LOSS] if name not in VALUE_NAMES]
    ) or wanted.get(LOSS) in set(names) - {value}
    if metric is None or value is None or has_loss:
        return None
    step = wanted.get(STEP) or _one_of(names, KNOWN_NAMES[STEP])
    if step is None or step not in names:
        raise ReadError(
            f"{source}: a long table ({metric}, {value}) without a step column; name it with "
            "--column step=NAME"
        )
    return Layout(metric=metric, value=value, step=step, run=run_column(names))


class SeveralRunsError(ReadError):
    """A file or folder of several runs, none of which was named; `names` lists what to type for
    each.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def run_column(names: Sequence[str]) -> str | None:
    """The column that names a row's run."""
    return _one_of(names, RUN_NAMES)


def arm_column(names: Sequence[str]) -> str | None:
    """The column that names a row's arm, by a known name; in a table of one run an arm it tells the
    runs apart.
    """
    return _one_of(names, ARM_NAMES)


def choose_run(runs: Iterable[str], run: str | None, source: str) -> str:
    """The run that is named, or the only one; raises ReadError that lists them where there are
    several.
    """
    listed = list(dict.fromkeys(runs))
    shown = first_few(listed, SHOWN)
    if run is None and len(listed) > 1:
        raise SeveralRunsError(
            f"{source} holds {len(listed)} runs; name one as {source}:RUN, of {shown}",
            tuple(f"{source}:{each}" for each in listed),
        )
    if run is not None and run not in listed:
        raise ReadError(f"{source}: no run {run!r}; there are {shown}")
    return listed[0] if run is None else run


def read_long(
    rows: Iterable[Row], layout: Layout, wanted: Mapping[str, str], source: str, run: str | None
) -> Columns:
    """Columns of one run of (line, row) pairs, a metric each; raises ReadError with the line of
    what is wrong.
    """
    by_run: dict[str, list[Row]] = {}
    for number, row in rows:
        by_run.setdefault(str(row.get(layout.run) if layout.run else ""), []).append((number, row))
    if not by_run:
        raise ReadError(f"{source}: a header but no rows; expected one row per step and metric")
    if run is not None and layout.run is None:
        raise ReadError(
            f"{source}: no column names the run, so there is no run {run!r}; expected one of "
            f"{', '.join(RUN_NAMES)}"
        )
    chosen = choose_run(by_run, run if layout.run else None, source)
    series: dict[str, list[tuple[int, float]]] = {}
    for number, row in by_run[chosen]:
        where = f"{source}, line {number}"
        metric = str(row.get(layout.metric) or "").strip()
        if not metric:
            raise ReadError(
                f"{where}: no name in the column {layout.metric!r}; expected the name of a metric"
            )
        step = step_number(_number(row.get(layout.step), layout.step, where), where)
        value = row.get(layout.value)
        is_nothing = value is None or str(value).strip().lower() in MISSING
        series.setdefault(metric, []).append(
            (int(step), float("nan") if is_nothing else _number(value, layout.value, where))
        )
    return from_series(series, series.__getitem__, wanted, source, layout.step)


def _one_of(names: Sequence[str], known: Sequence[str]) -> str | None:
    by_plain = {name.strip().lower(): name for name in reversed(names)}
    return next((by_plain[word] for word in known if word in by_plain), None)


def _number(value: object, column: str, where: str) -> float:
    number = plain_number(value)
    if number is None:
        raise ReadError(
            f"{where}: {value!r} in the column {column!r}; expected a number (nan and inf are "
            "allowed)"
        )
    return number


# CSV and its relatives (tab, semicolon, blanks): a header line of names, or two bare columns of
# step and loss.
#
# A table of several runs has a column that names them, or columns such as "run 7 - train/loss"; one
# run is read, named as `file.csv:RUN`.

DELIMITERS = ("\t", ";", ",", "|")
MISSING = ("", "none", "null", "na", "n/a", "<na>", "nan", "-", "--")
"""What stands in a cell without a value, in lower case."""
_RUN_SEPARATOR = " - "
_BARE = {STEP: "column 1", LOSS: "column 2"}
"""The columns of a table without a header."""
_LOOKED_AT = 1 << 13  # characters
_NUMBER = re.compile(r"\d[\d.]*")
_EMPTY_WORD = re.compile(r"\bnone\b|\bnull\b|\bn/?a\b|\bnan\b", re.IGNORECASE)
_BARE = {STEP: "column 1", LOSS: "column 2"}
"""The columns of a table without a header."""
_LOOKED_AT = 1 << 13  # characters
_NUMBER = re.compile(r"\d[\d.]*")


@frozen
class Table:
    """A table as text: the cells of its first line, what separates them (None: blanks), and its
    rows with the number of the first one.

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
        """(line, row by name) of each row; raises ReadError where one has other cells than the
        header.
        """
        rows: list[Row] = []
        try:
            marked: Iterable[list[str]]
            if self.delimiter:
                marked = csv.reader(io.StringIO(self.body), delimiter=self.delimiter)
            else:
                marked = map(str.split, self.body.splitlines())
            for number, cells in enumerate(marked, self.line):
                if not cells:
                    continue
                if len(cells) != len(self.first):
                    raise ReadError(
                        f"{self.source}, line {number}: {len(cells)} cells; expected "
                        f"{len(self.first)}, as in the header"
                    )
                rows.append(
                    (number, dict(zip(self.first, (cell.strip() for cell in cells), strict=True)))
                )
        except csv.Error:
            raise ReadError(f"{self.source}: not valid CSV; check the quotes in the file") from None
        return rows


def as_table(text: str, source: str) -> Table:
    """The table in a text that is not empty."""
    start = next(at for at, letter in enumerate(text) if letter not in "\r\n")
    head, _, rest = text[start:].partition("\n")
    first = head.rstrip("\r")
    delimiter = (
        max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else None
    )
    line = text.count("\n", 0, start) + 1
    table = Table(
        source=source,
        first=_fields(first, delimiter),
        delimiter=delimiter,
        body=text[start:],
        line=line,
    )
    if not table.has_header:
        return table
    body = rest.lstrip("\r\n")
    return dataclasses.replace(
        table, body=body, line=line + 1 + rest.count("\n", 0, len(rest) - len(body))
    )


def is_prose(text: str, source: str) -> bool:
    """Whether a text is no table: its first line names no step and no loss, and says things, as the
    next one does, or most lines have other numbers of cells.
    """
    table = as_table(text, source)
    if table.delimiter is None and any(map(is_number, table.first)):
        return table.has_header
    if not table.has_header or any(
        _one_of(table.first, KNOWN_NAMES[quantity]) for quantity in (STEP, LOSS)
    ):
        return False
    if any(mark in name for name in table.first for mark in ("=", ": ")):
        return True
    lines = [line for line in table.body[:_LOOKED_AT].split("\n")[:-1] if line.strip()]
    if lines and _fields(_NUMBER.sub("0", lines[0]), table.delimiter) == [
        _NUMBER.sub("0", name) for name in table.first
    ]:
        return True
    return 2 * sum(len(_fields(line, table.delimiter)) != len(table.first) for line in lines) > len(
        lines
    )


class GrowingTable(Growing):
    """A table that may still grow: its first line decides which columns are read, and no later line
    revises a loss. Whether a row without a loss is a record may depend on later ones
    (`parity.readers.absence`).

    A long table, or one with a column of runs, is read again each time that its columns are asked
    for: a second run is refused where none is named.
    """

    def __init__(self, source: str, wanted: Mapping[str, str], run: str | None = None) -> None:
        super().__init__(source)
        self._wanted, self._run = wanted, run
        self._first: Table | None = None
        self._kept: list[str] = []
        self._names: Sequence[str] = ()
        self._rows: _Rows | None = None

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
            self._kept.append(table.body)
        else:
            self._rows.take(table)

    def _begin(self, table: Table) -> None:
        """Take the first line; the rows of a plain table of one run are read at once from here on,
        those of others are kept.
        """
        if not table.has_header:
            _refuse_bare(table, self._wanted, self._run)
            self._rows = _Rows(_BARE, [*_BARE.values()], [*_BARE.values()])
        elif long_layout(table.first, self._wanted, self._source) is None and not _column_of_runs(
            table.first, self._run
        ):
            self._names = _names_of_run(table, self._wanted, self._run)
            by_quantity = find_columns(self._names, self._wanted, self._source)
            self._rows = _Rows(by_quantity, self._names, table.first)

    def columns(self) -> Columns:
        """The run so far; raises ReadError where it has no row with a loss, or the run is not in
        it.
        """
        if self._first is None:
            raise ReadError(
                f"{self._source}: the file is empty; expected one line per training step"
            )
        table, source = self._first, self._source
        if self._rows is not None and not table.has_header:
            return _bare_columns(self._rows, source)
        if self._rows is not None:
            by_quantity = find_columns(self._names, self._wanted, source)
            return columns_of(self._rows.records(source), by_quantity, self._names)
        table = dataclasses.replace(table, body="".join(self._kept))
        if layout := long_layout(table.first, self._wanted, source):
            return read_long(table.rows(), layout, self._wanted, source, self._run)
        by_quantity = find_columns(table.first, self._wanted, source)
        rows = _Rows(by_quantity, table.first, table.first)
        rows.take(_rows_of_run(table, self._run))
        return columns_of(rows.records(source), by_quantity, table.first)


def _column_of_runs(names: Sequence[str], run: str | None) -> str | None:
    return run_column(names) or (None if run is None else arm_column(names))


def _rows_of_run(table: Table, run: str | None) -> Table:
    """The rows of one run of a table with a column of runs; other rows become empty lines, so that
    line numbers stay.
    """
    index = table.first.index(_column_of_runs(table.first, run) or "")
    lines = [
        (line, _fields(line, table.delimiter) if line.strip() else [])
        for line in table.body.splitlines()
    ]
    own = [cells[index] if index < len(cells) else "" for _, cells in lines]
    runs = [name for name, (line, _) in zip(own, lines, strict=True) if line.strip()]
    chosen = choose_run(runs, run, table.source) if runs else None
    return dataclasses.replace(
        table,
        body="\n".join(
            line if name == chosen else "" for name, (line, _) in zip(own, lines, strict=True)
        ),
    )


def _names_of_run(table: Table, wanted: Mapping[str, str], run: str | None) -> Sequence[str]:
    """The columns of one run, where their names may begin with its name."""
    names = table.first
    exported = dict.fromkeys(
        before
        for before, _, name in (each.rpartition(_RUN_SEPARATOR) for each in names)
        if name.lower() in KNOWN_NAMES[LOSS]
    )
    exported.pop("", None)
    has_loss = LOSS in wanted or any(name.lower() in KNOWN_NAMES[LOSS] for name in names)
    if run is None and (len(exported) < 2 or has_loss):
        return names
    if not exported:
        raise ReadError(
            f"{table.source}: no column names the run, so there is no run {run!r}; expected a "
            "column such as run_id"
        )
    chosen = choose_run(exported, run, table.source)
    return [
        name
        for name in names
        if _RUN_SEPARATOR not in name or name.rpartition(_RUN_SEPARATOR)[0] == chosen
    ]


def _refuse_bare(table: Table, wanted: Mapping[str, str], run: str | None) -> None:
    """Raise ReadError for a table without a header that cannot be read as one of step and loss."""
    source = table.source
    if wanted:
        raise ReadError(
            f"{source}: there is no header line, so no column {next(iter(wanted.values()))!r}; "
            "expected names in line 1"
        )
    if run is not None:
        raise ReadError(
            f"{source}: there is no header line, so there is no run {run!r}; expected names in "
            "line 1"
        )
    if len(table.first) != 2:
        raise ReadError(
            f"{source}: no header and {len(table.first)} columns; expected two (step, loss), or a "
            "first line with names"
        )


def _bare_columns(rows: "_Rows", source: str) -> Columns:
    """Step and loss of a table without a header."""
    records = rows.records(source)
    loss = records.values[LOSS]
    if len(loss) > 1 and bool((np.floor(loss) == loss).all()) and bool((np.diff(loss) > 0).all()):
        raise ReadError(
            f"{source}: no header, and both columns could be the step; expected a first line with "
            "names, such as step,loss"
        )
    return columns_of(records, _BARE).noted(
        "no header line: the first column is read as the step, the second as the loss"
    )


@frozen(eq=False)
class _Part:
    """Rows of a table that follow each other: values (R,) by quantity, the loss NaN where its cell
    is empty; in which rows other columns have a value, (R,) by name, no name where every cell has
    one; and in which the loss is written, NaN in so many letters too.
    """

    values: Mapping[str, FloatArray]
    present: Mapping[str, BoolArray]
    written: BoolArray


class _Rows:
    """The rows of a table that were read: `names` are the columns by quantity, `of_run` all columns
    of the run, of those in the header.
    """

    def __init__(
        self, names: Mapping[str, str], of_run: Sequence[str], header: Sequence[str]
    ) -> None:
        self._names = names
        self._of_run = of_run
        self._header = header
        self._places = {quantity: header.index(name) for quantity, name in names.items()}
        self._parts: list[_Part] = []

    def take(self, table: Table) -> None:
        """Read the rows of a table, or of a part of it; raises ReadError with the line of what is
        wrong.
        """
        if not table.body or table.body.isspace():
            return
        values = None if _may_have_empty_cells(table) else _parse_fast(table, self._places)
        if (
            values is None
            or not whole_steps(values[STEP]).all()
            or not _is_regular(table, len(values[STEP]))
        ):
            self._parts.append(_parse_slowly(table, self._places, self._header, self._of_run))
        else:
            self._parts.append(
                _Part(values=values, present={}, written=np.ones(len(values[STEP]), dtype=bool))
            )

    def records(self, source: str) -> Records:
        """The records of training; raises ReadError where no row has a loss."""
        if not self._parts:
            raise ReadError(f"{source}: a header but no rows; expected one row per training step")
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
        return training_records(values, self._names, present, source, written=written)


def _is_regular(table: Table, rows: int) -> bool:
    """Whether all rows have the first line's cells, as far as the number of delimiters shows it; of
    a table of blanks, the first row.
    """
    if table.delimiter is None:
        return len(table.body.split("\n", 1)[0].split()) == len(table.first)
    return table.body.count(table.delimiter) == rows * (len(table.first) - 1)


def _parse_fast(table: Table, columns: Mapping[str, int]) -> Mapping[str, FloatArray] | None:
    """All columns, or None where some cell is no plain number."""
    try:
        values = np.loadtxt(
            io.StringIO(table.body),
            delimiter=table.delimiter,
            usecols=list(columns.values()),
            comments=None,
            ndmin=2,
            dtype=np.float64,
        )
    except (ValueError, IndexError):
        return None
    return dict(zip(columns, values.T, strict=True))


def _may_have_empty_cells(table: Table) -> bool:
    """Whether a row may have a cell without a value, so that rows are read one by one."""
    body, mark = table.body, table.delimiter
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
    table: Table, columns: Mapping[str, int], header: Sequence[str], names: Sequence[str]
) -> _Part:
    """Row by row, to name the line of what is wrong; empty cells are allowed, but for the step of a
    row with a loss.

    Where the columns are those of one of several runs in the table, rows that have nothing of it
    are those of the others.
    """
    rows: list[list[float]] = []
    present: list[list[bool]] = []
    written: list[bool] = []
    width = len(table.first)
    own = [place for place, name in enumerate(header) if name in names and place != columns[STEP]]
    others = [place for place in own if place not in columns.values()]
    shares_rows = len(own) + 1 < width
    for number, line in enumerate(io.StringIO(table.body), table.line):
        if not line.strip():
            continue
        cells = _fields(line.rstrip("\r\n"), table.delimiter)
        where = f"{table.source}, line {number}"
        if any(cell.strip() for cell in cells[width:]):
            raise ReadError(
                f"{where}: {len(cells)} cells; expected {width}, as in line 1 (write decimals with "
                "a point)"
            )
        if len(cells) <= columns[LOSS]:
            raise ReadError(
                f"{where}: nothing in the loss column; expected {width} cells, as in line 1"
            )
        if shares_rows and not any(cells[place] for place in own if place < len(cells)):
            continue
        without = cells[columns[LOSS]].lower() in MISSING
        if without and len(cells) > columns[STEP] and cells[columns[STEP]].lower() in MISSING:
            continue  # a row without step and loss is no record of training
        written.append(not without or cells[columns[LOSS]].lower() == "nan")
        rows.append([_cell(table, cells, columns, where, quantity) for quantity in columns])
        present.append(
            [place < len(cells) and cells[place].lower() not in MISSING for place in others]
        )
    values = dict(zip(columns, np.array(rows, np.float64).reshape(-1, len(columns)).T, strict=True))
    there = np.array(present, dtype=bool).reshape(len(present), len(others))
    by_name = {header[place]: there[:, at] for at, place in enumerate(others)}
    return _Part(values=values, present=by_name, written=np.array(written, dtype=bool))


def _cell(
    table: Table, cells: Sequence[str], columns: Mapping[str, int], where: str, quantity: str
) -> float:
    text = cells[columns[quantity]].strip() if columns[quantity] < len(cells) else ""
    if quantity != STEP and text.lower() in MISSING:
        return float("nan")
    value = plain_number(text)
    if value is None and quantity != STEP and table.delimiter in (";", "\t"):
        # a decimal comma; of a step it could be one between thousands
        value = plain_number(text.replace(",", ".", 1))
    if value is None:
        shown = repr(text[:40]) if text else "nothing"
        raise ReadError(
            f"{where}: {shown} in the {quantity} column; expected a number (nan and inf are "
            "allowed)"
        )
    if quantity == STEP:
        return step_number(value, where)
    return value


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


# Parquet tables, through pyarrow where it is installed (extra `readers`).

SUFFIX = ".parquet"


def read_parquet(path: str, wanted: Mapping[str, str]) -> Columns:
    """Columns of a table. One of several runs or metrics is refused."""
    parquet = _pyarrow(path)
    with _readable(path):
        names = parquet.read_schema(path).names
        _refuse_several(parquet, path, names, wanted)
        by_quantity = find_columns(names, wanted, path)
        table = parquet.read_table(path, columns=sorted(set(by_quantity.values())))
    columns: dict[str, FloatArray] = {}
    for quantity, name in by_quantity.items():
        try:
            columns[quantity] = np.asarray(table[name].to_numpy(), dtype=np.float64)
        except (TypeError, ValueError):
            if quantity in (STEP, LOSS):
                raise ReadError(
                    f"{path}: column {name!r} is {table[name].type}; expected numbers in the "
                    f"{quantity} column"
                ) from None
    present = {}
    if np.isnan(columns[LOSS]).any():
        with _readable(path):
            whole = parquet.read_table(path)
        present = {
            name: np.asarray(whole[name].is_valid().to_numpy(), dtype=bool)
            for name in names
            if name not in by_quantity.values()
        }
    found = {quantity: by_quantity[quantity] for quantity in columns}
    return columns_of(training_records(columns, found, present, path), found, names)


def parquet_cells(path: str) -> dict[str, list[object]]:
    """Every column of a Parquet file by name, one cell per row; None where a row has no value."""
    parquet = _pyarrow(path)
    with _readable(path):
        table = parquet.read_table(path)
        if len(set(table.column_names)) < len(table.column_names):
            raise ReadError(
                f"{path}: two columns have the same name; expected one name per column; rename one "
                "of them"
            )
        return {name: table[name].to_pylist() for name in table.column_names}


def _pyarrow(path: str) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ReadError(
            f"{path}: reading Parquet needs pyarrow; install it with: pip install pyarrow"
        ) from None


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn pyarrow's own errors into one line."""
    try:
        yield
    except ReadError:
        raise
    # the bases of pyarrow's own errors
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError):
        raise ReadError(
            f"{path}: not a readable Parquet file; write it again, or export CSV"
        ) from None


def _refuse_several(parquet: Any, path: str, names: list[str], wanted: Mapping[str, str]) -> None:
    """Raise ReadError for a long table, and for rows of several runs: Parquet files are read by
    column.
    """
    if layout := long_layout(names, wanted, path):
        raise ReadError(
            f"{path}: a long table ({layout.metric}, {layout.value}) as Parquet cannot be split; "
            "export it as CSV"
        )
    if column := run_column(names):
        runs = dict.fromkeys(
            map(str, parquet.read_table(path, columns=[column])[column].to_pylist())
        )
        if len(runs) > 1:
            raise ReadError(
                f"{path} holds {len(runs)} runs ({', '.join(list(runs)[:SHOWN])}); export it as "
                "CSV and name one as FILE.csv:RUN"
            )


# NumPy archives of many runs, `<run>/step` and `<run>/loss` (T,): one run is named as
# `file.npz:run`.

NPZ = ".npz"

# what numpy and zipfile raise on damaged, encrypted or unknown archives
_UNREADABLE = (
    OSError,
    ValueError,
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    zlib.error,
)


def read_npz(path: str, run: str | None) -> tuple[Columns, str]:
    """Columns of one run of the archive, and its name; the only run where none is named,
    SeveralRunsError if there are more.
    """
    runs = _arrays(path)
    run = choose_run(sorted(runs), run, path)
    columns = runs[run]
    if LOSS not in columns:
        raise ReadError(
            f"{path}: run {run!r} has {', '.join(sorted(columns))}; expected '{run}/step' and "
            f"'{run}/loss'"
        )
    return Columns(values=dict(columns), names={STEP: f"{run}/{STEP}", LOSS: f"{run}/{LOSS}"}), run


def _arrays(path: str) -> dict[str, Mapping[str, FloatArray]]:
    """Arrays by run and quantity."""
    if not Path(path).is_file():
        if Path(path).is_dir():
            problem = "is a directory; expected a file"
        else:
            problem = "no such file; check the path"
        raise ReadError(f"{path}: {problem}")
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            flat = {key: np.asarray(archive[key]) for key in archive.files}
    except _UNREADABLE:
        raise ReadError(
            f"{path}: not a NumPy archive; expected arrays named '<run>/step' and '<run>/loss'"
        ) from None
    runs: dict[str, dict[str, FloatArray]] = {}
    for key, array in flat.items():
        run, _, quantity = key.rpartition("/")
        if array.ndim == 1 and array.dtype.kind in "iuf":
            runs.setdefault(run or "run", {})[quantity] = array
    usable: dict[str, Mapping[str, FloatArray]] = {
        run: columns for run, columns in runs.items() if STEP in columns
    }
    if not usable:
        raise ReadError(
            f"{path}: no array named '<run>/step'; found "
            f"{', '.join(sorted(flat)[:12]) or 'nothing'}"
        )
    return usable
