"""What a decision consists of: one of three verdicts, a reason code with its sentence, and what else holds."""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from parity.judging import document_types
from parity.judging.measurements import Measurements

State = document_types.State
PASS: State = "pass"  # noqa: S105  (a verdict, not a password)
FAIL: State = "fail"
INCONCLUSIVE: State = "inconclusive"

WORST_FIRST: tuple[State, ...] = (FAIL, INCONCLUSIVE, PASS)

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
    "gate",
]
GATE: CheckName = "gate"


def state_of(*, passes: bool, fails: bool) -> State:
    """The state of a check that passes, fails, or leaves it open."""
    if passes:
        return PASS
    return FAIL if fails else INCONCLUSIVE


def worst(states: Iterable[str]) -> State:
    """The worst of at least one verdict; ValueError for an unknown one, or for no verdict at all."""
    return min((_state(word) for word in states), key=WORST_FIRST.index)


def _state(word: str) -> State:
    for state in WORST_FIRST:
        if word == state:
            return state
    raise ValueError(f"{word!r} is not a verdict; expected one of {', '.join(WORST_FIRST)}")


@dataclass(frozen=True, slots=True)
class ReasonCode:
    """A code, the one line that documents it, what a user does next, and the check that reports name it under (None: a warning only).

    `detail` adds what only the tables in the docs say. `next_step` is None where nothing needs doing, or where `advice` computes it;
    `next_step_of_job` takes its place for the job of a server, where a step in the words of the command line can't be taken.
    """

    code: str
    check: CheckName | None = None
    _: KW_ONLY
    means: str
    detail: str | None = None
    next_step: str | None = None
    next_step_of_job: str | None = None

    def next_for(self, *, job: bool) -> str | None:
        """What a user does next, in the words of a server's job or of the command line."""
        return self.next_step_of_job if job and self.next_step_of_job is not None else self.next_step

    @property
    def meaning(self) -> str:
        """`means` with its detail."""
        return f"{self.means}; {self.detail}" if self.detail else self.means


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
