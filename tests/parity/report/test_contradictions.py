"""No answer says two things of which one must be wrong: over every situation that a rule of the
decision needs, with a schedule that is stated and with one that is not.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from parity.report.formats.terminal import plain_text
from tests.parity.judging.precedence import changes, evaluation_changes
from tests.parity.judging.precedence.evaluation_pair import EvaluationPair
from tests.parity.judging.precedence.pair import Pair
from tests.parity.judging.verdict.test_next_step_of_each_code import judged

SCHEDULES = ("decayed", "unstated")
MORE_RUNS = r"\b[Aa]dd [^.]*\b(run|replicate|seed)s?\b|\bhas [^.]*\bmore \S+ runs?\b"
PAIRS = (
    ("nothing can pass", r"(?<!nothing )\bcan pass\b"),
    ("nothing can pass", r"a margin of \S+ would pass"),
    ("nothing can pass", MORE_RUNS),
    ("Another window would decide otherwise", "Nothing likely"),
    ("more runs alone do not", MORE_RUNS),
    ("Nothing likely", MORE_RUNS),
    ("PASS", "too wide to pass"),
    ("no gap is judged", "noise was assumed"),
    ("Look at the first step where the arms diverge", "so that only the recipe differs"),
    ("would not decide it", "to decide"),
)


def _documents() -> Iterator[tuple[str, Any]]:
    for schedule in SCHEDULES:
        for name, change in changes.CHANGES.items():
            pair = Pair()
            pair.policy["schedule"] = schedule
            change(pair)
            yield f"{name}, {schedule}", judged(pair).document()
        for name, edit in evaluation_changes.CHANGES.items():
            held_out = EvaluationPair()
            held_out.policy["schedule"] = schedule
            edit(held_out)
            yield f"held-out losses: {name}, {schedule}", held_out.case().documents()[0]


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """All that the terminal says of each situation, on one line."""
    return {
        name: " ".join(plain_text([document], verbose=True).split())
        for name, document in _documents()
    }


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_answer_says_both(one: str, other: str, answers: dict[str, str]) -> None:
    both = [
        name
        for name, text in answers.items()
        if re.search(rf"{one}\b", text) and re.search(other, text)
    ]
    assert not both


def test_each_first_statement_is_made_somewhere(answers: dict[str, str]) -> None:
    """But for what no answer says any more."""
    said = " ".join(answers.values())
    assert {one for one, _ in PAIRS if not re.search(rf"{one}\b", said)} == set()
