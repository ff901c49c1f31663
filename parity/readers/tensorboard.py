"""TensorBoard event files, read record by record, so that no point is dropped (TensorBoard's own reader keeps 10,000 by default).

A file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its checksum (4). Of the Event only the step and
the scalar values are decoded: simple_value, or a tensor of one float32, float64 or int. A last record that is cut short (a run that is
still writing) is left out and noted.

Source: TensorFlow's record format and event.proto, summary.proto, tensor.proto (field numbers below).
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.judging.curve import BoolArray, FloatArray
from parity.readers.columns import LOSS, STEP, Columns, NoLossError, from_series
from parity.readers.long_table import SHOWN, SeveralRunsError
from parity.readers.plausible import check_repeats
from parity.readers.source import ReadError
from parity.wording import count

EVENT_FILES = "*tfevents*"
MAX_RECORD = 64 << 20
_EVENT_STEP, _EVENT_SUMMARY = 2, 5
_SUMMARY_VALUE, _VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 1, 2, 8
_TENSOR_DTYPE, _TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES = 1, 4, 5, 6
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
_LENGTHS = {0: 0, 1: 8, 5: 4}


def is_tensorboard_file(name: str) -> bool:
    """Whether a path is a TensorBoard event file, by its name."""
    return "tfevents" in Path(name).name


def read_folder(path: str, wanted: Mapping[str, str]) -> Columns:
    """The run in a folder of event files; of a run that was resumed, a later file replaces everything from its first step on.

    Raises ReadError where the folder has no event file, SeveralRunsError where files with a training loss are in more than one folder.
    """
    by_folder: dict[Path, list[Columns]] = {}
    refusals: list[NoLossError] = []
    for file in sorted(Path(path).rglob(EVENT_FILES)):
        try:
            columns = read_tensorboard(str(file), wanted)
            by_folder.setdefault(file.parent, []).append(columns)
        except NoLossError as error:  # a file of validation scalars, next to the one with the training loss
            refusals.append(error)
    if not by_folder and refusals:
        raise refusals[0]
    if not by_folder:
        raise ReadError(f"{path}: contains no TensorBoard event file (a name with tfevents in it); name a file, or another folder")
    if len(by_folder) > 1:
        folders = ", ".join(str(folder) for folder in sorted(by_folder)[:SHOWN])
        message = f"{path}: contains a training loss in {len(by_folder)} folders ({folders}), so several runs; name one of them"
        raise SeveralRunsError(message, tuple(str(folder) for folder in sorted(by_folder)))
    ((_, parts),) = by_folder.items()
    steps, loss = (np.concatenate([part.values[name] for part in parts]) for name in (STEP, LOSS))
    check_repeats(steps, loss, path)
    left_out = (f"{count(len(refusals), 'event file')} without a training loss left out",) if refusals else ()
    return join_parts(parts, left_out)


def join_parts(parts: Sequence[Columns], notes: tuple[str, ...]) -> Columns:
    """The files of one run in their order. A restart replaces everything from its first step on, also what it did not reach again."""
    kept: list[BoolArray] = []
    limit = math.inf
    for part in reversed(parts):
        steps = part.values[STEP]
        kept.insert(0, steps < limit)
        limit = min(limit, float(steps[0]))

    def joined(quantity: str) -> FloatArray:
        full = [part.values.get(quantity, np.full(len(part.values[STEP]), np.nan)) for part in parts]
        return np.concatenate([values[keep] for values, keep in zip(full, kept, strict=True)], dtype=np.float64)

    return Columns(
        values={quantity: joined(quantity) for quantity in sorted({name for part in parts for name in part.values})},
        names=parts[-1].names,
        found=parts[-1].found,
        notes=(*dict.fromkeys(note for part in parts for note in part.notes), *notes),
        overwritten=sum(int((~keep).sum()) for keep in kept),
    )


def read_tensorboard(path: str, wanted: Mapping[str, str]) -> Columns:
    """Columns of one event file; tags are columns, rows are the loss's records in file order (a restart repeats steps)."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ReadError(f"{path}: can't be read ({error.strerror})") from None
    scalars: dict[str, list[tuple[int, float]]] = {}
    notes: list[str] = []
    for record in _records(data, path, notes):
        step, values = _event(record, path)
        for tag, value in values:
            scalars.setdefault(tag, []).append((step, value))
    if not scalars:
        raise NoLossError(f"{path}: no scalar in the event file; expected a training loss")
    return from_series(scalars, scalars.__getitem__, wanted, path).noted(*notes)


def _records(data: bytes, path: str, notes: list[str]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length = struct.unpack_from("<Q", data, at)[0] if at + 12 <= len(data) else 0
        if length > MAX_RECORD:
            raise ReadError(f"{path}: byte {at} starts a record of {length} bytes; expected a TensorBoard event file, or another name")
        end = at + 12 + length + 4
        if end > len(data):
            notes.append("the last record is cut short and left out")
            return
        yield data[at + 12 : end - 4]
        at = end


def _event(record: bytes, path: str) -> tuple[int, list[tuple[str, float]]]:
    """Step and scalar values of one Event message."""
    step, values = 0, []
    try:
        for field, value in message_fields(record):
            if field == _EVENT_STEP and isinstance(value, int):
                step = signed_64(value)
            elif field == _EVENT_SUMMARY and isinstance(value, bytes):
                values += [scalar for item in submessages(value, _SUMMARY_VALUE) if (scalar := _scalar(item))]
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise ReadError(f"{path}: a record is no Event message ({type(error).__name__}); expected a TensorBoard event file") from None
    return step, values


def _scalar(item: bytes) -> tuple[str, float] | None:
    """Tag and value of one Summary.Value, where it is a scalar."""
    tag, number = "", None
    for field, value in message_fields(item):
        if not isinstance(value, bytes):
            continue
        if field == _VALUE_TAG:
            tag = value.decode()
        elif field == _VALUE_SIMPLE and len(value) == 4:
            (number,) = struct.unpack("<f", value)
        elif field == _VALUE_TENSOR:
            number = _tensor(value)
    return (tag, number) if number is not None else None


def _tensor(data: bytes) -> float | None:
    """The value of a tensor that holds one number, else None."""
    dtype, content = 0, b""
    for field, value in message_fields(data):
        if field == _TENSOR_DTYPE and isinstance(value, int):
            dtype = value
        elif field in (_TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES) and isinstance(value, bytes):
            content = value
    layout = _CONTENT_FORMATS.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of a protobuf message: varints as int, all else as bytes. Raises IndexError for bytes that are no message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        length = _LENGTHS.get(kind)
        if kind == 2:
            length, at = _varint(data, at)
        if length is None or at + length > len(data):
            raise IndexError(f"field kind {kind} at byte {at}")
        yield key >> 3, data[at : at + length]
        at += length


def submessages(data: bytes, field: int) -> Iterator[bytes]:
    """The messages (or texts) in a field of a message."""
    return (value for number, value in message_fields(data) if number == field and isinstance(value, bytes))


def signed_64(value: int) -> int:
    """A varint as the signed number of 64 bits that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a varint of more than 10 bytes")
