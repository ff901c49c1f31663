"""What a decision is: a verdict's state, the reason that decided it, and what a reason code means."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from parity.judging.measurements import Measurements
from parity.judging.states import State

Rule = Callable[[Measurements], str | None]
"""The sentence of a reason, with its numbers, where it holds; else None."""

CheckName = Literal[
    "input",
    "same data order",
    "same ground",
    "finite losses",
    "stability",
    "plan and window",
    "late phase",
    "run noise",
    "gap against margin",
    "beside the loss",
]
BESIDE_THE_LOSS: CheckName = "beside the loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCode:
    """A code, the one line that documents it, what a user does next, and the check that reports name it under (None: a warning only).

    `next_step` is None where nothing needs doing, or where `advice` computes it.
    """

    code: str
    check: CheckName | None
    means: str
    next_step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason code with its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict's state, the reason that decided it, and what else holds (further vetoes, then warnings)."""

    state: State
    deciding: Reason
    others: tuple[Reason, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """All reason codes, the deciding one first."""
        return (self.deciding.code, *(reason.code for reason in self.others))
