"""Parquet tables, through pyarrow where it is installed (extra `readers`)."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from parity.judging.curve import FloatArray
from parity.readers.columns import LOSS, STEP, Columns, find_columns, rows_with_loss
from parity.readers.long_table import SHOWN, long_layout, run_column
from parity.readers.source import ReadError

SUFFIX = ".parquet"


def read_parquet(path: str, wanted: Mapping[str, str]) -> Columns:
    """Columns of a table; rows without a loss are left out and counted. A table of several runs or metrics is refused."""
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
                raise ReadError(f"{path}: column {name!r} is {table[name].type}; expected numbers in the {quantity} column") from None
    missing = np.asarray(table[by_quantity[LOSS]].is_null().to_numpy(), dtype=bool)
    notes = (f"{int(missing.sum())} rows without a loss left out",) if missing.any() else ()
    return Columns(values=rows_with_loss(columns, missing), names=by_quantity, found=names, notes=notes)


def parquet_cells(path: str) -> dict[str, list[object]]:
    """Every column of a Parquet file by name, one cell per row; None where a row has no value."""
    parquet = _pyarrow(path)
    with _readable(path):
        table = parquet.read_table(path)
        if len(set(table.column_names)) < len(table.column_names):
            raise ReadError(f"{path}: two columns have the same name; expected one name per column; rename one of them")
        return {name: table[name].to_pylist() for name in table.column_names}


def _pyarrow(path: str) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow; install it with: pip install 'parity[readers]'") from None


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn pyarrow's own errors into one line."""
    try:
        yield
    except ReadError:
        raise
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError):  # the bases of pyarrow's own errors
        raise ReadError(f"{path}: not a readable Parquet file; write it again, or export CSV") from None


def _refuse_several(parquet: Any, path: str, names: list[str], wanted: Mapping[str, str]) -> None:
    """Raise ReadError for a long table, and for rows of several runs: Parquet files are read by column."""
    if layout := long_layout(names, wanted, path):
        raise ReadError(f"{path}: a long table ({layout.metric}, {layout.value}) as Parquet cannot be split; export it as CSV")
    if column := run_column(names):
        runs = dict.fromkeys(map(str, parquet.read_table(path, columns=[column])[column].to_pylist()))
        if len(runs) > 1:
            raise ReadError(
                f"{path} holds {len(runs)} runs ({', '.join(list(runs)[:SHOWN])}); export it as CSV and name one as FILE.csv:RUN"
            )
