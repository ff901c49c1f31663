"""lo* and hi*: no few points and no single run undo what all others show."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves.step_noise import mean_se
from parity.judging.curves.window import make_window
from parity.judging.gap.interval import Interval, interval, t_quantile
from parity.judging.gap.robust_bounds import Unlogged, missing_points, robust_interval, run_changes
from parity.judging.noise.arm_noise import RunTerm
from tests.conftest import some

RUN = RunTerm(variance=0.003**2, df=4.0, seeds=1)
NONE: tuple[list, list] = ([], [])


def plain_of(gap: np.ndarray, run: RunTerm = RUN) -> Interval:
    return interval(float(gap.mean()), mean_se(gap), run)


def bounds(gap: np.ndarray, missing: int = 0) -> tuple[float, float]:
    return robust_interval(gap, plain_of(gap), Unlogged(points=missing), NONE).bounds(0.95)


def half(gap: np.ndarray) -> float:
    error = mean_se(gap)
    return math.hypot(t_quantile(0.95, 4.0) * 0.003, t_quantile(0.95, error.df) * error.value)


def slow_lo(gap: np.ndarray) -> float:
    """Every cap and level one by one, for up to 60 points."""
    lows = [gap.mean() - half(gap)]
    for cap in gap:
        changed = np.array([min(value, cap) for value in gap])
        lows.append(changed.mean() - half(changed))
    for part in range(1, 8):
        at = part * len(gap) // 8
        first, second = gap[:at], gap[at:]
        step = second.mean() - first.mean()
        changed = (
            np.concatenate([first, second - step])
            if step > 0
            else np.concatenate([first + step, second])
        )
        lows.append(changed.mean() - half(changed))
    return max(lows)


@pytest.mark.parametrize("n", [30, 45, 60])
def test_slow_twin_and_its_mirror(n: int) -> None:
    gap = 0.02 + 0.004 * np.random.default_rng(n).normal(size=n)
    gap[n // 3] += 3.0
    assert bounds(gap)[0] == pytest.approx(slow_lo(gap))
    assert bounds(-gap)[1] == pytest.approx(-slow_lo(gap))


@pytest.mark.parametrize("n", [12, 40, 150, 350, 5000])
def test_one_wild_point_leaves_the_lower_end_where_it_was(n: int) -> None:
    gap = 0.05 + 0.004 * np.random.default_rng(n).normal(size=n)
    before = bounds(gap)[0]
    gap[n // 2] += 5.0
    assert bounds(gap)[0] > before - 0.002


def test_below_30_points_with_noise_within_in_the_lead_it_is_the_plain_end() -> None:
    gap = 0.02 * np.random.default_rng(0).normal(size=20)
    quiet = RunTerm(variance=1e-12, df=4.0, seeds=1)
    plain = plain_of(gap, quiet)
    assert robust_interval(gap, plain, Unlogged(), NONE).bounds(0.95)[0] == pytest.approx(
        plain.mean - plain.half_width(0.95)
    )
    assert robust_interval(gap, plain_of(gap), Unlogged(), NONE).bounds(0.95)[0] > plain_of(
        gap
    ).mean - plain_of(gap).half_width(0.95)


@settings(max_examples=some(100))
@given(st.integers(8, 250), st.integers(0, 30), st.integers(1, 250), st.floats(0.0, 3.0))
def test_a_worse_series_has_no_lower_upper_end(n: int, seed: int, last: int, by: float) -> None:
    gap = 0.004 * np.random.default_rng(seed).normal(size=n)
    worse = gap + np.where(np.arange(n) >= n - last, by, 0.0)
    assert bounds(worse)[1] >= bounds(gap)[1] - 1e-4


def test_missing_points_count_as_the_worst_and_as_the_best() -> None:
    gap = 0.004 * np.random.default_rng(1).normal(size=40)
    (lo, hi), (low, high) = bounds(gap), bounds(gap, 10)
    assert low < lo
    assert high > hi


def test_points_that_the_grid_lacks_are_counted() -> None:
    window = make_window(1000, 1, 0.2, "declared")  # steps 801 to 1000
    grid = np.arange(810, 1001, 10)
    assert missing_points(grid, window) == 0
    assert missing_points(np.delete(grid, [3, 4, 19]), window) == 3
    assert missing_points(np.array([900]), window) == 0


def test_runs_are_capped_at_each_others_gaps() -> None:
    gaps = np.array([0.0, 0.01, 0.5])
    better, worse = run_changes(gaps, lambda shifts: (float(shifts.mean()), RUN))
    assert [shift for shift, _ in better] == pytest.approx([-0.17, -0.49 / 3, 0.0])
    assert [shift for shift, _ in worse] == pytest.approx([0.0, 0.01 / 3, 0.33], abs=1e-12)
    assert run_changes(gaps[:1], lambda _shifts: (0.0, RUN)) == NONE
