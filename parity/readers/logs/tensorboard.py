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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from parity.frozen import frozen
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


@frozen
class _Events:
    """The scalars of an event file by tag, as (step, value), and notes."""

    scalars: Mapping[str, Sequence[tuple[int, float]]]
    notes: Sequence[str] = ()


def read_event_folder(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """The run in a folder of event files; of a run that was resumed, a later file replaces
    everything from its first step on. A file without a training loss, such as one of validation
    scalars, belongs to the one with a loss before it in its folder.

    Raises ReadError where the folder has no event file, SeveralRunsError where files with a
    training loss are in more than one folder.
    """
    events = {file: _events(str(file)) for file in sorted(Path(path).rglob(EVENT_FILES))}
    if not events:
        raise ReadError(
            f"{path}: contains no TensorBoard event file (a name with tfevents in it); name a "
            "file, or another folder"
        )
    parts: dict[Path, RunColumns] = {}
    refusals: dict[Path, NoLossError] = {}
    for file, found in events.items():
        try:
            parts[file] = _columns(found, str(file), named_columns)
        except NoLossError as error:
            refusals[file] = error
    if not parts:
        raise next(iter(refusals.values()))
    folders = sorted({file.parent for file in parts})
    if len(folders) > 1:
        message = (
            f"{path}: contains a training loss in {len(folders)} folders "
            f"({', '.join(map(str, folders[:SHOWN]))}), so several runs; name one of them"
        )
        raise SeveralRunsError(message, tuple(map(str, folders)))
    beside: dict[Path, list[_Events]] = {}
    for file in refusals:
        if file.parent == folders[0]:
            before = [one for one in parts if one < file]
            beside.setdefault(before[-1] if before else next(iter(parts)), []).append(events[file])
    for file, further in beside.items():
        parts[file] = _columns(_merged([events[file], *further]), str(file), named_columns)
    steps, loss = (
        np.concatenate([part.values[name] for part in parts.values()]) for name in (STEP, LOSS)
    )
    check_repeats(steps, loss, path)
    left_out: tuple[str, ...] = ()
    if elsewhere := sum(file.parent != folders[0] for file in refusals):
        left_out = (f"{count(elsewhere, 'event file')} without a training loss left out",)
    return join_parts([*parts.values()], left_out)


def read_tensorboard(path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """Columns of one event file; tags are columns, rows are the loss's records in file order (a
    restart repeats steps).
    """
    return _columns(_events(path), path, named_columns)


def _events(path: str) -> _Events:
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
    return _Events(scalars=scalars, notes=notes)


def _columns(events: _Events, path: str, named_columns: Mapping[str, str]) -> RunColumns:
    """The columns of events; raises NoLossError where they have no training loss."""
    scalars = events.scalars
    if not scalars:
        raise NoLossError(f"{path}: no scalar in the event file; expected a training loss")
    columns = columns_from_series(scalars, scalars.__getitem__, named_columns, path)
    return columns.noted(*events.notes)


def _merged(parts: Sequence[_Events]) -> _Events:
    tags = dict.fromkeys(tag for part in parts for tag in part.scalars)
    return _Events(
        scalars={
            tag: [point for part in parts for point in part.scalars.get(tag, ())] for tag in tags
        },
        notes=[note for part in parts for note in part.notes],
    )


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
