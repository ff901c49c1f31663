"""The three verdicts and their one order: a fail is worse than inconclusive, which is worse than a pass."""

from collections.abc import Iterable
from typing import Literal

State = Literal["pass", "fail", "inconclusive"]
PASS: State = "pass"  # noqa: S105  (a verdict, not a password)
FAIL: State = "fail"
INCONCLUSIVE: State = "inconclusive"

WORST_FIRST: tuple[State, ...] = (FAIL, INCONCLUSIVE, PASS)


def worst(states: Iterable[str]) -> State:
    """The worst of at least one state; ValueError for an unknown state, or where there is none."""
    return WORST_FIRST[min(WORST_FIRST.index(_known(state)) for state in states)]


def _known(state: str) -> State:
    for known in WORST_FIRST:
        if state == known:
            return known
    raise ValueError(f"{state!r} is not a verdict; expected one of {', '.join(WORST_FIRST)}")
