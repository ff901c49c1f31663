"""A chunk as rows of the database, and the table that its rows hold.

Steps at equal distances are stored as the first, the last and the count only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server.database.metrics.checksums import (
    EVEN,
    PACKED,
    UNEVEN,
    check_chunk,
    checksum,
    column_names,
)
from server.database.metrics.chunk_tables import Columns, NewChunk
from server.database.metrics.column_codec import decode, encode

Decode = Callable[[bytes], NDArray[Any]]
_PACKED_VALUES = 4096  # the most in a packed chunk, of all columns


def rows_of_chunk(chunk: NewChunk) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of a chunk, and those of its columns if they are not packed into it."""
    columns = chunk.columns
    steps = columns["step"]
    first, last, count = int(steps[0]), int(steps[-1]), len(steps)
    key = {
        "run_id": chunk.run_id,
        "kind": chunk.kind,
        "attempt_number": chunk.attempt_number,
        "first_step": first,
    }
    names = json.dumps([*columns])
    row = {**key, "last_step": last, "count": count, "columns": list(columns), "payload": None}
    facts = (*chunk.key, last, count)
    is_even = count == 1 or np.array_equal(steps, even_steps(first, last, count))
    stored = {name: values for name, values in columns.items() if name != "step" or not is_even}
    if len(stored) * count <= _PACKED_VALUES:
        payload = encode(
            np.concatenate([*stored.values()], dtype=np.float64) if stored else np.empty(0)
        )
        row |= {"payload": payload, "checksum": checksum(*facts, names, PACKED, payload=payload)}
        return row, []
    row["checksum"] = checksum(*facts, names, EVEN if is_even else UNEVEN)
    column_rows = []
    for name, values in stored.items():
        payload = encode(np.asarray(values, np.float64))
        column_rows.append(
            {
                **key,
                "name": name,
                "payload": payload,
                "checksum": checksum(*facts, name, payload=payload),
            }
        )
    return row, column_rows


def even_steps(first: int, last: int, count: int) -> NDArray[np.float64]:
    """The steps of a chunk if they are at equal distances, as float64."""
    stride = (last - first) // max(count - 1, 1)
    steps = _counted(count) if stride == 1 else stride * _counted(count)
    return first + steps


@lru_cache(maxsize=4)
def _counted(count: int) -> NDArray[np.float64]:
    """0 to count - 1, made once for the chunks of a run, which are nearly all of one size."""
    numbers = np.arange(count, dtype=np.float64)
    numbers.flags.writeable = False
    return numbers


def table(
    rows: Sequence[Any], names: Sequence[str] | None, decode: Decode, attempt: tuple[str, str, int]
) -> Columns:
    """The table of a chunk, `step` first, from its rows: one for each column that is stored by
    itself, or one if they are packed.

    DamagedError where they are not as they were written by this attempt (run, kind,
    attempt_number).
    """
    check_chunk(rows[0], rows, attempt, names)
    columns: Columns = {}
    for row in rows:
        if not columns:
            columns["step"] = even_steps(row.first_step, row.last_step, row.steps)
        if row.payload is not None:
            packed = packed_columns(row, decode)
            columns |= (
                packed
                if names is None
                else {name: packed[name] for name in ("step", *names) if name in packed}
            )
        elif row.name is not None:
            columns[row.name] = decode(row.value)
    return columns


def packed_table(row: Any, attempt: tuple[str, str, int]) -> Columns:
    """The table of a chunk whose values are packed; DamagedError as `table`."""
    check_chunk(row, (), attempt, None)
    return {
        "step": even_steps(row.first_step, row.last_step, row.steps),
        **packed_columns(row, decode),
    }


def packed_columns(row: Any, decode: Decode) -> Columns:
    """The stored columns of a packed chunk; `step` is not among them if the steps are at equal
    distances.
    """
    table = decode(row.payload).reshape(-1, row.steps)
    stored = column_names(row.names)
    return dict(zip(stored if len(table) == len(stored) else stored[1:], table, strict=True))
