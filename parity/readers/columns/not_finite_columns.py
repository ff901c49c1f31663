"""Columns and fields whose name and values say that losses were not finite: their number, such as
"nan_loss" or "number of nan iterations", a flag, such as "loss_is_nan", or its contrary, such as
"loss_is_finite".

Infinite gradients are none of these: "found_inf" lowers the scale of a loss.
"""

import functools
import re

from parity.judging.curves.curve import FloatArray
from parity.readers.columns.names import name_words
from parity.readers.columns.number import plain_number

_NOT_A_NUMBER = frozenset(("nan", "nans", "isnan"))
_FINITE = frozenset(("finite", "isfinite"))
_INFINITE = frozenset(("inf", "infs", "isinf", "infinite", "infinity", "nonfinite"))
_LOSS = frozenset(("loss", "losses"))
_DENIALS = frozenset(("non", "not"))
_NUMBERS = frozenset(("num", "number", "count", "counter", "total", "n", "consecutive"))
_COUNTED = frozenset(
    (
        *("step", "steps", "iteration", "iterations", "iter", "iters", "batch", "batches"),
        *("skipped", "skips", "found", "detected"),
    )
)
_GROUPS = frozenset(
    (
        *("train", "training", "trainer", "learning", "metrics", "stats", "run", "lm", "reduced"),
        *("of", "is", "was", "has", "any", "or", "and"),
    )
)
_WORDS = _NOT_A_NUMBER | _FINITE | _INFINITE | _LOSS | _DENIALS | _NUMBERS | _COUNTED | _GROUPS
_FLAGS = {"true": 1.0, "false": 0.0}


def field_says_not_finite(name: str, value: object) -> bool:
    """Whether a field says that a loss was not finite, by its name and its value: a number, a flag,
    or either of them as text.
    """
    if not is_about_finite_losses(name):
        return False
    if isinstance(value, str):
        value = flag_number(value)
    if not isinstance(value, (int, float)):
        return False
    return value == 0 if says_finite(name) else value > 0


def is_about_finite_losses(name: str) -> bool:
    """Whether a name is that of a number of losses that were not finite, or of a flag for it or for
    its contrary.
    """
    return counts_not_finite(name) or says_finite(name)


@functools.lru_cache(maxsize=4096)
def counts_not_finite(name: str) -> bool:
    """Whether a name is that of a number of losses that were not finite, or of a flag for it.
    Without the word loss NaN is meant, and more has to be said than that.
    """
    words = _words(name)
    if not words <= _WORDS or len(words) == 1:
        return False
    denied, is_not_a_number = bool(words & _DENIALS), bool(words & _NOT_A_NUMBER)
    if denied and is_not_a_number:
        return False
    is_denied_finite = denied and bool(words & _FINITE)
    if words & _LOSS:
        return is_not_a_number or is_denied_finite or (not denied and bool(words & _INFINITE))
    return is_not_a_number or is_denied_finite or "nonfinite" in words


@functools.lru_cache(maxsize=4096)
def says_finite(name: str) -> bool:
    """Whether a name is that of a flag that a loss is finite."""
    words = _words(name)
    is_flag = bool(words & _FINITE) and not words & (_DENIALS | _NUMBERS)
    return is_flag and bool(words & _LOSS) and words <= _WORDS


def rows_not_finite(name: str, values: FloatArray) -> int:
    """How many of the values (n,) of a column say that a loss was not finite; 0 where its name says
    nothing of it.
    """
    if says_finite(name):
        return int((values == 0.0).sum())
    return int((values > 0.0).sum()) if counts_not_finite(name) else 0


def flag_number(text: str) -> float | None:
    """The number in a text, 1 for "True" and 0 for "False"; None for another word."""
    text = text.strip()
    return _FLAGS.get(text.lower(), plain_number(text))


def _words(name: str) -> set[str]:
    """The words of a name, of one such as "lossIsNaN" too."""
    apart = re.sub("(?<=[a-z])(?=[A-Z])", "_", re.sub("NaNs?", "_nan_", name))
    return name_words(apart) - {""}
