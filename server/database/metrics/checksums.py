"""Checksums: what a disk or a memory changes between a write and a read is found, and never judged.

CRC-32 finds every change of up to 32 bits in a row, and of others all but one in four thousand
million. That of a chunk covers whose it is, its steps, the names of its columns, and its values
where they are packed; a large chunk also says whether a column of steps belongs to it, and each
of its columns has a checksum of its own, so that a reader of one touches no other.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from server.errors import DamagedError

PACKED, EVEN, UNEVEN = "packed", "even", "uneven"


def checksum(*facts: object, payload: bytes = b"") -> int:
    """The checksum of a row: of these facts in their order, and of its values."""
    return zlib.crc32(payload, zlib.crc32(repr(facts).encode()))


def check_chunk(
    row: Any, columns: Sequence[Any], attempt: tuple[str, str, int], names: Sequence[str] | None
) -> None:
    """DamagedError unless a chunk has the checksum that it was written with; `columns` are the rows
    of those of its columns that are read, and `names` which were wanted (None: all). What was
    written before there were checksums has none.
    """
    if row.checksum is None:
        return
    whose = (*attempt, row.first_step)
    place = (*whose, row.last_step, row.steps)
    payload = row.payload
    if payload is not None:
        if row.checksum != checksum(*place, row.names, PACKED, payload=payload):
            raise damaged(*whose, "its values")
        return
    stored = [column.name for column in columns if column.name is not None]
    if row.checksum != checksum(*place, row.names, UNEVEN if "step" in stored else EVEN):
        raise damaged(*whose, "its steps or columns")
    for column in columns:
        if column.name is not None and column.value_checksum != checksum(
            *place, column.name, payload=column.value
        ):
            raise damaged(*whose, f"column {column.name}")
    for name in column_names(row.names):
        if name != "step" and (names is None or name in names) and name not in stored:
            raise damaged(*whose, f"column {name}")


def damaged(
    run_id: str, kind: str, attempt_number: int, first_step: int, what: str
) -> DamagedError:
    """The error of a chunk that is not as it was written."""
    where = f"run {run_id}, {kind}, attempt {attempt_number}, the chunk from step {first_step}"
    return DamagedError(
        f"{where}: {what} changed since they were recorded; `python -m server.check` lists all "
        "damage and what to do"
    )


@lru_cache(1000)
def column_names(text: str) -> tuple[str, ...]:
    """The columns of a chunk, `step` first."""
    return tuple(json.loads(text))
