"""Is the last line of a log complete, where the file does not end in a line feed?

A trainer that is killed, or a file that is copied while it grows, leaves half a line: 2.5 of 2.513
is another loss. A line is complete where an earlier line has the same words and signs, and its last
number as many digits as the longest of theirs. What a trainer prints at its very end may look like
no other line: it counts where its loss is not finite, or where it ends in a closing bracket.
"""

import math
import re
from collections.abc import Sequence

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
