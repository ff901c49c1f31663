"""JSON: one object a line (our own logger's, MaxText's `metrics_file`, exports), or the Hugging Face trainer's `trainer_state.json`.

MaxText mixes evaluation records in (no training loss: left out and counted), writes steps as floats and NaN as NaN, and truncates its
file whenever it writes a record of step 0, which every evaluation pass does: such a file begins late, and the note says so. The Hugging
Face trainer writes evaluations and, at the end, the mean training loss (`train_loss`) as records of their own.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.readers.columns import LOSS, STEP, VALIDATION, Columns, at_rows, find_columns, step_number
from parity.readers.long_table import choose_run, long_layout, read_long, run_column
from parity.readers.rows import json_of
from parity.readers.source import ReadError

LOG_HISTORY = "log_history"

_WORDS = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf"), "-inf": float("-inf"), "-infinity": float("-inf")}
Record = tuple[int, dict[str, Any]]
"""An object with the number of its line or record."""


def read_json_lines(text: str, source: str, wanted: Mapping[str, str], run: str | None = None) -> Columns:
    """Columns of a JSON text; records without a training loss are left out and counted, validation losses in them are kept."""
    records, place = json_records(text, source)
    names = sorted({key for _, record in records for key in record})
    if layout := long_layout(names, wanted, source):
        return read_long(records, layout, wanted, source, run)
    if column := run_column(names):
        chosen = choose_run((str(record.get(column)) for _, record in records), run, source)
        records = [(number, record) for number, record in records if str(record.get(column)) == chosen]
    elif run is not None:
        raise ReadError(f"{source}: no field names the run, so there is no run {run!r}; expected a field such as run_id")
    return columns_of_records(records, names, wanted, source, place)


def columns_of_records(records: Sequence[Record], names: Sequence[str], wanted: Mapping[str, str], source: str, place: str) -> Columns:
    """Columns of numbered records with these field names; `place` is what a record is called in errors ("line").

    Records without a training loss are left out and counted; a validation loss in them is kept.
    """
    columns = find_columns(names, wanted, source)
    loss_name = columns[LOSS]

    def value(row: Record, quantity: str) -> float:
        number, record = row
        return _value(record, columns[quantity], quantity, f"{source}, {place} {number}")

    training = [row for row in records if row[1].get(loss_name, "") not in (None, "")]
    if not training:
        raise ReadError(f"{source}: no record has a value of {loss_name!r}; expected one record per training step")
    values = {quantity: np.array([value(row, quantity) for row in training]) for quantity in columns}
    if VALIDATION in columns:
        evaluated = [row for row in records if row[1].get(columns[VALIDATION]) is not None and columns[STEP] in row[1]]
        values[VALIDATION] = at_rows(values[STEP], [(value(row, STEP), value(row, VALIDATION)) for row in evaluated])
    notes = []
    if others := len(records) - len(training):
        notes.append(f"{others} records without a training loss left out")
    steps = values[STEP]
    if len(steps) and np.isfinite(steps).all() and steps.min() > 1 and loss_name.startswith("learning/"):
        notes.append(f"begins at step {steps.min():.0f}: MaxText truncates its metrics_file at every evaluation pass")
    return Columns(values=values, names=columns, found=names, notes=tuple(notes))


def json_records(text: str, source: str) -> tuple[list[Record], str]:
    """The objects of a JSON text with their numbers, and what is numbered: a record or a line."""
    history = _log_history(text, source)
    return (_records(text, source), "line") if history is None else (history, "record")


def is_json(text: str) -> bool:
    """Whether a text begins like a JSON object, or a list of them."""
    return text.lstrip()[:1] == "{" or _is_list(text)


def _is_list(text: str) -> bool:
    return re.match(r"\s*\[\s*\{", text) is not None


def _log_history(text: str, source: str) -> list[Record] | None:
    """The records of `trainer_state.json` or of a JSON list, numbered from 1; None for any other text."""
    if f'"{LOG_HISTORY}"' not in text and not _is_list(text):
        return None
    expected = "expected trainer_state.json as the trainer wrote it"
    document = json_of(text, source, expected)
    history = document.get(LOG_HISTORY) if isinstance(document, dict) else document
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise ReadError(f"{source}: {LOG_HISTORY} is not a list of records; {expected}")
    return list(enumerate(history, 1))


def _records(text: str, source: str) -> list[Record]:
    records: list[Record] = []
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


def _value(record: Mapping[str, Any], name: str, quantity: str, where: str) -> float:
    value = record.get(name)
    if value is None and quantity not in (STEP, LOSS):
        return float("nan")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return step_number(float(value), where) if quantity == STEP else float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, str) and quantity != STEP and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise ReadError(f"{where}: {name!r} is {value!r:.60}; expected a number (NaN and Infinity are allowed)")
