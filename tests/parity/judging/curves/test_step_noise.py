import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from parity.judging.curves.curve import dot, dots, median, row_medians
from parity.judging.curves.step_noise import (
    block_average,
    lag1,
    mad_sd,
    mad_sds,
    mean_se,
    mean_ses,
    newey_west_prewhitened,
    step_noise,
)
from parity.judging.gap.interval import t_quantile

finite = st.floats(-100.0, 100.0, allow_nan=False)


def slow_ewc(series: np.ndarray) -> float:
    n = len(series)
    count = min(max(math.floor(0.4 * n ** (2 / 3)), 4), 12)
    total = 0.0
    for j in range(1, count + 1):
        total += (
            math.sqrt(2 / n)
            * sum(series[t] * math.cos(math.pi * j * (t + 0.5) / n) for t in range(n))
        ) ** 2
    return total / count


def slow_newey_west(series: np.ndarray) -> float:
    """Prewhitened Newey-West, written from the formulas with plain loops."""

    def first_autocorrelation(x: list[float]) -> float:
        m = sum(x) / len(x)
        return sum((x[t] - m) * (x[t - 1] - m) for t in range(1, len(x))) / sum(
            (v - m) ** 2 for v in x
        )

    x = (series - series.mean()).tolist()
    n = len(x)
    rho = first_autocorrelation(x)
    rho = max(-0.97, min(0.97, rho + (1 + 3 * rho) / n))
    white = [x[t] - rho * x[t - 1] for t in range(1, n)]
    left = max(-0.97, min(0.97, first_autocorrelation(white)))
    alpha = 4 * left**2 / ((1 - left) ** 2 * (1 + left) ** 2)
    lags = min(math.floor(1.1447 * (alpha * n) ** (1 / 3)), len(white) - 1)
    total = sum(v * v for v in white) / n
    for lag in range(1, lags + 1):
        total += (
            2
            * (1 - lag / (lags + 1))
            * sum(white[t] * white[t - lag] for t in range(lag, len(white)))
            / n
        )
    return max(total, 0.0) / (1 - rho) ** 2


def ar1(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    x = rng.normal(0.0, math.sqrt(1 - rho**2), n)
    x[0] = rng.normal()
    return lfilter([1.0], [1.0, -rho], x)


def slow_few_points(series: np.ndarray) -> tuple[float, float]:
    """The variance of the mean of few points and its degrees of freedom, from the formulas with
    plain loops.
    """
    x, n = series.tolist(), len(series)
    mean = sum(x) / n
    power = sum((v - mean) ** 2 for v in x)
    r1 = sum((x[t] - mean) * (x[t - 1] - mean) for t in range(1, n)) / power
    rho = min(max(r1 + (1 + 3 * r1) / n, 0.0), 0.97)
    u = min(rho + math.sqrt((1 - rho**2) / n), 0.97)
    f = 1 + 2 * sum((1 - k / n) * u**k for k in range(1, n))
    return power / n / max(1 - f / n, 0.05) * f / n, max(2.0, n * (1 - u) / (1 + u) - 1)


def slow_long_run(series: np.ndarray) -> tuple[float, float]:
    n = len(series)
    return max(slow_ewc(series - series.mean()), slow_newey_west(series)) / n, min(
        math.floor(0.4 * n ** (2 / 3)), 12
    )


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("n", [8, 12, 37, 100, 140, 199, 200, 350])
def test_mean_se_is_that_of_the_slow_formulas(n: int, rho: float) -> None:
    series = ar1(np.random.default_rng((n, int(10 * rho))), n, rho)
    weight = min(max((n - 100) / 100, 0.0), 1.0)
    few, many = slow_few_points(series), slow_long_run(series)
    found = mean_se(series)
    assert found.value == pytest.approx(
        math.sqrt((1 - weight) * few[0] + weight * many[0]), rel=1e-10
    )
    assert found.df == pytest.approx(1.0 / ((1 - weight) / few[1] + weight / many[1]))


def test_mean_ses_are_those_of_the_rows() -> None:
    for n in (12, 150, 400):
        rows = np.random.default_rng(n).normal(size=(5, n))
        values, df = mean_ses(rows)
        slow = [mean_se(row) for row in rows]
        assert values == pytest.approx([found.value for found in slow])
        assert df == pytest.approx([found.df for found in slow])


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("n", [99, 100, 101, 150, 199, 200])
def test_one_point_more_changes_no_half_width_much(n: int, rho: float) -> None:
    """Next to the run-to-run noise of a usual pair (0.35 % of the loss against 0.11 % a point)."""
    for seed in range(20):
        series = ar1(np.random.default_rng((seed, n)), n + 1, rho)
        halves = [
            math.hypot(3.2, t_quantile(0.95, found.df) * found.value)
            for found in (mean_se(series[:-1]), mean_se(series))
        ]
        assert halves[1] == pytest.approx(halves[0], rel=0.1)


def test_newey_west_agrees_with_statsmodels_where_both_use_the_same_lags() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import statsmodels.api as sm
        from statsmodels.stats.sandwich_covariance import cov_hac

    rng = np.random.default_rng(3)
    series = rng.normal(size=400)
    centred = series - series.mean()
    rho = lag1(centred)
    rho += (1 + 3 * rho) / len(centred)
    white = centred[1:] - rho * centred[:-1]
    left = lag1(white)
    alpha = 4 * left**2 / ((1 - left) ** 2 * (1 + left) ** 2)
    lags = math.floor(1.1447 * (alpha * len(centred)) ** (1 / 3))
    fit = sm.OLS(white, np.ones_like(white)).fit()
    white_demeaned_variance = cov_hac(fit, nlags=lags, use_correction=False)[0, 0] * len(white)
    assert newey_west_prewhitened(centred[None])[0] == pytest.approx(
        white_demeaned_variance / (1 - rho) ** 2, rel=0.01
    )


@pytest.mark.parametrize(
    ("n", "rho", "low"), [(200, 0.0, 0.93), (500, 0.6, 0.93), (2000, 0.9, 0.93)]
)
def test_interval_covers_a_known_mean(n: int, rho: float, low: float) -> None:
    """A1 in short: 300 series; the benchmark runs 2,000."""
    from parity.judging.gap.interval import t_quantile

    rng = np.random.default_rng((n, int(100 * rho)))
    hits = 0
    for _ in range(300):
        series = ar1(rng, n, rho)
        se = mean_se(series)
        hits += bool(abs(series.mean()) <= t_quantile(0.95, se.df) * se.value)
    assert hits / 300 >= low - 0.03  # 300 series know a coverage to about 1.3 points


def test_a_naive_error_would_be_far_too_small() -> None:
    series = ar1(np.random.default_rng(1), 2000, 0.9)
    assert mean_se(series).value > 2.5 * series.std() / math.sqrt(2000)


@given(st.lists(finite, min_size=4, max_size=80))
def test_step_noise_twin(values: list[float]) -> None:
    c = [values[i] - 2 * values[i + 1] + values[i + 2] for i in range(len(values) - 2)]
    middle = np.median(c)
    expected = 1.482602218505602 * np.median([abs(v - middle) for v in c]) / math.sqrt(6)
    assert step_noise(np.array(values)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_step_noise_of_white_noise_on_a_trend_is_its_sd() -> None:
    rng = np.random.default_rng(0)
    assert step_noise(np.linspace(5, 1, 20_000) + rng.normal(0, 0.08, 20_000)) == pytest.approx(
        0.08, rel=0.03
    )


@given(st.lists(finite, min_size=8, max_size=60), st.floats(-50, 50), st.floats(0.1, 10))
def test_mean_se_ignores_an_offset_and_scales(
    values: list[float], offset: float, scale: float
) -> None:
    series = np.array(values)
    if series.std() < 1e-3:
        return
    base = mean_se(series).value
    assert mean_se(series + offset).value == pytest.approx(base, rel=1e-6, abs=1e-9)
    assert mean_se(series * scale).value == pytest.approx(base * scale, rel=1e-6, abs=1e-9)


def test_constant_and_tiny_series_have_no_error_and_no_crash() -> None:
    assert mean_se(np.full(50, 3.0)).value == 0.0
    assert mean_se(np.empty(0)).value == 0.0
    assert mad_sd(np.array([1.0])) == 0.0
    assert step_noise(np.ones(3)) == 0.0
    assert lag1(np.empty(0)) == 0.0


def test_long_series_are_averaged_in_blocks_without_losing_the_error() -> None:
    rng = np.random.default_rng(5)
    series = rng.normal(size=200_000)
    blocks = block_average(series)
    size = 200_000 // 32_768
    assert len(blocks) == 200_000 // size
    assert blocks[-1] == pytest.approx(series[-size:].mean())
    assert mean_se(series).value == pytest.approx(1 / math.sqrt(200_000), rel=0.5)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_newey_west_agrees_with_archs_bartlett_kernel(rho: float) -> None:
    from arch.covariance.kernel import Bartlett

    series = ar1(np.random.default_rng(int(10 * rho)), 600, rho)
    centred = series - series.mean()
    n, own = len(centred), lag1(centred)
    own += (1 + 3 * own) / n
    white = centred[1:] - own * centred[:-1]
    left = lag1(white)
    lags = math.floor(1.1447 * (4 * left**2 / ((1 - left) ** 2 * (1 + left) ** 2) * n) ** (1 / 3))
    long_run = float(
        np.squeeze(Bartlett(white, bandwidth=lags, center=False, force_int=True).cov.long_run)
    )
    assert newey_west_prewhitened(centred[None])[0] == pytest.approx(
        long_run * (n - 1) / n / (1 - own) ** 2, rel=1e-9
    )


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_the_error_is_not_below_archs_stationary_bootstrap(rho: float) -> None:
    """Another method of another author, random and slower: the same size, and ours the careful one
    of the two.
    """
    from arch.bootstrap import StationaryBootstrap, optimal_block_length

    ratios = []
    for seed in range(6):
        series = ar1(np.random.default_rng((seed, int(10 * rho))), 1000, rho)
        block = max(1.0, float(optimal_block_length(series)["stationary"].iloc[0]))
        drawn = StationaryBootstrap(block, series, seed=np.random.default_rng(seed)).apply(
            np.mean, 300
        )
        ratios.append(mean_se(series).value / float(np.std(drawn)))
    assert 0.95 < np.mean(ratios) < 1.5


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_median_twin(values: list[float]) -> None:
    assert median(np.array(values)) == float(np.median(values))


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 99))
def test_rows_have_what_each_has_alone(rows: int, points: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(rows, points)).round(1)  # with ties
    assert row_medians(values).tolist() == [median(row) for row in values]
    assert mad_sds(values) == pytest.approx([mad_sd(row) for row in values], rel=1e-15)
    assert dots(values, values[::-1]) == pytest.approx(
        [dot(a, b) for a, b in zip(values, values[::-1], strict=True)], rel=1e-12, abs=1e-12
    )
