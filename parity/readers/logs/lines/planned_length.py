"""The planned length that a log states."""

import dataclasses
from collections.abc import Set

from parity.readers.columns.columns import RunColumns
from parity.wording import count


def add_planned_length(columns: RunColumns, planned: Set[int]) -> RunColumns:
    """The columns with the planned length that a log states, if it states one alone."""
    if len(planned) > 1:
        lengths = " and ".join(f"{number:,}" for number in sorted(planned))
        return columns.noted(f"the log states planned lengths of {lengths} steps: none is taken")
    if not planned or min(planned) == 0:
        return columns
    stated = dataclasses.replace(columns, planned_steps=min(planned))
    return stated.noted(f"planned length as the log states it: {count(min(planned), 'step')}")
