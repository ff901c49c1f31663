"""What one arm alone lacks."""

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.points_in_one_arm import (
    EarlyHole,
    early_hole,
    lacking_points,
    missing_steps,
)
from parity.judging.curves.window import make_window

WINDOW = make_window(1000, 0, 0.2, "declared")


def logged(steps: object) -> Curve:
    at = np.array(steps, dtype=np.int64)
    return curve_from_arrays(at, np.full(len(at), 3.0))


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        (range(1000), []),
        ([step for step in range(1000) if step != 900], [900]),
        ([step for step in range(1000) if step < 998], [998, 999]),
        (range(9, 1000, 10), []),
        ([step for step in range(9, 1000, 10) if step != 899], [899]),
        ([*range(800), 998, 999], []),  # two points show no grid
        ([*range(800), 997, 998, 999], []),  # nor three, of which most would be missing
    ],
)
def test_the_grid_of_a_log_shows_what_it_lacks(steps: object, missing: list[int]) -> None:
    assert missing_steps(np.array(steps, dtype=np.int64), WINDOW).tolist() == missing


@pytest.mark.parametrize(("points", "seen"), [(20, True), (19, False)])
def test_a_grid_has_a_tenth_of_its_points(points: int, seen: bool) -> None:
    """Of the window's 199 intervals, 20 points have a tenth and 19 have less."""
    steps = np.append(np.arange(800), np.arange(800, 800 + points))
    found = missing_steps(steps, WINDOW)
    assert len(found) == (200 - points if seen else 0)


def test_what_both_arms_lack_no_arm_lacks_alone() -> None:
    without = [step for step in range(1000) if step not in (850, 851, 900)]
    base, cand = logged(range(1000)), logged(without)
    lacking = lacking_points([cand], [base], WINDOW)
    assert (lacking.points, lacking.longest) == (3, 2)
    assert lacking_points([base], [cand], WINDOW).points == 0
    assert lacking_points([cand], [cand], WINDOW).points == 0


def without(first: int, last: int) -> Curve:
    return logged([step for step in range(1000) if not first <= step <= last])


@pytest.mark.parametrize(("first", "last"), [(300, 349), (700, 749), (1, 50), (780, 829)])
def test_a_hole_before_the_window_is_what_the_other_arm_has_there(first: int, last: int) -> None:
    whole = logged(range(1000))
    hole = early_hole([whole, without(first, last)], [whole], WINDOW)
    assert hole == EarlyHole(points=50, after=first - 1, share=0.05)
    assert early_hole([whole], [without(first, last)], WINDOW) == EarlyHole()


@pytest.mark.parametrize(
    "steps",
    [
        [*range(100), *range(100, 1000, 10)],
        [*range(0, 500, 10), *range(500, 1000)],
        range(200, 1000),
        range(9, 1000, 10),
        range(950),
        [5],
    ],
)
def test_another_interval_or_a_late_begin_is_no_hole(steps: object) -> None:
    whole = logged(range(1000))
    assert early_hole([logged(steps)], [whole], WINDOW) == EarlyHole()
    assert early_hole([logged(steps), whole], [whole], WINDOW) == EarlyHole()


def test_what_both_arms_lack_before_the_window_is_no_hole() -> None:
    assert early_hole([without(300, 349)], [without(290, 359)], WINDOW) == EarlyHole()
