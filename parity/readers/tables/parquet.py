"""Parquet tables, through pyarrow where it is installed (extra `readers`)."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from parity.extras import installation
from parity.judging.curves.curve import FloatArray
from parity.readers.columns.absence import columns_of, training_records
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.long_table import long_layout
from parity.readers.columns.names import LOSS, STEP, find_columns
from parity.readers.columns.not_finite_columns import flag_number
from parity.readers.columns.second_losses import LossesOfRows, losses_beside
from parity.readers.columns.several_runs import SHOWN, run_column
from parity.readers.columns.splits import is_split_column
from parity.readers.errors import ReadError

_SUFFIX = ".parquet"


def is_parquet_file(name: str) -> bool:
    """Whether a path is a Parquet file, by its name."""
    return name.endswith(_SUFFIX)


def read_parquet(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """Columns of a table. One of several runs or metrics is refused."""
    parquet = _pyarrow(path)
    with _readable(path):
        names = parquet.read_schema(path).names
        _refuse_several(parquet, path, names, named_columns)
        by_quantity = find_columns(names, named_columns, path)
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
    # NaN is written where it is no null
    written = np.asarray(table[by_quantity[LOSS]].is_valid().to_numpy(), dtype=bool)
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
    with _readable(path):
        beside = _losses_beside(parquet, path, losses_beside(names, found[LOSS]))
        of_splits = [name for name in names if is_split_column(name)]
        cells = parquet.read_table(path, columns=of_splits)
        splits = {name: cells[name].to_pylist() for name in of_splits}
    records = training_records(
        columns, found, present, path, written=written, beside=beside, splits=splits
    )
    return columns_of(records, found, names)


def _losses_beside(parquet: Any, path: str, names: Sequence[str]) -> dict[str, LossesOfRows]:
    """Further losses of rows (R,), and where they are written, by name."""
    table = parquet.read_table(path, columns=[*names]) if names else {}
    losses = {}
    for name in names:
        with suppress(TypeError, ValueError):
            column = table[name].to_numpy()
            if column.dtype.kind == "O":  # text, such as "True"
                numbers = [np.nan if cell is None else flag_number(str(cell)) for cell in column]
                column = np.array(numbers, dtype=np.float64)
            values = np.asarray(column, dtype=np.float64)
            losses[name] = values, np.asarray(table[name].is_valid().to_numpy(), dtype=bool)
    return losses


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
            f"{path}: reading Parquet needs pyarrow; install it: {installation('readers')}"
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


def _refuse_several(
    parquet: Any, path: str, names: list[str], named_columns: Mapping[str, str]
) -> None:
    """Raise ReadError for a long table, and for rows of several runs: Parquet files are read by
    column.
    """
    if layout := long_layout(names, named_columns, path):
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
