"""Several candidates: their order, which of them decides the state, and how many have each."""

import math
from collections.abc import Sequence

from parity.judging.decision import worst
from parity.judging.document_types import State
from parity.report.view import View

BEST_FIRST: Sequence[State] = ("pass", "inconclusive", "fail")
ANSWER_ORDER: Sequence[State] = ("fail", "pass", "inconclusive")
"""The order in which an answer names candidates: who fails, who may be used, who is open."""


def safest_first(views: Sequence[View]) -> list[View]:
    """Passes first, then undecided ones, then fails; of each those with the smallest upper end
    first.
    """

    def risk(view: View) -> tuple[int, float]:
        return BEST_FIRST.index(view.state), view.gap.hi if view.gap else math.inf

    return sorted(views, key=risk)


def state_of_all(views: Sequence[View]) -> State:
    """The one state of several candidates: the worst of theirs."""
    return worst(view.state for view in views)


def deciding(views: Sequence[View]) -> View:
    """The candidate that decides the state of all: of those that fail the farthest above the
    margin, of undecided ones the nearest to a decision, of those that pass the nearest to the
    margin. The first in the order of `safest_first` where they are equal.
    """

    def rank(view: View) -> float:
        gap = (view.gap.mean, view.gap.lo, view.gap.hi) if view.gap else None
        return decisiveness(view.state, gap, view.margin["nats"] if view.margin else None)

    state = state_of_all(views)
    return max((view for view in safest_first(views) if view.state == state), key=rank)


def decisiveness(
    state: State, gap: tuple[float, float, float] | None, margin: float | None
) -> float:
    """How much a candidate decides among those of its state, in margins; `gap` is its mean with the
    ends of its interval, nats.

    A fail without a gap, as of NaN, is the farthest of all; an undecided candidate without one is
    the farthest from a decision.
    """
    if gap is None or margin is None:
        return math.inf if state == "fail" else -math.inf
    mean, lo, hi = gap
    unit = margin if margin > 0.0 else 1.0
    if state == "inconclusive":
        return -max(0.0, min(hi - margin, margin - lo)) / unit
    return (mean if state == "fail" else hi) / unit


def tally(views: Sequence[View]) -> list[tuple[State, int]]:
    """How many candidates have each state, in the order of `ANSWER_ORDER`; those that nobody has
    are left out.
    """
    counted = [(state, sum(view.state == state for view in views)) for state in ANSWER_ORDER]
    return [(state, number_of) for state, number_of in counted if number_of]
