"""JSON lines, one object a line: our own logger's, and MaxText's `metrics_file`.

MaxText mixes evaluation records in (no training loss: left out and counted), writes steps as floats and NaN as NaN, and truncates its
file whenever it writes a record of step 0, which every evaluation pass does: such a file begins late, and the note says so.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.judging.curve import FloatArray
from parity.readers.columns import LOSS, STEP, find_columns, step_number
from parity.readers.source import ReadError

_WORDS = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf"), "-inf": float("-inf"), "-infinity": float("-inf")}


def read_json_lines(text: str, source: str, wanted: Mapping[str, str]) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Columns by quantity (T,), and notes; records without a training loss are left out and counted."""
    records = _records(text, source)
    names = sorted({key for _, record in records for key in record})
    columns = find_columns(names, wanted, source)
    loss_name = columns[LOSS]
    training = [(number, record) for number, record in records if loss_name in record]
    values = {
        quantity: np.array([_value(record, name, quantity, source, number) for number, record in training])
        for quantity, name in columns.items()
    }
    return values, _notes(records, training, values[STEP], loss_name)


def _records(text: str, source: str) -> list[tuple[int, dict[str, Any]]]:
    records: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise ReadError(
                f"{source}, line {number}: not valid JSON; expected one object per line such as " + '{"step": 1, "loss": 2.5}'
            ) from None
        if not isinstance(record, dict):
            raise ReadError(f"{source}, line {number}: {line.strip()[:40]!r} is not a JSON object; expected " + '{"step": 1, "loss": 2.5}')
        records.append((number, record))
    return records


def _value(record: Mapping[str, Any], name: str, quantity: str, source: str, number: int) -> float:
    value = record.get(name)
    where = f"{source}, line {number}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return step_number(float(value), where) if quantity == STEP else float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, str) and quantity != STEP and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    if quantity not in (STEP, LOSS):
        return float("nan")
    raise ReadError(f"{where}: {name!r} is {value!r}; expected a number (NaN and Infinity are allowed)")


def _notes(
    records: list[tuple[int, dict[str, Any]]], training: list[tuple[int, dict[str, Any]]], steps: FloatArray, loss_name: str
) -> tuple[str, ...]:
    notes = [f"loss read from {loss_name!r}"]
    others = len(records) - len(training)
    if others:
        notes.append(f"{others} records without a training loss left out")
    if len(steps) and np.isfinite(steps).all() and steps.min() > 1 and loss_name.startswith("learning/"):
        notes.append(f"begins at step {steps.min():.0f}: MaxText truncates its metrics_file at every evaluation pass")
    return tuple(notes)
