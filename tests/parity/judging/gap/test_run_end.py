import numpy as np
import pytest
from scipy.stats import t

from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.interval import Interval, interval
from parity.judging.gap.run_end import measure_end
from parity.judging.noise.arm_noise import RunTerm

MARGIN, LEVEL = 0.03, 3.0


def quiet(n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.004, n)


def of(gap: np.ndarray, tau: float = 0.002) -> Interval:
    within = mean_se(gap)
    return interval(float(gap.mean()), within, RunTerm(variance=2 * tau**2, df=4.0, seeds=1))


def ends(gap: np.ndarray) -> tuple[bool, bool]:
    end = measure_end(gap, of(gap), MARGIN, (0.95, 0.95), 0.95, LEVEL, 0.0)
    assert end is not None
    return end.differs, end.above


def test_rises_and_limits_twin() -> None:
    gap = quiet()
    gap[-4:] += 0.1
    end = measure_end(gap, of(gap), MARGIN, (0.95, 0.95), 0.95, LEVEL, 0.0)
    assert end is not None
    before = gap[:300]
    error = mean_se(before)
    tails = [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k <= 100]
    z = t.ppf(1 - 0.01 / (2 * len(tails)), error.df)
    rises = {k: sum(gap[-k:]) / k - sum(before) / 300 for k in tails}
    assert end.points == max(rises, key=lambda k: rises[k])
    assert end.rise == pytest.approx(rises[end.points])
    assert end.limit == pytest.approx(z * error.value * np.sqrt(300 / end.points))
    assert end.gap == pytest.approx(sum(gap[-end.points :]) / end.points)


@pytest.mark.parametrize("points", [1, 2, 3, 5, 9, 16, 40])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_end_beyond_the_margin_differs_however_short(points: int, sign: float) -> None:
    gap = quiet()
    gap[-points:] += sign * 2 * MARGIN
    assert ends(gap)[0]


@pytest.mark.parametrize("shift", [0.0, 0.5 * MARGIN, -2 * MARGIN])
def test_a_constant_gap_has_no_end_of_its_own(shift: float) -> None:
    assert ends(quiet() + shift) == (False, False)


def test_a_rise_below_the_margin_does_not_differ() -> None:
    gap = quiet()
    gap[-20:] += 0.3 * MARGIN
    assert ends(gap) == (False, False)


@pytest.mark.parametrize(
    ("share", "above"), [(0.9, True), (0.5, True), (0.25, True), (0.15, False), (0.02, False)]
)
def test_it_is_above_where_the_last_quarter_or_half_surely_is(share: float, above: bool) -> None:
    gap = quiet()
    gap[-round(share * 400) :] += 2 * MARGIN
    assert ends(gap)[1] == above
    assert any(ends(gap))


def test_false_alarms_stay_within_the_budget() -> None:
    """Both directions and all tails share 1 %; the other conditions are taken away by a margin
    below every gap.
    """
    alarms = 0
    for seed in range(600):
        gap = quiet(350, seed)
        end = measure_end(gap, of(gap), -1.0, (0.95, 0.95), 0.95, LEVEL, 0.0)
        alarms += end is not None and end.differs
    assert alarms / 600 <= 0.02


def test_few_points_have_no_end_and_noiseless_ones_no_alarm() -> None:
    assert measure_end(quiet(7), of(quiet(7)), MARGIN, (0.95, 0.95), 0.95, LEVEL, 0.0) is None
    assert ends(np.full(400, 0.9 * MARGIN)) == (False, False)


@pytest.mark.parametrize("n", [10, 15, 30, 70, 199])
def test_the_end_of_few_points_is_seen_and_an_honest_one_raises_no_alarm(n: int) -> None:
    """Also where a wild point before it widens the noise by which the end would be judged."""
    alarms = 0
    for seed in range(200):
        gap = quiet(n, seed)
        alarms += ends(gap)[0]
        gap[-1] += 3 * MARGIN
        assert ends(gap)[0]
        gap[n // 3] += 1.0
        assert ends(gap)[0]
    assert alarms <= 4


def test_limit_twin_of_few_points() -> None:
    gap = quiet(40)
    end = measure_end(gap, of(gap), MARGIN, (0.95, 0.95), 0.95, LEVEL, 0.0)
    assert end is not None
    z = t.ppf(1 - 0.01 / (2 * 4), 29)
    assert end.limit == pytest.approx(
        z * np.std(gap[:30], ddof=1) * np.sqrt(1 / end.points + 1 / 30)
    )
