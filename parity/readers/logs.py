"""What a trainer wrote line by line: JSON lines, printed step lines of five trainers, and
TensorBoard event files, record by record.
"""

import ast
import dataclasses
import json
import math
import re
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray
from parity.names_once import NameTwiceError
from parity.readers.absence import columns_of, training_records
from parity.readers.columns import (
    KNOWN_NAMES,
    LOSS,
    STEP,
    VALIDATION,
    Columns,
    NoLossError,
    ReadError,
    Series,
    check_repeats,
    find_columns,
    json_of,
    object_of_values,
    step_number,
)
from parity.readers.lines import COLOUR, Growing, GrowingLog, Line, Log, Place, numbered_lines
from parity.readers.printed import is_printed, printed_log
from parity.readers.series import from_series
from parity.readers.table import (
    MISSING,
    SHOWN,
    SeveralRunsError,
    arm_column,
    choose_run,
    long_layout,
    read_long,
    run_column,
)
from parity.wording import count

# JSON: one object a line (our own logger's, MaxText's `metrics_file`, exports), the Hugging Face
# trainer's `trainer_state.json`, or a whole document: a list of objects (as Python prints one,
# too), rows [step, loss], TensorBoard's rows [time, step, value], an object of lists, or Megatron's
# golden values {"lm loss": {"start_step": 1, "step_interval": 5, "values": {"1": 10.8, ...}}}.
#
# MaxText mixes evaluation records in, writes steps as floats and NaN as NaN, and truncates its file
# whenever it writes a record of step 0, which every evaluation pass does: such a file begins late,
# and the note says so. The Hugging Face trainer writes evaluations and, at the end, the mean
# training loss (`train_loss`) as records of their own.

LOG_HISTORY = "log_history"

_WORDS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}
_NOTHING = frozenset(MISSING) - {"nan"}
_PACKED = 1 << 18  # characters of lines that are compressed together
Record = tuple[int, dict[str, Any]]
"""An object with the number of its line or record."""


def read_json(text: str, source: str, wanted: Mapping[str, str], run: str | None = None) -> Columns:
    """Columns of a JSON text."""
    document = _of_document(text, source)
    if document is not None:
        return _columns_of_run(document, wanted, source, "record", run)
    return JsonLines(source, wanted, run).read(text)


class JsonLines(Growing):
    """An object a line. Which fields are the step and the loss is decided by all names so far: a
    new one may revise all rows, and a second run is refused where none is named.

    Lines become numbers once; their text is kept, compressed, for a new name that makes others of
    them. A long table, or one with a field of runs, is read again each time that its columns are
    asked for.
    """

    def __init__(self, source: str, wanted: Mapping[str, str], run: str | None = None) -> None:
        super().__init__(source)
        self._wanted, self._run = wanted, run
        self._names: set[str] = set()
        self._sorted: list[str] = []
        # of these names, where they are those of a plain table of one run
        self._fields: Mapping[str, str] | None = None
        self._packed: list[bytes] = []
        self._tail: list[str] = []
        self._tail_length = 0
        self._new: list[Record] = []
        self._rows: _RecordRows | None = None
        # all of them, for what is no plain table of one run
        self._records: list[Record] | None = None

    def _take(self, text: str) -> None:
        records = _records(text, self._source, self._lines + 1)
        self._names.update(*(record for _, record in records))
        self._new += records
        if self._records is not None:
            self._records += records
        self._tail.append(text)
        self._tail_length += len(text)
        if self._tail_length > _PACKED:
            self._packed.append(
                zlib.compress("".join(self._tail).encode("utf-8", "surrogatepass"), 1)
            )
            self._tail, self._tail_length = [], 0

    def columns(self) -> Columns:
        """The run so far; raises ReadError where no step or no loss is in it, or the run is not."""
        if len(self._names) != len(self._sorted):
            self._sorted, self._fields = sorted(self._names), None
        names = self._sorted
        if self._fields is None and (
            self._run is not None
            or long_layout(names, self._wanted, self._source)
            or run_column(names)
        ):
            if self._records is None:
                self._records = self._all_records()
            self._new, self._rows = [], None
            return _columns_of_run(self._records, self._wanted, self._source, "line", self._run)
        if self._fields is None:
            self._fields = find_columns(names, self._wanted, self._source)
        if self._rows is None or self._rows.fields != self._fields:
            self._rows, self._new = (
                _RecordRows(self._fields, self._source, "line"),
                self._all_records(),
            )
        taken = 0
        try:
            for record in self._new:
                self._rows.take(record)
                taken += 1
        finally:
            del self._new[:taken]
        return self._rows.columns(names)

    def _all_records(self) -> list[Record]:
        texts = [zlib.decompress(each).decode("utf-8", "surrogatepass") for each in self._packed]
        return _records("".join((*texts, *self._tail)), self._source, 1)


def _columns_of_run(
    records: Sequence[Record], wanted: Mapping[str, str], source: str, place: str, run: str | None
) -> Columns:
    names = sorted({key for _, record in records for key in record})
    if layout := long_layout(names, wanted, source):
        return read_long(records, layout, wanted, source, run)
    column = run_column(names)
    if column is None and run is not None:
        column = arm_column(names)
    if column is not None:
        chosen = choose_run((str(record.get(column)) for _, record in records), run, source)
        records = [
            (number, record) for number, record in records if str(record.get(column)) == chosen
        ]
    elif run is not None:
        raise ReadError(
            f"{source}: no field names the run, so there is no run {run!r}; expected a field such "
            "as run_id"
        )
    return columns_of_records(records, names, wanted, source, place)


def columns_of_records(
    records: Sequence[Record],
    names: Sequence[str],
    wanted: Mapping[str, str],
    source: str,
    place: str,
) -> Columns:
    """Columns of numbered records with these field names; `place` is what a record is called in
    errors ("line").
    """
    rows = _RecordRows(find_columns(names, wanted, source), source, place)
    for record in records:
        rows.take(record)
    return rows.columns(names)


class _RecordRows:
    """The numbers of records whose `fields` are known by quantity, NaN for what is not there, and
    which other fields have a value.
    """

    def __init__(self, fields: Mapping[str, str], source: str, place: str) -> None:
        self.fields = fields
        self._source, self._place = source, place
        self._values = {quantity: array("d") for quantity in fields}
        self._others: list[frozenset[str]] = []
        self._written = array("b")

    def take(self, row: Record) -> None:
        """Take the next record; nothing of one with a value that is no number, which raises
        ReadError.
        """
        number, record = row
        fields, where = self.fields, f"{self._source}, {self._place} {number}"
        loss = record.get(fields[LOSS])
        if _is_nothing(loss) and _is_nothing(record.get(fields[STEP])):
            return  # such as the summary at the end
        taken = {
            quantity: _value(record, name, quantity, where) for quantity, name in fields.items()
        }
        for quantity, value in taken.items():
            self._values[quantity].append(value)
        read = fields.values()
        self._others.append(
            frozenset(
                name for name, value in record.items() if name not in read and _has_value(value)
            )
        )
        self._written.append(not _is_nothing(loss))

    def columns(self, names: Sequence[str]) -> Columns:
        """The records of training so far, of records that have these names; raises ReadError where
        none has a training loss.
        """
        values, loss_name = (
            {quantity: np.array(own) for quantity, own in self._values.items()},
            self.fields[LOSS],
        )
        if not any(self._written):
            raise ReadError(
                f"{self._source}: no record has a value of {loss_name!r}; expected one record per "
                "training step"
            )
        present = {}
        if np.isnan(values[LOSS]).any():
            kinds = list(dict.fromkeys(self._others))
            kind = np.array(
                [*map({names: at for at, names in enumerate(kinds)}.__getitem__, self._others)]
            )
            further = frozenset().union(*kinds)
            present = {
                name: np.array([name in names for names in kinds])[kind] for name in sorted(further)
            }
        records = training_records(
            values,
            self.fields,
            present,
            self._source,
            written=np.array(self._written, dtype=bool),
            place="record",
        )
        columns = columns_of(records, self.fields, names)
        steps = columns.values[STEP]
        if (
            len(steps)
            and np.isfinite(steps).all()
            and steps.min() > 1
            and loss_name.startswith("learning/")
        ):
            return columns.noted(
                f"begins at step {steps.min():.0f}: MaxText truncates its metrics_file at every "
                "evaluation pass"
            )
        return columns


def _has_value(value: Any) -> bool:
    return (
        not _is_nothing(value)
        and value == value
        and not (isinstance(value, str) and value.strip().lower() == "nan")
    )


def _is_nothing(value: Any) -> bool:
    """Whether a record has no value: null, or a text that says so; NaN is one."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)


def json_records(text: str, source: str) -> tuple[list[Record], str]:
    """The objects of a JSON text with their numbers, and what is numbered: a record or a line."""
    history = _of_document(text, source)
    if history is None:
        return _records(text, source, 1), "line"
    return history, "record"


def is_json(text: str) -> bool:
    """Whether a text begins like a JSON object, or a list of them."""
    return re.match(r"\s*\{(?!\s*')", text) is not None or _is_list(text)


def _is_list(text: str) -> bool:
    return re.match(r"\s*\[\s*(\{|\[\s*[-\d])", text) is not None


def _of_document(text: str, source: str) -> list[Record] | None:
    """The records of a text that is one JSON document, numbered from 1; None where each line is an
    object of its own.
    """
    if _is_list(text):
        if re.match(r"\s*\[\s*\{\s*'", text):
            rows = _printed_list(text, source)
        else:
            rows = json_of(text, source)
    elif f'"{LOG_HISTORY}"' in text:
        state = json_of(text, source, _AS_WRITTEN)
        rows = state.get(LOG_HISTORY) if isinstance(state, dict) else state
        if not isinstance(rows, list) or not all(isinstance(record, dict) for record in rows):
            raise ReadError(f"{source}: {LOG_HISTORY} is not a list of records; {_AS_WRITTEN}")
    else:
        plain = text.strip()
        try:
            document, end = json.JSONDecoder(object_pairs_hook=object_of_values).raw_decode(plain)
        except NameTwiceError as error:
            raise ReadError(f"{source}: {error}") from None
        except (ValueError, RecursionError):
            return None
        # else an object a line
        rows = (_by_step(document) or _by_row(document)) if end == len(plain) else None
        if rows is None:
            return None
    records = [_of_row(row) for row in rows]
    if not all(isinstance(record, dict) for record in records):
        raise ReadError(
            f"{source}: not a list of records such as {{'step': 1, 'loss': 2.5}} or [1, 2.5]; "
            "write one object per step"
        )
    return list(enumerate(records, 1))


_AS_WRITTEN = "expected trainer_state.json as the trainer wrote it"


def _printed_list(text: str, source: str) -> Any:
    """A list of dicts as Python prints it, with NaN and infinity as words."""
    try:
        return ast.literal_eval(re.sub(r"(?<=[\s:])(-?(?:nan|inf))(?=[,}])", r"'\1'", text.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ReadError(
            f"{source}: not a list of dicts as Python prints it; write it with json.dump"
        ) from None


def _of_row(row: Any) -> Any:
    """A row [step, loss], or [time, step, loss] as TensorBoard writes it, as an object."""
    if not isinstance(row, list) or len(row) < 2:
        return row
    has_time = len(row) == 3 and isinstance(row[0], (int, float)) and row[0] > _EARLIEST
    return dict(zip((STEP, LOSS), row[1:] if has_time else row, strict=False))


_EARLIEST = 1e9  # a time in seconds since 1970; no run has as many steps


def _by_step(document: Any) -> list[dict[str, Any]] | None:
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


def _by_row(document: Any) -> list[dict[str, Any]] | None:
    """The records of an object of lists that are equally long; None for any other document."""
    if isinstance(document, dict):
        lists = {name: one for name, one in document.items() if isinstance(one, list)}
    else:
        lists = {}
    if len(lists) < 2 or len({len(one) for one in lists.values()}) > 1:
        return None
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _records(text: str, source: str, first: int) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(text.split("\n"), first):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=object_of_values)
        except NameTwiceError as error:
            raise ReadError(f"{source}, line {number}: {error}") from None
        except (ValueError, RecursionError):
            raise ReadError(
                f"{source}, line {number}: not valid JSON; expected one object per line such as "
                '{"step": 1, "loss": 2.5}'
            ) from None
        if not isinstance(record, dict):
            raise ReadError(
                f"{source}, line {number}: {line.strip()[:40]!r} is not a JSON object; expected "
                '{"step": 1, "loss": 2.5}'
            )
        records.append((number, record))
    return records


def _value(record: Mapping[str, Any], name: str, quantity: str, where: str) -> float:
    value = record.get(name)
    if quantity != STEP and _is_nothing(value):
        return float("nan")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            if quantity == STEP:
                return step_number(float(value), where)
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, str) and quantity != STEP and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise ReadError(
        f"{where}: {name!r} is {value!r:.60}; expected a number (NaN and Infinity are allowed)"
    )


# What a trainer printed: the step lines of Megatron-LM, NeMo, torchtitan, MaxText and DeepSpeed in
# its standard output.
#
# Colour codes, carriage returns of a progress bar and a launcher's rank prefix ("[rank0]:", "0: ")
# are removed. Steps keep the trainer's own numbers: Megatron-LM, torchtitan and DeepSpeed count
# from 1, MaxText and NeMo's global_step from 0. The printed digits are all there is, 3 or 4 of them
# for most trainers, which the judge sees as rounding. NeMo's progress bar rounds steps above 999
# too: refused.
#
# Sources: Megatron-LM training.py (training_log, evaluate_and_print_results; a mean that is NaN is
# not printed, only counted), NeMo 2.0's progress printer and 1.0's progress bar, torchtitan
# components/metrics.py, MaxText metric_logger.py, DeepSpeed runtime/pipe/engine.py.

_RANK = re.compile(r"^\s*(?:\[(?:rank|default)?(\d+)\]:?|(\d+):(?=\s))")
_NUMBER = r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?|none|null))(?=[\s,|\]]|$)"
_WHOLE_STEP = "[0-9]{1,15}"  # that every float holds
# characters that decide whether a text is a log; a longer preamble is found after no table could be
# read
_HEAD = 1 << 14

# trainers by a name that they alone print
_AVERAGED: Mapping[str, str] = {"nanochat": "lrm", "litgpt": "loss/train"}

_Series = Mapping[str, Series]
"""What one rank printed, by quantity."""


@frozen
class _Format:
    """A trainer's lines: its name, how its log is recognized, and where its numbers are.

    `step` finds the number of a step line. `values` are (quantity, what stands before its number,
    divisor to our unit), of which the first counts that is there. `evaluation` finds the step and
    the loss of a line of validation, `planned` the planned number of steps.
    """

    trainer: str
    marks: re.Pattern[str]
    loss: str
    step: re.Pattern[str]
    values: tuple[tuple[str, str, float], ...]
    evaluation: re.Pattern[str] | None = None
    planned: re.Pattern[str] | None = None
    needs_loss: bool = False  # whether a line without a loss is no step line
    # a line without a loss, and a number above 0 behind this, had a loss of NaN
    nan_count: str | None = None

    def read(self, line: str) -> Line | None:
        """The record of a line, with NaN for a step that is printed rounded; None for any line that
        the trainer did not print.
        """
        numbers: dict[str, tuple[re.Match[str], float]] = {}
        evaluated = None if self.evaluation is None else self.evaluation.search(line)
        step = evaluated or self.step.search(line)
        if step is None:
            return None
        if evaluated is None:
            for quantity, before, divisor in self.values:
                if quantity not in numbers and (number := _number_behind(before, line)) is not None:
                    numbers[quantity] = number, divisor
        values = {
            quantity: _float(number[1]) / divisor for quantity, (number, divisor) in numbers.items()
        }
        if evaluated is not None:
            values[VALIDATION] = _float(evaluated[2])
        elif (
            self.nan_count is not None
            and (number := _number_behind(self.nan_count, line)) is not None
            and float(number[1]) > 0.0
        ):
            values.setdefault(LOSS, math.nan)
        if self.needs_loss and not values.keys() & {LOSS, VALIDATION}:
            return None
        rank = _RANK.match(line)
        places = {
            quantity: Place(*number.span(1), divisor)
            for quantity, (number, divisor) in numbers.items()
        }
        return Line(
            rank="" if rank is None else rank[rank.lastindex or 0],
            step=math.nan if "e" in step[1] else float(step[1]),
            planned=None,
            of_bar=False,
            values=values,
            has_loss=LOSS in values,
            places={STEP: Place(*step.span(1)), **places}
            if LOSS in numbers and re.fullmatch(_WHOLE_STEP, step[1])
            else None,
            fixed=() if rank is None else (rank.span(rank.lastindex or 0),),
        )


def _float(text: str) -> float:
    return math.nan if text.lower() in MISSING else float(text)


def _number_behind(pattern: str, line: str) -> re.Match[str] | None:
    return re.search(pattern + r"\s*" + _NUMBER, line, re.IGNORECASE)


# A mark begins with its letters, which is searched fast; what stands before them is looked at then.
_MEGATRON = re.compile(
    r"iteration(?<!\witeration)[ \t]+(\d+)[ \t]*/[ \t]*\d+[ \t]*\|.*\belapsed time per iteration "
    r"\(ms\):"
)
_FORMATS = (
    _Format(
        trainer="Megatron-LM",
        marks=_MEGATRON,
        loss="lm loss",
        step=_MEGATRON,
        values=(
            (LOSS, r"\| lm[ _]loss:", 1.0),
            ("grad_norm", r"\| grad norm:", 1.0),
            ("learning_rate", r"\| learning rate:", 1.0),
            ("step_seconds", r"elapsed time per iteration \(ms\):", 1000.0),
        ),
        evaluation=re.compile(
            r"validation loss at iteration (\d+)(?! on test)[^|]*\|.*?\blm loss value: " + _NUMBER,
            re.IGNORECASE,
        ),
        planned=re.compile(r"\biteration[ \t]+\d+[ \t]*/[ \t]*(\d+)[ \t]*\|"),
        nan_count=r"number of nan iterations:",
    ),
    _Format(
        trainer="NeMo",
        marks=re.compile(r"reduced_train_loss(?<!\wreduced_train_loss)[:=]"),
        loss="reduced_train_loss",
        step=re.compile(r"\bglobal_step[:=]\s*([\d.]+(?:e[+-]?\d+)?)"),
        needs_loss=True,
        values=(
            (LOSS, r"\breduced_train_loss[:=]", 1.0),
            ("learning_rate", r"\blr[:=]", 1.0),
            ("step_seconds", r"train_step_timing in s[:=]", 1.0),
        ),
    ),
    _Format(
        trainer="torchtitan",
        marks=re.compile(r"step:(?<!\wstep:)[ \t]*\d+[ \t]+loss:"),
        loss="loss",
        step=re.compile(r"\bstep:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=((LOSS, r"\bstep:\s*\d+\s+loss:", 1.0), ("grad_norm", r"\bgrad_norm:", 1.0)),
        evaluation=re.compile(r"\bvalidate\s+step:\s*(\d+)\s+loss:\s*" + _NUMBER, re.IGNORECASE),
        planned=re.compile(r"total steps(?<!\wtotal steps):?[ \t]+(\d+)\b"),
    ),
    _Format(
        trainer="MaxText",
        marks=re.compile(r"completed step: (?<!\wcompleted step: )\d+, "),
        loss="lm_loss",
        step=re.compile(r"\bcompleted step:\s*(\d+)\b"),
        values=(
            (LOSS, r"\blm_loss:", 1.0),
            (LOSS, r"\bloss:", 1.0),
            ("step_seconds", r"\bseconds:", 1.0),
        ),
    ),
    _Format(
        trainer="DeepSpeed",
        marks=re.compile(r"steps: (?<!\wsteps: )\d+ loss: \S+ .*?iter time"),
        loss="loss",
        step=re.compile(r"\bsteps:\s*(\d+)\s+loss:", re.IGNORECASE),
        needs_loss=True,
        values=(
            (LOSS, r"\bsteps:\s*\d+\s+loss:", 1.0),
            ("step_seconds", r"\biter time \(s\):", 1.0),
        ),
    ),
)


def is_train_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has a trainer's step lines, in its first 16 Ki characters or (`whole`)
    anywhere.
    """
    plain = COLOUR.sub("", text if whole else text[:_HEAD])
    return any(entry.marks.search(plain) for entry in _FORMATS)


class TrainLog(GrowingLog):
    """A trainer's log. Its first step line says which trainer wrote it, and lines before that wait
    until then.

    Of several ranks the one that printed most is read, as all must print the same losses; so where
    ranks take turns, other columns than the loss may be revised.
    """

    def __init__(self, source: str, wanted: Mapping[str, str]) -> None:
        super().__init__(source)
        if wanted:
            raise ReadError(
                f"{source}: a trainer's log has no columns; --column is for tables; remove it"
            )
        self._formats: set[int] = set()
        self._waiting: list[str] = []
        self._log: Log | None = None
        self._format = _FORMATS[0]
        self._loss = LOSS
        self._planned: set[int] = set()
        self._refusal: ReadError | None = None

    def _take(self, text: str) -> None:
        self._waiting.append(text)
        plain = COLOUR.sub("", text).replace("\r", "\n")
        self._formats |= {
            at
            for at, entry in enumerate(_FORMATS)
            if at not in self._formats and entry.marks.search(plain)
        }
        if not self._formats:
            return
        if self._log is None:
            self._format = _FORMATS[min(self._formats)]
            self._log = Log(self._format.read, KNOWN_NAMES, self._check)
            plain = COLOUR.sub("", "".join(self._waiting)).replace("\r", "\n")
        self._log.take("".join(self._waiting))
        self._waiting = []
        if any(f"{self._format.loss}{mark}" in plain for mark in ":="):
            self._loss = self._format.loss
        if self._format.planned is not None:
            self._planned |= set(map(int, self._format.planned.findall(plain)))

    def _check(self, step: float, line: str, number: int) -> None:
        """Keep the refusal of the first line whose step cannot be one: that two trainers wrote the
        log is said first.
        """
        try:
            if math.isnan(step):
                shown = next(text for text in self._format.step.findall(line) if "e" in text)
                raise ReadError(
                    f"{self._source}, line {number}: the progress bar prints the step rounded "
                    f"({shown}); expected whole steps; read the run's TensorBoard folder instead"
                )
            step_number(step, f"{self._source}, line {number}")
        except ReadError as error:
            self._refusal = self._refusal or error

    def columns(self) -> Columns:
        """The run so far; raises ReadError where two trainers wrote it, ranks disagree, a step was
        printed rounded, or no loss is there.
        """
        if len(self._formats) != 1 or self._log is None:
            names = (
                " and ".join(_FORMATS[at].trainer for at in sorted(self._formats)) or "no trainer"
            )
            raise ReadError(
                f"{self._source}: has step lines of {names}; expected the log of one trainer; keep "
                "one trainer's lines"
            )
        if self._refusal is not None:
            raise self._refusal
        ranks = self._log.series()
        own = {name: rank for name, rank in ranks.items() if LOSS in rank}
        if not own:
            raise ReadError(
                f"{self._source}: the step lines of {self._format.trainer} have no loss; expected "
                f"{self._format.loss} in them"
            )
        evaluated = next(
            ({VALIDATION: rank[VALIDATION]} for rank in ranks.values() if VALIDATION in rank), {}
        )
        series = {**_agreed(own, self._source), **evaluated}
        columns = from_series(series, series.__getitem__, {}, self._source)
        notes = [f"a log of {self._format.trainer}: losses as printed"]
        if without := self._log.without(VALIDATION):
            notes.append(f"{count(without, 'step line')} without a loss left out")
        read = {**columns.names, LOSS: self._loss}
        columns = dataclasses.replace(
            columns, names=read, found=(), unread=self._log.alike.unread
        ).noted(*notes)
        return _planned(columns, self._planned)


def is_printed_log(text: str, *, whole: bool = False) -> bool:
    """Whether a text has lines with a step and a loss, in its first 16 Ki characters or (`whole`)
    anywhere.
    """
    return is_printed(line for _, line in numbered_lines(text if whole else text[:_HEAD]))


class PrintedLog(GrowingLog):
    """A log of any other trainer. All rows may be revised by a line with the name of a loss that
    counts before the one that was read so far (`Columns.names`), by the first line with a step, and
    by the progress bar of a longer training; and other columns than the loss where ranks take
    turns.
    """

    def __init__(self, source: str, wanted: Mapping[str, str]) -> None:
        super().__init__(source)
        self._wanted = wanted
        self._log = printed_log(
            wanted.values(), lambda step, _, number: step_number(step, f"{source}, line {number}")
        )

    def _take(self, text: str) -> None:
        self._log.take(text)

    def columns(self) -> Columns:
        """The run so far; raises ReadError where no loss is in it, or ranks disagree."""
        source, wanted, ranks = self._source, self._wanted, self._log.series()
        names = sorted({name for rank in ranks.values() for name in rank})
        taken = find_columns(
            [STEP, *names], {key: name for key, name in wanted.items() if key != STEP}, source
        )
        own = {
            name: {LOSS: rank[taken[LOSS]], **rank}
            for name, rank in ranks.items()
            if rank.get(taken[LOSS])
        }
        series = _agreed(own, source)
        validation = taken.get(VALIDATION)
        if validation is not None:
            series = {
                **series,
                validation: next(
                    rank[validation] for rank in ranks.values() if rank.get(validation)
                ),
            }
        columns = from_series(series, series.__getitem__, {LOSS: taken[LOSS], **wanted}, source)
        notes = ["a printed log: losses as printed"]
        if self._log.is_numbered:
            notes.append(
                "no step is printed: lines with a loss are numbered from 1, so a planned length "
                "counts lines"
            )
        notes += [
            f"{trainer} prints a running average of the loss"
            for trainer, name in _AVERAGED.items()
            if name in names
        ]
        columns = dataclasses.replace(columns, unread=self._log.alike.unread)
        return _planned(columns, self._log.planned).noted(*notes)


def _planned(columns: Columns, planned: Set[int]) -> Columns:
    """The columns with the planned length that a log states, if it states one alone."""
    if len(planned) > 1:
        lengths = " and ".join(f"{number:,}" for number in sorted(planned))
        return columns.noted(f"the log states planned lengths of {lengths} steps: none is taken")
    if not planned or min(planned) == 0:
        return columns
    stated = dataclasses.replace(columns, planned_steps=min(planned))
    return stated.noted(f"planned length as the log states it: {count(min(planned), 'step')}")


def _agreed(ranks: Mapping[str, _Series], source: str) -> _Series:
    """The series of the rank that printed most, where every other rank printed the same losses at
    the steps that it shares.
    """
    ordered = sorted(ranks.items(), key=lambda item: -len(item[1][LOSS]))
    first, most = ordered[0]
    printed = _printed(most) if len(ordered) > 1 else set()
    for name, rank in ordered[1:]:
        if different := sorted(_printed(rank) - printed):
            raise ReadError(
                f"{source}: ranks {first or 'without a prefix'} and {name or 'without a prefix'} "
                f"print different losses (step {different[0][0]:,}); expected one rank, or equal "
                "losses; keep one rank's lines in the file"
            )
    return most


def _printed(rank: _Series) -> set[tuple[int, str]]:
    """Steps with their losses as text, so that NaN equals NaN."""
    return {(step, repr(loss)) for step, loss in rank[LOSS]}


# TensorBoard event files, read record by record, so that no point is dropped (TensorBoard's own
# reader keeps 10,000 by default).
#
# A file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its
# checksum (4). Of the Event only the step and the scalar values are decoded: simple_value, or a
# tensor of one float32, float64 or int. A last record that is cut short (a run that is still
# writing) is left out and noted.
#
# Source: TensorFlow's record format and event.proto, summary.proto, tensor.proto (field numbers
# below).

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
    """The run in a folder of event files; of a run that was resumed, a later file replaces
    everything from its first step on.

    Raises ReadError where the folder has no event file, SeveralRunsError where files with a
    training loss are in more than one folder.
    """
    by_folder: dict[Path, list[Columns]] = {}
    refusals: list[NoLossError] = []
    for file in sorted(Path(path).rglob(EVENT_FILES)):
        try:
            columns = read_tensorboard(str(file), wanted)
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


def join_parts(parts: Sequence[Columns], notes: tuple[str, ...]) -> Columns:
    """The files of one run in their order. A restart replaces everything from its first step on,
    also what it did not reach again.
    """
    kept: list[BoolArray] = []
    limit = math.inf
    for part in reversed(parts):
        steps = part.values[STEP]
        kept.insert(0, steps < limit)
        limit = min(limit, float(steps[0]))

    def joined(quantity: str) -> FloatArray:
        full = [
            part.values.get(quantity, np.full(len(part.values[STEP]), np.nan)) for part in parts
        ]
        return np.concatenate(
            [values[keep] for values, keep in zip(full, kept, strict=True)], dtype=np.float64
        )

    return Columns(
        values={
            quantity: joined(quantity)
            for quantity in sorted({name for part in parts for name in part.values})
        },
        names=parts[-1].names,
        found=parts[-1].found,
        notes=(*dict.fromkeys(note for part in parts for note in part.notes), *notes),
        overwritten=sum(int((~keep).sum()) for keep in kept),
    )


def read_tensorboard(path: str, wanted: Mapping[str, str]) -> Columns:
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
    return from_series(scalars, scalars.__getitem__, wanted, path).noted(*notes)


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


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of a protobuf message: varints as int, all else as bytes. Raises
    IndexError for bytes that are no message.
    """
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
    return (
        value
        for number, value in message_fields(data)
        if number == field and isinstance(value, bytes)
    )


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
