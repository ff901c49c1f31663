"""What a reader took from a file: arrays by quantity, the columns' names, and notes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import BoolArray, FloatArray
from parity.readers.columns.names import LOSS, OPTION, RATE, STEP, listed, other_losses
from parity.readers.columns.second_losses import FurtherLosses
from parity.wording import count


@frozen
class RunColumns:
    """What a reader took from a file: arrays (T,) by quantity, the columns' own names, the names of
    all columns that it has, and notes.

    `overwritten` counts rows that a later file of the same run replaced, `rolled_back` is how far
    their losses had risen above those that count (nats), `between` counts rows without a
    loss between the points of a loss that is logged less often (`parity.readers.columns.absence`),
    `unread` lines that look like those that were read. `said_not_finite` counts lines that say in
    words that a loss was not finite. `is_cut` is whether a last line was left out whose loss may be
    any. In the rows of `absent` (T,) no loss is written; a file that grows may still have one
    there. `further` is what is known of other losses (`parity.readers.columns.second_losses`).
    `option` names a quantity's column on the command line. `planned_steps` is the length of the run
    that the file states, `config` what else it states, by the keys of a tracker's config.
    """

    values: Mapping[str, FloatArray]
    names: Mapping[str, str]
    found: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    overwritten: int = 0
    rolled_back: float = 0.0
    between: int = 0
    unread: int = 0
    said_not_finite: int = 0
    is_cut: bool = False
    absent: BoolArray | None = None
    further: FurtherLosses = FurtherLosses()
    option: str = OPTION
    planned_steps: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    def noted(self, *notes: str) -> "RunColumns":
        """The same columns with further notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    def taken(self) -> str:
        """One line: the columns of loss, step and learning rate, which others could have been the
        loss, and the planned length that the source states.
        """
        others = other_losses(self.found, self.names[LOSS])
        also = f" ({listed(others)} could also be the loss)" if others else ""
        taken = f"loss read from {self.names[LOSS]!r}{also}, step from {self.names[STEP]!r}"
        if RATE in self.names and np.isfinite(self.values.get(RATE, np.empty(0))).any():
            taken += f", rate from {self.names[RATE]!r}"
        if self.planned_steps is not None:
            taken += f", plan of {count(self.planned_steps, 'step')}"
        return taken
