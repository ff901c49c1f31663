"""What the lines of a log say, rank by rank, by a rule that reads one line."""

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray, IntArray
from parity.readers.columns.epochs import continued_steps
from parity.readers.columns.names import KNOWN_NAMES, LOSS, STEP
from parity.readers.columns.track import Track
from parity.readers.errors import TwoLossesError
from parity.readers.logs.lines.line import COLOUR, EPOCH, LogLine
from parity.readers.logs.lines.line_block import LineBlock, LineShape, shape_of
from parity.readers.logs.lines.look_alikes import MOST_SKELETONS, LookAlikes
from parity.readers.logs.lines.said import says_not_finite
from parity.readers.logs.lines.sections import is_section_held_out

_ENDS = (b"\n", b"\r")
_PIECE = 1 << 20  # bytes that are looked at in one go: their arrays stay in the processor's cache
_TRAINING = frozenset(KNOWN_NAMES[LOSS])
_FEW = 8  # lines that are alike: fewer are read faster by the rule
_MOST_SHAPES = 64  # of a skeleton, with other digits in names


class _Rank:
    """What one rank printed: (key, number) of its steps and of its values by name; `bars` are (key,
    planned) of the steps of bars.

    `epochs` are (key, number) of epochs, `lengths` (key, number) what steps count to. Keys number
    the lines of the log, `first` is that of the first one. `losses` are the keys of
    lines with a training loss, `others` the last keys of names whose numbers are not kept.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.steps, self.bars, self.losses = Track(), Track(), Track()
        self.epochs, self.lengths = Track(), Track()
        self.values: dict[str, Track] = {}
        self.others: dict[str, int] = {}


class LineLog:
    """What the lines of a log say; `read` is the rule for a line, None for one that says nothing.

    `keeps` says of which names numbers are kept; of other names it is known that they are there.
    `check` takes the step of a line that the rule read, the line and its number, and raises where
    the step cannot be one.
    """

    def __init__(
        self,
        read: Callable[[str], LogLine | None],
        keeps: Callable[[str], bool],
        check: Callable[[float, str, int], object],
    ) -> None:
        self._read, self._keeps, self._check = read, keeps, check
        self._lines = 0  # ended by a line feed
        self._key = 0
        self._ranks: dict[str, _Rank] = {}
        self._shapes: dict[bytes, list[LineShape | None]] = {}
        self.alike = LookAlikes()
        self._said: list[int] = []
        """Keys of lines that say that a loss was not finite, which no step has."""
        self._sections = Track()
        """Keys of lines below which others are those of an evaluation (1.0), or of the training."""
        self._planned: set[int] = set()
        self._epochs: set[int] = set()
        self.counters: set[str] = set()
        """What the steps of lines with a training loss are called, "" where they have no name."""
        self._two_losses = ""
        """The first line with two numbers for one loss."""

    @property
    def has_evaluations(self) -> bool:
        """Whether a line says that those below it are of an evaluation."""
        return bool(self._sections.arrays()[1].any())

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
    def planned(self) -> set[int]:
        """The planned lengths that lines with a step and a loss state; where steps restart with
        each epoch, a line states the length of an epoch, and the number of epochs makes the plan.
        Of a log that ends within its first epoch it is not known whether they do.
        """
        lengths = self._epoch_lengths
        if not lengths:
            return set() if self._ends_in_first_epoch else self._planned
        return {int(length * epochs) for length in lengths for epochs in self._epochs}

    @property
    def _ends_in_first_epoch(self) -> bool:
        """Whether one epoch is printed, of several or nobody says how many, and a step that counts
        to more than the last one.
        """
        if self._epochs == {1} or not self._planned:
            return False
        ranks = self._ranks.values()
        printed = {float(one) for rank in ranks for one in rank.epochs.arrays()[1]}
        last = max(float(rank.steps.arrays()[1].max()) for rank in ranks if len(rank.steps))
        return len(printed) == 1 and last < min(self._planned)

    @property
    def restarts(self) -> bool:
        """Whether the steps restart with each epoch, so that they were continued."""
        return bool(self._epoch_lengths)

    @property
    def _epoch_lengths(self) -> set[float]:
        """How many steps an epoch has, by each rank whose steps restart with it."""
        longest = self._longest
        lengths = (_continued(rank, longest)[2] for rank in self._ranks.values())
        return {length for length in lengths if length is not None}

    @property
    def _longest(self) -> float:
        """What the bar of the training counts to; that of an evaluation is shorter."""
        bars = [rank.bars.arrays()[1] for rank in self._ranks.values() if len(rank.bars)]
        return max((float(planned.max()) for planned in bars), default=0.0)

    @property
    def said_not_finite(self) -> int:
        """How many lines behind the first training loss say in words that one was not finite."""
        losses = [rank.losses.arrays()[0] for rank in self._ranks.values() if len(rank.losses)]
        first = min((float(keys.min()) for keys in losses), default=math.inf)
        return sum(key > first for key in self._said)

    @property
    def is_numbered(self) -> bool:
        """Whether no line so far has a step, so that the lines with a loss are numbered from 1."""
        return not any(len(rank.steps) for rank in self._ranks.values())

    def refuse_two_losses(self, source: str) -> None:
        """Raises TwoLossesError where two numbers stand for one loss."""
        if self._two_losses:
            raise TwoLossesError(
                f"{source}: two numbers stand for one loss in {self._two_losses[:80]!r}; expected "
                "one; write a CSV file with the columns step and loss",
                self._two_losses,
            )

    def series(self) -> dict[str, dict[str, Track]]:
        """The series by rank and name, empty where the numbers are not kept; a line without a step
        has the one before it in its rank.
        """
        longest = self._longest
        is_numbered = self.is_numbered
        # however the lines were taken
        ranks = sorted(self._ranks.items(), key=lambda item: item[1].first)
        sections = _sorted_track(self._sections)
        return {name: _series(rank, is_numbered, longest, sections) for name, rank in ranks}

    def without(self, name: str) -> int:
        """How many lines with a step have neither a training loss nor a number of this name."""
        number = 0
        for rank in self._ranks.values():
            loss_keys = np.concatenate(
                [rank.losses.arrays()[0], rank.values.get(name, Track()).arrays()[0]]
            )
            number += int((~np.isin(rank.steps.arrays()[0], loss_keys)).sum())
        return number

    def beside(self, name: str, others: Collection[str]) -> list[str]:
        """Which of other names stand on lines of their own, never on one with a number of this
        name, and on at least half as many.
        """
        apart = set[str]()
        for rank in self._ranks.values():
            keys = rank.values.get(name, Track()).arrays()[0]
            for other in rank.values.keys() & set(others) - {name}:
                other_keys = rank.values[other].arrays()[0]
                if 2 * len(other_keys) >= len(keys) and not np.isin(other_keys, keys).any():
                    apart.add(other)
        return sorted(apart)

    def _take(self, data: bytes) -> None:
        """Read whole lines."""
        lines = LineBlock(data)
        by_rule: list[int] = []
        for skeleton, rows in lines.alike().items():
            left, read = self._take_alike(lines, skeleton, rows)
            by_rule += left
            if len(left) < len(rows):
                self.alike.count(lines.text(rows[0]), read, len(rows) - len(left) - read)
                if not read:
                    self._take_words(lines.text(rows[0]), rows)
        for row in sorted(by_rule):
            has_loss = self._take_line(lines, row)
            if has_loss is None:
                self.alike.without_number += 1
            else:
                self.alike.count(lines.text(row), int(has_loss), int(not has_loss))
            if not has_loss:
                self._take_words(lines.text(row), [row])
        self._key += len(lines.begins)
        self._lines += data.count(b"\n")

    def _take_words(self, text: str, rows: Sequence[int]) -> None:
        """Take what a line without a loss says of others, in the rows in which it stands."""
        if says_not_finite(text):
            self._said += [self._key + row for row in rows]
        elif (is_held_out := is_section_held_out(text)) is not None:
            for row in rows:
                self._sections.add(self._key + row, float(is_held_out))

    def _take_line(self, lines: "LineBlock", row: int) -> bool | None:
        """Read one line by the rule; whether it has a training loss, None where its loss has no
        number.
        """
        text = lines.text(row)
        line = self._read(text)
        if line is None:
            return False
        key = self._key + row
        rank = self._rank_of(line, key)
        if line.step is not None:
            self._check(line.step, text, self._lines + int(lines.numbers[row]) + 1)
            rank.steps.add(key, line.step)
            if line.planned is not None:
                rank.lengths.add(key, line.planned)
            if line.is_bar:
                rank.bars.add(key, line.planned or 0)
        if line.epoch is not None:
            rank.epochs.add(key, line.epoch)
        if line.has_loss:
            rank.losses.add(key, 0.0)
            losses = [value for name, value in line.values.items() if name in _TRAINING]
            if line.leaves_out_nan or (line.step is None and not np.isfinite(losses).any()):
                self._said.append(key)
        for name, value in line.values.items():
            if self._keeps(name):
                rank.values.setdefault(name, Track()).add(key, value)
            else:
                rank.others[name] = max(key, rank.others.get(name, 0))
        self._plan(line)
        if line.second_loss is not None:
            self._two_losses = self._two_losses or text
        return None if line.lacks_number else line.has_loss

    def _rank_of(self, line: LogLine, key: int) -> _Rank:
        rank = self._ranks.setdefault(line.rank, _Rank(key))
        rank.first = min(rank.first, key)
        return rank

    def _plan(self, line: LogLine) -> None:
        """Note what a line states of the run: its length, and what its steps are called."""
        if line.planned is not None and line.has_loss and line.states_plan:
            self._planned.add(line.planned)
        if line.epochs is not None:
            self._epochs.add(line.epochs)
        if line.has_loss and line.step is not None:
            self.counters.add(line.counter)

    def _take_alike(
        self, lines: "LineBlock", skeleton: bytes, found: Sequence[int]
    ) -> tuple[Sequence[int], int]:
        """Read lines that are alike; returns those that the rule has to read, and how many of the
        others have a training loss.
        """
        if len(self._shapes) > MOST_SKELETONS:
            self._shapes = {}
        shapes = self._shapes.setdefault(skeleton, [])
        rows: IntArray = np.array(found)
        read = 0
        for at in range(_MOST_SHAPES):
            if len(rows) < _FEW:
                break
            if at == len(shapes):
                shapes.append(shape_of(self._read, lines.text(int(rows[0])), self._keeps))
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

    def _take_shape(
        self, lines: "LineBlock", shape: "LineShape", line: LogLine, rows: IntArray
    ) -> None:
        keys = self._key + rows
        rank = self._rank_of(line, int(keys[0]))
        for name, number in shape.numbers.items():
            if name == STEP:
                track = rank.steps
            elif name == EPOCH:
                track = rank.epochs
            else:
                track = rank.values.setdefault(name, Track())
            track.add_block(keys, lines.floats(number, rows))
        if line.step is not None and line.planned is not None:
            rank.lengths.add_block(keys, np.full(len(keys), float(line.planned)))
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


def _series(
    rank: _Rank, is_numbered: bool, longest: float, sections: tuple[FloatArray, FloatArray]
) -> dict[str, Track]:
    """The series of one rank, of all names that are on a line which counts."""
    others = _other_bars(rank, longest)
    keys, steps, _ = _continued(rank, longest)
    bars = _sorted_track(rank.bars)[0]
    if is_numbered:
        keys = _sorted_track(rank.losses)[0]
        steps = np.arange(1.0, len(keys) + 1)
    keys, steps = np.insert(keys, 0, -1), np.insert(steps, 0, 0.0 if is_numbered else np.nan)
    series: dict[str, Track] = {}
    for name, track in rank.values.items():
        at, values = _sorted_track(track)
        places = np.searchsorted(keys, at, side="right") - 1
        value_steps = steps[places]
        counts = (
            ~(np.isnan(value_steps) | np.isin(at, others))
            if len(others)
            else ~np.isnan(value_steps)
        )
        if name in _TRAINING and not is_numbered:
            further = _further(at, keys[places], keys, _sorted_track(rank.losses)[0])
            counts[further[np.isfinite(values[further])]] = False
            evaluated = _in_evaluations(at, value_steps, keys, steps, sections)
            counts[evaluated & np.isfinite(values)] = False
        if len(bars):
            counts &= ~_is_stale(at, value_steps, values, bars)
        if counts.any():
            series[name] = Track(value_steps[counts], values[counts])
    first = -1 if is_numbered or len(keys) < 2 else keys[1]
    return {**{name: Track() for name, last in rank.others.items() if last >= first}, **series}


def _further(at: FloatArray, lines: FloatArray, keys: FloatArray, losses: FloatArray) -> IntArray:
    """Which losses (n,), at keys and below the lines of steps that these keys have, stand on a line
    without a step while the line of the step has a loss: those of an evaluation, or of the whole
    training. Where there are half as many as such lines, they are no exceptions, and count.
    """
    below = np.flatnonzero(lines != at)
    if not len(below):
        return below
    below = below[np.isin(lines[below], losses)]
    own = int(np.isin(keys, losses).sum())
    return below if 2 * len(below) < own else below[:0]


def _in_evaluations(
    at: FloatArray,
    value_steps: FloatArray,
    keys: FloatArray,
    steps: FloatArray,
    sections: tuple[FloatArray, FloatArray],
) -> BoolArray:
    """Which losses (n,), at keys and of steps, stand below a line that says that an evaluation
    begins; the steps (m,) of lines have keys (m,).

    They are of the step before that line, or of any one step up to a line that says that the
    training goes on. Others are of the training, which goes on or restarts without such a line.
    """
    begins, is_held_out = sections
    if not is_held_out.any():
        return np.zeros(len(at), dtype=bool)
    section = np.searchsorted(begins, at) - 1
    below: BoolArray = (section >= 0) & (is_held_out[section] == 1.0)
    first, last = np.full(len(begins), np.inf), np.full(len(begins), -np.inf)
    np.minimum.at(first, section[below], value_steps[below])
    np.maximum.at(last, section[below], value_steps[below])
    before = steps[np.searchsorted(keys, begins) - 1]
    is_one_step = np.append(is_held_out[1:] == 0.0, False) & (first == last)
    below &= is_one_step[section] | (before[section] == value_steps)
    return below


def _is_stale(at: FloatArray, steps: FloatArray, values: FloatArray, bars: FloatArray) -> BoolArray:
    """Which values (n,) are those of a bar that has gone on, and still shows the value of the state
    before: its next state is of the same step.
    """
    stale: BoolArray = np.zeros(len(at), dtype=bool)
    if len(at) > 2:
        stale[1:-1] = (steps[1:-1] == steps[2:]) & (values[1:-1] == values[:-2])
        stale &= np.isin(at, bars)
        # of the last state, its next one may not have come
        stale[-1] = bool(stale.any()) and values[-1] == values[-2] and steps[-1] != steps[-2]
    return stale


def _continued(rank: _Rank, longest: float) -> tuple[FloatArray, FloatArray, float | None]:
    """Keys and steps of a rank, without those of other bars, continued where they restart with each
    epoch, and the length of an epoch then; None where they do not.
    """
    keys, steps = _sorted_track(rank.steps)
    counts = ~np.isin(keys, _other_bars(rank, longest))
    keys, steps = keys[counts], steps[counts]
    epochs, lengths = _sorted_track(rank.epochs), _sorted_track(rank.lengths)
    return keys, *continued_steps(keys, steps, epochs, lengths)


def _other_bars(rank: _Rank, longest: float) -> FloatArray:
    """The keys of bars of another length than the longest, such as those of evaluations."""
    keys, planned = _sorted_track(rank.bars)
    others: FloatArray = keys[planned != longest]
    return others


def _sorted_track(track: Track) -> tuple[FloatArray, FloatArray]:
    """Keys and values in the order of the log: lines that are alike were added together."""
    keys, values = track.arrays()
    if (keys[1:] > keys[:-1]).all():
        return keys, values
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]
