"""Columns and fields whose name and values say that losses were not finite: their number, such as
"nan_loss" or "number of nan iterations", a flag, such as "loss_is_nan", or its contrary, such as
"loss_is_finite".

Infinite gradients are none of these: "found_inf" lowers the scale of a loss.
"""

import functools

from parity.judging.curves.curve import FloatArray
from parity.readers.columns.names import name_words

_NOT_A_NUMBER = frozenset(("nan", "nans", "isnan", "nonfinite"))
_FINITE = frozenset(("finite", "isfinite"))
_NOT_FINITE = _NOT_A_NUMBER | _FINITE | frozenset(("inf", "infs", "isinf"))
_LOSS = frozenset(("loss", "losses"))
_DENIALS = frozenset(("non", "not"))
_GROUPS = frozenset(("train", "training", "trainer", "metrics", "log", "logs", "stats", "run"))
_COUNTED = frozenset(("steps", "iterations", "batches", "skipped", "found", "detected"))
_COUNTS = frozenset(("num", "number", "count", "counter", "total", "n", "of", "is", "was", "has"))
_WORDS = _NOT_FINITE | _LOSS | _DENIALS | _GROUPS | _COUNTED | _COUNTS
_FLAGS = {"true": 1.0, "false": 0.0}


def field_says_not_finite(name: str, value: object) -> bool:
    """Whether a field says that a loss was not finite, by its name and its value."""
    if says_finite(name):
        return value is False
    return bool(value) and counts_not_finite(name)


@functools.lru_cache(maxsize=4096)
def counts_not_finite(name: str) -> bool:
    """Whether a name is that of a number of losses that were not finite, or of a flag for it.
    Without the word loss NaN is meant, and more has to be said than that.
    """
    words = name_words(name) - {""}
    if not words <= _WORDS or says_finite(name):
        return False
    if words & _LOSS:
        return bool(words & _NOT_FINITE)
    is_not_finite = bool(words & _NOT_A_NUMBER) or bool(words & _FINITE and words & _DENIALS)
    return is_not_finite and len(words) > 1


@functools.lru_cache(maxsize=4096)
def says_finite(name: str) -> bool:
    """Whether a name is that of a flag that a loss is finite."""
    words = name_words(name) - {""}
    is_finite = bool(words & _FINITE) and not words & _DENIALS
    return is_finite and bool(words & _LOSS) and words <= _WORDS


def rows_not_finite(name: str, values: FloatArray) -> int:
    """How many of the values (n,) of a column say that a loss was not finite; 0 where its name says
    nothing of it.
    """
    if says_finite(name):
        return int((values == 0.0).sum())
    return int((values > 0.0).sum()) if counts_not_finite(name) else 0


def flag_number(text: str) -> float | None:
    """The number of a flag that is written as a word, such as "True"; None for another word."""
    return _FLAGS.get(text.strip().lower())
