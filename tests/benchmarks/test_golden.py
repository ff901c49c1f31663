"""The marks of the rule of goldens on public pairs, and on faults that are planted into them."""

from collections import Counter

import pytest

from benchmarks.golden.__main__ import answer_of, bases, planted_rows
from benchmarks.golden.public_pairs import END, KNOWN_MOVES, TUNING, part_of, public_pairs
from parity.golden.answers import FINE

PAIRS = public_pairs()
HONEST = ("container", "code, fix, option")
MARKS = {
    "drift to 0.5 %": 100,
    "+0.05 nats from the middle": 100,
    "spike of 5 %, one row": 80,
    "spike of 5 %, halves in 3 rows": 80,
    "spike of 8 %, one row": 95,
    "spike of 8 %, halves in 3 rows": 95,
}
"""Found at 100 steps, %."""


@pytest.mark.parametrize("part", [TUNING, END])
def test_honest_changes_are_seldom_blamed(part):
    """Each of worse and better at most 1 %, all answers that need a person at most 6 %."""
    some = [
        pair
        for pair in PAIRS
        if pair.part == part and pair.group in HONEST and not pair.family.startswith(KNOWN_MOVES)
    ]
    answers = Counter(map(answer_of, some))
    assert len(some) > 150
    assert max(answers["worse"], answers["better"]) <= 0.01 * len(some)
    assert sum(answers[answer] for answer in answers if answer not in FINE) <= 0.06 * len(some)


def test_replaced_data_are_named():
    answers = Counter(answer_of(pair) for pair in PAIRS if pair.group == "data replaced")
    assert answers["data changed"] >= 0.85 * answers.total()


@pytest.mark.parametrize("part", [TUNING, END])
def test_planted_faults_are_found(part):
    chosen = bases([pair for pair in PAIRS if pair.part == part], 100)
    rows = {row[0]: row for row in planted_rows(chosen, 100)}
    assert len(chosen) == 40
    for fault, mark in MARKS.items():
        assert int(rows[fault][2]) >= mark, fault


def test_a_family_is_in_one_part():
    parts = {pair.family: set() for pair in PAIRS}
    for pair in PAIRS:
        parts[pair.family].add(pair.part)
    assert all(len(found) == 1 for found in parts.values())
    assert {part_of(family) for family in parts} == {TUNING, END}
