"""A run that W&B wrote offline: `run-ID.wandb` in a folder `offline-run-DATE-ID`, read without
W&B's package, which has no reader for it.

A file is a header of 7 bytes, then blocks of 32 KiB with records in LevelDB's log format: checksum
(4 bytes, CRC-32 of type and data), length (2), type (1: whole, 2 to 4: first, middle and last
part). A record is a protobuf message: a row of the history, an update of the config, the run, its
exit. A last record that is cut short (a process that was killed, or still writes) is left out and
noted; a record that is damaged anywhere else is refused.

Source: W&B's package 0.31: wandb_internal.proto (field numbers below), its transaction log's reader
and writer, and files that it wrote.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.parts import join_parts
from parity.readers.errors import ReadError
from parity.readers.files.protobuf import message_fields, signed_64, submessages
from parity.readers.files.text import os_words
from parity.readers.trackers.run import NO_ROWS, TrackerRun, columns_of_rows
from parity.wording import count

SUFFIX = ".wandb"
RUN_FOLDERS = ("offline-run-*", "run-*")
COUNTER = "_step"
_MAGIC, _HEADER, _BLOCK = b":W&B\xe1\xbe\x00", 7, 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # of Record
_ITEM, _STEP, _STEP_NUMBER = 1, 2, 1  # of HistoryRecord, HistoryStep
# of HistoryItem, ConfigItem
_KEY, _NESTED_KEY, _BOOLEAN, _INTEGER, _NUMBER, _TEXT, _JSON, _VALUE_JSON = (
    1,
    2,
    4,
    5,
    6,
    7,
    8,
    16,
)
_UPDATE, _REMOVE, _RUN_CONFIG = 1, 2, 4  # of ConfigRecord, RunRecord
_EXIT_CODE = 1  # of RunExitRecord


def run_id(file: Path) -> str:
    """The id of a file's run, which W&B writes into its name."""
    return file.name.removesuffix(SUFFIX).removeprefix("run-")


def read_files(source: str, files: Sequence[Path], named_columns: Mapping[str, str]) -> TrackerRun:
    """The run in its files, in the order in which they were written. Raises ReadError."""
    contents = [_contents(file) for file in files]
    config: dict[str, Any] = {}
    parts: list[RunColumns] = []
    for file, content in zip(files, contents, strict=True):
        config |= content.config
        if content.rows:
            parts.append(
                columns_of_rows(content.rows, named_columns, str(file), COUNTER).noted(
                    *content.notes
                )
            )
    if not parts:
        raise ReadError(f"{source}: {NO_ROWS}")
    rows = count(sum(len(content.rows) for content in contents), "row")
    if len(parts) == 1:
        joined = parts[0]
    else:
        joined = join_parts(parts, (f"{count(len(parts), 'file')} of a resumed run",))
    return TrackerRun(
        columns=joined.noted(f"{rows} of W&B's offline history", _ended(contents[-1])),
        config=config,
    )


@dataclass(slots=True)
class _Contents:
    """What a file has: the run's config, the rows, and how it ended (None: no exit on record)."""

    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None
    notes: list[str] = field(default_factory=list)


def _contents(file: Path) -> _Contents:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ReadError(
            f"{file}: cannot be read ({os_words(error)}); check the file and its permissions"
        ) from None
    if data[:_HEADER] != _MAGIC:
        raise ReadError(
            f"{file}: does not begin like a .wandb file of version 0; expected the file that W&B "
            "writes into a run's folder"
        )
    contents = _Contents()
    for number, record in enumerate(_records(data, file, contents.notes), 1):
        try:
            _take(record, contents)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise ReadError(
                f"{file}: record {number:,} is not one that W&B 0.31 writes "
                f"({type(error).__name__}); export the run as CSV"
            ) from None
    return contents


def _ended(last: _Contents) -> str:
    if last.exit_code is None:
        return "W&B recorded no end of the run: its process was killed, or still writes"
    if last.exit_code == 0:
        return "the run is finished"
    return f"the run ended with exit code {last.exit_code}"


def _records(data: bytes, file: Path, notes: list[str]) -> Iterator[bytes]:
    """Each record's bytes. What is cut short at the end is noted; what is damaged before it raises
    ReadError.
    """
    parts: list[bytes] = []
    at = _HEADER
    while at < len(data):
        room = _BLOCK - at % _BLOCK
        if room < _HEADER:
            at += room
            continue
        if at + _HEADER > len(data):
            break
        checksum, length, kind = struct.unpack_from("<IHB", data, at)
        end = at + _HEADER + length
        if (checksum, length, kind) == (0, 0, 0) and not any(data[at:]):
            break  # room that was reserved and never written
        fits = length <= room - _HEADER and kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)
        if fits and end > len(data):
            break
        payload = data[at + _HEADER : end]
        if not fits or zlib.crc32(payload, zlib.crc32(bytes([kind]))) != checksum:
            raise ReadError(
                f"{file}: damaged at byte {at:,} of {len(data):,}; expected the file as W&B wrote "
                "it: copy it again"
            )
        if (kind in (_WHOLE, _FIRST)) != (not parts):
            raise ReadError(
                f"{file}: the record at byte {at:,} does not follow the one before it; copy the "
                "file again"
            )
        parts.append(payload)
        at = end
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
            parts = []
    else:
        if not parts:
            return
    notes.append("the last record is cut short and left out")


def _take(record: bytes, contents: _Contents) -> None:
    for number, value in message_fields(record):
        if not isinstance(value, bytes):
            continue
        if number == _HISTORY:
            contents.rows.append(_row(value))
        elif number == _CONFIG:
            _update(contents.config, value)
        elif number == _RUN:
            for config in submessages(value, _RUN_CONFIG):
                _update(contents.config, config)
        elif number == _EXIT:
            contents.exit_code = _number(value, _EXIT_CODE)


def _row(message: bytes) -> dict[str, Any]:
    """One row of the history by key; the parts of a nested key are joined by points."""
    row = {".".join(keys): item for keys, item in map(_item, submessages(message, _ITEM))}
    for step in submessages(message, _STEP):
        row[COUNTER] = _number(step, _STEP_NUMBER)
    return row


def _update(config: dict[str, Any], message: bytes) -> None:
    for number, value in message_fields(message):
        if number not in (_UPDATE, _REMOVE) or not isinstance(value, bytes):
            continue
        keys, item = _item(value)
        place = config
        for key in keys[:-1]:
            inner = place.get(key)
            place[key] = place = dict(inner) if isinstance(inner, dict) else {}
        if number == _REMOVE:
            place.pop(keys[-1], None)
        else:
            place[keys[-1]] = item


def _number(message: bytes, field: int) -> int:
    """The whole number in a field of a message; 0 where it is left out."""
    return next(
        (
            signed_64(value)
            for key, value in message_fields(message)
            if key == field and isinstance(value, int)
        ),
        0,
    )


def _item(message: bytes) -> tuple[tuple[str, ...], Any]:
    """Key, in its parts, and value of a HistoryItem or a ConfigItem; raises ValueError where it has
    no key.
    """
    keys: list[str] = []
    item: Any = None
    for number, value in message_fields(message):
        if isinstance(value, int):
            if number in (_BOOLEAN, _INTEGER):
                item = bool(value) if number == _BOOLEAN else signed_64(value)
        elif number in (_KEY, _NESTED_KEY):
            keys.append(value.decode())
        elif number == _NUMBER:
            (item,) = struct.unpack("<d", value)
        elif number == _TEXT:
            item = value.decode()
        elif number in (_JSON, _VALUE_JSON):
            item = json.loads(value) if value else None
    keys = [key for key in keys if key]
    if not keys:
        raise ValueError("an item without a key")
    return tuple(keys), item
