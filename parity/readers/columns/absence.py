"""Which rows without a loss are steps that were trained, whose loss is then NaN, and which are no
records at all.

A blank, null or NaN as a loss can mean four things. The other columns of the row tell them apart,
and the rhythm of the losses:

    evaluation    it has a held-out value, as rows of the file have that hold no loss; not where it
                  also has what an update has, such as a learning rate, at a step without a loss
    other row     it has values of some columns, but none that comes with the losses: system
                  metrics, a logger's call for one metric
    not trained   nothing is in it, not even the times or rates that come with the losses and never
                  diverge
    between       the loss is logged in every k-th trained row (k >= 3), other values in each, and
                  this row is not one of the k-th

All other rows were trained, and their loss is NaN. Of two rows, every second one may be blank
because the loss is logged so, or because it is NaN: then it is NaN. A rhythm is local, because
intervals of logging change: the gaps between losses, counted in trained rows, of which three of
five around a place must be alike.

What can fail: losses that are NaN in all rows but each k-th, k >= 3. The judge sees those where the
other arm has losses there.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.micro_steps import distinct_steps
from parity.readers.columns.names import (
    HELD_OUT,
    LOSS,
    NUMBERED,
    PLANNED,
    STEP,
    VALIDATION,
    is_held_out,
    is_known,
    other_losses,
)
from parity.readers.columns.rhythm import NEVER, due_losses
from parity.readers.columns.second_losses import (
    FurtherLosses,
    LossesOfRows,
    further_losses,
    series_beside,
    series_of_rows,
)
from parity.readers.columns.splits import split_of_rows
from parity.readers.columns.track import at_rows
from parity.readers.errors import ReadError
from parity.wording import count

COMPANION_SHARE = 0.5  # of the rows with a loss: what has a value in as many comes with the loss
# Of the rows with a loss, and the fewest of these: a column with so many values is in every row,
# but for accidents.
ALWAYS_SHARE, ALWAYS_FROM = 0.95, 8
_CLOCKS = frozenset(
    (
        "timestamp",
        "time",
        "wall time",
        "wall_time",
        "unix_seconds",
        "runtime",
        "date",
        "datetime",
        "epoch",
        "epochs",
    )
)
"""Names of columns, behind the last slash or point, that rows of every kind have; so do those of
steps.
"""
_UNFAILING = frozenset(
    (
        *(
            "lr",
            "rate",
            "learning",
            "seconds",
            "sec",
            "secs",
            "ms",
            "tokens",
            "samples",
            "mem",
            "memory",
            "throughput",
            "step",
        ),
        *(
            "tps",
            "tflops",
            "tflop",
            "flops",
            "mfu",
            "consumed",
            "elapsed",
            "bytes",
            "time",
            "timestamp",
            "timing",
            "runtime",
            "epoch",
        ),
    )
)
"""Words in the names of columns whose values a diverged step has, too."""

_WIDE = 1.5  # of the gap before: the next loss is farther, so that one is missing
_UPDATE_WORDS = frozenset(("lr", "learning", "rate", "grad", "gradient", "norm"))
"""Words in the names of columns that a step of the optimizer has, and an evaluation does not."""


@frozen(eq=False)
class RowKinds:
    """What rows (R,) are: `is_record` marks those of training; counts of the rows without a loss,
    by what they are.
    """

    is_record: BoolArray
    nan: int = 0
    between: int = 0
    evaluations: int = 0
    others: int = 0
    not_trained: int = 0

    def notes(self) -> tuple[str, ...]:
        """What a person reads of rows without a loss."""
        words = (
            (self.between, "between the points of a loss that is logged less often: left out"),
            (self.evaluations, "of evaluations: left out"),
            (self.others, "of other metrics: left out"),
            (self.not_trained, "with no value at all: not trained"),
        )
        return tuple(
            f"{count(number, 'row')} without a loss, {what}" for number, what in words if number
        )


@frozen(eq=False)
class Records:
    """The records of training among the rows of a file: values (T,) by quantity, notes, and how
    many rows `between` them have no loss.

    `absent` (T,) is where a loss is NaN because none is written; None where every loss is.
    `further` is what is known of other losses (`parity.readers.columns.second_losses`).
    """

    values: Mapping[str, FloatArray]
    notes: tuple[str, ...] = ()
    between: int = 0
    absent: BoolArray | None = None
    further: FurtherLosses = FurtherLosses()


def training_records(
    values: Mapping[str, FloatArray],
    names: Mapping[str, str],
    present: Mapping[str, BoolArray],
    source: str,
    *,
    written: BoolArray | None = None,
    beside: Mapping[str, LossesOfRows] | None = None,
    splits: Mapping[str, Sequence[object]] | None = None,
    place: str = "row",
) -> Records:
    """The records of training among rows (R,) in the order of a file; an evaluation belongs to the
    record before it.

    `values` are (R,) by quantity, NaN for what is not there, `names` their columns; `present` says
    in which rows (R,) other columns have a value, `written` where the loss is, NaN in so many
    letters too; `beside` are further losses, `splits` the cells (R,) of columns that may tell
    training and held-out losses apart. Raises ReadError where no row is a record; `place` is what a
    row is called there.
    """
    loss = values[LOSS]
    if splits:
        has_loss = ~np.isnan(loss) if written is None else written
        split = split_of_rows(splits, has_loss)
        if split is not None:
            kept = split.is_kept
            of_training = {quantity: column[kept] for quantity, column in values.items()}
            if names[STEP] == NUMBERED:
                of_training[STEP] = np.cumsum(has_loss[kept], dtype=np.float64)
            records = training_records(
                of_training,
                names,
                {name: here[kept] for name, here in present.items()},
                source,
                written=None if written is None else written[kept],
                beside={
                    name: (losses[kept], there[kept])
                    for name, (losses, there) in (beside or {}).items()
                },
                place=place,
            )
            return dataclasses.replace(records, notes=(split.note, *records.notes))
    losses = _further_losses(values, names, written, beside or {})
    if not np.isnan(loss).any():
        return Records(values=values, further=losses)
    quantity_present = {
        quantity if quantity == VALIDATION else names[quantity]: ~np.isnan(column)
        for quantity, column in values.items()
        if quantity not in (STEP, LOSS)
    }
    others = {
        name: here for name, here in present.items() if name not in (names[STEP], names[LOSS])
    }
    rows = kinds_of_rows(
        distinct_steps(values),
        loss,
        others | quantity_present,
        written=written,
        losses=other_losses(others, names[LOSS]),
        held_out=is_held_out(names[LOSS]),
    )
    if not rows.is_record.any():
        raise ReadError(f"{source}: no {place} has a loss; expected one {place} per training step")
    record_values = {quantity: column[rows.is_record] for quantity, column in values.items()}
    if VALIDATION in values:
        there = ~np.isnan(values[VALIDATION])
        record_values[VALIDATION] = at_rows(
            record_values[STEP],
            zip(values[STEP][there].tolist(), values[VALIDATION][there].tolist(), strict=True),
        )
    absent = np.isnan(loss) if written is None else np.isnan(loss) & ~written
    return Records(
        values=record_values,
        notes=rows.notes(),
        between=rows.between,
        absent=absent[rows.is_record],
        further=losses,
    )


def _further_losses(
    values: Mapping[str, FloatArray],
    names: Mapping[str, str],
    written: BoolArray | None,
    beside: Mapping[str, LossesOfRows],
) -> FurtherLosses:
    """What is known of the further losses of rows (R,)."""
    if not beside:
        return FurtherLosses()
    steps, loss = distinct_steps(values), values[LOSS]
    held_out = values.get(VALIDATION, np.full(len(loss), np.nan))
    return further_losses(
        names[LOSS],
        series_of_rows(steps, loss, ~np.isnan(loss) if written is None else written),
        {name: series_beside(name, steps, *losses) for name, losses in beside.items()},
        held_out=series_of_rows(steps, held_out, ~np.isnan(held_out)),
    )


def columns_of(records: Records, names: Mapping[str, str], found: Sequence[str] = ()) -> RunColumns:
    """What a reader took: records with the columns of their quantities, and the names of all
    columns that the file has.
    """
    return RunColumns(
        values=records.values,
        names=names,
        found=found,
        notes=records.notes,
        between=records.between,
        absent=records.absent,
        further=records.further,
    )


def kinds_of_rows(
    steps: FloatArray,
    loss: FloatArray,
    others: Mapping[str, BoolArray],
    *,
    written: BoolArray | None = None,
    losses: Collection[str] = (),
    held_out: bool = False,
) -> RowKinds:
    """What each of (R,) rows in the order of a file is, by steps (R,) and losses (R,), NaN for what
    is not there.

    `others` says in which rows (R,) columns other than step and loss have a value, by their names.
    A row of one of the `losses` alone, which may be those of another run, counts as `between`,
    unless NaN is `written` in it. Of a loss that is `held_out` itself, which may be evaluated at
    any step, none is due without a rhythm, but what is written.
    """
    blank = np.isnan(loss)
    if not blank.any():
        return RowKinds(is_record=~blank)
    present = {name: here for name, here in others.items() if here.any()}
    training = {
        name: here for name, here in present.items() if held_out or not _words(name) & HELD_OUT
    }
    evaluated = _any([here for name, here in present.items() if name not in training], blank.shape)
    has_own_rows = bool(evaluated.any()) and float((~blank)[evaluated].mean()) < COMPANION_SHARE
    evaluations = blank & evaluated if has_own_rows else np.zeros_like(blank)
    metrics = {name: here for name, here in training.items() if not _is_clock(name)}
    companions = {
        name
        for name, here in metrics.items()
        if name not in losses and (blank.all() or float(here[~blank].mean()) >= COMPANION_SHARE)
    }
    # what every row has tells no kind of row
    telling = {name: here for name, here in metrics.items() if not here.all()}
    has_companion = _any(
        [here for name, here in telling.items() if name in companions], blank.shape
    )
    has_training = _any(
        [metrics[name] for name in companions if _is_of_training(name)], blank.shape
    )
    if has_own_rows:
        updates = [metrics[name] for name in companions if _words(name) & _UPDATE_WORDS]
        evaluations &= ~(_any(updates, blank.shape) & _at_further_steps(steps, blank))
    has_metric = _any([here for name, here in telling.items() if name not in losses], blank.shape)
    has_other_loss = _any([here for name, here in metrics.items() if name in losses], blank.shape)
    rest = blank & ~evaluations
    other = rest & ~has_companion & has_metric
    is_other_loss = rest & ~has_companion & ~has_metric & has_other_loss & ~has_training
    if written is not None:
        is_other_loss &= ~written
    nothing = ~_any([*metrics.values()], blank.shape)
    unfailing = (metrics[name] for name in companions if _is_unfailing(name))
    is_always_there = (~blank).sum() >= ALWAYS_FROM and any(
        float(here[~blank].mean()) >= ALWAYS_SHARE for here in unfailing
    )
    not_trained = rest & nothing if is_always_there else np.zeros_like(blank)
    trained = rest & ~other & ~not_trained & ~is_other_loss
    is_record = ~blank | trained
    due = np.zeros_like(blank)
    due[is_record] = due_losses(
        steps[is_record], blank[is_record], irregular=NEVER if held_out else 1
    )
    due |= trained & nothing  # a row of a step and a loss alone is there for its loss
    if written is not None:
        due |= trained & _beside_a_loss(steps, blank, written)
    if held_out and written is not None:
        due |= written
    return RowKinds(
        is_record=~blank | due,
        nan=int(due.sum()),
        between=int(((trained & ~due) | is_other_loss).sum()),
        evaluations=int(evaluations.sum()),
        others=int(other.sum()),
        not_trained=int(not_trained.sum()),
    )


def _at_further_steps(steps: FloatArray, blank: BoolArray) -> BoolArray:
    """Which of (R,) rows come after the first two losses, at a step at or before which a loss is
    missing: the next one is farther than the two before are apart, or there is none.
    """
    with_loss = np.unique(steps[~blank])
    if len(with_loss) < 2:
        return np.zeros_like(blank)
    after = np.searchsorted(with_loss, steps, side="right")
    last = with_loss[np.maximum(after - 1, 0)]
    usual = last - with_loss[np.maximum(after - 2, 0)]
    following = np.append(with_loss, np.inf)[after]
    is_missing = (following - last > _WIDE * usual) & (steps - last >= usual)
    further: BoolArray = is_missing & (after >= 2) & ~np.isin(steps, with_loss)
    return further


def _beside_a_loss(steps: FloatArray, blank: BoolArray, written: BoolArray) -> BoolArray:
    """Which of (R,) rows have NaN written as the loss of a step that another row has a loss of,
    where that is an exception: where nearly all losses have such a row, their values are
    written in two rows each.
    """
    with_loss = np.unique(steps[~blank])
    beside: BoolArray = blank & written & np.isin(steps, with_loss)
    if len(np.unique(steps[beside])) >= ALWAYS_SHARE * len(with_loss):
        return np.zeros_like(blank)
    return beside


def _any(columns: Collection[BoolArray], shape: tuple[int, ...]) -> BoolArray:
    there = np.zeros(shape, dtype=bool)
    for column in columns:
        there |= column
    return there


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", name.lower()))


def _is_clock(name: str) -> bool:
    """Whether a column counts or tells the time, so that rows of every kind have it."""
    if is_known(name, STEP) or is_known(name, PLANNED):
        return True
    return re.split(r"[/.]", name.strip().lower())[-1].strip("_") in _CLOCKS


def _is_of_training(name: str) -> bool:
    """Whether a column is named as a quantity of a trained step."""
    return _is_unfailing(name) or bool(_words(name) & {"grad", "gradient", "norm"})


def _is_unfailing(name: str) -> bool:
    return bool(_words(name) & _UNFAILING)
