"""The limits of the window, just inside and just outside."""

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.window import decay_phase, drift, make_window, plan_window


def run(first: int, last: int, every: int = 1) -> Curve:
    steps = np.arange(first, last + 1, every)
    return curve_from_arrays(steps, np.full(len(steps), 3.0))


@pytest.mark.parametrize(("last", "reached"), [(9949, True), (9948, False)])
def test_a_plan_is_reached_but_for_half_a_percent(last: int, reached: bool) -> None:
    window = plan_window([run(0, 9999), run(0, last)], 10_000, False, 0.2)
    assert (window.unreached == "") == reached
    assert window.last == (9999 if reached else last)


@pytest.mark.parametrize(("last", "reached"), [(9900, True), (9899, False)])
def test_a_plan_is_reached_but_for_one_logging_interval(last: int, reached: bool) -> None:
    """Of a log that begins at step 100 or later, whose plan ends at step 10,000."""
    window = plan_window([run(last % 100 + 100, last, 100)], 10_000, False, 0.2)
    assert (window.unreached == "") == reached


def rated(constant: int, fallen: float = 0.5, points: int = 100) -> Curve:
    """A run whose rate is constant over so many points of its last fifth, then lower."""
    steps = np.arange(5 * points)
    rate = np.ones(len(steps))
    rate[4 * points + constant :] = fallen
    return curve_from_arrays(steps, np.full(len(steps), 3.0), columns={"learning_rate": rate})


@pytest.mark.parametrize(
    ("constant", "is_cut"), [(49, False), (50, True), (988, True), (989, False)]
)
def test_a_decay_is_judged_alone_where_it_begins_after_a_twentieth_of_the_window(
    constant: int, is_cut: bool
) -> None:
    """And has twelve points."""
    window = make_window(5000, 0, 0.2, "declared")
    made = decay_phase(window, rated(constant, points=1000), 12)
    assert made.decay_from == (4000 + constant if is_cut else None)


@pytest.mark.parametrize(("fallen", "is_cut"), [(0.99905, False), (0.99895, True)])
def test_a_rate_falls_where_it_is_a_thousandth_lower(fallen: float, is_cut: bool) -> None:
    window = make_window(500, 0, 0.2, "declared")
    assert (decay_phase(window, rated(50, fallen), 12).decay_from is not None) == is_cut


def test_a_rate_that_begins_at_zero_keeps_the_window() -> None:
    window = make_window(500, 0, 0.2, "declared")
    steps = np.arange(500)
    columns = {"learning_rate": np.where(steps < 450, 0.0, -1.0)}
    zero = curve_from_arrays(steps, np.full(500, 3.0), columns=columns)
    assert decay_phase(window, zero, 12) == window


def test_a_drift_needs_eight_points() -> None:
    gap = np.array([0.0, 0.1, 0.3, 0.2, 0.5, 0.4, 0.7, 0.8])
    assert drift(gap[:7], np.arange(7)) == (0.0, 0.0)
    change, error = drift(gap, np.arange(8))
    assert change > 0.5
    assert error > 0.0
