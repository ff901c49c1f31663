"""Several candidates: their order, how many have each verdict, and what became of the others."""

import math
from collections.abc import Sequence

from parity.judging.document_types import State
from parity.report.view import View
from parity.report.words import next_step
from parity.wording import first_few

BEST_FIRST: Sequence[State] = ("pass", "inconclusive", "fail")


def safest_first(views: Sequence[View]) -> list[View]:
    """Passes first, then undecided ones, then fails; of each those with the smallest upper end
    first.
    """

    def risk(view: View) -> tuple[int, float]:
        return BEST_FIRST.index(view.state), view.gap.hi if view.gap else math.inf

    return sorted(views, key=risk)


def advising(views: Sequence[View]) -> View | None:
    """The verdict whose next step is told of several: the safest one that has one."""
    return next((view for view in safest_first(views) if next_step(view)), None)


def others_words(views: Sequence[View]) -> str:
    """What became of the candidates after the safest one: "nvfp4 fails; nvfp4-wgrad16 is
    undecided."; "" for one.
    """
    first, *others = safest_first(views)
    if not others:
        return ""

    def name(view: View) -> str:
        if view.baseline.name == first.baseline.name:
            return view.candidate.title
        return view.pair

    by_verdict = {
        state: [name(view) for view in others if view.state == state] for state in BEST_FIRST
    }
    parts = []
    if passing := by_verdict["pass"]:
        parts.append(f"{first_few(passing, 3)} {'passes' if len(passing) == 1 else 'pass'}, too")
    if failing := by_verdict["fail"]:
        parts.append(f"{first_few(failing, 3)} {'fails' if len(failing) == 1 else 'fail'}")
    if undecided := by_verdict["inconclusive"]:
        parts.append(
            f"{first_few(undecided, 3)} {'is' if len(undecided) == 1 else 'are'} undecided"
        )
    return f"{'; '.join(parts)}."


def tally(views: Sequence[View]) -> list[tuple[State, int]]:
    """How many candidates have each verdict, those that nobody has left out."""
    counted = [(state, sum(view.state == state for view in views)) for state in BEST_FIRST]
    return [(state, number_of) for state, number_of in counted if number_of]
