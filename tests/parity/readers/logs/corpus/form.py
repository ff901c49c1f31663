"""One form of a log: what writes it, and how it shows a loss."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

Losses = Sequence[float]


Writer = Callable[[Path, int, Losses], object]
"""Writes the losses from a first step on to a file."""


PREAMBLE = "using device: cuda\nnumber of parameters: 10.65M, 3 groups\n"


@dataclasses.dataclass(frozen=True)
class Log:
    """One form: `write` writes losses from step `first` on to a file called `name`; `shown` is a
    loss as the form shows it.

    `option` is what a user has to type in addition, `plan` whether the form states the planned
    length.
    """

    origin: str
    write: Writer
    name: str = "train.log"
    first: int = 1
    shown: Callable[[float], float] = float
    option: tuple[str, str] | None = None

    def steps(self, losses: Losses) -> list[int]:
        """The steps that were written."""
        return [self.first + number for number in range(len(losses))]
