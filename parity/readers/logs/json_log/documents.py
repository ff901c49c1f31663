"""The tables and series of a text that is one JSON document, however deep they stand in it.

    a list of objects      the Hugging Face trainer's `log_history`, an export of records; a list of
                           dicts as Python prints it, too
    rows of numbers        [step, loss], or TensorBoard's [time, step, value]; below a name, a
                           series
    an object of lists     which are equally long: Keras' `history`, a frame of pandas
    numbers by step        Megatron's golden values {"lm loss": {"values": {"1": 10.8, ...}}}
    steps and values       {"loss": {"steps": [...], "values": [...]}}, or objects of both

A table is one run; series, each with steps of its own, are one run together. The Hugging Face
trainer writes evaluations and, at the end, the mean training loss (`train_loss`) as records of
their own.
"""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.readers.columns.names import (
    LOSS,
    NOT_THE_LOSS,
    STEP,
    VALUE,
    canonical_name,
    is_known,
    name_words,
)
from parity.readers.columns.track import Track
from parity.readers.errors import ReadError
from parity.readers.files.json_values import flat_object
from parity.readers.logs.json_log.compact_values import Objects, Steps, compact_value
from parity.readers.logs.json_log.records import Record

LOG_HISTORY = "log_history"
_EXPECTED_STATE = "expected trainer_state.json as the trainer wrote it"
_EARLIEST = 1e9  # a time in seconds since 1970; no run has as many steps
_LONGEST_CUT = 1 << 25  # characters of a list whose end is looked for
_MOST_OPEN = 8  # objects in each other at the end of a list that is cut
_FOLDERS = ("runs", "logs", "log", "tb_logs", "lightning_logs", "tensorboard", "outputs")
_AXES = frozenset("x")  # of a chart's points, as ClearML has them
_VALUES = frozenset((VALUE, "values", "y"))
_TIMES = ("timestamp", "wall_time", "time", "unix_seconds")
_STATED_LENGTHS = ("max_steps", "total_steps")  # of a trainer's state, above its records


@frozen(eq=False)
class DocumentTable:
    """A table of a document: where it stands, its records and their names; `beside` has the names
    of lists next to it that are not as long.
    """

    path: str
    records: Iterable[Record]
    names: Sequence[str]
    beside: Sequence[str] = ()


@frozen(eq=False)
class Document:
    """What a document holds: tables, and series by name; `planned` is the planned length that it
    states above its records, if one. Series that are all written as numbers by step are one table
    where a loss is among them: a step at which all of them are blank was not run.
    """

    tables: Sequence[DocumentTable]
    series: Mapping[str, Track]
    planned: Set[int] = frozenset()

    def largest(self) -> list[Record]:
        """The records of its largest table, or of its series, by step."""
        if not self.tables:
            return _records_of_series(self.series)
        return list(max(self.tables, key=lambda table: sum(1 for _ in table.records)).records)


class ColumnRecords:
    """The records of `columns` that are equally long."""

    def __init__(self, columns: Mapping[str, Sequence[Any] | FloatArray]) -> None:
        self.columns = columns

    def numbers(self) -> Mapping[str, FloatArray] | None:
        """The columns as arrays; None where one holds texts, such as the names of runs."""
        arrays = {
            name: column for name, column in self.columns.items() if isinstance(column, np.ndarray)
        }
        return arrays if len(arrays) == len(self.columns) else None

    def __iter__(self) -> Iterator[Record]:
        cells = (
            _whole(column) if isinstance(column, np.ndarray) else column
            for column in self.columns.values()
        )
        for number, row in enumerate(zip(*cells, strict=True), 1):
            yield number, dict(zip(self.columns, row, strict=True))


def is_json(text: str) -> bool:
    """Whether a text begins like a JSON object, or a list of them."""
    return re.match(r"\s*\{(?!\s*')", text) is not None or _is_list(text)


def document_of(text: str, source: str) -> Document | None:
    """The tables and series of a text that is one JSON document, or one object behind another in
    several lines each; None where each line is an object of its own.
    """
    if re.match(r"\s*\[\s*\{\s*'", text):
        return _document(_printed_list(text, source), source)
    if not _is_list(text) and _is_a_line(text):
        return None
    remedy = _EXPECTED_STATE if f'"{LOG_HISTORY}"' in text else "check the file"
    value, end = compact_value(text, 0, source, remedy)
    rest = re.compile(r"\s*").match(text, end)
    if rest is None or rest.end() == len(text):
        return _document(value, source)
    if not isinstance(value, dict) or text[rest.end()] != "{":
        line = text.count("\n", 0, rest.end()) + 1
        raise ReadError(f"{source}, line {line}: not valid JSON; expected the end of the document")
    return _document(_objects_in_a_row(text, source), source)


def cut_list(text: str, source: str) -> Document | None:
    """The document of a list of objects whose end is missing, because its writer was killed, from
    its whole objects; None for any other text.
    """
    if not re.match(r"\s*\[\s*\{\s*\"", text) or text.rstrip().endswith("]"):
        return None
    if len(text) > _LONGEST_CUT:
        return None  # each try copies it
    end = len(text)
    for _ in range(_MOST_OPEN):
        end = text.rfind("}", 0, end)
        rest = text[end + 1 :]
        if end < 0 or (rest.count("{") and rest.count("{") <= rest.count("}")):
            return None  # whole objects would be left out
        try:
            return document_of(f"{text[: end + 1]}]", source)
        except ReadError:
            continue
    return None


def _is_list(text: str) -> bool:
    return re.match(r"\s*\[\s*(\{|\[\s*[-\d])", text) is not None


def _is_a_line(text: str) -> bool:
    """Whether the first line is an object that another line follows."""
    begin = text.index("{")
    end = text.find("\n", begin)
    end = len(text) if end < 0 else end
    if not text.endswith(("}", "}\r", "} "), begin, end):
        return False
    return re.compile(r"\s*\S").match(text, end) is not None


def _objects_in_a_row(text: str, source: str) -> list[Any]:
    objects: list[Any] = []
    at = 0
    while re.compile(r"\s*\S").match(text, at):
        value, at = compact_value(text, at, source)
        objects.append(value)
    return objects


def _document(value: Any, source: str) -> Document:
    tables: list[DocumentTable] = []
    series: dict[str, Track] = {}
    if isinstance(value, dict) and LOG_HISTORY in value:
        history = value[LOG_HISTORY]
        if not isinstance(history, Objects):
            raise ReadError(f"{source}: {LOG_HISTORY} is not a list of records; {_EXPECTED_STATE}")
        table = DocumentTable(path="", records=history, names=sorted(history.names))
        return Document(tables=[table], series={}, planned=_stated_lengths(value))
    if isinstance(value, list):
        if not value or not all(isinstance(item, dict) for item in value):
            raise ReadError(
                f"{source}: not a list of records such as {{'step': 1, 'loss': 2.5}} or [1, 2.5]; "
                "write one object per step"
            )
        records = [(number, flat_object(item)) for number, item in enumerate(value, 1)]
        names = sorted({name for _, record in records for name in record})
        return Document(
            tables=[DocumentTable(path="", records=records, names=names)], series=series
        )
    _collect(value, "", tables, series)
    series = _without_common_path(series)
    has_loss = any(is_known(name, LOSS) for name in series)  # else they may be the losses of runs
    if not tables and has_loss and len(series) > 1 and _all_by_step(value):
        return Document(tables=[_table_by_step(series)], series={})
    return Document(
        tables=tables,
        series=series,
        planned=_stated_lengths(value) if isinstance(value, dict) else frozenset(),
    )


def _all_by_step(value: Any) -> bool:
    """Whether all that a value holds of numbers is written by step."""
    if isinstance(value, dict):
        return all(map(_all_by_step, value.values()))
    return not isinstance(value, (np.ndarray, list, Objects))


def _table_by_step(series: Mapping[str, Track]) -> DocumentTable:
    """The table of series: a row for each step of any of them, NaN where one has no value."""
    tracks = {name: track.arrays() for name, track in series.items()}
    steps = np.unique(np.concatenate([at_steps for at_steps, _ in tracks.values()]))
    columns: dict[str, FloatArray] = {STEP: steps}
    for name, (at_steps, values) in tracks.items():
        columns[name] = np.full(len(steps), np.nan)
        columns[name][np.searchsorted(steps, at_steps)] = values
    return DocumentTable(path="", records=ColumnRecords(columns), names=[*columns])


def _without_common_path(series: Mapping[str, Track]) -> dict[str, Track]:
    """Series by their names without the path of a folder that all of them have before, as
    tensorboardX writes that of a run; a group of held-out losses is no such path.
    """
    paths = [name.split("/")[:-1] for name in series]
    common = 0
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1 or name_words(parts[0]) & NOT_THE_LOSS:
            break
        if not common and parts[0] not in _FOLDERS:
            break
        common += 1
    return {"/".join(name.split("/")[common:]): track for name, track in series.items()}


def _stated_lengths(value: Mapping[str, Any]) -> frozenset[int]:
    stated = (value.get(name) for name in _STATED_LENGTHS)
    return frozenset(number for number in stated if isinstance(number, int) and number > 0)


def _collect(value: Any, path: str, tables: list[DocumentTable], series: dict[str, Track]) -> None:
    """Add the tables and series of a value that stands at a path."""
    if isinstance(value, Objects):
        if path and (track := _track_of_objects(value)) is not None:
            series[path] = track
        else:
            tables.append(DocumentTable(path=path, records=value, names=sorted(value.names)))
    elif isinstance(value, Steps):
        series[path or VALUE] = Track(value.steps, value.values)
    elif isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] > 1:
        first = int(value.shape[1] == 3 and bool((value[:, 0] > _EARLIEST).all()))
        steps, values = value[:, first], value[:, first + 1]
        if path:
            series[path] = Track(steps, values)
        else:
            rows = ColumnRecords({STEP: steps, LOSS: values})
            tables.append(DocumentTable(path="", records=rows, names=[STEP, LOSS]))
    elif isinstance(value, dict):
        _collect_object(value, path, tables, series)


def _collect_object(
    value: Mapping[str, Any], path: str, tables: list[DocumentTable], series: dict[str, Track]
) -> None:
    if (frame := _split_frame(value)) is not None:
        tables.append(DocumentTable(path=path, records=ColumnRecords(frame), names=[*frame]))
        return
    if isinstance(value.get("values"), Steps) and path:
        series[path] = Track(value["values"].steps, value["values"].values)
        return
    lists = {name: one for name, one in value.items() if _is_column(one)}
    if path and (track := _track_of_lists(lists)) is not None:
        series[path] = track
        return
    by_index = {name: one for name, one in value.items() if isinstance(one, Steps)}
    if (
        any(is_known(name, STEP) for name in by_index)
        and len({one.steps.tobytes() for one in by_index.values()}) == 1
    ):
        columns = {name: one.values for name, one in by_index.items()}
        tables.append(DocumentTable(path=path, records=ColumnRecords(columns), names=[*columns]))
        value = {name: one for name, one in value.items() if name not in by_index}
    for length in dict.fromkeys(map(len, lists.values())):
        group = {name: one for name, one in lists.items() if len(one) == length}
        if length and any(isinstance(one, np.ndarray) for one in group.values()):
            beside = [name for name in lists if name not in group]
            table = DocumentTable(
                path=path, records=ColumnRecords(group), names=[*group], beside=beside
            )
            tables.append(table)
    for name, one in value.items():
        if name not in lists:
            _collect(one, f"{path}/{name}" if path else name, tables, series)


def _split_frame(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The columns of {"columns": [...], "data": [[...]]}, as pandas writes a frame."""
    names, data = value.get("columns"), value.get("data")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    if isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == len(names):
        return {name: data[:, at] for at, name in enumerate(names)}
    if isinstance(data, list) and all(
        isinstance(row, list) and len(row) == len(names) for row in data
    ):
        return {name: [row[at] for row in data] for at, name in enumerate(names)}
    return None


def _is_column(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, list) and not any(isinstance(one, (list, dict)) for one in value)


def _track_of_lists(lists: Mapping[str, Any]) -> Track | None:
    """The series of an object of steps and values alone."""
    steps = [one for name, one in lists.items() if is_known(name, STEP) or name in _AXES]
    values = [one for name, one in lists.items() if canonical_name(name) in _VALUES]
    if not (len(steps) == len(values) == 1) or len(steps[0]) != len(values[0]):
        return None
    return Track(np.asarray(steps[0], np.float64), np.asarray(values[0], np.float64))


def _track_of_objects(objects: Objects) -> Track | None:
    """The series of objects of a step and a value alone."""
    names = {name for name in objects.names if canonical_name(name) not in _TIMES}
    step = next((name for name in names if is_known(name, STEP)), None)
    value = next((name for name in names if canonical_name(name) in (VALUE, "values")), None)
    if step is None or value is None or len(names) > 2:
        return None
    track = Track()
    for _, record in objects:
        number = record.get(value)
        if not isinstance(record.get(step), (int, float)):
            return None
        if not isinstance(number, (int, float)):
            number = math.nan
        track.add(record[step], number)
    return track


def _records_of_series(series: Mapping[str, Track]) -> list[Record]:
    by_step: dict[int, dict[str, Any]] = {}
    for name, track in series.items():
        for step, value in track:
            by_step.setdefault(step, {STEP: step})[name] = value
    return [*enumerate(by_step.values(), 1)]


def _whole(column: FloatArray) -> Iterator[float | int]:
    """The numbers of a column, whole ones as whole."""
    return (int(value) if value.is_integer() else value for value in map(float, column))


def _printed_list(text: str, source: str) -> Any:
    """A list of dicts as Python prints it, with NaN and infinity as words."""
    try:
        return ast.literal_eval(re.sub(r"(?<=[\s:])(-?(?:nan|inf))(?=[,}])", r"'\1'", text.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ReadError(
            f"{source}: not a list of dicts as Python prints it; write it with json.dump"
        ) from None
