"""The planned length that a log or a table states."""

import dataclasses
from collections.abc import Set

import numpy as np

from parity.readers.columns.columns import RunColumns
from parity.readers.columns.names import PLANNED, STEP


def stated_plan(columns: RunColumns) -> RunColumns:
    """The columns without that of the planned length, which is taken where it has one number, in
    all of its rows, that the steps do not exceed.
    """
    if PLANNED not in columns.values:
        return columns
    values = {name: column for name, column in columns.values.items() if name != PLANNED}
    stated = columns.values[PLANNED]
    lengths = np.unique(stated[np.isfinite(stated)])
    read = dataclasses.replace(columns, values=values)
    if len(lengths) == 1 and lengths[0] >= 1 and lengths[0] == int(lengths[0]):
        number = int(lengths[0])
        if number < columns.values[STEP].max(initial=0.0):
            return read.noted(
                f"{columns.names[PLANNED]!r} is {number:,}, which the steps exceed: not taken as "
                "the planned length"
            )
        others = set() if columns.planned_steps is None else {columns.planned_steps}
        return add_planned_length(dataclasses.replace(read, planned_steps=None), others | {number})
    return read


def add_planned_length(columns: RunColumns, planned: Set[int]) -> RunColumns:
    """The columns with the planned length that a log states, if it states one alone."""
    if len(planned) > 1:
        lengths = " and ".join(f"{number:,}" for number in sorted(planned))
        return columns.noted(f"the log states planned lengths of {lengths} steps: none is taken")
    if not planned or min(planned) == 0:
        return columns
    return dataclasses.replace(columns, planned_steps=min(planned))
