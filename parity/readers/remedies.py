"""What a refusal proposes to type: each option was tried on the file itself, and reads it.

Where several columns could be the step or the loss, none is guessed: each is proposed. Files are
read again for each try, so of large ones few columns are tried, those whose names are likely first.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from parity.judging.curves.curve import Curve
from parity.readers.columns.names import (
    LOSS,
    NOT_THE_LOSS,
    OPTION,
    STEP,
    VALIDATION,
    is_held_out,
    is_known,
    is_of_no_counter,
    is_other_quantity,
    name_words,
)
from parity.readers.curve.plausibility import LARGEST_LOSS
from parity.readers.errors import ReadError

_MOST_TRIES, _MOST_TRIES_OF_LARGE = 40, 6
_LARGE = 1 << 20  # bytes of a file
_MOST_SHOWN = 3
_PLACEHOLDER = re.compile(r"; [^;]*--column (?:step|loss)=NAME[^;]*$")
_CONSUMED = frozenset(("token", "tokens", "ntokens", "sample", "samples", "consumed", "seen"))
_DIFFERENCES = frozenset(("delta", "diff", "difference", "gap", "ratio", "relative", "change"))

Read = Callable[[Mapping[str, str]], Curve]
"""Reads the run by names of columns; raises ReadError."""


def with_tried_options(
    error: ReadError, names: Sequence[str], stated: Mapping[str, str], read: Read, size: int
) -> ReadError:
    """The same error of a file of `size` bytes with these columns, with the options that read it in
    place of its advice; `stated` are the columns that a person named.
    """
    tries = islice(_likely(names, stated), _MOST_TRIES if size < _LARGE else _MOST_TRIES_OF_LARGE)
    reading = [columns for columns in tries if _reads(columns, stated, read)]
    if fewest := min(map(len, reading), default=0):
        reading = [columns for columns in reading if len(columns) == fewest]
    advice = " or ".join(map(_options, reading[:_MOST_SHOWN]))
    said, had_advice = _PLACEHOLDER.subn("", str(error))
    if advice:
        error.args = (f"{said}; read it with {advice}",)
    elif had_advice:
        error.args = (f"{said}; no choice of its columns reads as the losses of one run",)
    return error


def _likely(names: Sequence[str], stated: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Columns to try, by quantity: one for the step, one for the loss, then both."""
    steps = [] if stated.get(STEP) in names else _likely_steps(names)
    losses = [] if stated.get(LOSS) in names else _likely_losses(names)
    yield from ({STEP: step} for step in steps)
    yield from ({LOSS: loss} for loss in losses)
    yield from ({STEP: step, LOSS: loss} for step in steps for loss in losses if step != loss)


def _likely_steps(names: Sequence[str]) -> list[str]:
    likely = [
        name
        for name in names
        if is_known(name, "tokens") or not (is_of_no_counter(name) or is_other_quantity(name, STEP))
    ]
    likely.sort(key=lambda name: not is_known(name, STEP))
    return [name for name in likely if not name_words(name) & _CONSUMED] or likely


def _likely_losses(names: Sequence[str]) -> list[str]:
    likely = [
        name
        for name in names
        if not name_words(name) & (NOT_THE_LOSS | _DIFFERENCES)
        and not is_other_quantity(name, LOSS)
        and (not is_of_no_counter(name) or "loss" in name_words(name))
    ]
    likely.sort(key=lambda name: "loss" not in name_words(name))
    held_out = [name for name in names if is_held_out(name) and "loss" in name_words(name)]
    return likely or held_out or [name for name in names if is_known(name, VALIDATION)]


def _reads(columns: Mapping[str, str], stated: Mapping[str, str], read: Read) -> bool:
    """Whether the columns give what looks like the losses of one run by its steps."""
    try:
        curve = read({**stated, **columns})
    except ReadError:
        return False
    finite = curve.loss[np.isfinite(curve.loss)]
    return (
        len(finite) > 1
        and bool((finite >= 0.0).all())
        and bool((finite <= LARGEST_LOSS).mean() > 0.5)
        and not bool((np.floor(finite) == finite).all())
        and not bool((np.diff(finite) > 0).all())
        and curve.completeness.duplicates == 0
    )


def _options(columns: Mapping[str, str]) -> str:
    return " ".join(
        OPTION.format(quantity).replace("NAME", shlex.quote(name))
        for quantity, name in columns.items()
    )
