"""Spikes and humps: against a slow formula, and both sides of each limit."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from parity.golden.common_steps import common_steps
from parity.golden.excursions import (
    DIP_FACTOR,
    ROW_PCT,
    SIDE_ROWS,
    WIDE_PCT,
    _beyond_sides,
    largest_excursion,
)
from tests.parity.golden.curves import GOLDEN, HONEST, curve, losses, rerun_of


def slow_beyond(values, rows):
    """The excess of each mean of `rows` values over the medians before and after, one by one."""
    n, side, found = len(values), min(SIDE_ROWS + 2 * rows, len(values)), []
    for t in range(n - rows + 1):
        before, after = values[max(0, t - side) : t], values[t + rows : t + rows + side]
        sides = [statistics.median(part) for part in (before, after) if len(part) >= 3]
        if len(before) < 3 and rows > 1:
            found.append(-np.inf)
        else:
            found.append(statistics.mean(values[t : t + rows]) - max(sides))
    return found


@pytest.mark.parametrize("rows", [1, 2, 10])
@pytest.mark.parametrize("n", [8, 25, 100])
def test_the_excess_is_that_of_the_slow_formula(n, rows):
    values = np.random.default_rng(n).normal(size=n)
    if n - rows < 4:
        pytest.skip("no side has three rows")
    np.testing.assert_allclose(_beyond_sides(values, rows), slow_beyond(list(values), rows))


@given(some.floats(0.5, 2.0), some.integers(8, 60))
def test_another_unit_of_the_loss_changes_nothing(factor, rows):
    golden, run = losses(rows), rerun_of(losses(rows))
    first = largest_excursion(common_steps(curve(golden), curve(run)))
    other = largest_excursion(common_steps(curve(factor * golden), curve(factor * run)))
    assert other.pct == pytest.approx(first.pct, abs=0.02)


def planted(run, rows, pct, first=60):
    at = np.arange(len(run))
    return run * (1.0 + pct / 100.0 * ((at >= first) & (at < first + rows)))


@pytest.mark.parametrize(("rows", "limit"), [(1, ROW_PCT), (10, WIDE_PCT)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_excursion_is_found_just_above_its_limit(rows, limit, sign):
    limit *= 1.0 if sign > 0.0 else DIP_FACTOR
    for factor, is_found in ((0.95, False), (1.05, True)):
        run = planted(HONEST, rows, sign * factor * limit)
        found = largest_excursion(common_steps(curve(GOLDEN), curve(run)), sign)
        assert found.is_beyond is is_found
        if is_found:
            assert 61 <= found.step < 61 + rows
            assert found.pct == pytest.approx(factor * limit, abs=0.05)


@pytest.mark.parametrize("shape", [np.linspace(0, 0.05, 100), 0.05 * (np.arange(100) >= 50)])
def test_a_drift_or_a_shift_is_no_excursion_until_the_end(shape):
    found = largest_excursion(common_steps(curve(GOLDEN), curve(HONEST * (1.0 - shape))))
    assert not found.is_beyond


def test_where_the_golden_itself_has_a_spike_a_run_may_differ_by_as_much():
    """Both runs have a spike of 6 % in one row; the run's is 2 % higher, or there is none."""
    spiked = planted(GOLDEN, 1, 6.0)
    assert not largest_excursion(
        common_steps(curve(spiked), curve(planted(HONEST, 1, 8.0)))
    ).is_beyond
    assert largest_excursion(common_steps(curve(GOLDEN), curve(planted(HONEST, 1, 2.0)))).is_beyond


def test_a_noisy_difference_needs_a_larger_excursion():
    """8 times the noise from step to step, which is 0.5 % here."""
    noisy = GOLDEN * (1.0 + np.random.default_rng(1).normal(0.0, 0.005, 100))
    for pct, is_found in ((2.0, False), (8.0, True)):
        run = planted(noisy, 1, pct)
        assert largest_excursion(common_steps(curve(GOLDEN), curve(run))).is_beyond is is_found
