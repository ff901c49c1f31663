"""One shape of the list: what writes a run in it, and how it shows a number."""

import dataclasses
from collections.abc import Callable, Sequence

from tests.parity.readers.logs.breadth.numbers import Arm

Form = Callable[[float], float]
"""How a number is after it was printed and read."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """How a trainer or an exporter shows a run: `write` gives the file's text for one arm, or for
    all arms where one file holds them (`holds_all`).

    `first` is the first step as the shape counts, `loss` and `rate` a number as it is shown, `rate`
    None where no learning rate is; `losses` are those of a run where a shown one depends on others,
    `unit` what the loss is in.
    """

    write: Callable[[Sequence[Arm]], str]
    file: str = "train.log"
    loss: Form = float
    rate: Form | None = None
    losses: Callable[[Arm], Sequence[float]] | None = None
    first: int = 1
    unit: str = "nats"
    holds_all: bool = False

    def shown(self, arm: Arm) -> list[float]:
        """The losses of a run as they are shown."""
        losses = arm.losses if self.losses is None else self.losses(arm)
        return [self.loss(loss) for loss in losses]


def digits(spec: str) -> Form:
    """A number in a format of Python's."""
    return lambda number: float(format(number, spec))


def lines(form: Callable[[Arm, int], str], head: str = "") -> Callable[[Sequence[Arm]], str]:
    """What writes a text of a piece for each step, numbered from 0, behind a head."""
    return lambda arms: head + "".join(form(arms[0], at) for at in range(len(arms[0].losses)))
