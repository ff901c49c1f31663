"""Columns from series by name, each with steps of its own, as trackers, event files and logs have
them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from parity.judging.curves.curve import BoolArray, FloatArray
from parity.readers.columns.absence import COMPANION_SHARE
from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import LOSS, MICRO_STEP, PLANNED, STEP, VALIDATION, find_columns
from parity.readers.columns.rhythm import due_losses
from parity.readers.columns.second_losses import (
    LossSeries,
    further_losses,
    losses_beside,
    series_beside,
)
from parity.readers.columns.track import Series, arrays_of, at_rows

_CALL_QUANTITIES = ("unix_seconds",)  # what calls of a logger have that are no steps, too


def columns_from_series(
    names: Iterable[str],
    series_of: Callable[[str], Series],
    named_columns: Mapping[str, str],
    source: str,
    step: str = STEP,
) -> RunColumns:
    """Columns of series by name, of which only those that are read are fetched; rows are the loss's
    own, in their order (a restart repeats steps), and the steps at which a loss is due by the other
    series (`parity.readers.columns.absence`), where it is NaN.
    """
    series_names = sorted(names)
    tags = find_columns(
        [STEP, *series_names],
        {key: value for key, value in named_columns.items() if key != STEP},
        source,
    )
    series = {
        quantity: arrays_of(series_of(tag)) for quantity, tag in tags.items() if quantity != STEP
    }
    other_steps = [
        at_steps[~np.isnan(series_values)]
        for quantity, (at_steps, series_values) in series.items()
        if quantity not in (LOSS, VALIDATION, PLANNED, *_CALL_QUANTITIES)
    ]
    steps, losses, absent, between = _add_due_steps(*series[LOSS], other_steps)
    values = {STEP: steps, LOSS: losses}
    for quantity, (at_steps, series_values) in series.items():
        if quantity == VALIDATION:
            values[quantity] = at_rows(
                steps, zip(at_steps.tolist(), series_values.tolist(), strict=True)
            )
        elif quantity not in values:
            is_alike = np.array_equal(at_steps, steps) and (
                quantity == MICRO_STEP or bool((steps[1:] > steps[:-1]).all())
            )
            if is_alike:
                values[quantity] = series_values
            else:
                # of a step that it repeats, the last value
                last_values = dict(zip(at_steps.tolist(), series_values.tolist(), strict=True))
                values[quantity] = np.array(
                    [last_values.get(step, np.nan) for step in steps.tolist()], dtype=np.float64
                )
    beside = losses_beside(series_names, tags[LOSS])
    return RunColumns(
        values=values,
        names=tags | {STEP: step},
        found=series_names,
        between=between,
        absent=absent,
        further=further_losses(
            tags[LOSS],
            _as_losses(*series[LOSS]),
            {name: _as_losses(*arrays_of(series_of(name)), name=name) for name in beside},
            held_out=_as_losses(*series[VALIDATION]) if VALIDATION in series else None,
        ),
    )


def _as_losses(steps: FloatArray, values: FloatArray, name: str = LOSS) -> LossSeries:
    return series_beside(name, steps, values, np.ones(len(steps), dtype=bool))


def _add_due_steps(
    steps: FloatArray, losses: FloatArray, other_steps: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray, BoolArray, int]:
    """Steps and losses (n,) with NaN at the steps where other series have values and a loss is due,
    where these are (n,), and at how many further steps none is due; a NaN that is logged counts as
    one that is not, as in a table.

    `other_steps` are those of the other series, of which those count that have values at half of
    the losses' steps.
    """
    is_nan = np.isnan(losses)
    if (
        not is_nan.any()
        and (steps[1:] > steps[:-1]).all()
        and all(np.array_equal(others, steps) for others in other_steps)
    ):
        return steps, losses, np.zeros(len(steps), dtype=bool), 0
    logged = np.unique(steps[~is_nan])
    companions = [
        others
        for others in other_steps
        if len(logged) and float(np.isin(logged, others).mean()) >= COMPANION_SHARE
    ]
    trained = np.unique(np.concatenate([logged, *companions]))
    if len(trained) == len(logged):
        return steps, losses, np.zeros(len(steps), dtype=bool), 0
    blank = ~np.isin(trained, logged)
    due = trained[due_losses(trained, blank)]
    between = np.setdiff1d(trained[blank], due)
    in_series = ~(is_nan & np.isin(steps, between))
    steps, losses = steps[in_series], losses[in_series]
    due = np.setdiff1d(due, steps[np.isnan(losses)])
    highest = np.maximum.accumulate(steps)
    places = np.searchsorted(highest, due)  # before the first row of a later step
    absent = np.insert(np.zeros(len(steps), dtype=bool), places, values=True)
    return np.insert(steps, places, due), np.insert(losses, places, np.nan), absent, len(between)
