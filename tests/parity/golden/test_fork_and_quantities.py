"""Where a resumed run begins, learning rates and gradient norms."""

import numpy as np
import pytest

from parity.golden.common_steps import common_steps
from parity.golden.fork import first_difference, fork_row
from parity.golden.quantities import NORM_SHARE, RATE_SHARE, is_apart, norm_ratios, rate_difference
from tests.parity.golden.curves import GOLDEN, HONEST, curve


def test_the_fork_is_the_stated_step_the_first_one_or_the_first_difference():
    golden = curve(GOLDEN)
    resumed = np.concatenate([GOLDEN[:40], HONEST[40:]])
    for run, saved, row in (
        (curve(resumed), None, first_difference(common_steps(golden, curve(resumed)))),
        (curve(HONEST), 60, 60),
        (curve(HONEST[40:], first_step=41), None, 0),
        (curve(HONEST * 1.001), None, None),
    ):
        assert fork_row(common_steps(golden, run), golden, run, saved) == row
    assert 40 <= first_difference(common_steps(golden, curve(resumed))) <= 42
    assert first_difference(common_steps(golden, golden)) == 100


def with_columns(loss, **columns):
    return curve(loss, columns=columns)


RATES = np.concatenate([np.linspace(1e-5, 1e-3, 20), np.linspace(1e-3, 1e-4, 80)])


@pytest.mark.parametrize(("factor", "step"), [(1.0 + 0.9 * RATE_SHARE, None), (1.02, 31)])
def test_learning_rates_must_be_equal(factor, step):
    changed = RATES * np.where(np.arange(100) >= 30, factor, 1.0)
    golden = with_columns(GOLDEN, learning_rate=RATES)
    found = rate_difference(golden, with_columns(HONEST, learning_rate=changed), 1)
    assert (found and found.step) == step


def test_rates_that_one_run_did_not_record_are_not_compared():
    golden = with_columns(GOLDEN, learning_rate=RATES)
    assert rate_difference(golden, curve(HONEST), 1) is None
    assert rate_difference(curve(GOLDEN), golden, 1) is None
    unknown = with_columns(HONEST, learning_rate=np.full(100, np.nan))
    assert rate_difference(golden, unknown, 1) is None


def test_only_rates_behind_the_fork_count():
    changed = RATES * np.where(np.arange(100) < 30, 2.0, 1.0)
    golden = with_columns(GOLDEN, learning_rate=RATES)
    run = with_columns(HONEST, learning_rate=changed)
    assert rate_difference(golden, run, 1).step == 1
    assert rate_difference(golden, run, 31) is None


@pytest.mark.parametrize(("zeros", "typical"), [(7, 1.0), (49, 1.0), (50, 0.0), (100, 0.0)])
def test_gradient_norms_that_vanished_are_apart(zeros, typical):
    gone = np.where(np.arange(100) < zeros, 0.0, 1.0)
    golden, run = (with_columns(GOLDEN, grad_norm=norms) for norms in (np.ones(100), gone))
    (ratio,) = norm_ratios(golden, run, 1)
    assert (ratio.typical, is_apart(ratio.typical)) == (typical, typical == 0.0)


@pytest.mark.parametrize(("factor", "apart"), [(1.15, False), (1.25, True), (1 / 1.25, True)])
def test_gradient_norms_of_another_scale_are_apart(factor, apart):
    norms = np.exp(np.random.default_rng(0).normal(0.0, 0.3, 100))
    (ratio,) = norm_ratios(
        with_columns(GOLDEN, grad_norm=norms), with_columns(HONEST, grad_norm=factor * norms), 1
    )
    assert (ratio.first, ratio.typical) == pytest.approx((factor, factor))
    assert is_apart(ratio.typical) is apart
    assert NORM_SHARE == 0.2


def test_a_few_norms_are_not_enough():
    norms = np.where(np.arange(100) < 7, 1.0, np.nan)
    run = with_columns(HONEST, grad_norm=2.0 * norms)
    assert norm_ratios(with_columns(GOLDEN, grad_norm=norms), run, 1) == ()
