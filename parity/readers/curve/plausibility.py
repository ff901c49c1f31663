"""Does a series look like one run's loss in nats? What can be read in two ways is refused; what is
only unusual is noted.

Repeated steps with other losses are rows of several runs or ranks, or of a restart. A restart goes
back once and then repeats many steps; interleaved rows go back all the time; a second run begins
where the first one did. Up to 1 % of the rows may repeat in any way.
"""

from itertools import pairwise

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray, IntArray
from parity.readers.columns.names import (
    KNOWN_NAMES,
    LOSS,
    OPTION,
    PERPLEXITY,
    VALIDATION,
    is_known,
)
from parity.readers.errors import ReadError
from parity.wording import count

_LOSSES = frozenset((LOSS, VALIDATION, PERPLEXITY))
LARGEST_LOSS = 30.0  # nats: three times that of guessing among 22,000 tokens
REPEATED_SHARE, REPEATED_ROWS = 0.01, 2
RESTART_ROWS = 2  # a restart repeats more rows than that, on average


def check_values(loss: FloatArray, name: str, source: str, option: str = OPTION) -> tuple[str, ...]:
    """Notes on (T,) losses of the column `name`; raises ReadError where none can be nats per
    token.
    """
    if len(loss) and loss.min() >= 0.0 and loss.max() <= LARGEST_LOSS:
        return ()
    with np.errstate(invalid="ignore"):
        outside = (loss < 0.0) | (loss > LARGEST_LOSS)
        outside &= np.isfinite(loss)
    number = int(outside.sum())
    if not number:
        return ()
    finite = loss[np.isfinite(loss)]
    if number == len(finite):
        values = f"{finite.min():g} to {finite.max():g}"
        raise ReadError(
            f"{source}: every value in column {name!r} is outside 0 to 30 nats ({values}), so it "
            "is not a loss per token (a perplexity, or a sum?); expected the cross-entropy in "
            f"nats per token; name its column with {option.format(LOSS)}"
        )
    return (f"{number:,} of {count(len(loss), 'loss', 'losses')} are outside 0 to 30 nats",)


def check_stated(name: str, source: str, option: str = OPTION) -> None:
    """Raise ReadError where the column that a person named for the loss has the name of another
    quantity, such as the gradient norm.
    """
    quantity = next(
        (key for key in KNOWN_NAMES if key not in _LOSSES and is_known(name, key)), None
    )
    if quantity is not None and not is_known(name, LOSS):
        raise ReadError(
            f"{source}: the column {name!r} was named for the loss, and is that of "
            f"{quantity.replace('_', ' ')} by its name; expected a column of losses; name it with "
            f"{option.format(LOSS)}"
        )


def check_unnamed(loss: FloatArray, name: str, source: str, option: str = OPTION) -> None:
    """Raise ReadError where a column without the name of a metric could as well be an accuracy:
    shares that rise.
    """
    finite = loss[np.isfinite(loss)]
    if len(finite) > 1 and finite.min() >= 0.0 and finite.max() <= 1.0 and finite[-1] > finite[0]:
        raise ReadError(
            f"{source}: column {name!r} rises from {finite[0]:g} to {finite[-1]:g} within 0 to 1, "
            "so it may be an accuracy; "
            f"if it is the loss, say so with {option.format(LOSS).replace('NAME', name)}"
        )


def check_repeats(steps: FloatArray | IntArray, loss: FloatArray, source: str) -> tuple[str, ...]:
    """Notes on (T,) steps in the order of the file; raises ReadError where rows of several runs or
    ranks may be mixed.
    """
    total = len(steps)
    if total < 2 or bool((steps[1:] > steps[:-1]).all()):
        return ()
    order = np.argsort(steps, kind="stable")
    same_step = np.diff(steps[order]) == 0
    left, right = loss[order][:-1], loss[order][1:]
    same_loss = (left == right) | (np.isnan(left) & np.isnan(right))
    other = int((same_step & ~same_loss).sum())
    copies = int((same_step & same_loss).sum())
    notes: tuple[str, ...] = ()
    if copies:
        notes = (f"{count(copies, 'row')} repeat a step with the same loss and count once",)
    if other <= max(REPEATED_SHARE * total, REPEATED_ROWS):
        return notes
    back = np.flatnonzero(steps[1:] <= steps[:-1]) + 1
    if other < RESTART_ROWS * len(back) or bool((steps[back] <= steps[0]).any()):
        first = int(steps[order][1:][same_step & ~same_loss][0])
        raise ReadError(
            f"{source}: {other:,} of {total:,} rows repeat a step with another loss (first step "
            f"{first:,}), so two runs or ranks may be mixed; expected one row per step; keep one "
            "run or rank in the file, or remove the rows of the earlier attempt"
        )
    return (
        *notes,
        (
            f"{count(other, 'row')} repeat a step after {count(len(back), 'restart')}; the later "
            "row counts"
        ),
    )


def outlived_by_nan(steps: FloatArray | IntArray, loss: FloatArray) -> BoolArray:
    """Which of (T,) rows have a finite loss at a step that an earlier row of the same attempt has
    with a loss that is not finite, which counts: a final evaluation, or another rank.

    A restart begins another attempt: the steps go back, and the rows from there either repeat more
    than `RESTART_ROWS` steps or go on to a later one.
    """
    outlived: BoolArray = np.zeros(len(steps), dtype=bool)
    bad = ~np.isfinite(loss)
    if not bad.any() or bool((steps[1:] > steps[:-1]).all()):
        return outlived
    back = (np.flatnonzero(steps[1:] < steps[:-1]) + 1).tolist()
    attempt: set[float] = set()
    highest = steps[0]
    for start, end in pairwise([0, *back, len(steps)]):
        stretch = steps[start:end]
        if start and (len(np.unique(stretch)) > RESTART_ROWS or stretch[-1] > highest):
            attempt = set()
        highest = max(highest, stretch[-1])
        for at in range(start, end):
            if bad[at]:
                attempt.add(float(steps[at]))
            else:
                outlived[at] = float(steps[at]) in attempt
    return outlived
