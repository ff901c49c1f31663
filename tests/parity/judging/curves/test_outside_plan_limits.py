"""Steps outside the plan: each limit, from both sides."""

import dataclasses
import math

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.outside_plan import BeyondPlan, last_recorded, late_start
from parity.judging.curves.window import make_window


@pytest.mark.parametrize(
    ("planned", "last"), [(1, 2), (3, 4), (4, 5), (8, 10), (1000, 1250), (1003, 1253)]
)
def test_a_record_keeps_a_quarter_of_the_plan_more(planned: int, last: int) -> None:
    assert last_recorded(planned) == last


@pytest.mark.parametrize(("first", "is_late"), [(50, False), (51, True)])
def test_a_log_starts_late_after_a_twentieth_of_the_plan(first: int, is_late: bool) -> None:
    window = make_window(1000, 0, 0.2, "declared")
    runs = [curve_from_arrays(np.arange(first, 1000), np.full(1000 - first, 3.0))]
    assert late_start(runs, window) == (first if is_late else None)


@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({}, False),
        ({"nonfinite_step": 5}, True),
        ({"gap": 0.03}, False),
        ({"gap": 0.030001}, True),
        ({"level": 3.0 + 0.03 + 0.04}, False),  # four errors of 0.01 from 100 points
        ({"level": 3.0 + 0.03 + 0.040001}, True),
        ({"level": 3.0 + 0.03 + 0.04 / math.sqrt(2.0) + 1e-6, "points": 200}, True),
    ],
)
def test_what_makes_a_candidate_worse_beyond_the_plan(
    changes: dict[str, float], worse: bool
) -> None:
    same = BeyondPlan(last=9, share=0.01, nonfinite_step=None, gap=0.0, level=3.0, points=100)
    made = dataclasses.replace(same, **changes)
    assert made.is_worse(3.0 - 1e-12, 0.03 + 2e-12, 0.1) == worse
