r"""A log whose lines are found by the user's own pattern.

A pattern is a regular expression with groups named as quantities, `iter (?P<step>\d+):
L=(?P<loss>\S+)`; it is searched in each line, of which the first characters count (`LONGEST`).
Several patterns, one a line of the text, find several kinds of lines: those of training and those
of evaluations. Where no pattern has a step, the lines with a loss are numbered from 1.

What can fail: a pattern with repetitions inside repetitions takes time that doubles with each
character. So the search has a time limit, which only the main thread of a process can keep
(`signal.setitimer`).
"""

import dataclasses
import math
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, NUMBERED_LINES, QUANTITIES, STEP, VALIDATION
from parity.readers.columns.number import MISSING, plain_number, step_number
from parity.readers.columns.series import columns_from_series
from parity.readers.columns.track import Track
from parity.readers.errors import ReadError
from parity.readers.files.growing import GrowingLog
from parity.readers.logs.lines.line import COLOUR, looked_at, numbered_lines
from parity.readers.logs.lines.look_alikes import LookAlikes
from parity.readers.logs.lines.said import says_beside_loss, says_not_finite
from parity.wording import did_you_mean

PATTERN = "pattern"
"""The key of the patterns among the names of columns."""
SECONDS, CHARACTERS_PER_SECOND = 10.0, 1_000_000
"""The time limit of a search: SECONDS, and one second more for each CHARACTERS_PER_SECOND of the
text.
"""
_EXAMPLE = r"such as 'iter (?P<step>\d+): loss (?P<loss>\S+)'"


def compiled_patterns(text: str, name: str) -> tuple[re.Pattern[str], ...]:
    """The patterns in a text, one a line; ReadError for one that is not valid, has no loss or
    evaluation, or a group of another name.
    """
    patterns: list[re.Pattern[str]] = []
    for one in text.split("\n"):
        try:
            pattern = re.compile(one)
        except (re.error, OverflowError, RecursionError) as error:
            raise ReadError(
                f"{name} is {one!r}: not a regular expression ({error}); expected {_EXAMPLE}"
            ) from None
        for group in pattern.groupindex:
            if group not in QUANTITIES:
                raise ReadError(
                    f"{name} has a group {group!r}; expected names among "
                    f"{', '.join(QUANTITIES)}{did_you_mean(group, QUANTITIES)}"
                )
        if not {LOSS, VALIDATION} & pattern.groupindex.keys():
            raise ReadError(f"{name} is {one!r}, without a group for the loss; expected {_EXAMPLE}")
        patterns.append(pattern)
    if not any(LOSS in pattern.groupindex for pattern in patterns):
        raise ReadError(f"{name} has no group (?P<{LOSS}>...); expected {_EXAMPLE}")
    return tuple(patterns)


class PatternLog(GrowingLog):
    """A log whose lines the user's patterns find, those in `named_columns`; no later line revises a
    row of the loss.

    A feed raises ReadError where a group holds no number, or where the search takes too long for
    the length of what was fed.
    """

    def __init__(self, source: str, named_columns: Mapping[str, str]) -> None:
        super().__init__(source)
        others = [quantity for quantity in named_columns if quantity != PATTERN]
        if others:
            raise ReadError(
                f"{source}: a column was named for {others[0]}, but the pattern names it; give a "
                f"group (?P<{others[0]}>...) instead"
            )
        self._text = named_columns[PATTERN]
        self._patterns = compiled_patterns(self._text, "--pattern")
        self._has_step = any(STEP in pattern.groupindex for pattern in self._patterns)
        self._step = 0.0
        self._series: dict[str, Track] = {}
        self._alike = LookAlikes()

    def _take(self, text: str) -> None:
        with _limited(SECONDS + len(text) / CHARACTERS_PER_SECOND, self._source):
            lines = ((self._lines + number, line) for number, line in numbered_lines(text))
            for number, values in _found(lines, self._patterns, self._source, self._alike):
                self._step = values.pop(STEP, self._step + (LOSS in values and not self._has_step))
                step_number(self._step, f"{self._source}, line {number}")
                for quantity, value in values.items():
                    self._series.setdefault(quantity, Track()).add(self._step, value)

    def _losses_of(self, last: str) -> Sequence[float]:
        try:
            with _limited(SECONDS, self._source):
                found = [*_found([(0, COLOUR.sub("", last))], self._patterns, "", LookAlikes())]
        except ReadError:  # half a number is none
            return []
        return [values[LOSS] for _, values in found if LOSS in values]

    def columns(self) -> RunColumns:
        """The run so far; raises ReadError where no line has a loss."""
        series = self._series
        if LOSS not in series:
            shown = " or ".join(map(repr, self._text.split("\n")))
            raise ReadError(
                f"{self._source}: no line has a loss by the pattern {shown}; try it on one of its "
                "lines"
            )
        columns = columns_from_series(
            series, series.__getitem__, {name: name for name in series}, self._source
        )
        names = {**columns.names, LOSS: _phrase(self._patterns)}
        columns = dataclasses.replace(
            columns,
            found=(),
            names=names,
            unread=self._alike.unread,
            said_not_finite=self._alike.said_not_finite,
        )
        if self._has_step:
            return columns.noted("lines found by a pattern: losses as printed")
        columns = dataclasses.replace(columns, names={**columns.names, STEP: NUMBERED_LINES})
        return columns.noted(
            "lines found by a pattern without a step: numbered from 1, so a planned length counts "
            "lines"
        )


def _phrase(patterns: Sequence[re.Pattern[str]]) -> str:
    """What a pattern has before the group of the loss: its name in the log."""
    for pattern in patterns:
        before, group, _ = pattern.pattern.partition(f"(?P<{LOSS}>")
        if group and (
            words := re.findall(r"[A-Za-z][A-Za-z_ /-]*", re.sub(r"\\[A-Za-z]", " ", before))
        ):
            return str(words[-1].strip()) or LOSS
    return LOSS


def _found(
    lines: Iterable[tuple[int, str]],
    patterns: Sequence[re.Pattern[str]],
    source: str,
    alike: LookAlikes,
) -> Iterator[tuple[int, dict[str, float]]]:
    """(Number of the line, what it says by quantity) of each line that a pattern finds; the first
    pattern that does counts.
    """
    for number, line in lines:
        begin = looked_at(line)
        match = next(filter(None, (pattern.search(begin) for pattern in patterns)), None)
        has_loss = match is not None and match.groupdict().get(LOSS) is not None
        alike.count(line, int(has_loss), int(match is None))
        if match is None:
            alike.said_not_finite += alike.has_read and says_not_finite(line)
            continue
        texts = {quantity: text for quantity, text in match.groupdict().items() if text is not None}
        values = {quantity: _number_of(text) for quantity, text in texts.items()}
        for quantity, value in values.items():
            if value is None:
                raise ReadError(
                    f"{source}, line {number}: the pattern finds {texts[quantity]!r:.60} as the "
                    f"{quantity}; expected a number"
                )
        alike.said_not_finite += has_loss and bool(says_beside_loss(line))
        yield number, {quantity: value for quantity, value in values.items() if value is not None}


def _number_of(text: str) -> float | None:
    plain = text.strip(",;:'\"").rstrip(".").replace(",", "")
    return math.nan if plain.lower() in MISSING else plain_number(plain)


@contextmanager
def _limited(seconds: float, source: str) -> Iterator[None]:
    """Raise ReadError in the block when the seconds are over; at once outside the main thread,
    where nothing could end a search.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ReadError(
            f"{source}: a pattern is searched in the main thread alone, which can end it; read the "
            "file there"
        )

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise ReadError(
            f"{source}: the search for the pattern took more than {seconds:.0f} s; expected one "
            "without a repetition inside a repetition"
        )

    before = signal.signal(signal.SIGALRM, end)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)
        signal.signal(signal.SIGALRM, before)
