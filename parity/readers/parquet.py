"""Parquet tables, through pyarrow where it is installed (extra `readers`)."""

import importlib
from collections.abc import Mapping

import numpy as np

from parity.judging.curve import FloatArray
from parity.readers.columns import LOSS, STEP, find_columns
from parity.readers.source import ReadError

SUFFIX = ".parquet"


def read_parquet(path: str, wanted: Mapping[str, str]) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Columns by quantity (T,), and notes; rows without a loss are left out and counted."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ReadError(f"{path}: reading Parquet needs pyarrow; install it with: pip install 'parity[readers]'") from None
    try:
        names = parquet.read_schema(path).names
        by_quantity = find_columns(names, wanted, path)
        table = parquet.read_table(path, columns=sorted(set(by_quantity.values())))
    except ReadError:
        raise
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError):  # the bases of pyarrow's own errors
        raise ReadError(f"{path}: not a readable Parquet file; write it again, or export CSV") from None
    columns: dict[str, FloatArray] = {}
    for quantity, name in by_quantity.items():
        try:
            columns[quantity] = np.asarray(table[name].to_numpy(), dtype=np.float64)
        except (TypeError, ValueError):
            if quantity in (STEP, LOSS):
                raise ReadError(f"{path}: column {name!r} is {table[name].type}; expected numbers in the {quantity} column") from None
    missing = np.asarray(table[by_quantity[LOSS]].is_null().to_numpy(), dtype=bool)
    notes = (f"{int(missing.sum())} rows without a loss left out",) if missing.any() else ()
    return {quantity: values[~missing] for quantity, values in columns.items()}, notes
