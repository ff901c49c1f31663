"""Lines that differ only in their digits, read in one go.

Where the numbers of a line stand depends on its other characters alone, as far as the rule that
reads the line says so (`LogLine.places`). So the rule reads one line of those that are alike, and
the numbers of the others are taken from the same places, by whole numbers and one division, which
is exact to the last digit. All other lines are read by the rule; both give the same records.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray, IntArray
from parity.readers.columns.names import STEP
from parity.readers.logs.lines.line import EPOCH, LONGEST, LogLine

_MOST_DIGITS = 18  # that a whole number of 64 bits holds
# whole numbers and powers of 10 up to these are exact as floats, so their quotient is rounded once
_EXACT, _EXACT_POWER = 1 << 53, 22
_POWERS = np.array([float(10**power) for power in range(_EXACT_POWER + 1)])
_PLAIN = bytes.maketrans(b"123456789\r", b"000000000\n")
_NUMERAL = re.compile(r"([-+]?)(\d*)\.?(\d*)(?:[eE]([-+]?)\d+)?", re.ASCII)
_POWER_SIGNS = {None: 0, "": 1, "+": 1, "-": -1}
_DIGITS = re.compile(r"[0-9]+")


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
class LineShape:
    """Lines that are alike: one of them, None if they say nothing, the numbers of its names, and
    digits that must be its own, by run.
    """

    line: LogLine | None
    numbers: Mapping[str, _Number] = field(default_factory=dict)
    fixed: Sequence[tuple[int, str]] = ()


def shape_of(
    read: Callable[[str], LogLine | None], text: str, keeps: Callable[[str], bool]
) -> LineShape | None:
    """The shape of a line, with the numbers of the step, of the epoch, and of the names that are
    kept; None where more than numbers depends on its digits.
    """
    line = read(text)
    if line is None:
        return LineShape(line=None)
    if line.places is None or line.may_have_two_losses:
        return None
    numbers: dict[str, _Number] = {}
    for name, place in line.places.items():
        if name not in (STEP, EPOCH) and not keeps(name):
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
    return LineShape(line=line, numbers=numbers, fixed=fixed)


class LineBlock:
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
        skeleton_bytes = self._plain * (~self._digits | self._firsts)
        skeletons = skeleton_bytes.tobytes().translate(None, b"\0").split(b"\n")
        for row, skeleton in enumerate(skeletons[:-1]):
            if skeleton in rows:
                rows[skeleton].append(row)
            else:
                rows[skeleton] = [row]
        return rows

    def text(self, row: int) -> str:
        """A line without its end."""
        return self._data[self.begins[row] : self._ends[row]].decode()

    def fits(self, shape: LineShape, rows: IntArray) -> BoolArray:
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
