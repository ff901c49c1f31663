"""At which places a loss is due by the rhythm of the others."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parity.readers.columns.rhythm import NEVER, due_losses


def slow_due(blank: list[bool]) -> set[int]:
    """`due_losses` of steps 0, 1, 2, ... of one interval of logging, point by point."""
    logged = [place for place, is_blank in enumerate(blank) if not is_blank]
    gaps = [after - before for before, after in pairwise(logged)]
    (every,) = set(gaps)
    if every < 3:
        return {place for place, is_blank in enumerate(blank) if is_blank}
    due = set(range(logged[-1] + every, len(blank), every))
    place = logged[0] - every
    while place > 0:
        due.add(place)
        place -= every
    return due


@given(st.integers(1, 20), st.integers(0, 60), st.integers(3, 12), st.integers(0, 60))
def test_points_of_one_interval_are_due_where_a_slow_rule_says(
    every: int, before: int, points: int, after: int
) -> None:
    blank = np.ones(before + every * (points - 1) + 1 + after, dtype=bool)
    blank[before : before + every * (points - 1) + 1 : every] = False
    found = due_losses(np.arange(float(len(blank))), blank)
    assert set(np.flatnonzero(found).tolist()) == slow_due(blank.tolist())


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_only_blank_rows_are_due_and_none_where_none_ever_is(blank: list[bool]) -> None:
    steps, rows = np.arange(float(len(blank))), np.array(blank)
    assert not (due_losses(steps, rows) & ~rows).any()
    if all(blank):
        assert not due_losses(steps, rows, NEVER).any()
