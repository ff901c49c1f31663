"""The curve of what a reader took from a file: plausible losses, repeated steps, one unit."""

import dataclasses

import numpy as np

from parity.judging.curves.curve import PLANNED_STEPS, Curve, CurveError, curve_from_arrays
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.epochs import continued
from parity.readers.columns.micro_steps import of_updates
from parity.readers.columns.names import EPOCH, LOSS, NUMBERED, PERPLEXITY, STEP, UNNAMED
from parity.readers.columns.planned_length import stated_plan
from parity.readers.curve.loss_facts import loss_facts
from parity.readers.curve.plausibility import (
    check_repeats,
    check_unnamed,
    check_values,
    outlived_by_nan,
)
from parity.readers.curve.step_unit import unit_change
from parity.readers.errors import ReadError
from parity.wording import count


def in_order(taken: RunColumns, source: str) -> RunColumns:
    """The columns without that of the epoch, which shows whether numbered rows are in order and
    whole; raises ReadError where it goes back, because a restart or another run begins there, and
    where it leaves epochs out that it has elsewhere.
    """
    if taken.names[STEP] != NUMBERED:
        return taken
    epochs = taken.values.get(EPOCH, np.empty(0))
    epochs = epochs[np.isfinite(epochs)]
    strides = np.diff(epochs)
    back = np.flatnonzero(strides < 0)
    if len(back):
        raise ReadError(
            f"{source}: no column counts steps, and the epoch goes back from "
            f"{epochs[back[0]]:g} to {epochs[back[0] + 1]:g}, so two runs or a restart may be in "
            "the file; expected a column of steps, or one run"
        )
    is_whole = bool((epochs == np.floor(epochs)).all())
    wide = np.flatnonzero(strides > max(1.0, strides.min(initial=np.inf)))
    if is_whole and len(wide):
        raise ReadError(
            f"{source}: no column counts steps, and the epoch goes from {epochs[wide[0]]:g} to "
            f"{epochs[wide[0] + 1]:g}, so rows are missing; expected a row for each epoch; count "
            f"epochs with {taken.option.format(STEP).replace('NAME', taken.names[EPOCH])}"
        )
    values = {quantity: column for quantity, column in taken.values.items() if quantity != EPOCH}
    return dataclasses.replace(taken, values=values).noted(
        "no column counts steps: rows are numbered from 1, so a planned length counts rows"
    )


def curve_of(taken: RunColumns, name: str, *, label: str, stated: bool) -> Curve:
    """The curve of one run's columns; `name` is what errors call the file, `stated` whether the
    user named the column of the loss.

    Raises ReadError for what cannot be one run's loss in nats.
    """
    taken = of_updates(continued(in_order(stated_plan(taken), name)))
    steps, loss = taken.values[STEP], np.asarray(taken.values[LOSS], np.float64)
    notes = (
        taken.taken(),
        *taken.notes,
        *check_values(loss, taken.names[LOSS], name, taken.option),
    )
    if taken.names[LOSS].strip().lower() in UNNAMED and not stated:
        check_unnamed(loss, taken.names[LOSS], name, taken.option)
    rest = {
        key: value for key, value in taken.values.items() if key not in (STEP, LOSS, PERPLEXITY)
    }
    context = {} if taken.planned_steps is None else {PLANNED_STEPS: str(taken.planned_steps)}
    context |= loss_facts(taken, stated=stated)
    counts = ~outlived_by_nan(steps, loss)
    outlived = int((~counts).sum())
    if outlived:
        notes = (
            *notes,
            f"of {count(outlived, 'repeated step')} the loss that is not finite counts",
        )
    try:
        curve = curve_from_arrays(
            steps[counts],
            loss[counts],
            columns={key: np.asarray(column)[counts] for key, column in rest.items()},
            label=label,
            notes=notes,
            overwritten=taken.overwritten + outlived,
            rolled_back=taken.rolled_back,
            context=context,
        )
        if curve.completeness.duplicates > taken.overwritten:
            repeats = check_repeats(steps, loss, name)
        else:
            repeats = ()
    except CurveError as error:
        raise ReadError(f"{name}: {error}") from None
    if change := unit_change(curve.steps):
        last, stride, first, wider = change
        raise ReadError(
            f"{name}: after step {last:,} (strides of {stride:,}) comes {first:,} (strides of "
            f"{wider:,}), so the unit changes; expected one unit; name the column that counts "
            f"optimizer steps with {taken.option.format(STEP)}"
        )
    return dataclasses.replace(curve, notes=(*notes, *repeats))
