"""What was read as the loss is a fact of the run, which the judge compares: its column or phrase,
what that means, the base of its logarithm, what the reader left out that may be a record, and what
was numbered where nothing counts steps.
"""

import math

import numpy as np

from parity.judging.curves.curve import (
    COUNTED,
    LAST_LINE_CUT,
    LINES_UNREAD,
    LOSS_BASE,
    LOSS_MEANING,
    LOSS_NAME,
    LOSSES_NOT_FINITE,
    MICRO_BATCHES,
    NUMBERED_BY,
    OTHER_LOSSES,
    SAID_NOT_FINITE,
    SECOND_LOSSES,
    STEPS_WITHOUT_LOSS,
    FloatArray,
)
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.loss_meaning import meaning_of
from parity.readers.columns.names import (
    LOSS,
    NUMBERED,
    NUMBERED_LINES,
    PERPLEXITY,
    POSITION,
    STEP,
    counts_micro_batches,
    is_held_out,
    is_in_bits,
    other_losses,
)

_MOST_LOSSES = 50
SAME_BASE = 0.02  # relative, of the logarithm of a perplexity; printed ones have three digits
_NUMBERED_BY = {NUMBERED: "row", NUMBERED_LINES: "line", POSITION: "position"}


def loss_facts(taken: RunColumns, *, stated: bool) -> dict[str, str]:
    """What was taken as the loss, by the keys of a run's context
    (`parity.judging.curves.curve.READ_FACTS`); `stated` is whether a person named its column.
    """
    facts = {LOSS_NAME: taken.names[LOSS], LOSS_MEANING: meaning_of(taken.names[LOSS])}
    counts = {
        STEPS_WITHOUT_LOSS: taken.between,
        LINES_UNREAD: taken.unread,
        SAID_NOT_FINITE: max(taken.said_not_finite, taken.further.said),
    }
    facts |= {key: str(number) for key, number in counts.items() if number}
    others = other_losses(taken.found, taken.names[LOSS])
    others = tuple(name for name in others if name not in taken.further.no_runs)
    if not stated and others:
        facts[OTHER_LOSSES] = "\n".join(others[:_MOST_LOSSES])
    if not stated and taken.further.conflicting:
        facts[SECOND_LOSSES] = "\n".join(taken.further.conflicting)
    not_finite = [
        f"{number} {'held-out' if is_held_out(name) else 'further'} {name}"
        for name, number in taken.further.not_finite
        if is_held_out(name) or not stated
    ]
    if not_finite:
        facts[LOSSES_NOT_FINITE] = "\n".join(not_finite)
    if counts_micro_batches(taken.names[STEP]):
        facts[COUNTED] = MICRO_BATCHES
    if taken.is_cut:
        facts[LAST_LINE_CUT] = "yes"
    if (numbered := _NUMBERED_BY.get(taken.names[STEP])) is not None:
        facts[NUMBERED_BY] = numbered
    if (
        PERPLEXITY in taken.values
        and (base := base_of(taken.values[LOSS], taken.values[PERPLEXITY])) is not None
    ):
        facts[LOSS_BASE] = base
    elif is_in_bits(facts[LOSS_NAME]):
        facts[LOSS_BASE] = "2"
    return facts


def base_of(loss: FloatArray, perplexity: FloatArray) -> str | None:
    """The base of the logarithm in (T,) losses by their perplexities (T,): "e", "2", or None where
    they show neither.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(perplexity) / loss
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return None
    nats = float(np.median(ratio))  # in one unit of the loss
    return next(
        (
            base
            for base, size in (("e", 1.0), ("2", math.log(2.0)))
            if abs(nats / size - 1.0) < SAME_BASE
        ),
        None,
    )
