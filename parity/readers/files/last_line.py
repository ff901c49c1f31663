"""Is the last line of a log complete, where the file does not end in a line feed?

A trainer that is killed, or a file that is copied while it grows, leaves half a line: 2.5 of 2.513
is another loss. A line is complete where an earlier line has the same words and signs, and its last
number as many digits as the longest of theirs. What a trainer prints at its very end may look like
no other line: it counts where its loss is not finite, or where it ends in a closing bracket.

A line that is not complete is left out. What its loss was may matter: 9.0 can be the begin of
9.0213, "na" that of nan, and "2" that of 25.3. Where no value that it could be is an ordinary one
among the losses before it, or where some are not, the run has an end that is not known.

What can fail: "1.2" of 1.2e+06, where no earlier loss of the log is printed with a power of 10.
"""

import math
import re
from collections.abc import Callable, Sequence

TAIL = 1 << 13
"""Characters of whole lines with which a last line is compared."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BAR = re.compile(r"\|[^|\w]{0,400}\|")
"""The blocks of a progress bar, which differ from state to state."""
_NUMBER = re.compile(
    r"[-+]?(?:(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d*)?|\b(?:nan|inf(?:inity)?)\b)", re.IGNORECASE
)
_LAST_NUMBER = re.compile(r"\d*(?:\.(?P<part>\d*))?(?:e[-+]?(?P<power>\d*))?$", re.IGNORECASE)
_CLOSED = ("]", "}")
_BEGUN_WORD = re.compile(r"(?<![\w.])(?:n|na|i|inf?i?n?i?t?)$", re.IGNORECASE)
"""What may be the begin of nan or infinity."""
_OPEN_NUMBER = re.compile(r"[\d.,]$|\de[-+]?$", re.IGNORECASE)


def is_complete(last: str, before: str, losses: Sequence[float]) -> bool:
    """Whether nothing is missing of a last line with these training losses; `before` is the end of
    the whole lines.
    """
    line = _plain(last)
    if line.endswith(_CLOSED) or not all(map(math.isfinite, losses)):
        return True
    shape = _shape(line)
    alike = [
        one for one in map(_plain, re.split(r"[\r\n]", before)) if one and _shape(one) == shape
    ]
    if not alike:
        return False
    if _OPEN_NUMBER.search(line) is None:
        return True
    digits = _digits(line)
    return digits[0] > 0 and digits >= max(map(_digits, alike))


def hides_a_loss(last: str, before: str, losses_of: Callable[[str], Sequence[float]]) -> bool:
    """Whether a line that is not complete may have had a loss that is out of line with those before
    it; `before` is the end of the whole lines, `losses_of` reads the training losses of one.
    """
    line = _BEGUN_WORD.sub("", _plain(last))
    alike = _continuations(line, before)
    earlier = [value for one in alike for value in losses_of(one) if math.isfinite(value)]
    if not earlier:
        return False
    losses = losses_of(last)
    numbers = [*_NUMBER.finditer(line)]
    if not losses:
        return bool(numbers)
    number = numbers[-1][0] if numbers and numbers[-1].end() == len(line) else ""
    if _value(number) != losses[-1]:  # it stands before the cut
        return losses[-1] > max(earlier)
    places = [[*_NUMBER.finditer(one)][len(numbers) - 1][0] for one in alike]
    return may_be_any(number, places)


def is_shorter(number: str, earlier: Sequence[str]) -> bool:
    """Whether a number that is not NaN or infinite has fewer digits than the longest of earlier
    ones.
    """
    value = _value(number)
    is_finite = value is not None and math.isfinite(value)
    return is_finite and _digits(number) < max(map(_digits, earlier), default=(0, 0))


def is_begin_of_larger(number: str, earlier: Sequence[str]) -> bool:
    """Whether a number with a decimal point is larger than all earlier ones, whatever follows it:
    as it stands it shows what it would.
    """
    value = _value(number)
    others = [one for one in map(_value, earlier) if one is not None and math.isfinite(one)]
    return value is not None and _digits(number)[0] > 0 and value > max(others, default=math.inf)


def may_be_any(number: str, earlier: Sequence[str]) -> bool:
    """Whether what may be the begin of a number could go on to one that is out of line with earlier
    ones.
    """
    value = _value(number)
    others = [one for one in map(_value, earlier) if one is not None and math.isfinite(one)]
    if value is None or not math.isfinite(value) or not others:
        return True
    part = _digits(number)[0]
    if part == 0 or any(_digits(one)[1] for one in earlier):
        return True
    return value > max(others) or 10.0**-part > max(others) - min(others)


def _continuations(line: str, before: str) -> list[str]:
    """The whole lines that begin as a line does, but for their numbers."""
    shape = _shape(line)
    return [
        one
        for one in map(_plain, re.split(r"[\r\n]", before))
        if one and _shape(one).startswith(shape)
    ]


def _value(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _plain(line: str) -> str:
    return _COLOUR.sub("", line).rstrip()


def _shape(line: str) -> str:
    """A line without its numbers, and without what only moves with them."""
    return re.sub(r"\s+", " ", _NUMBER.sub("0", _BAR.sub("||", line)))


def _digits(line: str) -> tuple[int, int]:
    """How many digits the number at the end of a line has behind its point, and in its power of
    10.
    """
    found = _LAST_NUMBER.search(line)
    if found is None:
        return 0, 0
    return len(found["part"] or ""), len(found["power"] or "")
