"""One line of a log: how much of it is read, and what it says."""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

LONGEST = 4096
"""Characters of a line that are looked at."""
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WORD_CHARACTERS = f"{string.ascii_letters}{string.digits}_.,+-"
# characters that decide whether a text is a log; a longer preamble is found after no table could be
# read
HEAD = 1 << 14
EPOCH = "epoch"
"""The name of an epoch's number among the places of a line."""


def looked_at(line: str) -> str:
    """The first characters of a line, `LONGEST` at most, without a word or a number that goes on
    after them: 2.513 cut to 2.5 is another loss.
    """
    if len(line) > LONGEST and line[LONGEST] in _WORD_CHARACTERS:
        return line[:LONGEST].rstrip(_WORD_CHARACTERS)
    return line[:LONGEST]


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(Line number, line without colours); a progress bar's states are lines of one number. A last
    line without its end may be cut and is left out.
    """
    lines = COLOUR.sub("", text).split("\n")
    for number, line in enumerate(lines[:-1], 1):
        for part in line.split("\r"):
            yield number, part
    for part in lines[-1].split("\r")[:-1]:
        yield len(lines), part


class NumberPlace(NamedTuple):
    """Where a number stands in a line, from its first character to behind its last, and the divisor
    that its unit asks for.
    """

    start: int
    end: int
    divisor: float = 1.0


class LogLine(NamedTuple):
    """What one line says: its rank, its step (of a bar: `is_bar`) with the number that it counts
    to, and its other numbers by name; an `epoch`, of so many `epochs`.

    `states_plan` is whether the step counts to the end of the run, and not of an epoch. `places`
    are those of the step, the epoch and the numbers, where a line with other digits has them at the
    same places, unless the digits in the spans of `fixed` are others; None where more depends on
    the digits. `has_loss` is whether it has a training loss, `leaves_out_nan` whether that is a
    mean without losses that were NaN, `second_loss` the place of a second number of it, as in
    "loss 2.49 -> 2.58" (`may_have_two_losses`: such a line with other digits may have one),
    `lacks_number` whether the name of the loss has none, `counter` the name of the step.
    """

    rank: str
    step: float | None
    planned: int | None
    is_bar: bool
    values: Mapping[str, float]
    has_loss: bool
    places: Mapping[str, NumberPlace] | None = None
    fixed: Sequence[tuple[int, int]] = ()
    epoch: float | None = None
    epochs: int | None = None
    states_plan: bool = False
    counter: str = ""
    leaves_out_nan: bool = False
    second_loss: NumberPlace | None = None
    may_have_two_losses: bool = False
    lacks_number: bool = False
