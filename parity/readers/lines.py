"""Lines of files that grow, and those of logs: what a line says, and lines that differ in their
digits alone, which are read in one go.

Where the numbers of a line stand depends on its other characters alone, as far as the rule that
reads the line says so (`Line.places`). So the rule reads one line of those that are alike, and the
numbers of the others are taken from the same places, by whole numbers and one division, which is
exact to the last digit. All other lines are read by the rule; both give the same records.

A file may grow: each line counts as soon as its end is there (`Growing`). What needs more than a
line of a log is decided when its series are asked for, from all lines so far: whether the steps are
printed or numbers of lines, and which progress bar is that of the training. So the series depend on
the text alone, never on the pieces in which it came, and later lines may revise them.
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray, IntArray
from parity.readers.columns import STEP, Columns, Track

LONGEST = 4096
"""Characters of a line that are looked at."""
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ENDS = (b"\n", b"\r")
_PIECE = 1 << 20  # bytes that are looked at in one go: their arrays stay in the processor's cache
_FEW = 8  # lines that are alike: fewer are read faster by the rule
# of a skeleton, with other digits in names; and that are remembered
_MOST_SHAPES, _MOST_SKELETONS = 64, 4096
_MOST_DIGITS = 18  # that a whole number of 64 bits holds
# whole numbers and powers of 10 up to these are exact as floats, so their quotient is rounded once
_EXACT, _EXACT_POWER = 1 << 53, 22
_POWERS = np.array([float(10**power) for power in range(_EXACT_POWER + 1)])
_PLAIN = bytes.maketrans(b"123456789\r", b"000000000\n")
_NUMERAL = re.compile(r"([-+]?)(\d*)\.?(\d*)(?:[eE]([-+]?)\d+)?", re.ASCII)
_POWER_SIGNS = {None: 0, "": 1, "+": 1, "-": -1}
_DIGITS = re.compile(r"[0-9]+")
_WORD_CHARACTERS = f"{string.ascii_letters}{string.digits}_.,+-"
_VALUES = re.compile(
    r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|\b(?:nan|inf(?:inity)?|none|null)\b|\s+",
    re.IGNORECASE,
)


def looked_at(line: str) -> str:
    """The first characters of a line, `LONGEST` at most, without a word or a number that goes on
    after them: 2.513 cut to 2.5 is another loss.
    """
    if len(line) > LONGEST and line[LONGEST] in _WORD_CHARACTERS:
        return line[:LONGEST].rstrip(_WORD_CHARACTERS)
    return line[:LONGEST]


def loose(line: str) -> str:
    """What a line is but for its numbers and blanks: lines that are alike in this are printed by
    one statement.
    """
    return _VALUES.sub(lambda match: "" if match[0].isspace() else "0", line[:LONGEST])


class LookAlikes:
    """How many lines look like those with a training loss that were read, and were not read:
    numbers of lines by what they look like.
    """

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._others: dict[str, int] = {}

    def count(self, line: str, read: int, others: int) -> None:
        """Count lines that look alike: those that were `read` with a training loss, and the
        `others`.
        """
        key = loose(line)
        if read:
            self._read[key] = self._read.get(key, 0) + read
        if others and (key in self._others or len(self._others) < _MOST_SKELETONS):
            self._others[key] = self._others.get(key, 0) + others

    @property
    def unread(self) -> int:
        """How many lines were not read that look like one that was."""
        return sum(number for key, number in self._others.items() if key in self._read)


class Growing(ABC):
    """A file of lines that may still grow: its text is fed in pieces of any size, and a line counts
    as soon as its end has come.

    `columns` gives the run so far, from the whole lines alone, and depends on the text, never on
    its pieces; the rows of a file that only grows stay as they are, unless the class says what may
    revise them. Both raise ReadError as the whole file would.
    """

    _ENDS: tuple[str, ...] = ("\n",)
    _COUNTS_LAST = True
    """Whether a last line without an end counts in a file that is whole; else it may be cut."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._torn: list[str] = []
        self._lines = 0
        """Line feeds of the lines that were taken."""

    def feed(self, text: str) -> None:
        """Take the next characters of the file."""
        end = max(map(text.rfind, self._ENDS)) + 1
        if end:
            whole = "".join((*self._torn, text[:end]))
            self._torn = []
            self._take(whole)
            self._lines += whole.count("\n")
        if text[end:]:
            self._torn.append(text[end:])

    def read(self, text: str) -> Columns:
        """Columns of a file that is whole."""
        self.feed(text)
        if self._COUNTS_LAST and self._torn:
            self.feed("\n")
        return self.columns()

    @abstractmethod
    def _take(self, text: str) -> None:
        """Read whole lines, which follow `self._lines` others."""

    @abstractmethod
    def columns(self) -> Columns:
        """The run so far, from whole lines."""


class GrowingLog(Growing):
    """A log that may still grow: the states of a progress bar are lines, too, and a last line
    without its end may be cut.
    """

    _ENDS = ("\n", "\r")
    _COUNTS_LAST = False


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(Line number, line without colours); a progress bar's states are lines of one number. A last
    line without its end may be cut and is left out.
    """
    lines = COLOUR.sub("", text).split("\n")
    for number, line in enumerate(lines[:-1], 1):
        for part in line.split("\r"):
            yield number, part
    for part in lines[-1].split("\r")[:-1]:
        yield len(lines), part


class Place(NamedTuple):
    """Where a number stands in a line, from its first character to behind its last, and the divisor
    that its unit asks for.
    """

    start: int
    end: int
    divisor: float = 1.0


class Line(NamedTuple):
    """What one line says: its rank, its step (of a bar: `of_bar`) with the planned steps, and its
    other numbers by name.

    `places` are those of the step and of the numbers, where a line with other digits has its
    numbers at the same places, unless the digits in the spans of `fixed` are others; None where
    more depends on the digits. `has_loss` is whether it has a training loss.
    """

    rank: str
    step: float | None
    planned: int | None
    of_bar: bool
    values: Mapping[str, float]
    has_loss: bool
    places: Mapping[str, Place] | None = None
    fixed: Sequence[tuple[int, int]] = ()


class _Rank:
    """What one rank printed: (key, number) of its steps and of its values by name; `bars` are (key,
    planned) of the steps of bars.

    Keys number the lines of the log, `first` is that of the first one. `losses` are the keys of
    lines with a training loss, `others` the last keys of names whose numbers are not kept.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.steps, self.bars, self.losses = Track(), Track(), Track()
        self.values: dict[str, Track] = {}
        self.others: dict[str, int] = {}


class Log:
    """What the lines of a log say; `read` is the rule for a line, None for one that says nothing.

    `names` are those whose numbers are kept; of other names it is known that they are there.
    `check` takes the step of a line that the rule read, the line and its number, and raises where
    the step cannot be one.
    """

    def __init__(
        self,
        read: Callable[[str], Line | None],
        names: Collection[str],
        check: Callable[[float, str, int], object],
    ) -> None:
        self._read, self._names, self._check = read, names, check
        self._lines = 0  # ended by a line feed
        self._key = 0
        self._ranks: dict[str, _Rank] = {}
        self._shapes: dict[bytes, list[_Shape | None]] = {}
        self.alike = LookAlikes()
        self.planned: set[int] = set()
        """The planned lengths that lines with a step and a loss state."""

    def take(self, text: str) -> None:
        """Read whole lines."""
        data = (COLOUR.sub("", text) if "\x1b" in text else text).encode()
        at = 0
        while at < len(data):
            stop = max(data.rfind(end, at, at + _PIECE) for end in _ENDS) + 1
            stop = stop or min(found for end in _ENDS if (found := data.find(end, at)) >= 0) + 1
            self._take(data[at:stop])
            at = stop

    @property
    def is_numbered(self) -> bool:
        """Whether no line so far has a step, so that the lines with a loss are numbered from 1."""
        return not any(len(rank.steps) for rank in self._ranks.values())

    def series(self) -> dict[str, dict[str, Track]]:
        """The series by rank and name, empty where the numbers are not kept; a line without a step
        has the one before it in its rank.
        """
        bars = [rank.bars.arrays()[1] for rank in self._ranks.values() if len(rank.bars)]
        # the bar of an evaluation is shorter
        longest = max((float(planned.max()) for planned in bars), default=0.0)
        is_numbered = self.is_numbered
        # however the lines were taken
        ranks = sorted(self._ranks.items(), key=lambda item: item[1].first)
        return {name: _series(rank, is_numbered, longest) for name, rank in ranks}

    def without(self, name: str) -> int:
        """How many lines with a step have neither a training loss nor a number of this name."""
        number = 0
        for rank in self._ranks.values():
            with_one = np.concatenate(
                [rank.losses.arrays()[0], rank.values.get(name, Track()).arrays()[0]]
            )
            number += int((~np.isin(rank.steps.arrays()[0], with_one)).sum())
        return number

    def _take(self, data: bytes) -> None:
        """Read whole lines."""
        lines = _Lines(data)
        by_rule: list[int] = []
        for skeleton, rows in lines.alike().items():
            left, read = self._take_alike(lines, skeleton, rows)
            by_rule += left
            if len(left) < len(rows):
                self.alike.count(lines.text(rows[0]), read, len(rows) - len(left) - read)
        for row in sorted(by_rule):
            has_loss = self._take_line(lines, row)
            self.alike.count(lines.text(row), int(has_loss), int(not has_loss))
        self._key += len(lines.begins)
        self._lines += data.count(b"\n")

    def _take_line(self, lines: "_Lines", row: int) -> bool:
        """Read one line by the rule; whether it has a training loss."""
        text = lines.text(row)
        line = self._read(text)
        if line is None:
            return False
        key = self._key + row
        rank = self._rank_of(line, key)
        if line.step is not None:
            self._check(line.step, text, self._lines + int(lines.numbers[row]) + 1)
            rank.steps.add(key, line.step)
            if line.of_bar:
                rank.bars.add(key, line.planned or 0)
        if line.has_loss:
            rank.losses.add(key, 0.0)
        for name, value in line.values.items():
            if name in self._names:
                rank.values.setdefault(name, Track()).add(key, value)
            else:
                rank.others[name] = max(key, rank.others.get(name, 0))
        self._plan(line)
        return line.has_loss

    def _rank_of(self, line: Line, key: int) -> _Rank:
        rank = self._ranks.setdefault(line.rank, _Rank(key))
        rank.first = min(rank.first, key)
        return rank

    def _plan(self, line: Line) -> None:
        # a bar may be that of one epoch
        if line.planned is not None and line.has_loss and not line.of_bar:
            self.planned.add(line.planned)

    def _take_alike(
        self, lines: "_Lines", skeleton: bytes, found: Sequence[int]
    ) -> tuple[Sequence[int], int]:
        """Read lines that are alike; returns those that the rule has to read, and how many of the
        others have a training loss.
        """
        if len(self._shapes) > _MOST_SKELETONS:
            self._shapes = {}
        shapes = self._shapes.setdefault(skeleton, [])
        rows: IntArray = np.array(found)
        read = 0
        for at in range(_MOST_SHAPES):
            if len(rows) < _FEW:
                break
            if at == len(shapes):
                shapes.append(_shape(self._read, lines.text(int(rows[0])), self._names))
            shape = shapes[at]
            if shape is None:
                break
            fits = lines.fits(shape, rows)
            if shape.line is not None and fits.any():
                self._take_shape(lines, shape, shape.line, rows[fits])
                read += int(fits.sum()) if shape.line.has_loss else 0
            rows = rows[~fits]
        left: list[int] = rows.tolist()
        return left, read

    def _take_shape(self, lines: "_Lines", shape: "_Shape", line: Line, rows: IntArray) -> None:
        keys = self._key + rows
        rank = self._rank_of(line, int(keys[0]))
        for name, number in shape.numbers.items():
            track = rank.steps if name == STEP else rank.values.setdefault(name, Track())
            track.add_block(keys, lines.floats(number, rows))
        rank.others.update(
            {
                name: max(int(keys[-1]), rank.others.get(name, 0))
                for name in line.values
                if name not in shape.numbers
            }
        )
        if line.has_loss:
            rank.losses.add_block(keys, np.zeros(len(keys)))
        self._plan(line)


def _series(rank: _Rank, is_numbered: bool, longest: float) -> dict[str, Track]:
    """The series of one rank, of all names that are on a line which counts."""
    keys, steps = _in_order(rank.steps)
    others, planned = _in_order(rank.bars)
    others = others[planned != longest]
    if is_numbered:
        keys = _in_order(rank.losses)[0]
        steps = np.arange(1.0, len(keys) + 1)
    elif len(others):
        keys, steps = keys[~np.isin(keys, others)], steps[~np.isin(keys, others)]
    keys, steps = np.insert(keys, 0, -1), np.insert(steps, 0, 0.0 if is_numbered else np.nan)
    series: dict[str, Track] = {}
    for name, track in rank.values.items():
        at, values = _in_order(track)
        own = steps[np.searchsorted(keys, at, side="right") - 1]
        counts = ~(np.isnan(own) | np.isin(at, others)) if len(others) else ~np.isnan(own)
        if counts.any():
            series[name] = Track(own[counts], values[counts])
    first = -1 if is_numbered or len(keys) < 2 else keys[1]
    return {**{name: Track() for name, last in rank.others.items() if last >= first}, **series}


def _in_order(track: Track) -> tuple[FloatArray, FloatArray]:
    """Keys and values in the order of the log: lines that are alike were added together."""
    keys, values = track.arrays()
    if (keys[1:] > keys[:-1]).all():
        return keys, values
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]


@frozen
class _Number:
    """A number in lines that are alike: its first run of digits among those of the line, and what
    is around its runs of digits.
    """

    run: int
    has_whole: bool
    has_part: bool
    power: int
    """1 or -1 as the sign of its power of 10; 0 where it has none."""
    sign: float
    divisor: float


@frozen(eq=False)
class _Shape:
    """Lines that are alike: one of them, None if they say nothing, the numbers of its names, and
    digits that must be its own, by run.
    """

    line: Line | None
    numbers: Mapping[str, _Number] = field(default_factory=dict)
    fixed: Sequence[tuple[int, str]] = ()


def _shape(read: Callable[[str], Line | None], text: str, names: Collection[str]) -> _Shape | None:
    """The shape of a line; None where more than numbers depends on its digits."""
    line = read(text)
    if line is None:
        return _Shape(line=None)
    if line.places is None:
        return None
    numbers: dict[str, _Number] = {}
    for name, place in line.places.items():
        if name != STEP and name not in names:
            continue
        numeral = _NUMERAL.fullmatch(text[place.start : place.end])
        if numeral is None:
            return None
        sign, whole, part, power_sign = numeral.groups()
        numbers[name] = _Number(
            run=len(_DIGITS.findall(text[: place.start])),
            has_whole=bool(whole),
            has_part=bool(part),
            power=_POWER_SIGNS[power_sign],
            sign=-1.0 if sign == "-" else 1.0,
            divisor=place.divisor,
        )
    runs = [*_DIGITS.finditer(text)]
    fixed = [
        (at, run[0])
        for at, run in enumerate(runs)
        if any(start < run.end() and run.start() < end for start, end in line.fixed)
    ]
    if any(len(digits) > _MOST_DIGITS for _, digits in fixed):
        return None
    return _Shape(line=line, numbers=numbers, fixed=fixed)


class _Lines:
    """Whole lines (n,) of a text without colours, as bytes, with their runs of digits (m,);
    `numbers` count line feeds before each.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._plain = np.frombuffer(data.translate(_PLAIN), np.uint8)
        self._digits = self._plain == ord("0")
        self._firsts = self._digits.copy()
        self._firsts[1:] &= ~self._digits[:-1]
        self._ends = np.flatnonzero(self._plain == ord("\n"))
        self.begins = np.insert(self._ends[:-1] + 1, 0, 0)
        self._run_begins = np.flatnonzero(self._firsts)
        self._run_ends = np.flatnonzero(self._digits[:-1] & ~self._digits[1:]) + 1
        self._first_runs = np.searchsorted(self._run_begins, self.begins)
        self.numbers = np.insert(np.cumsum(self._bytes[self._ends[:-1]] == ord("\n")), 0, 0)

    def alike(self) -> Mapping[bytes, Sequence[int]]:
        """The lines by their skeleton, in which a 0 stands for each run of digits."""
        rows: dict[bytes, list[int]] = {}
        # NUL, which is in no text, for what goes: faster than an index
        kept = self._plain * (~self._digits | self._firsts)
        skeletons = kept.tobytes().translate(None, b"\0").split(b"\n")
        for row, skeleton in enumerate(skeletons[:-1]):
            if skeleton in rows:
                rows[skeleton].append(row)
            else:
                rows[skeleton] = [row]
        return rows

    def text(self, row: int) -> str:
        """A line without its end."""
        return self._data[self.begins[row] : self._ends[row]].decode()

    def fits(self, shape: _Shape, rows: IntArray) -> BoolArray:
        """Which of the lines (k,) with the skeleton of a shape have its fixed digits, and are no
        longer than what is looked at.
        """
        fits: BoolArray = self._ends[rows] - self.begins[rows] <= LONGEST
        for run, digits in shape.fixed:
            at = self._first_runs[rows] + run
            lengths = self._run_ends[at] - self._run_begins[at]
            fits &= (lengths == len(digits)) & (
                self._whole(np.zeros(len(rows), np.int64), at) == int(digits)
            )
        return fits

    def floats(self, number: _Number, rows: IntArray) -> FloatArray:
        """A number of lines (k,) that are alike, exactly as Python reads it."""
        first = at = self._first_runs[rows] + number.run
        mantissa, digits = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        power = np.zeros(len(rows), np.int64)
        if number.has_whole:
            mantissa, digits, last, at = self._whole(mantissa, at), self._lengths(at), at, at + 1
        if number.has_part:
            mantissa, digits, power, last, at = (
                self._whole(mantissa, at),
                digits + self._lengths(at),
                -self._lengths(at),
                at,
                at + 1,
            )
        if number.power:
            power = power + number.power * self._whole(np.zeros(len(rows), np.int64), at)
            digits, last = np.maximum(digits, self._lengths(at)), at
        scale = _POWERS[np.minimum(np.abs(power), _EXACT_POWER)]
        values: FloatArray = np.where(power < 0, mantissa / scale, mantissa * scale)
        for row in np.flatnonzero(
            (digits > _MOST_DIGITS) | (mantissa > _EXACT) | (np.abs(power) > _EXACT_POWER)
        ):
            values[row] = float(
                self._data[
                    self._run_begins[first[row]] - (not number.has_whole) : self._run_ends[
                        last[row]
                    ]
                ]
            )
        return number.sign * values / number.divisor

    def _lengths(self, runs: IntArray) -> IntArray:
        lengths: IntArray = self._run_ends[runs] - self._run_begins[runs]
        return lengths

    def _whole(self, value: IntArray, runs: IntArray) -> IntArray:
        """The whole numbers (k,) with the digits of these runs behind them; of longer ones than
        `_MOST_DIGITS` nothing that is true.
        """
        begins, lengths = self._run_begins[runs], self._lengths(runs)
        shortest = lengths.min()
        for at in range(min(int(lengths.max()), _MOST_DIGITS)):
            more = value * 10 + (
                self._bytes[np.minimum(begins + at, len(self._bytes) - 1)] - ord("0")
            )
            value = more if at < shortest else np.where(at < lengths, more, value)
        return value
