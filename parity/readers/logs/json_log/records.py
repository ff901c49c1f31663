"""Columns of JSON objects: the numbers of their fields, and which of them are records of training.

MaxText mixes evaluation records in, writes steps as floats and NaN as NaN, and truncates its file
whenever it writes a record of step 0, which every evaluation pass does: such a file begins late,
and the note says so.
"""

import dataclasses
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from parity.judging.curves.curve import FloatArray, whole_steps
from parity.readers.columns.absence import columns_of, training_records
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import (
    EPOCH,
    LOSS,
    MICRO_STEP,
    NUMBERED,
    STEP,
    find_columns,
    is_held_out,
)
from parity.readers.columns.not_finite_columns import field_says_not_finite
from parity.readers.columns.number import (
    MISSING,
    is_blank,
    plain_number,
    step_number,
    step_of_total,
)
from parity.readers.columns.planned_length import add_planned_length
from parity.readers.columns.second_losses import LossesOfRows, losses_beside
from parity.readers.columns.splits import CellsOfSplits
from parity.readers.errors import ReadError
from parity.readers.logs.lines.said import says_not_finite

_EXPLANATIONS = frozenset(("reason", "cause", "error", "status"))  # fields that say why
_WORDS = {
    "nan": float("nan"),
    "inf": float("inf"),
    "infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}
_NOTHING = frozenset(MISSING) - {"nan"}
Record = tuple[int, dict[str, Any]]
"""An object with the number of its line or record."""


def columns_of_records(
    records: Iterable[Record],
    names: Sequence[str],
    named_columns: Mapping[str, str],
    source: str,
    place: str,
) -> RunColumns:
    """Columns of numbered records with these field names; `place` is what a record is called in
    errors ("line").
    """
    fields = find_columns(names, named_columns, source, may_number=True)
    rows = RecordRows(fields, source, place)
    for record in records:
        rows.take(record)
    return rows.columns(names)


def columns_of_numbers(
    columns: Mapping[str, FloatArray], named_columns: Mapping[str, str], source: str
) -> RunColumns:
    """Columns of arrays (n,) by name. NaN is a value where `BLANK` stands for none; a writer that
    fills in NaN alone may mean either.
    """
    fields = find_columns([*columns], named_columns, source, may_number=True)
    values = {quantity: columns[name] for quantity, name in fields.items() if name != NUMBERED}
    if fields[STEP] == NUMBERED:
        values[STEP] = np.arange(1.0, len(values[LOSS]) + 1)
    for step in values[STEP][~whole_steps(values[STEP])][:1]:
        step_number(float(step), source)
    blank = {name: is_blank(column) for name, column in columns.items()}
    present = {
        name: ~np.isnan(column) for name, column in columns.items() if name not in fields.values()
    }
    beside = {name: (columns[name], ~blank[name]) for name in losses_beside(columns, fields[LOSS])}
    has_blanks = any(bool(one.any()) for one in blank.values())
    records = training_records(
        values,
        fields,
        present,
        source,
        written=~blank[fields[LOSS]] if has_blanks else None,
        beside=beside,
        place="record",
    )
    return columns_of(records, fields, [*columns])


class RecordRows:
    """The numbers of records whose `fields` are known by quantity, NaN for what is not there, and
    which other fields have a value.
    """

    def __init__(self, fields: Mapping[str, str], source: str, place: str) -> None:
        self.fields = fields
        self._source, self._place = source, place
        self._values = {quantity: array("d") for quantity in fields}
        self._others: list[frozenset[str]] = []
        self._kinds: dict[frozenset[str], frozenset[str]] = {}
        self._written = array("b")
        self._beside = _FurtherLosses(fields[LOSS])
        self._splits = CellsOfSplits()
        self._planned: set[int] = set()
        self._numbered = self._said_not_finite = 0

    def take(self, row: Record) -> None:
        """Take the next record; nothing of one with a value that is no number, which raises
        ReadError.
        """
        number, record = row
        fields, where = self.fields, f"{self._source}, {self._place} {number}"
        if fields[STEP] == NUMBERED:
            record = {**record, NUMBERED: self._number_of(record)}
        loss, step = record.get(fields[LOSS]), record.get(fields[STEP])
        if self._written and _says_not_finite(record, fields[LOSS]):
            self._said_not_finite += 1
        if is_nothing(loss) and is_nothing(step):
            return  # such as the summary at the end
        planned = None
        if isinstance(step, str) and (of_total := step_of_total(step)) is not None:
            record = {**record, fields[STEP]: of_total[0]}
            planned = of_total[1]
        taken = {
            quantity: _value(record, name, quantity, where) for quantity, name in fields.items()
        }
        for quantity, value in taken.items():
            self._values[quantity].append(value)
        if planned is not None:
            self._planned.add(planned)
        read = fields.values()
        others = frozenset(
            name for name, value in record.items() if name not in read and _has_value(value)
        )
        self._others.append(self._kinds.setdefault(others, others))
        self._splits.take(record, len(self._written))
        self._beside.take(record, len(self._written))
        self._written.append(not is_nothing(loss))

    def _number_of(self, record: Mapping[str, Any]) -> int | None:
        """The number of a record as its step, for an evaluation that of the one before it; None
        for a record without a value.
        """
        there = {name for name, value in record.items() if not is_nothing(value)}
        if not there:
            return None
        if self.fields[LOSS] in there or not any(map(is_held_out, there)):
            self._numbered += 1
        return self._numbered

    def columns(self, names: Sequence[str]) -> RunColumns:
        """The records of training so far, of records that have these names; raises ReadError where
        none has a training loss.
        """
        values, loss_name = (
            {quantity: np.array(numbers) for quantity, numbers in self._values.items()},
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
            beside=self._beside.losses(len(self._written)),
            splits=self._splits.columns,
            place="record",
        )
        columns = add_planned_length(columns_of(records, self.fields, names), self._planned)
        columns = dataclasses.replace(columns, said_not_finite=self._said_not_finite)
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


def _says_not_finite(record: Mapping[str, Any], loss: str) -> bool:
    """Whether a record says in words, or counts, that a loss was not finite."""
    return any(
        field_says_not_finite(name, value)
        or (
            isinstance(value, str)
            and says_not_finite(f"{name}: {value}" if name in _EXPLANATIONS else value)
        )
        for name, value in record.items()
        if name != loss
    )


class _FurtherLosses:
    """The further losses of records: numbers of records, and their values, by name."""

    def __init__(self, taken: str) -> None:
        self._taken = taken
        self._names: set[str] = set()
        self._losses: dict[str, tuple[array[int], array[float]]] = {}

    def take(self, record: Mapping[str, Any], at: int) -> None:
        """Take the losses of the record with a number."""
        if new := record.keys() - self._names:
            self._names |= new
            for name in losses_beside(sorted(new), self._taken):
                self._losses[name] = array("q"), array("d")
        for name, (places, values) in self._losses.items():
            number = _number_of_loss(record.get(name))
            if number is not None:
                places.append(at)
                values.append(number)

    def losses(self, rows: int) -> dict[str, LossesOfRows]:
        """The losses (R,) of all records so far, and in which of them one is written."""
        found = {}
        for name in losses_beside(sorted(self._losses), self._taken):
            places, values = map(np.array, self._losses[name])
            losses, written = np.full(rows, np.nan), np.zeros(rows, dtype=bool)
            if len(places):
                losses[places], written[places] = values, True
            found[name] = losses, written
        return found


def _number_of_loss(value: Any) -> float | None:
    """A loss, NaN in so many letters too; None for nothing, and for what is no number."""
    if isinstance(value, bool) or is_nothing(value):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    if not isinstance(value, str):
        return None
    return _WORDS.get(value.strip().lower(), plain_number(value))


def is_nothing(value: Any) -> bool:
    """Whether a record has no value: null, or a text that says so; NaN is one."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _NOTHING)


def _value(record: Mapping[str, Any], name: str, quantity: str, where: str) -> float:
    value = record.get(name)
    if quantity != STEP and is_nothing(value):
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
    if isinstance(value, str) and (written := plain_number(value)) is not None:
        return step_number(written, where) if quantity == STEP else written
    if quantity in (EPOCH, MICRO_STEP):
        return float("nan")
    raise ReadError(
        f"{where}: {name!r} is {value!r:.60}; expected a number (NaN and Infinity are allowed)"
    )


def _has_value(value: Any) -> bool:
    return (
        not is_nothing(value)
        and value == value
        and not (isinstance(value, str) and value.strip().lower() == "nan")
    )
