"""Runs that are in memory: a data frame (pandas, polars), a dict of arrays, or an array of losses
become a Curve.

They pass the checks of files: which column is which, which rows are records, plausible losses,
repeated steps, one unit. Null (polars, None, NA, a masked array) is NaN as in a file
(`parity.readers.columns.absence`). Neither pandas nor polars is imported here.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from parity.comparing.statements import InputError
from parity.judging.curves.curve import (
    BoolArray,
    Curve,
    FloatArray,
)
from parity.readers.columns.absence import columns_of, training_records
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.long_table import long_layout
from parity.readers.columns.names import LOSS, NUMBERED, POSITION, STEP, find_columns
from parity.readers.columns.second_losses import losses_beside
from parity.readers.columns.several_runs import run_column
from parity.readers.columns.splits import is_split_column
from parity.readers.curve.curve import curve_of
from parity.readers.curve.plausibility import check_stated
from parity.readers.errors import ColumnError, ReadError
from parity.readers.remedies import column_argument, with_tried_options
from parity.wording import count

OPTION = 'columns={{"{}": "NAME"}}'
EXPECTED = (
    'a path or source, a data frame, a dict such as {"step": ..., "loss": ...}, an array of '
    "losses, or a list of these for several runs"
)

_NUMBERS = "iufV"  # V: bfloat16 and other types of ml_dtypes


def curve_in_memory(data: Any, name: str, columns: Mapping[str, str]) -> Curve:
    """The curve of one run; `name` is what errors call it, `columns` maps quantities to columns, as
    for files.

    Raises TypeError for data of another kind, and ReadError or InputError for what cannot be one
    run's loss in nats.
    """
    names, column = _table(data, name)
    if names is None:
        return _curve_of_losses(data, name)
    if long_layout(names, columns, name):
        raise InputError(
            f"{name} is a long table with one row per value; expected a column of losses: pivot "
            "it, or write it to CSV"
        )
    _refuse_several_runs(names, column, name)
    try:
        return _curve_of_table(names, column, name, columns)
    except ColumnError as error:

        def read(tried: Mapping[str, str]) -> Curve:
            try:
                return _curve_of_table(names, column, name, tried)
            except InputError as refusal:
                raise ReadError(str(refusal)) from None

        raise with_tried_options(error, names, columns, read, form=column_argument) from None


def _curve_of_table(
    names: list[str], column: Callable[[str], Any], name: str, columns: Mapping[str, str]
) -> Curve:
    headers = find_columns(names, columns, name, OPTION, may_number=True)
    values = {}
    for quantity, header in list(headers.items()):
        if header == NUMBERED:
            continue
        numbers = _numbers(column(header), where := f"{name}: column {header!r}")
        if numbers is not None:
            values[quantity] = numbers
        elif quantity in (STEP, LOSS, *columns):
            raise InputError(
                f"{where} does not hold numbers; expected numbers (nan and inf are allowed)"
            )
        else:
            del headers[quantity]  # a guess, such as a time that is a date
    if headers[STEP] == NUMBERED:
        values[STEP] = np.arange(1.0, len(values[LOSS]) + 1)
    lengths = {quantity: len(numbers) for quantity, numbers in values.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{headers[quantity]} {length:,}" for quantity, length in lengths.items())
        raise InputError(
            f"{name}: the columns have different lengths ({shown}); expected one value per step in "
            "each"
        )
    beside = {}
    for header in losses_beside(names, headers[LOSS]):
        with suppress(TypeError, InputError):  # it may hold anything
            losses = _numbers(column(header), name, may_be_flags=True)
            if losses is not None and len(losses) == len(values[LOSS]):
                beside[header] = losses, np.ones(len(losses), dtype=bool)
    others = [header for header in names if header not in headers.values()]
    splits = {header: _cells(column(header)) for header in others if is_split_column(header)}
    records = training_records(
        values,
        headers,
        _present(names, column, values, headers),
        name,
        beside=beside,
        splits={key: cells for key, cells in splits.items() if len(cells) == len(values[LOSS])},
    )
    taken = dataclasses.replace(columns_of(records, headers, names), option=OPTION)
    if LOSS in columns:
        check_stated(taken.names[LOSS], name, taken.option)
    return curve_of(taken, name, label=name, stated=LOSS in columns)


def _present(
    names: Sequence[str],
    column: Callable[[str], Any],
    values: Mapping[str, FloatArray],
    headers: Mapping[str, str],
) -> dict[str, BoolArray]:
    """In which rows (R,) columns that are no quantity have a value; asked only where a row has no
    loss.
    """
    present = {}
    for name in names if np.isnan(values[LOSS]).any() else ():
        if name not in headers.values() and len(cells := _cells(column(name))) == len(values[LOSS]):
            present[name] = np.array(
                [
                    cell is not None and cell == cell and type(cell).__name__ != "NAType"
                    for cell in cells
                ],
                dtype=bool,
            )
    return present


def _cells(values: Any) -> Sequence[Any]:
    """The values of a column, whatever they are; none of what is no column."""
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, dtype=object)
    return list(array) if array.ndim == 1 else []


def _table(data: Any, name: str) -> tuple[list[str] | None, Callable[[str], Any]]:
    """The names of a table's columns and what gives the column of a name; None for names where the
    data is an array.
    """
    if isinstance(data, Mapping):
        return [str(key) for key in data], {
            str(key): value for key, value in data.items()
        }.__getitem__
    # of the type, because a lazy frame would resolve its own
    if hasattr(data, "collect") and hasattr(type(data), "columns"):
        raise TypeError(f"{name} is a lazy frame; expected a data frame: call .collect() first")
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return [str(label) for label in data.columns], lambda header: data[
            next(label for label in data.columns if str(label) == header)
        ]
    if hasattr(data, "to_numpy"):
        raise TypeError(
            f"{name} is a {type(data).__name__} without its steps; expected the data frame, or a "
            "dict with step and loss"
        )
    if not hasattr(data, "__array__") or isinstance(data, np.generic):
        raise TypeError(f"{name} is {type(data).__name__}; expected {EXPECTED}")
    return None, _missing_column


def _missing_column(name: str) -> Any:
    raise KeyError(name)


def _curve_of_losses(data: Any, name: str) -> Curve:
    """The curve of an array of losses at the steps 0, 1, 2, ..."""
    losses = _numbers(data, name)
    if losses is None or np.asarray(data).dtype.kind in "iu":
        raise InputError(
            f"{name} holds {np.asarray(data).dtype} values; expected losses as floats, or a dict "
            "with step and loss"
        )
    steps = np.arange(len(losses))
    if (
        len(losses) > 1
        and np.array_equal(losses - losses[0], steps * (losses[1] - losses[0]))
        and losses[1] > losses[0]
    ):
        raise InputError(
            f"{name} rises in equal strides, so it looks like steps; expected losses, or a dict "
            "with step and loss"
        )
    taken = RunColumns(
        values={STEP: steps.astype(np.float64), LOSS: losses},
        names={STEP: POSITION, LOSS: "loss"},
        option=OPTION,
    )
    return curve_of(taken, name, label=name, stated=True)


def _numbers(values: Any, name: str, *, may_be_flags: bool = False) -> FloatArray | None:
    """Values as float64 (T,), NaN for null, None where they are not numbers; TypeError for what is
    not in host memory.
    """
    try:
        array = values.to_numpy() if hasattr(values, "to_numpy") else values
        raw = np.asarray(array)
    # a torch tensor with a gradient or on a GPU; lists of unequal length
    except (RuntimeError, TypeError, ValueError) as error:
        words = " ".join(str(error).split())[:120]
        raise TypeError(
            f"{name} cannot be read as an array ({words}); expected an array in host memory, such "
            "as x.detach().cpu()"
        ) from None
    if raw.ndim != 1:
        raise InputError(f"{name} has shape {raw.shape}; expected one dimension, a value per step")
    null = np.zeros(len(raw), dtype=bool) | np.asarray(
        array.mask if isinstance(array, np.ma.MaskedArray) else False, dtype=bool
    )
    if raw.dtype.kind == "O":
        raw = np.array(
            [
                np.nan if value is None or type(value).__name__ == "NAType" else value
                for value in raw
            ],
            dtype=object,
        )
        if any(isinstance(value, (str, bytes, bool)) for value in raw):
            return None
    elif raw.dtype.kind not in _NUMBERS and not (may_be_flags and raw.dtype.kind == "b"):
        return None
    try:
        numbers = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    numbers[null] = np.nan
    return numbers


def _refuse_several_runs(names: list[str], column: Callable[[str], Any], name: str) -> None:
    header = run_column(names)
    runs = [] if header is None else list(dict.fromkeys(np.asarray(column(header)).tolist()))
    if len(runs) > 1:
        raise InputError(
            f"{name} has rows of {count(len(runs), 'run')} in column {header!r}; expected one run: "
            "select its rows, and give several runs as a list"
        )
