"""TensorBoard event files, read record by record, so that no point is dropped (TensorBoard's own
reader keeps 10,000 by default).

A file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its checksum
(4). Of the Event only the step and the scalar values are decoded: simple_value, or a tensor of one
float32, float64 or int. A last record that is cut short (a run that is still writing) is left out
and noted.

Source: TensorFlow's record format and event.proto, summary.proto, tensor.proto (field numbers
below).
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, STEP
from parity.readers.columns.parts import join_parts
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.several_runs import SHOWN
from parity.readers.curve.plausibility import check_repeats
from parity.readers.errors import NoLossError, ReadError, SeveralRunsError
from parity.readers.files.protobuf import message_fields, signed_64, submessages
from parity.wording import count

EVENT_FILES = "*tfevents*"
MAX_RECORD = 64 << 20
_EVENT_STEP, _EVENT_SUMMARY = 2, 5
_SUMMARY_VALUE, _VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR = 1, 1, 2, 8
_TENSOR_DTYPE, _TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES = 1, 4, 5, 6
_CONTENT_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}


def is_tensorboard_file(name: str) -> bool:
    """Whether a path is a TensorBoard event file, by its name."""
    return "tfevents" in Path(name).name


def read_event_folder(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """The run in a folder of event files; of a run that was resumed, a later file replaces
    everything from its first step on.

    Raises ReadError where the folder has no event file, SeveralRunsError where files with a
    training loss are in more than one folder.
    """
    by_folder: dict[Path, list[RunColumns]] = {}
    refusals: list[NoLossError] = []
    for file in sorted(Path(path).rglob(EVENT_FILES)):
        try:
            columns = read_tensorboard(str(file), named_columns)
            by_folder.setdefault(file.parent, []).append(columns)
        # a file of validation scalars, next to the one with the training loss
        except NoLossError as error:
            refusals.append(error)
    if not by_folder and refusals:
        raise refusals[0]
    if not by_folder:
        raise ReadError(
            f"{path}: contains no TensorBoard event file (a name with tfevents in it); name a "
            "file, or another folder"
        )
    if len(by_folder) > 1:
        folders = ", ".join(str(folder) for folder in sorted(by_folder)[:SHOWN])
        message = (
            f"{path}: contains a training loss in {len(by_folder)} folders ({folders}), so several "
            "runs; name one of them"
        )
        raise SeveralRunsError(message, tuple(str(folder) for folder in sorted(by_folder)))
    ((_, parts),) = by_folder.items()
    steps, loss = (np.concatenate([part.values[name] for part in parts]) for name in (STEP, LOSS))
    check_repeats(steps, loss, path)
    left_out: tuple[str, ...] = ()
    if refusals:
        left_out = (f"{count(len(refusals), 'event file')} without a training loss left out",)
    return join_parts(parts, left_out)


def read_tensorboard(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """Columns of one event file; tags are columns, rows are the loss's records in file order (a
    restart repeats steps).
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ReadError(f"{path}: can't be read ({error.strerror})") from None
    scalars: dict[str, list[tuple[int, float]]] = {}
    notes: list[str] = []
    for record in _framed_records(data, path, notes):
        step, values = _event(record, path)
        for tag, value in values:
            scalars.setdefault(tag, []).append((step, value))
    if not scalars:
        raise NoLossError(f"{path}: no scalar in the event file; expected a training loss")
    return columns_from_series(scalars, scalars.__getitem__, named_columns, path).noted(*notes)


def _framed_records(data: bytes, path: str, notes: list[str]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length = struct.unpack_from("<Q", data, at)[0] if at + 12 <= len(data) else 0
        if length > MAX_RECORD:
            raise ReadError(
                f"{path}: byte {at} starts a record of {length} bytes; expected a TensorBoard "
                "event file, or another name"
            )
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
                values += [
                    scalar
                    for item in submessages(value, _SUMMARY_VALUE)
                    if (scalar := _scalar(item))
                ]
    except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
        raise ReadError(
            f"{path}: a record is no Event message ({type(error).__name__}); expected a "
            "TensorBoard event file"
        ) from None
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
    if number is None:
        return None
    return tag, number


def _tensor(data: bytes) -> float | None:
    """The value of a tensor that holds one number, else None."""
    dtype, content = 0, b""
    for field, value in message_fields(data):
        if field == _TENSOR_DTYPE and isinstance(value, int):
            dtype = value
        elif field in (_TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES) and isinstance(
            value, bytes
        ):
            content = value
    layout = _CONTENT_FORMATS.get(dtype)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])
