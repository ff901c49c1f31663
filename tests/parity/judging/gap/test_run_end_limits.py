"""The end of a window at its limits."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.interval import interval
from parity.judging.gap.run_end import late_part_above, measure_end
from parity.judging.noise.arm_noise import RunTerm

MARGIN, LEVEL = 0.03, 3.0
NO_RUNS = RunTerm(variance=0.0, df=4.0, seeds=1)


def whole(gap: np.ndarray, run: RunTerm = NO_RUNS) -> object:
    return interval(float(gap.mean()), mean_se(gap), run)


def end(gap: np.ndarray, run: RunTerm = NO_RUNS, levels: tuple[float, float] = (0.95, 0.95)):
    return measure_end(gap, whole(gap, run), MARGIN, levels, 0.95, LEVEL, 0.0)


def quiet(points: int, size: float = 0.001) -> np.ndarray:
    return np.resize([size, -size, size, size, -size, -size], points)


@pytest.mark.parametrize(("points", "is_measured"), [(7, False), (8, True)])
def test_an_end_needs_eight_points(points: int, is_measured: bool) -> None:
    assert (end(quiet(points)) is not None) == is_measured


@pytest.mark.parametrize("points", [40, 400])
@pytest.mark.parametrize(("gap", "differs"), [(0.0299, False), (0.0301, True)])
def test_a_rising_end_differs_where_it_reaches_the_margin(
    points: int, gap: float, differs: bool
) -> None:
    d = quiet(points)
    d[-2:] = gap
    assert end(d).differs == differs


@pytest.mark.parametrize("level", [0.95, 1.0 - 0.05 / 12])
@pytest.mark.parametrize("points", [40, 400])
def test_it_reaches_the_margin_with_run_to_run_noise_at_the_widened_level(
    points: int, level: float
) -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    half = float(student.ppf(0.5 + level / 2, 4.0)) * 0.002
    for beyond, differs in ((-1e-6, False), (1e-6, True)):
        d = quiet(points)
        d[-2:] = MARGIN - half + beyond
        assert end(d, run, (level, 0.95)).differs == differs


@pytest.mark.parametrize("points", [40, 400])
@pytest.mark.parametrize(("gap", "differs"), [(-0.0299, False), (-0.0305, True)])
def test_a_falling_end_differs_where_it_falls_by_the_margin(
    points: int, gap: float, differs: bool
) -> None:
    d = quiet(points)
    d[-2:] = gap
    assert end(d).differs == differs


@pytest.mark.parametrize("points", [16, 40])
def test_false_alarms_of_few_points_are_one_in_a_hundred(points: int) -> None:
    """The limit of the last point by the formula, for a margin that every gap reaches."""
    d = quiet(points)
    before = d[: points - points // 4]
    tails = len([k for k in (1, 2, 4, 8) if k <= points // 4])
    t = float(student.ppf(1.0 - 0.01 / (2 * tails), len(before) - 1))
    limit = t * float(before.std(ddof=1)) * math.sqrt(1.0 + 1.0 / len(before))
    for beyond, differs in ((-1e-9, False), (1e-9, True)):
        d[len(before) :] = before.mean() - 0.001  # longer tails do not rise
        d[-1] = before.mean() + limit + beyond
        made = measure_end(d, whole(d), -1.0, (0.95, 0.95), 0.95, LEVEL, 0.0)
        assert made.differs == differs


def swinging(points: int, *end: tuple[int, float]) -> np.ndarray:
    """A slow swing, whose own noise would explain any rise, and what so many last points are."""
    d = 0.016 * np.sin(np.arange(points) / points * 30.0) - 0.01
    for last, level in end:
        d[-last:] = level
    return d


@pytest.mark.parametrize(
    ("points", "high", "low", "differs"),
    [
        (400, 20, 0, True),  # a twentieth
        (400, 19, 0, False),
        (400, 40, 20, True),  # a tenth, which ends a little lower
        (400, 39, 20, False),
        (240, 16, 0, True),  # but sixteen points at least
        (240, 15, 0, False),
        (200, 16, 0, True),
        (199, 16, 0, False),  # of two hundred
    ],
)
def test_a_mean_end_at_the_margin_differs(points: int, high: int, low: int, differs: bool) -> None:
    size = MARGIN + 0.001 * (low > 0)
    ends = ((high, size), (low, MARGIN - 0.001)) if low else ((high, size),)
    made = end(swinging(points, *ends))
    assert abs(made.rise) <= made.limit or points < 200
    assert made.differs == differs
    lower = ((high, size - 1e-6), (low, MARGIN - 0.001)) if low else ((high, size - 1e-6),)
    assert not end(swinging(points, *lower)).differs


def test_a_late_part_is_above_by_its_lower_end_at_the_level_it_is_given() -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    for confidence in (0.95, 0.99):
        half = float(student.ppf(0.5 + confidence / 2, 4.0)) * 0.002
        for beyond, above in ((1e-6, True), (-1e-6, False)):
            d = np.zeros(400)
            d[-100:] = MARGIN + half + beyond
            levels = (confidence, confidence)
            assert late_part_above(d, whole(d, run), MARGIN, levels) == above


@pytest.mark.parametrize(
    ("points", "high", "above"),
    [
        (32, 8, True),
        (31, 7, False),
        (16, 8, True),
        (15, 7, False),
        (400, 100, True),
        (400, 200, True),
    ],
)
def test_the_last_quarter_and_half_count_from_eight_points_on(
    points: int, high: int, above: bool
) -> None:
    d = np.zeros(points)
    d[-high:] = 2.0 * MARGIN
    assert late_part_above(d, whole(d), MARGIN, (0.95, 0.95)) == above


@pytest.mark.parametrize("candidates", [1, 12])
def test_an_end_is_above_at_the_level_of_the_policy(candidates: int) -> None:
    run = RunTerm(variance=0.002**2, df=4.0, seeds=1)
    half = float(student.ppf(0.975, 4.0)) * 0.002
    level = 1.0 - 0.05 / candidates
    for beyond, above in ((1e-6, True), (-1e-6, False)):
        d = np.zeros(400)
        d[-200:] = MARGIN + half + beyond
        assert end(d, run, (level, level)).above == above
