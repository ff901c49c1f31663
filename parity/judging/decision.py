"""What a decision consists of: a verdict, the reason that decided it, and what else holds."""

from collections.abc import Iterable
from typing import Literal

from parity.frozen import frozen
from parity.judging import document_types

State = document_types.State
PASS: State = "pass"  # noqa: S105
FAIL: State = "fail"
INCONCLUSIVE: State = "inconclusive"

WORST_FIRST: tuple[State, ...] = (FAIL, INCONCLUSIVE, PASS)

CheckName = Literal[
    "input",
    "same data order",
    "same ground",
    "finite losses",
    "stability",
    "plan and window",
    "late phase",
    "run-to-run noise",
    "gap against margin",
    "policy check",
]
POLICY_CHECK: CheckName = "policy check"


def state_of(*, passes: bool, fails: bool) -> State:
    """The state of a check that passes, fails, or leaves it open."""
    if passes:
        return PASS
    return FAIL if fails else INCONCLUSIVE


def worst(states: Iterable[str]) -> State:
    """The worst of at least one verdict; ValueError for an unknown one, or for no verdict at
    all.
    """
    return min((_state(word) for word in states), key=WORST_FIRST.index)


def _state(word: str) -> State:
    for state in WORST_FIRST:
        if word == state:
            return state
    raise ValueError(f"{word!r} is not a verdict; expected one of {', '.join(WORST_FIRST)}")


@frozen
class Reason:
    """A reason code with its sentence."""

    code: str
    sentence: str


@frozen
class Decision:
    """The verdict's state, the reason that decided it, and what else holds (further vetoes, then
    warnings).
    """

    state: State
    deciding: Reason
    others: tuple[Reason, ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """All reason codes, the deciding one first."""
        return (self.deciding.code, *(reason.code for reason in self.others))
