"""How numbers are written in sentences and tables, everywhere the same: nats with sign, shares in
%, intervals as "a to b".
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DECIMALS = 4  # of nats
FINE_MARGIN = 0.005  # below it four decimals would hide the answer
_MOST_DECIMALS = 9
_NEAR = 0.7  # how similar a word must be to be a slip of the pen: "foo" is none for floors
MINUS = "\u2212"
TOKEN_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


def nats_decimals(margin: float | None, *ends: float) -> int:
    """Decimals for the nats of one verdict: 4, or 5 beside a margin below 0.005 nats; one more
    while an end of its interval would round onto or across zero or the margin.
    """
    decimals = DECIMALS + (margin is not None and abs(margin) < FINE_MARGIN)
    lines = [0.0] if margin is None else [0.0, margin, -margin]
    while decimals < _MOST_DECIMALS and any(
        _moves(end, line, decimals) for end in ends for line in lines
    ):
        decimals += 1
    return decimals


def _moves(end: float, line: float, decimals: int) -> bool:
    """Whether rounding brings an end onto a line, or across it."""
    if not math.isfinite(end) or end == line:
        return False
    return (float(f"{end:.{decimals}f}") > float(f"{line:.{decimals}f}")) != (end > line) or (
        float(f"{end:.{decimals}f}") == float(f"{line:.{decimals}f}")
    )


def tokens_words(tokens: float) -> str:
    """ "1.3 B tokens", "512 M tokens", "12,000 tokens"."""
    for size, unit in TOKEN_UNITS:
        if tokens >= size:
            if tokens < 10 * size:
                return f"{tokens / size:.2g} {unit} tokens"
            return f"{tokens / size:,.0f} {unit} tokens"
    return f"{tokens:,.0f} tokens"


def minus(text: str) -> str:
    """Text with a true minus sign before each negative number, for people to read."""
    return re.sub(r"(?<![\w)])-(?=\d|inf\b)", MINUS, text)


def signed(value: float, decimals: int = DECIMALS) -> str:
    """A number with its sign, such as a gap in nats: "+0.0258"; what rounds to zero is "+0.0000"
    (as in chart_parts.js).
    """
    text = f"{value:+.{decimals}f}"
    if float(text) == 0.0:
        return text.replace("-", "+")
    return text


def interval_words(lo: float, hi: float, decimals: int = DECIMALS) -> str:
    """An interval as "-0.0030 to +0.0151"."""
    return f"{signed(lo, decimals)} to {signed(hi, decimals)}"


def margin_words(nats: float, share: float | None) -> str:
    """A margin in a figure, with its share of the loss where that is known: "margin +0.0300 (1.0
    %)".
    """
    return f"margin {signed(nats, DECIMALS)}" + (f" ({percent(share)})" if share else "")


def level_percent(confidence: float) -> str:
    """A confidence with two digits of what is left of it: "95 %", "97.5 %", "99.58 %"."""
    left = 100.0 * (1.0 - confidence)
    decimals = max(0, 1 - math.floor(math.log10(left))) if left > 0.0 else 0
    words = f"{100.0 - left:.{decimals}f}"
    return f"{words.rstrip('0').rstrip('.') if '.' in words else words} %"


def percent(share: float, digits: int = 2) -> str:
    """A share as "1.0 %": `digits` significant digits, at least one decimal below 10 %."""
    value = 100.0 * share
    if value == 0.0:
        return "0 %"
    text = f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.{digits}g}"
    return f"{text if '.' in text or 'e' in text or abs(value) >= 10 else text + '.0'} %"


def short_percent(share: float) -> str:
    """A share as people state it, "1 %", "0.25 %": two significant digits and no zeros behind
    them.
    """
    value = 100.0 * share
    if abs(value) >= 99.5:
        return f"{value:.0f} %"
    return f"{value:.2g} %"


def likely(chance: float) -> str:
    """A chance in whole percent, never 0 or 100 %."""
    if chance < 0.01:
        return "below 1 %"
    if chance > 0.99:
        return "above 99 %"
    return f"{100.0 * chance:.0f} %"


def cut(name: str, most: int) -> str:
    """A name in at most so many characters, cut in the middle: its ends tell it apart."""
    if len(name) <= most:
        return name
    head = (most - 1) // 2
    return f"{name[:head]}…{name[len(name) - (most - 1 - head) :]}"


def short_commit(revision: str) -> str:
    """A commit as people write it: 12 characters, with a mark where the sources had changes of
    their own; another name up to 24.
    """
    head, plus, _ = revision.partition("+")
    digest = len(head) > 12 and all(letter in "0123456789abcdef" for letter in head)
    if digest:
        return f"{head[:12]}{'+' if plus else ''}"
    return revision[:24]


def count(number: int, singular: str, plural: str | None = None) -> str:
    """ "1 run", "3 runs", "1,500 steps"; `plural` where it is not the singular with an s."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def first_few(words: Sequence[str], most: int, between: str = ", ") -> str:
    """The first words of a list, and how many more there are: "a, b and 3 more"; between semicolons
    "a; b; and 3 more".
    """
    more = f"{between.strip(', ')} and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def version_words(named: Mapping[str, Any]) -> str:
    """The baseline that a job's document names, with who promoted it (which an earlier server does
    not say).
    """
    by = f", promoted by {named['promoted_by']}" if named.get("promoted_by") else ""
    return f"{named['name']} version {named['version']}{by}"


def age_in_words(seconds: float) -> str:
    """ "3.2 hours" and the like."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    if round(seconds) == 1:
        return "1 second"
    return f"{seconds:.0f} seconds"


def did_you_mean(word: str, words: Iterable[str], most: int = 1) -> str:
    """ "; did you mean X?" where a known word is close, with up to `most` of them, nearest first;
    else "".
    """
    spellings = {name.lower(): name for name in words}
    close = [
        spellings[name]
        for name in difflib.get_close_matches(word.lower(), spellings, n=most, cutoff=_NEAR)
    ]
    if not close:
        return ""
    return f"; did you mean {' or '.join(close)}?"
