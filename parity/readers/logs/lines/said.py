"""Lines in which a trainer says in words that a loss was not finite: it stopped, or left a batch
out, and may print no step with that loss. Signs in place of a number that no field holds say it,
too; "-" and "?" may say that there is none.
"""

import functools
import re

from parity.readers.columns.names import HELD_OUT

_NOT_FINITE = r"(?:nan|nans|inf|infinite|infinity|non-?finite|not finite)"
_LOSS = r"\bloss(?:es)?\b(?![ _-]?scal)"
_BETWEEN = r"[^\d|,;{}\n]{0,60}"  # words alone: in a row of numbers each has its own name
_SIGNS = r"(?:\*{2,}|∞|#(?:num|value|div/0)!|overflow|undefined)"
_SAID = re.compile(
    rf"{_LOSS}{_BETWEEN}\b{_NOT_FINITE}\b|\b{_NOT_FINITE}\b{_BETWEEN}{_LOSS}"
    rf"|{_LOSS}['\"]?\s{{0,9}}[:=]?\s{{0,9}}{_SIGNS}",
    re.IGNORECASE,
)
_MARKS = ("nan", "inf", "finite", "**", "∞", "#", "overflow", "undefined")
"""One of them is in each line that says so, in lower case: faster than to search each."""
_DENIED = re.compile(
    r"\b(?:no|without|zero|if|when|whether|on|for|checks?|checking|(?:to|will|would|may|can)\s\w+)"
    rf"\s(?:a\s|any\s)?{_NOT_FINITE}\b",
    re.IGNORECASE,
)
"""What may be said of losses that are finite, or of what would be done."""
_NONE = re.compile(r"(?<![\d.:-])0(?![\d.:-])")
_BAD = frozenset(
    ("nan", "nans", "isnan", "inf", "infs", "isinf", "nonfinite", "finite", "isfinite")
)
_COUNT_WORDS = _BAD | frozenset(
    (
        *(
            "loss",
            "losses",
            "train",
            "training",
            "is",
            "was",
            "has",
            "found",
            "detected",
            "skipped",
        ),
        *(
            "num",
            "number",
            "count",
            "n",
            "of",
            "total",
            "steps",
            "iterations",
            "batches",
            "non",
            "not",
        ),
    )
)
_NEAR = 24  # characters around the words, in which they are counted


def field_says_not_finite(name: str, value: object) -> bool:
    """Whether a field says that losses were not finite, by its name: their number, such as
    "nan_loss", or that they are finite, such as "loss_is_finite".
    """
    if _says_finite(name):
        return value is False
    return bool(value) and _counts_not_finite(name)


@functools.lru_cache(maxsize=4096)
def _counts_not_finite(name: str) -> bool:
    words = _name_words(name)
    return bool(words & {"loss", "losses"}) and bool(words & _BAD) and words <= _COUNT_WORDS


@functools.lru_cache(maxsize=4096)
def _says_finite(name: str) -> bool:
    words = _name_words(name)
    is_finite = bool(words & {"finite", "isfinite"}) and not words & {"non", "not"}
    return is_finite and bool(words & {"loss", "losses"}) and words <= _COUNT_WORDS


def _name_words(name: str) -> set[str]:
    return set(re.findall("[a-z]+", name.lower()))


def says_not_finite(line: str) -> bool:
    """Whether a line without a training loss says that one was NaN or infinite."""
    plain = line.lower().replace("_", " ")
    if not any(mark in plain for mark in _MARKS):
        return False
    said = _SAID.search(plain)
    if said is None or _DENIED.search(plain) is not None:
        return False
    near = plain[max(0, said.start() - _NEAR) : said.end() + _NEAR]
    return _NONE.search(near) is None and not HELD_OUT & set(re.findall("[a-z]+", plain))
