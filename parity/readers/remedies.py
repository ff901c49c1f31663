"""What a refusal proposes to type: each option was tried on the file itself, and reads it.

Where several columns could be the step or the loss, none is guessed: each is proposed. Files are
read again for each try, so of large ones few columns are tried, those whose names are likely first.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from parity.judging.curves.curve import Curve
from parity.readers.columns.names import (
    LOSS,
    NOT_THE_LOSS,
    STEP,
    VALIDATION,
    is_held_out,
    is_known,
    is_of_no_counter,
    is_other_quantity,
    name_words,
)
from parity.readers.curve.plausibility import LARGEST_LOSS
from parity.readers.errors import Form, ReadError
from parity.readers.logs.pattern import PATTERN

_MOST_TRIES, _MOST_TRIES_OF_LARGE = 40, 6
_MOST_NAMES = 10_000  # of columns: each try looks at all of them
_MOST_UNLIKELY = 10  # of each further kind
_MOST_SHOWN = 3
_PLACEHOLDER = re.compile(
    r"; [^;]*(?:--column (?:step|loss)=NAME|--(?:step|loss) NAME|\"NAME\"\})[^;]*$"
)
_CONSUMED = frozenset(("token", "tokens", "ntokens", "sample", "samples", "consumed", "seen"))
_NAMES_OF_RUNS = frozenset(("seed", "run", "rank", "trial", "fold", "replicate", "id"))
_DIFFERENCES = frozenset(("delta", "diff", "difference", "gap", "ratio", "relative", "change"))

Read = Callable[[Mapping[str, str]], Curve]
"""Reads the run by names of columns; raises ReadError."""


def with_tried_options(
    error: ReadError,
    names: Sequence[str],
    stated: Mapping[str, str],
    read: Read,
    *,
    is_large: bool = False,
    form: Form | None = None,
) -> ReadError:
    """The same error of a source with these columns, with the options that read it in place of its
    advice; `stated` are the columns that a person named, `form` is how they are typed there.
    """
    if len(names) > _MOST_NAMES:
        return error
    most = _MOST_TRIES_OF_LARGE if is_large else _MOST_TRIES
    reading = _reading(names, stated, stated, read, most)
    if not reading and not stated.keys().isdisjoint((STEP, LOSS)):  # in place of what is named
        reading = _reading(names, {}, stated, read, most)
    if fewest := min(map(len, reading), default=0):
        reading = [columns for columns in reading if len(columns) == fewest]
    said, had_advice = _PLACEHOLDER.subn("", str(error))
    if reading:
        error.propose(said, reading[:_MOST_SHOWN], form or column_options)
    elif had_advice:
        error.args = (f"{said}; no choice of its columns reads as the losses of one run",)
    return error


def _reading(
    names: Sequence[str],
    kept: Mapping[str, str],
    stated: Mapping[str, str],
    read: Read,
    most: int,
) -> list[dict[str, str]]:
    """The columns that read the source, of the most likely kind of which any do; those that are
    `kept` have no other tried in their place.
    """
    for losses in _likely_losses(names):
        for steps in _likely_steps(names):
            likely = [*islice(_choices(names, kept, steps, losses), most)]
            most = min(most, _MOST_UNLIKELY)
            if reading := [columns for columns in likely if _reads(columns, stated, read)]:
                return reading
    return []


def _choices(
    names: Sequence[str], kept: Mapping[str, str], steps: Sequence[str], losses: Sequence[str]
) -> Iterator[dict[str, str]]:
    """Columns to try, by quantity: one for the step, one for the loss, then both."""
    steps = () if kept.get(STEP) in names else steps
    losses = () if kept.get(LOSS) in names else losses
    yield from ({STEP: step} for step in steps)
    yield from ({LOSS: loss} for loss in losses)
    yield from ({STEP: step, LOSS: loss} for step in steps for loss in losses if step != loss)


def columns_that_may_count(names: Sequence[str]) -> Sequence[str]:
    """Columns that may count steps, tokens or samples, the likely ones first."""
    steps, consumed = _likely_steps(names)
    return (*steps, *consumed)


def _likely_steps(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Columns that may count steps, the likely ones first, and those that count tokens or
    samples.
    """
    likely = [
        name
        for name in names
        if is_known(name, "tokens") or not (is_of_no_counter(name) or is_other_quantity(name, STEP))
    ]
    likely = [name for name in likely if not name_words(name) & _NAMES_OF_RUNS]
    likely.sort(key=lambda name: not is_known(name, STEP))
    consumed = [name for name in likely if name_words(name) & _CONSUMED]
    return [name for name in likely if name not in consumed], consumed


def _likely_losses(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Columns that may be the training loss, the likely ones first, and held-out ones."""
    likely = [
        name
        for name in names
        if not name_words(name) & (NOT_THE_LOSS | _DIFFERENCES)
        and not is_other_quantity(name, LOSS)
        and (not is_of_no_counter(name) or "loss" in name_words(name))
    ]
    likely.sort(key=lambda name: "loss" not in name_words(name))
    held_out = [
        name
        for name in names
        if is_known(name, VALIDATION) or (is_held_out(name) and "loss" in name_words(name))
    ]
    return likely, held_out


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


def column_options(columns: Mapping[str, str]) -> str:
    """Names of columns, or patterns, as options of a command."""
    return shlex.join(option_words(columns))


def option_words(columns: Mapping[str, str], place: str = "") -> list[str]:
    """The same as words; `place` is the arm or the file for which they are typed."""
    words: list[str] = []
    for quantity, name in columns.items():
        if quantity == PATTERN and not place:
            words += [word for one in name.split("\n") for word in ("--pattern", one)]
        else:
            words += ["--column", f"{place}{':' if place else ''}{quantity}={name}"]
    return words


def table_options(columns: Mapping[str, str]) -> str:
    """The same for a table of many runs."""
    return " ".join(f"--{quantity} {shlex.quote(name)}" for quantity, name in columns.items())


def column_argument(columns: Mapping[str, str]) -> str:
    """The same as an argument in Python."""
    return f"columns={json.dumps(dict(columns), ensure_ascii=False)}"
