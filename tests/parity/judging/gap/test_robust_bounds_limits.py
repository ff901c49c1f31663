"""Which caps and levels a series is lowered by: one for each point up to 60 of them, then fewer."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.step_noise import mean_se
from parity.judging.curves.window import make_window
from parity.judging.gap.interval import interval
from parity.judging.gap.robust_bounds import (
    NOTHING_UNLOGGED,
    Unlogged,
    lowered,
    missing_points,
    robust_interval,
    run_changes,
)
from parity.judging.noise.arm_noise import RunTerm

T4 = float(student.ppf(0.975, 4.0))
NO_RUNS = RunTerm(variance=0.0, df=4.0, seeds=1)
NO_CHANGES: tuple[tuple[()], tuple[()]] = ((), ())


@pytest.mark.parametrize(
    ("points", "caps"),
    [
        (59, 59),
        (60, 60),
        (61, 31),
        (119, 60),
        (120, 40),
        (199, 50),
        (200, 20),
        (201, 19),
        (400, 20),
    ],
)
def test_a_series_has_so_many_caps_and_seven_levels(points: int, caps: int) -> None:
    gap = np.random.default_rng(0).permutation(points).astype(float)
    rows = lowered(gap)
    assert rows.shape == (caps + 7, points)
    every = -(-points // caps)
    tops = np.sort(gap)[::every]
    assert rows[:caps].max(axis=1).tolist() == tops[:caps].tolist()
    for split in range(1, 8):
        at = split * points // 8
        row = rows[caps + split - 1]
        assert row[:at].mean() == pytest.approx(row[at:].mean())


def test_series_beyond_1024_points_are_averaged_in_blocks() -> None:
    """A wild point moves the lower end of a longer one by the mean of its block."""
    for points, size in ((1024, 1), (1026, 2)):
        gap = np.zeros(points)
        gap[-1] = 1.0
        plain = interval(float(gap.mean()), mean_se(gap), NO_RUNS)
        lo = robust_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).sides[0]
        rows = lowered(gap if size == 1 else gap.reshape(-1, 2).mean(axis=1))
        assert len(lo.means) == 1 + len(rows)


def ends(gap: np.ndarray, run: RunTerm) -> tuple[float, float, float]:
    """The plain lower end, lo*, and the lower end of the best row."""
    plain = interval(float(gap.mean()), mean_se(gap), run)
    lo = robust_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).bounds(0.95)[0]
    half = T4 * math.sqrt(run.variance)
    best = -math.inf
    for row in lowered(gap):
        error = mean_se(row)
        within = float(student.ppf(0.975, error.df)) * error.value
        best = max(best, float(row.mean()) - math.hypot(half, within))
    return plain.bounds(0.95)[0], lo, best


@pytest.mark.parametrize(("points", "careful"), [(29, True), (30, False)])
def test_below_thirty_points_a_cap_needs_run_to_run_noise_in_the_lead(
    points: int, careful: bool
) -> None:
    gap = np.random.default_rng(1).normal(0.0, 1.0, points)
    gap[points // 2] = 50.0
    plain, lo, best = ends(gap, NO_RUNS)
    assert best > plain + 1.0
    assert lo == pytest.approx(plain if careful else best)
    leading = RunTerm(variance=2.0**2, df=4.0, seeds=1)
    assert ends(gap, leading)[1] == pytest.approx(ends(gap, leading)[2])


@pytest.mark.parametrize(("above", "counts"), [(1e-9, True), (-1e-9, False)])
def test_run_to_run_noise_leads_where_its_half_width_is_the_larger(
    above: float, counts: bool
) -> None:
    """Both halves at 95 %, of one series whose caps all have the same error."""
    gap = np.resize([0.0, 1.0], 20)
    error = mean_se(gap)
    within = float(student.ppf(0.975, error.df)) * error.value
    run = RunTerm(variance=((within + above) / T4) ** 2, df=4.0, seeds=1)
    plain = interval(float(gap.mean()), error, run)
    side = robust_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).sides[0]
    same = np.isclose(side.errors[1:], error.value)
    assert same.any() == counts


@pytest.mark.parametrize(("runs", "caps"), [(1, 0), (2, 2), (19, 19), (20, 10), (40, 14)])
def test_runs_are_capped_at_each_of_up_to_twenty_gaps(runs: int, caps: int) -> None:
    shifts: list[np.ndarray] = []

    def changed(own: np.ndarray) -> tuple[float, RunTerm]:
        shifts.append(own)
        return 0.0, NO_RUNS

    better, worse = run_changes(np.arange(float(runs)), changed)
    assert (len(better), len(worse)) == (caps, caps)
    assert all((own <= 0.0).all() for own in shifts[:caps])
    assert all((own >= 0.0).all() for own in shifts[caps:])


def test_points_that_were_not_logged_count_as_the_worst() -> None:
    gap = np.array([0.0, 1.0, 2.0, 3.0] * 10)
    plain = interval(float(gap.mean()), mean_se(gap), NO_RUNS)
    none = robust_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES)
    ten = robust_interval(gap, plain, Unlogged(points=10), NO_CHANGES)
    assert none.sides[1].means[0] == pytest.approx(1.5)
    assert ten.sides[1].means[0] == pytest.approx((40 * 1.5 + 10 * 3.0) / 50)
    assert ten.sides[0].means[0] == pytest.approx((40 * 1.5 + 10 * 0.0) / 50)
    worse = robust_interval(gap, plain, Unlogged(points=10, worse=((4, 9.0),)), NO_CHANGES)
    assert worse.sides[1].means[0] == pytest.approx((60 + 4 * 9.0 + 6 * 3.0) / 50)


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        (range(80, 100), 0),
        (range(81, 100), 1),
        (range(80, 99), 1),
        ([80, 81, 83, 84, 85], 15),
        (range(80, 100, 5), 0),
        (range(84, 100, 5), 0),
        (range(85, 100, 5), 1),
    ],
)
def test_points_of_the_grid_that_are_missing(steps: object, missing: int) -> None:
    window = make_window(100, 0, 0.2, "declared")
    assert missing_points(np.array(steps), window) == missing
