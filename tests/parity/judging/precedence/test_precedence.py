"""Which of two rules decides where both hold: a case for every pair of rules that a search found
together, and a reason for neighbours of the order that exclude each other.

The cases are in `training.toml` and `evaluations.toml`; each names the changes of an honest pair
(`changes.py`, `evaluation_changes.py`). Who changes the order on purpose runs the search again and
reads in its difference which verdicts change; who changes it by accident is told here.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.parity.judging.precedence.cases import excluded_pairs, recorded_cases
from tests.parity.judging.precedence.held import (
    RULES_OF_EVALUATIONS,
    RULES_OF_TRAINING,
    evaluations_hold,
    training_holds,
)

ORDERS = {"training": RULES_OF_TRAINING, "evaluations": RULES_OF_EVALUATIONS}
HOLDS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "training": functools.lru_cache(maxsize=None)(training_holds),
    "evaluations": functools.lru_cache(maxsize=None)(evaluations_hold),
}
ADVICE = (
    "a wider rule or another order changes this verdict; if that is meant, run "
    "`python -m tests.parity.judging.precedence.search`, which says what it gained and lost"
)


CASES = {losses: recorded_cases(losses) for losses in ORDERS}


def _pairs() -> Iterator[object]:
    for losses, cases in CASES.items():
        for (first, other), made in cases.items():
            yield pytest.param(losses, first, other, made, id=f"{losses}: {first} before {other}")


@pytest.mark.parametrize(("losses", "first", "other", "made"), list(_pairs()))
def test_of_two_rules_that_hold_the_first_decides(
    losses: str, first: str, other: str, made: tuple[str, ...]
) -> None:
    deciding, *further = HOLDS[losses](made)
    assert other in further, f"{other} does not hold; made: {made}; {ADVICE}"
    assert deciding == first, f"{deciding} decides in place of {first}; made: {made}; {ADVICE}"


@pytest.mark.parametrize("losses", list(ORDERS))
def test_neighbours_of_the_order_have_a_case_or_a_reason_why_they_exclude_each_other(
    losses: str,
) -> None:
    excluded = excluded_pairs(losses)
    neighbours = set(itertools.pairwise(ORDERS[losses]))
    assert neighbours - CASES[losses].keys() - excluded == set()
    assert CASES[losses].keys() & excluded == set()


@pytest.mark.parametrize("losses", list(ORDERS))
def test_every_rule_is_named_where_pairs_are_listed(losses: str) -> None:
    named = set(itertools.chain.from_iterable(CASES[losses]))
    assert named == set(ORDERS[losses])
