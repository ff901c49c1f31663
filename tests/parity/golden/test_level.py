"""The level at the end, and the limit that several goldens give it."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from parity.golden.common_steps import common_steps, decimals
from parity.golden.level import LIMIT_PCT, level
from parity.golden.reruns import MOST, ONE_GOLDEN, PRIOR_DF, QUANTILES, level_limit, rerun_noise
from tests.parity.golden.curves import GOLDEN, HONEST, curve, losses, rerun_of


@pytest.mark.parametrize(("n", "rows"), [(8, 4), (12, 4), (19, 7), (20, 4), (100, 20), (101, 21)])
def test_the_level_is_the_mean_over_the_last_fifth_or_third(n, rows):
    golden, run = curve(losses(n)), curve(losses(n) * 1.01)
    found = level(common_steps(golden, run))
    window = [
        100.0 * (b - a) / a
        for a, b in zip(golden.loss.tolist()[-rows:], run.loss.tolist()[-rows:], strict=True)
    ]
    assert (found.rows, found.first_step) == (rows, n - rows + 1)
    assert found.pct == pytest.approx(statistics.mean(window))
    assert found.se_pct == pytest.approx(statistics.stdev(window) / math.sqrt(rows))


def test_rows_before_the_first_difference_do_not_dilute_the_level():
    shifted = GOLDEN * (1.0 + 0.01 * (np.arange(100) >= 90))
    common = common_steps(curve(GOLDEN), curve(shifted))
    assert level(common, 90).pct == pytest.approx(1.0, abs=1e-3)
    assert level(common, 90).rows == 10
    assert level(common).pct == pytest.approx(0.5, abs=1e-3)
    assert level(common, 99).rows == 4  # never fewer


def test_the_quantiles_are_those_of_student():
    assert sorted(QUANTILES) == list(range(PRIOR_DF, PRIOR_DF + MOST))
    for df, quantile in QUANTILES.items():
        assert quantile == pytest.approx(stats.t.ppf(0.99, df), abs=1e-4)


def test_one_golden_and_quiet_reruns_have_the_limit_of_one():
    assert level_limit([0.0]) == pytest.approx(LIMIT_PCT)
    assert level_limit([0.0, 0.01, -0.01]) == LIMIT_PCT
    assert rerun_noise([curve(GOLDEN)]) is ONE_GOLDEN
    assert rerun_noise([curve(GOLDEN), curve(HONEST)]).limit_pct == LIMIT_PCT


@pytest.mark.parametrize("levels", [[0.0, 1.0], [0.0, -2.0, 1.0], [0.0, 0.5, 1.0, 1.5]])
def test_reruns_that_are_apart_widen_the_limit_by_the_formula(levels):
    df = PRIOR_DF + len(levels) - 1
    prior = LIMIT_PCT / (stats.t.ppf(0.99, PRIOR_DF) * math.sqrt(2))
    squares = (len(levels) - 1) * statistics.variance(levels)
    spread = math.sqrt((PRIOR_DF * prior**2 + squares) / df)
    expected = stats.t.ppf(0.99, df) * spread * math.sqrt(1 + 1 / len(levels))
    assert level_limit(levels) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("goldens", "most"), [(3, 0.08), (6, 0.04)])
def test_the_limit_covers_a_further_rerun(goldens, most):
    """Levels with a deviation of 1 %, far more than one golden stands for, of which 2 % may be
    outside. The prior, which says less noise, costs some more while goldens are few.
    """
    draw = np.random.default_rng(0)
    outside = 0
    for _ in range(1000):
        *levels, run = draw.normal(0.0, 1.0, goldens + 1)
        outside += abs(run - statistics.mean(levels)) > level_limit(levels)
    assert 0 < outside / 1000 < most


def test_the_goldens_of_a_test_with_other_batches_say_so():
    apart = rerun_noise([curve(GOLDEN), curve(losses(seed=1))])
    assert apart.q > 0.7
    assert apart.first_nats == pytest.approx(abs(losses(seed=1)[0] - GOLDEN[0]), abs=1e-4)
    assert rerun_noise([curve(GOLDEN), curve(rerun_of(GOLDEN))]).q < 0.1


@pytest.mark.parametrize(
    ("values", "number"), [([1.0, 2.0], 0), ([1.5, 2.0], 1), ([10.83281], 5), ([1 / 3], 6)]
)
def test_the_decimals_of_printed_values(values, number):
    assert decimals(np.array(values)) == number
