"""Whether two runs read the same batches: against slow formulas, laws, and both sides of the
border.
"""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from parity.golden.batches import (
    HALF_CORRELATED,
    HALF_SHARED,
    ROUNDING,
    SAME,
    agreement,
    late_agreement,
    shift,
)
from parity.golden.common_steps import common_steps
from tests.parity.golden.curves import GOLDEN, HONEST, TREND, curve, losses, rerun_of


def slow_agreement(golden, run):
    """q and r by the formulas of the module, one value at a time."""
    left, right = [math.log(x) for x in golden], [math.log(x) for x in run]
    best = None
    for order in (1, 2, 3, 4):
        if len(left) < order + 4:
            break
        x, y = left, right
        for _ in range(order):
            x = [after - before for before, after in pairwise(x)]
            y = [after - before for before, after in pairwise(y)]
        size = math.sqrt(math.comb(2 * order, order))
        x, y = [one / size for one in x], [one / size for one in y]
        spreads = [spread(x), spread(y)]
        both = math.sqrt(sum(one**2 for one in spreads) / 2)
        if both > 0.0 and (best is None or both < best[0]):
            best = both, x, y
    both, x, y = best
    q = spread([b - a for a, b in zip(x, y, strict=True)]) / (both * math.sqrt(2))
    return q, correlation(x, y)


def spread(values):
    return statistics.median(map(abs, values)) / statistics.NormalDist().inv_cdf(0.75)


def correlation(x, y):
    clipped = [[min(max(one, -3 * spread(v)), 3 * spread(v)) for one in v] for v in (x, y)]
    return statistics.correlation(*clipped)


@pytest.mark.parametrize("rows", [8, 9, 20, 101])
def test_agreement_is_that_of_the_slow_formulas(rows):
    for other in (rerun_of(losses(rows)), losses(rows, seed=1)):
        found = agreement(losses(rows), other)
        assert (found.q, found.r) == pytest.approx(slow_agreement(losses(rows), other), abs=1e-9)


@given(some.floats(0.01, 100.0), some.integers(0, 9))
def test_another_unit_of_the_loss_changes_nothing(factor, seed):
    one, other = losses(seed=seed), rerun_of(losses(seed=seed + 1))
    assert agreement(factor * one, factor * other).q == pytest.approx(agreement(one, other).q)
    assert agreement(factor * one, other).r == pytest.approx(agreement(one, other).r)


@given(some.integers(0, 99))
def test_which_of_two_runs_is_the_golden_changes_nothing(seed):
    one, other = losses(seed=seed), losses(seed=seed + 1)
    assert agreement(one, other).q == pytest.approx(agreement(other, one).q)
    assert agreement(one, other).r == pytest.approx(agreement(other, one).r)
    ratio = agreement(one, other).noise_ratio * agreement(other, one).noise_ratio
    assert ratio == pytest.approx(1.0)


@given(some.integers(0, 99))
def test_the_same_order_of_other_rows_keeps_the_agreement_of_equal_runs(seed):
    order = np.random.default_rng(seed).permutation(len(GOLDEN))
    assert agreement(GOLDEN[order], HONEST[order]).is_shared
    assert not agreement(GOLDEN, HONEST[order]).is_shared


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_the_border_is_half_of_the_variance(share):
    """With a quarter of the variance of its own a run shares its batches, with three it does
    not.
    """
    draw = np.random.default_rng(0)
    common, first, second = draw.normal(0.0, 0.01, (3, 4000))
    one, other = (
        np.exp(math.sqrt(1.0 - share) * common + math.sqrt(share) * own) for own in (first, second)
    )
    found = agreement(one, other)
    assert found.q == pytest.approx(math.sqrt(share), abs=0.05)
    assert found.r == pytest.approx(1.0 - share, abs=0.03)
    assert found.is_shared is (share < 0.5)
    assert found.is_unrelated is (share > 0.5)
    assert pytest.approx(HALF_CORRELATED) == HALF_SHARED**2


def test_runs_without_noise_or_rows_share_their_batches():
    assert agreement(np.full(50, 2.0), np.full(50, 2.0)) is SAME
    assert agreement(GOLDEN[:7], losses(seed=1)[:7]) is SAME
    assert agreement(GOLDEN[:8], losses(seed=1)[:8]) is not SAME


def common(golden, run):
    return common_steps(curve(golden), curve(run))


def test_other_batches_in_the_last_half_alone_are_seen():
    other = np.concatenate([HONEST[:50], losses(seed=1)[50:]])
    assert late_agreement(common(GOLDEN, other)).is_unrelated
    assert late_agreement(common(GOLDEN, HONEST)).is_shared


def test_differences_below_rounding_are_no_other_batches():
    """Losses of huge batches, whose noise is smaller than the rounding of a loss in bf16."""
    draw = np.random.default_rng(0)
    for size, is_shared in ((0.3 * ROUNDING, True), (3.0 * ROUNDING, False)):
        one, other = 2.0 + size * draw.normal(size=(2, 100))
        assert late_agreement(common(one, other)).is_shared is is_shared


@pytest.mark.parametrize("rows", [-2, -1, 1, 2])
def test_a_run_that_reads_the_batches_earlier_or_later_is_seen(rows):
    assert shift(common(GOLDEN, TREND * np.roll(GOLDEN / TREND, rows))) == rows


def test_an_honest_run_and_other_batches_have_no_shift():
    assert shift(common(GOLDEN, losses(seed=1))) == 0
    assert shift(common(GOLDEN[:8], losses(seed=1)[:8])) == 0
