"""The noise of a mean over few, many and very many points."""

import math

import numpy as np
import pytest

from parity.judging.curves.step_noise import (
    block_average,
    lag1,
    mean_se,
    mean_ses,
    newey_west_prewhitened,
    step_noise,
)


def ar1_se(d: np.ndarray) -> tuple[float, float]:
    """The error of few points as the formula says."""
    n = len(d)
    c = d - d.mean()
    r = float((c[1:] * c[:-1]).sum() / (c * c).sum())
    rho = min(max(r + (1 + 3 * r) / n, 0.0), 0.97)
    u = min(rho + math.sqrt((1 - rho**2) / n), 0.97)
    f = 1 + 2 * sum((1 - k / n) * u**k for k in range(1, n))
    variance = float((c * c).mean()) / max(1 - f / n, 0.05) * f / n
    return math.sqrt(variance), max(2.0, n * (1 - u) / (1 + u) - 1)


def series(n: int, rho: float, seed: int = 0) -> np.ndarray:
    own = np.random.default_rng(seed).normal(size=n)
    for i in range(1, n):
        own[i] += rho * own[i - 1]
    return own


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.6, 1.0])
@pytest.mark.parametrize("n", [4, 8, 12, 40, 100])
def test_up_to_a_hundred_points_the_error_is_that_of_a_correlated_process(
    n: int, rho: float
) -> None:
    d = series(n, rho)
    error = mean_se(d)
    assert (error.value, error.df) == pytest.approx(ar1_se(d), rel=1e-9)


def long_run(d: np.ndarray) -> tuple[float, float]:
    n = len(d)
    c = d - d.mean()
    b = min(math.floor(0.4 * n ** (2 / 3)), 12)
    at = (np.arange(n) + 0.5) / n
    cosine = [float((c * np.cos(np.pi * j * at)).sum()) * math.sqrt(2 / n) for j in range(1, b + 1)]
    ewc = sum(value**2 for value in cosine) / b
    return max(ewc, float(newey_west_prewhitened(c[None])[0])) / n, b


@pytest.mark.parametrize("n", [101, 150, 199, 200, 201, 400])
def test_from_two_hundred_points_on_it_is_the_long_run_error_and_mixed_in_between(n: int) -> None:
    d = series(n, 0.5)
    (few, few_df), (many, many_df) = ar1_se(d), long_run(d)
    weight = min((n - 100) / 100, 1.0)
    error = mean_se(d)
    assert error.value**2 == pytest.approx((1 - weight) * few**2 + weight * many, rel=1e-9)
    assert 1 / error.df == pytest.approx((1 - weight) / few_df + weight / many_df, rel=1e-9)


def test_fewer_than_four_points_have_their_own_spread() -> None:
    assert mean_se(np.array([0.0, 1.0, 2.0])).value == pytest.approx(math.sqrt(2.0 / 3.0))
    assert mean_se(np.array([0.0, 1.0, 2.0])).df == 1.0
    assert mean_se(np.empty(0)).value == 0.0
    four = np.array([0.0, 1.0, 2.0, 1.0])
    assert mean_se(four).value == pytest.approx(float(mean_ses(four[None])[0][0]))
    assert step_noise(np.array([0.0, 1.0, 3.0])) == 0.0
    assert step_noise(np.array([0.0, 1.0, 3.0, 0.0])) > 0.0


def test_a_series_is_averaged_in_blocks_beyond_twice_their_number() -> None:
    assert len(block_average(np.arange(20.0), 10)) == 20
    assert block_average(np.arange(21.0), 10).tolist() == [1.5 + 2 * k for k in range(10)]
    assert len(block_average(np.zeros(65_536))) == 65_536
    assert len(block_average(np.zeros(65_538))) == 32_769


def test_lag_one_of_a_constant_is_none() -> None:
    assert lag1(np.full(5, 2.0)) == 0.0
    assert lag1(np.array([1.0, -1.0, 1.0, -1.0])) == pytest.approx(-0.75)
