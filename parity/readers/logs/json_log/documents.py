"""The records of a text that is one JSON document.

The Hugging Face trainer's `trainer_state.json`, a list of objects (as Python prints one, too), rows
[step, loss], TensorBoard's rows [time, step, value], an object of lists, or Megatron's golden
values {"lm loss": {"start_step": 1, "step_interval": 5, "values": {"1": 10.8, ...}}}.

The Hugging Face trainer writes evaluations and, at the end, the mean training loss (`train_loss`)
as records of their own.
"""

import ast
import json
import re
from typing import Any

from parity.names_once import NameTwiceError
from parity.readers.columns.names import LOSS, STEP
from parity.readers.errors import ReadError
from parity.readers.files.json_values import json_value, object_of_values
from parity.readers.logs.json_log.records import Record

LOG_HISTORY = "log_history"
_EXPECTED_STATE = "expected trainer_state.json as the trainer wrote it"
_EARLIEST = 1e9  # a time in seconds since 1970; no run has as many steps


def is_json(text: str) -> bool:
    """Whether a text begins like a JSON object, or a list of them."""
    return re.match(r"\s*\{(?!\s*')", text) is not None or _is_list(text)


def document_records(text: str, source: str) -> list[Record] | None:
    """The records of a text that is one JSON document, numbered from 1; None where each line is an
    object of its own.
    """
    if _is_list(text):
        if re.match(r"\s*\[\s*\{\s*'", text):
            rows = _printed_list(text, source)
        else:
            rows = json_value(text, source)
    elif f'"{LOG_HISTORY}"' in text:
        state = json_value(text, source, _EXPECTED_STATE)
        rows = state.get(LOG_HISTORY) if isinstance(state, dict) else state
        if not isinstance(rows, list) or not all(isinstance(record, dict) for record in rows):
            raise ReadError(f"{source}: {LOG_HISTORY} is not a list of records; {_EXPECTED_STATE}")
    else:
        plain = text.strip()
        try:
            document, end = json.JSONDecoder(object_pairs_hook=object_of_values).raw_decode(plain)
        except NameTwiceError as error:
            raise ReadError(f"{source}: {error}") from None
        except (ValueError, RecursionError):
            return None
        # else an object a line
        rows = (_step_records(document) or _list_records(document)) if end == len(plain) else None
        if rows is None:
            return None
    records = [_row_object(row) for row in rows]
    if not all(isinstance(record, dict) for record in records):
        raise ReadError(
            f"{source}: not a list of records such as {{'step': 1, 'loss': 2.5}} or [1, 2.5]; "
            "write one object per step"
        )
    return list(enumerate(records, 1))


def _is_list(text: str) -> bool:
    return re.match(r"\s*\[\s*(\{|\[\s*[-\d])", text) is not None


def _row_object(row: Any) -> Any:
    """A row [step, loss], or [time, step, loss] as TensorBoard writes it, as an object."""
    if not isinstance(row, list) or len(row) < 2:
        return row
    has_time = len(row) == 3 and isinstance(row[0], (int, float)) and row[0] > _EARLIEST
    return dict(zip((STEP, LOSS), row[1:] if has_time else row, strict=False))


def _printed_list(text: str, source: str) -> Any:
    """A list of dicts as Python prints it, with NaN and infinity as words."""
    try:
        return ast.literal_eval(re.sub(r"(?<=[\s:])(-?(?:nan|inf))(?=[,}])", r"'\1'", text.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ReadError(
            f"{source}: not a list of dicts as Python prints it; write it with json.dump"
        ) from None


def _step_records(document: Any) -> list[dict[str, Any]] | None:
    """The records of values by step, under one name or more; None for any other document."""
    if not isinstance(document, dict):
        return None
    series = {
        name: one["values"]
        for name, one in document.items()
        if isinstance(one, dict) and isinstance(one.get("values"), dict)
    }
    records: dict[str, dict[str, Any]] = {}
    for name, values in series.items():
        for step, value in values.items():
            at = int(step) if step.isascii() and step.isdigit() else step
            records.setdefault(step, {STEP: at})[name] = value
    return [*records.values()] or None


def _list_records(document: Any) -> list[dict[str, Any]] | None:
    """The records of an object of lists that are equally long; None for any other document."""
    if isinstance(document, dict):
        lists = {name: one for name, one in document.items() if isinstance(one, list)}
    else:
        lists = {}
    if len(lists) < 2 or len({len(one) for one in lists.values()}) > 1:
        return None
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
