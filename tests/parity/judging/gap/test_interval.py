"""The half-width of a gap: the root of the squared half-widths of its two parts."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t as student

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import RunTerm


def of(run_se: float, run_df: float, within_se: float, within_df: float) -> Interval:
    return interval(
        0.0,
        StandardError(value=within_se, df=within_df),
        RunTerm(variance=run_se**2, df=run_df, seeds=1),
    )


@pytest.mark.parametrize(
    ("run_df", "within_se"), [(1.5, 0.002), (2.5, 0.0005), (4.0, 0.002), (30.0, 0.0)]
)
def test_it_is_the_root_of_the_squared_half_widths(run_df: float, within_se: float) -> None:
    expected = math.hypot(student.ppf(0.975, run_df) * 0.001, student.ppf(0.975, 12.0) * within_se)
    assert of(0.001, run_df, within_se, 12.0).half_width(0.95) == pytest.approx(expected)


@given(
    st.floats(1.0, 30.0),
    st.floats(3.0, 12.0),
    st.floats(1e-5, 1e-2),
    st.floats(0.0, 1e-2),
    st.floats(1e-5, 1e-2),
)
def test_more_noise_within_the_pair_never_narrows_it(
    run_df: float, within_df: float, run_se: float, within_se: float, more: float
) -> None:
    quiet, noisy = (
        of(run_se, run_df, within, within_df).half_width(0.95)
        for within in (within_se, within_se + more)
    )
    assert noisy >= quiet


def test_without_any_noise_it_is_0() -> None:
    assert of(0.0, 2.0, 0.0, 12.0).half_width(0.95) == 0.0


CONFIDENCES = np.linspace(0.0, 0.9998, 200_001)


@cache
def quantiles(df: float) -> np.ndarray:
    return student.ppf(0.5 + CONFIDENCES / 2.0, df)


def chance_below(gap: Interval, margin: float) -> float:
    """The slow twin: the half-widths of 200,000 confidences, with quantiles from scipy.stats."""
    run, within = (quantiles(df) for df in (gap.run.df, gap.within.df))
    halves = np.hypot(run * math.sqrt(gap.run.variance), within * gap.within.value)
    reached = CONFIDENCES[
        min(int(np.searchsorted(halves, abs(margin - gap.mean))), len(CONFIDENCES) - 1)
    ]
    return float(0.5 + np.sign(margin - gap.mean) * reached / 2.0)


@pytest.mark.parametrize("margin", [-0.02, -0.002, 0.0001, 0.003, 0.02, 5.0])
@pytest.mark.parametrize(("run_df", "within_se"), [(1.5, 0.002), (4.0, 0.0005), (30.0, 0.0)])
def test_the_chance_below_a_margin_is_the_confidence_at_which_the_interval_ends_there(
    run_df: float, within_se: float, margin: float
) -> None:
    gap = of(0.001, run_df, within_se, 9.0)
    assert gap.chance_below(margin) == pytest.approx(chance_below(gap, margin), abs=1e-5)


@given(st.floats(1.0, 30.0), st.floats(1e-5, 1e-2), st.floats(0.0, 1e-2), st.floats(1e-5, 0.1))
def test_the_chance_is_above_97_5_percent_exactly_where_the_interval_ends_below_the_margin(
    df: float, run_se: float, within_se: float, margin: float
) -> None:
    gap = of(run_se, df, within_se, 9.0)
    half = gap.half_width(0.95)
    assume(abs(margin - half) > 1e-6 * half)
    assert (gap.chance_below(margin) > 0.975) == (half < margin)
    assert (gap.chance_below(-margin) < 0.025) == (half < margin)
