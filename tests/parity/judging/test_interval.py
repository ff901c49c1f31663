"""The half-width of a gap: Satterthwaite's from 4 degrees of freedom of the between-run term on, below that a sum of squares."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from parity.judging.interval import Interval, interval
from parity.judging.noise import StandardError
from parity.judging.run_floor import RunTerm


def of(run_se: float, run_df: float, within_se: float, within_df: float) -> Interval:
    return interval(0.0, StandardError(value=within_se, df=within_df), RunTerm(variance=run_se**2, df=run_df, seeds=1))


@pytest.mark.parametrize(("run_df", "within_se"), [(4.0, 0.002), (9.3, 0.0005), (30.0, 0.0)])
def test_from_4_degrees_of_freedom_on_it_is_that_of_satterthwaite(run_df: float, within_se: float) -> None:
    joined = of(0.001, run_df, within_se, 12.0)
    variance = 0.001**2 + within_se**2
    df = variance**2 / (0.001**4 / run_df + within_se**4 / 12.0)
    assert joined.half_width(0.95) == pytest.approx(student.ppf(0.975, df) * math.sqrt(variance))


@pytest.mark.parametrize(("run_df", "within_se"), [(1.5, 0.002), (2.5, 0.0005), (3.9, 0.0)])
def test_below_it_is_the_root_of_the_squared_half_widths(run_df: float, within_se: float) -> None:
    expected = math.hypot(student.ppf(0.975, run_df) * 0.001, student.ppf(0.975, 12.0) * within_se)
    assert of(0.001, run_df, within_se, 12.0).half_width(0.95) == pytest.approx(expected)


@given(st.floats(1.0, 3.99), st.floats(3.0, 12.0), st.floats(1e-5, 1e-2), st.floats(0.0, 1e-2), st.floats(1e-5, 1e-2))
def test_more_noise_within_the_pair_never_narrows_it(run_df: float, within_df: float, run_se: float, within_se: float, more: float) -> None:
    quiet, noisy = (of(run_se, run_df, within, within_df).half_width(0.95) for within in (within_se, within_se + more))
    assert noisy >= quiet


def test_without_any_noise_it_is_0() -> None:
    assert of(0.0, 2.0, 0.0, 12.0).half_width(0.95) == 0.0
