"""Which of two rules decides where both hold: a case for every pair of rules that a search found
together, and a reason for neighbours of the order that exclude each other.

The cases are in `training.toml` and `evaluations.toml`; each names the changes of an honest pair
(`changes.py`, `evaluation_changes.py`). Who changes the order on purpose runs the search again and
reads in its difference which verdicts change; who changes it by accident is told here.
"""

import functools
import itertools
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parity.judging.precedence.held import (
    RULES_OF_EVALUATIONS,
    RULES_OF_TRAINING,
    evaluations_hold,
    training_holds,
)

FOLDER = Path(__file__).parent
ORDERS = {"training": RULES_OF_TRAINING, "evaluations": RULES_OF_EVALUATIONS}
HOLDS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "training": functools.lru_cache(maxsize=None)(training_holds),
    "evaluations": functools.lru_cache(maxsize=None)(evaluations_hold),
}
EXCLUDED = tomllib.loads((FOLDER / "excluded.toml").read_text("utf-8"))


def _cases(losses: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """The changes by the rule that decides and another one that holds."""
    cases: dict[tuple[str, str], tuple[str, ...]] = {}
    for first, tables in tomllib.loads((FOLDER / f"{losses}.toml").read_text("utf-8")).items():
        for table in tables:
            for other in table["over"]:
                cases.setdefault((first, other), tuple(table["made"]))
    return cases


CASES = {losses: _cases(losses) for losses in ORDERS}


def _pairs() -> Iterator[object]:
    for losses, cases in CASES.items():
        for (first, other), made in cases.items():
            yield pytest.param(losses, first, other, made, id=f"{losses}: {first} before {other}")


@pytest.mark.parametrize(("losses", "first", "other", "made"), list(_pairs()))
def test_of_two_rules_that_hold_the_first_decides(
    losses: str, first: str, other: str, made: tuple[str, ...]
) -> None:
    deciding, *further = HOLDS[losses](made)
    assert other in further, f"{other} does not hold; made: {made}"
    assert deciding == first, f"{deciding} decides in place of {first}; made: {made}"


@pytest.mark.parametrize("losses", list(ORDERS))
def test_neighbours_of_the_order_have_a_case_or_a_reason_why_they_exclude_each_other(
    losses: str,
) -> None:
    excluded = {
        pair
        for group in EXCLUDED[losses]
        for pair in itertools.product(group["rules"], group["never_with"])
    }
    excluded |= {(other, rule) for rule, other in excluded}
    neighbours = set(itertools.pairwise(ORDERS[losses]))
    assert neighbours - CASES[losses].keys() - excluded == set()
    assert CASES[losses].keys() & excluded == set()


@pytest.mark.parametrize("losses", list(ORDERS))
def test_every_rule_is_named_where_pairs_are_listed(losses: str) -> None:
    named = set(itertools.chain.from_iterable(CASES[losses]))
    assert named == set(ORDERS[losses])
