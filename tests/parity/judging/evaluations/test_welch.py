import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parity.judging.evaluations.group_means import difference, spread, values_by_cluster

values = st.lists(st.floats(1.0, 10.0), min_size=2, max_size=12).filter(
    lambda own: max(own) - min(own) > 1e-6
)


@given(values, values)
def test_difference_twin(x: list[float], y: list[float]) -> None:
    gap = difference(np.array(x), np.array(y))
    expected = stats.ttest_ind(y, x, equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert gap.bounds(0.95) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    assert gap.df == pytest.approx(expected.df)


@given(values, values)
def test_swapped_arms_swap_the_interval(x: list[float], y: list[float]) -> None:
    lo, hi = difference(np.array(x), np.array(y)).bounds(0.9)
    assert difference(np.array(y), np.array(x)).bounds(0.9) == pytest.approx((-hi, -lo))


def test_runs_without_any_spread_keep_the_smaller_df() -> None:
    gap = difference(np.full(3, 2.0), np.full(5, 2.5))
    assert (gap.mean, gap.se, gap.df) == (0.5, 0.0, 2.0)


def test_spread_has_the_chi_squared_interval() -> None:
    x = np.array([3.1, 3.4, 2.9, 3.3, 3.0])
    got = spread(x, 0.95)
    df, var = 4, x.var(ddof=1)
    expected = np.sqrt(df * var / stats.chi2.ppf([0.975, 0.025], df))
    assert (got.lo, got.hi) == pytest.approx(tuple(expected))
    assert got.lo < got.sd < got.hi


def test_values_by_cluster() -> None:
    parts = values_by_cluster(np.array([1.0, 2.0, 3.0]), ["b", "a", "b"])
    assert {name: part.tolist() for name, part in parts.items()} == {"a": [2.0], "b": [1.0, 3.0]}
