"""The one order of verdicts: a fail is worse than inconclusive, which is worse than a pass."""

from collections.abc import Iterable

WORST_FIRST = ("fail", "inconclusive", "pass")


def worst(states: Iterable[str]) -> str:
    """The worst of at least one state; ValueError for an unknown state or none at all."""
    return min(states, key=WORST_FIRST.index)
