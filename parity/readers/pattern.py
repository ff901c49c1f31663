r"""A log whose lines are found by the user's own pattern, and the pattern that an error proposes
for a log that nothing else reads.

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
import shlex
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType

from parity.readers.columns import (
    LARGEST_LOSS,
    LOSS,
    QUANTITIES,
    STEP,
    VALIDATION,
    Columns,
    ReadError,
    Track,
    plain_number,
    step_number,
)
from parity.readers.lines import LONGEST, GrowingLog, LookAlikes, looked_at, numbered_lines
from parity.readers.series import from_series
from parity.readers.table import MISSING
from parity.wording import did_you_mean

PATTERN = "pattern"
"""The key of the patterns among the names of columns."""
SECONDS, CHARACTERS_PER_SECOND = 10.0, 1_000_000
"""The time limit of a search: SECONDS, and one second more for each CHARACTERS_PER_SECOND of the
text.
"""


def compiled(text: str, name: str) -> tuple[re.Pattern[str], ...]:
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


_EXAMPLE = r"such as 'iter (?P<step>\d+): loss (?P<loss>\S+)'"


class PatternLog(GrowingLog):
    """A log whose lines the user's patterns find, those in `wanted`; no later line revises a row of
    the loss.

    A feed raises ReadError where a group holds no number, or where the search takes too long for
    the length of what was fed.
    """

    def __init__(self, source: str, wanted: Mapping[str, str]) -> None:
        super().__init__(source)
        others = [quantity for quantity in wanted if quantity != PATTERN]
        if others:
            raise ReadError(
                f"{source}: a column was named for {others[0]}, but the pattern names it; give a "
                f"group (?P<{others[0]}>...) instead"
            )
        self._text = wanted[PATTERN]
        self._patterns = compiled(self._text, "--pattern")
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

    def columns(self) -> Columns:
        """The run so far; raises ReadError where no line has a loss."""
        series = self._series
        if LOSS not in series:
            shown = " or ".join(map(repr, self._text.split("\n")))
            raise ReadError(
                f"{self._source}: no line has a loss by the pattern {shown}; try it on one of its "
                "lines"
            )
        columns = from_series(
            series, series.__getitem__, {name: name for name in series}, self._source
        )
        names = {**columns.names, LOSS: _phrase(self._patterns)}
        columns = dataclasses.replace(columns, found=(), names=names, unread=self._alike.unread)
        if self._has_step:
            return columns.noted("lines found by a pattern: losses as printed")
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
            continue
        texts = {quantity: text for quantity, text in match.groupdict().items() if text is not None}
        values = {quantity: _number_of(text) for quantity, text in texts.items()}
        for quantity, value in values.items():
            if value is None:
                raise ReadError(
                    f"{source}, line {number}: the pattern finds {texts[quantity]!r:.60} as the "
                    f"{quantity}; expected a number"
                )
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


# A proposal: of the lines that differ in their numbers alone, those that are most; in them a whole
# number that rises, and a loss.

_LOOKED_AT = 5000  # lines
_NUMBER = re.compile(r"(?<![\d.])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?|\bnan\b", re.IGNORECASE)
_BEFORE = re.compile(r"\S{0,24}\s*$")
_LOSSES = re.compile(r"loss|nll|xent|\bce\b|cross", re.IGNORECASE)
_OTHERS = re.compile(
    r"val|eval|test|\blr\b|rate|norm|time|\bdt\b|sec|epoch|acc|ppl|perpl|mfu|mem|tok|scale|aux|best|avg|mean|ema|smooth",
    re.IGNORECASE,
)
"""Words before a number that is not the training loss, or not that of one step."""
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")


def proposed(text: str) -> str | None:
    """The option to type for a log, found from its own lines; None where no two lines have a step
    and what may be a loss.
    """
    alike: dict[str, list[str]] = {}
    for _, line in islice(numbered_lines(text), _LOOKED_AT):
        shown = line[:LONGEST].rstrip()
        if len(_NUMBER.findall(shown)) > 1:
            alike.setdefault(re.sub(r"\s+", "", _NUMBER.sub("0", shown)), []).append(shown)
    for group in sorted(alike.values(), key=len, reverse=True):
        if len(group) > 1 and (pattern := _pattern_of(group)) is not None:
            return f"--pattern {shlex.quote(pattern)}"
    return None


def _pattern_of(lines: Sequence[str]) -> str | None:
    """A pattern for lines that differ in their numbers alone."""
    # the matches of each number, over the lines
    columns = [*zip(*(_NUMBER.finditer(line) for line in lines), strict=True)]
    first = [matches[0] for matches in columns]
    texts = [[match[0] for match in matches] for matches in columns]
    numbers = [[float(text.replace(",", "")) for text in column] for column in texts]
    steps = [
        at
        for at, values in enumerate(numbers)
        if all(text.replace(",", "").isdigit() for text in texts[at])
        and values == sorted(values)
        and len(set(values)) == len(values)
    ]
    may_be = [
        at
        for at, values in enumerate(numbers)
        if any("." in text for text in texts[at])
        and max(values) <= LARGEST_LOSS
        and len(set(values)) > 1
        and not _OTHERS.search(_name(lines[0], first, at))
    ]
    named = [at for at in may_be if _LOSSES.search(_name(lines[0], first, at))]
    # of several without a name none is proposed: the wrong one could pass
    if not steps or not (named or len(may_be) == 1):
        return None
    step, loss = steps[0], (named or may_be)[0]
    whole = r"[\d,]+" if any("," in text for text in texts[step]) else r"\d+"
    number = r"\S+" if _ends_word(lines[0], first[loss]) else r"[\w.+-]+"
    groups = {step: f"(?P<{STEP}>{whole})", loss: f"(?P<{LOSS}>{number})"}
    pattern = ".*?".join(
        _before(lines[0], first, at) + group for at, group in sorted(groups.items())
    )
    matches = [re.search(pattern, line) for line in lines]
    is_found = all(
        match is not None and match[STEP] == text
        for match, text in zip(matches, texts[step], strict=True)
    )
    return pattern if is_found else None


def _name(line: str, numbers: Sequence[re.Match[str]], at: int) -> str:
    """What stands between a number and the one before it: its name."""
    return line[numbers[at - 1].end() if at else 0 : numbers[at].start()]


def _before(line: str, numbers: Sequence[re.Match[str]], at: int) -> str:
    """The last word before a number, as a pattern."""
    match = _BEFORE.search(_name(line, numbers, at))
    escaped = _SPECIAL.sub(r"\\\1", match[0]) if match else ""
    plain = escaped.rstrip()
    if plain and plain[-1].isalnum():
        blanks = r"\s+" if plain != escaped else ""
    else:
        blanks = r"\s*"
    # numbers of other widths are aligned by blanks
    return re.sub(r"\s{2,}", r"\\s+", plain) + blanks


def _ends_word(line: str, number: re.Match[str]) -> bool:
    return number.end() == len(line) or line[number.end()].isspace()
