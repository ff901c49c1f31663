"""The half-width of a gap: the root of the squared half-widths of its two parts."""

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


@pytest.mark.parametrize(("run_df", "within_se"), [(1.5, 0.002), (2.5, 0.0005), (4.0, 0.002), (30.0, 0.0)])
def test_it_is_the_root_of_the_squared_half_widths(run_df: float, within_se: float) -> None:
    expected = math.hypot(student.ppf(0.975, run_df) * 0.001, student.ppf(0.975, 12.0) * within_se)
    assert of(0.001, run_df, within_se, 12.0).half_width(0.95) == pytest.approx(expected)


@given(st.floats(1.0, 30.0), st.floats(3.0, 12.0), st.floats(1e-5, 1e-2), st.floats(0.0, 1e-2), st.floats(1e-5, 1e-2))
def test_more_noise_within_the_pair_never_narrows_it(run_df: float, within_df: float, run_se: float, within_se: float, more: float) -> None:
    quiet, noisy = (of(run_se, run_df, within, within_df).half_width(0.95) for within in (within_se, within_se + more))
    assert noisy >= quiet


def test_without_any_noise_it_is_0() -> None:
    assert of(0.0, 2.0, 0.0, 12.0).half_width(0.95) == 0.0
