"""The limits of the interval: its caps, tokens, margins, what a log lacks, and a run that lies
apart."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.lacking import lacking_points, missing_steps
from parity.judging.curves.step_noise import StandardError, mean_se
from parity.judging.curves.window import make_window
from parity.judging.gap.interval import exact_interval, interval
from parity.judging.gap.margin import determine_margin
from parity.judging.gap.robust_bounds import (
    NOTHING_UNLOGGED,
    Unlogged,
    capped_interval,
    lowered,
    missing_points,
    run_changes,
)
from parity.judging.gap.token_slope import NoSlope, TokenSlope, token_slope
from parity.judging.noise.run_floor import RunTerm, one_apart, prior_for, run_floor
from parity.judging.policy import Policy

T4 = float(student.ppf(0.975, 4.0))
NO_RUNS = RunTerm(variance=0.0, df=4.0, seeds=1)
NO_CHANGES: tuple[tuple[()], tuple[()]] = ((), ())


# Which caps and levels a series is lowered by: one for each point up to 60 of them, then fewer.


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
        lo = capped_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).sides[0]
        rows = lowered(gap if size == 1 else gap.reshape(-1, 2).mean(axis=1))
        assert len(lo.means) == 1 + len(rows)


def ends(gap: np.ndarray, run: RunTerm) -> tuple[float, float, float]:
    """The plain lower end, lo*, and the lower end of the best row."""
    plain = interval(float(gap.mean()), mean_se(gap), run)
    lo = capped_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).bounds(0.95)[0]
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
    side = capped_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES).sides[0]
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
    none = capped_interval(gap, plain, NOTHING_UNLOGGED, NO_CHANGES)
    ten = capped_interval(gap, plain, Unlogged(points=10), NO_CHANGES)
    assert none.sides[1].means[0] == pytest.approx(1.5)
    assert ten.sides[1].means[0] == pytest.approx((40 * 1.5 + 10 * 3.0) / 50)
    assert ten.sides[0].means[0] == pytest.approx((40 * 1.5 + 10 * 0.0) / 50)
    worse = capped_interval(gap, plain, Unlogged(points=10, worse=((4, 9.0),)), NO_CHANGES)
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


@pytest.mark.parametrize(("gap", "chance"), [(0.0, 0.5), (1e9, 0.9999), (-1e9, 0.0001)])
def test_no_chance_is_nearer_to_certain_than_one_in_ten_thousand(gap: float, chance: float) -> None:
    measured = interval(
        0.0, StandardError(value=1.0, df=4.0), RunTerm(variance=1.0, df=4.0, seeds=1)
    )
    assert measured.chance_below(gap) == pytest.approx(chance, abs=1e-8)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9998])
def test_a_chance_is_that_of_the_interval_that_reaches_to_the_gap(confidence: float) -> None:
    measured = interval(
        0.3, StandardError(value=1.0, df=7.0), RunTerm(variance=1.0, df=4.0, seeds=1)
    )
    half = measured.half_width(confidence)
    assert measured.chance_below(0.3 + half) == pytest.approx(0.5 + confidence / 2, abs=1e-7)
    assert measured.chance_below(0.3 - half) == pytest.approx(0.5 - confidence / 2, abs=1e-7)


def test_the_interval_of_equal_runs_is_what_rounding_hides() -> None:
    measured = exact_interval(0.001, RunTerm(variance=1.0, df=4.0, seeds=1))
    assert measured.bounds(0.95) == (-0.001, 0.001)


# Tokens.

TAU, LEVEL = 1e-4, 3.0


def decayed(steps: int, loss: float, logged: int | None = None) -> Curve:
    """A shorter run at one loss whose cosine came to its end."""
    rate = 0.5 * (1.0 + np.cos(np.pi * np.arange(steps) / steps))
    every = 1 if logged is None else max(1, steps // logged)
    at = slice((steps - 1) % every, None, every)
    return curve_from_arrays(
        np.arange(steps)[at],
        np.full(steps, loss)[at],
        columns={"learning_rate": rate[at]},
    )


def slope(runs: list[Curve], tau: float = TAU, steps: int = 2000) -> TokenSlope | NoSlope:
    policy = Policy(margin="5% tokens")
    window = make_window(steps, 0, 0.2, "declared")
    return token_slope(policy, runs, [], window, LEVEL, tau)


@pytest.mark.parametrize(
    ("steps", "is_known"), [(499, False), (500, True), (1000, True), (1001, False)]
)
def test_a_shorter_run_has_a_quarter_to_a_half_of_the_steps(steps: int, is_known: bool) -> None:
    assert isinstance(slope([decayed(steps, 3.2)]), TokenSlope) == is_known


def test_the_slope_of_a_shorter_run_is_that_of_a_square_root() -> None:
    made = slope([decayed(500, 3.2)])
    assert isinstance(made, TokenSlope)
    assert made.nats == pytest.approx(0.5 * 0.2 / (4.0**0.5 - 1.0))
    assert made.error == pytest.approx(0.5 / (4.0**0.5 - 1.0) * TAU * math.sqrt(2.0))


@pytest.mark.parametrize(("share", "is_known"), [(0.2499, True), (0.2501, False)])
def test_a_slope_is_refused_where_its_error_is_above_a_quarter(
    share: float, is_known: bool
) -> None:
    tau = share * 0.2 / math.sqrt(2.0)  # of a slope of 0.1 the error is 0.5 tau sqrt(2)
    assert isinstance(slope([decayed(500, 3.2)], tau), TokenSlope) == is_known


@pytest.mark.parametrize(("fall", "is_known"), [(1e-9, True), (0.0, False)])
def test_a_shorter_run_ends_above_the_baseline(fall: float, is_known: bool) -> None:
    made = slope([decayed(500, LEVEL + fall)], tau=0.0)
    assert isinstance(made, TokenSlope) == is_known


@pytest.mark.parametrize(("points", "is_known"), [(5, False), (6, True)])
def test_a_shorter_run_has_six_points_in_its_late_window(points: int, is_known: bool) -> None:
    """Logged at so many steps of its last 100, and often before."""
    steps = np.append(np.arange(0, 400, 10), np.linspace(409, 499, points).astype(int))
    rate = 0.5 * (1.0 + np.cos(np.pi * steps / 500))
    run = curve_from_arrays(steps, np.full(len(steps), 3.2), columns={"learning_rate": rate})
    assert isinstance(slope([run]), TokenSlope) == is_known


def test_shorter_runs_have_one_length() -> None:
    assert isinstance(slope([decayed(500, 3.2), decayed(500, 3.3)]), TokenSlope)
    assert isinstance(slope([decayed(500, 3.2), decayed(501, 3.2)]), NoSlope)


@pytest.mark.parametrize(("points", "is_known"), [(5, False), (6, True)])
def test_a_constant_rate_needs_six_points_in_the_last_half(points: int, is_known: bool) -> None:
    steps = np.append(np.arange(0, 1000, 20), np.linspace(1000, 1999, points).astype(int))
    loss = 2.0 + 30.0 * (steps + 1.0) ** -0.5
    run = curve_from_arrays(steps, loss, columns={"learning_rate": np.ones(len(steps))})
    window = make_window(2000, 0, 0.2, "declared")
    made = token_slope(Policy(margin="5% tokens"), [], [run], window, LEVEL, 0.0)
    assert isinstance(made, TokenSlope) == is_known
    if isinstance(made, TokenSlope):
        assert made.nats == pytest.approx(0.5 * 30.0 * 2000**-0.5, rel=1e-6)


# Which margin decides.


@pytest.mark.parametrize(("runs", "is_known"), [(3, False), (4, True)])
def test_a_noise_floor_needs_four_runs(runs: int, is_known: bool) -> None:
    policy = Policy(profile="noise-floor")
    means = LEVEL + 0.001 * np.resize([1.0, -1.0], runs)
    floor = run_floor(prior_for(None, None, policy, LEVEL), means, [0] * runs)
    margin = determine_margin(policy, LEVEL, floor)
    assert (margin is not None) == is_known
    if margin is not None:
        assert margin.nats == pytest.approx(3.0 * math.sqrt(2.0) * floor.measured)


def test_the_smaller_margin_decides_and_none_is_a_share_of_nothing() -> None:
    floor = run_floor(prior_for(None, None, Policy(margin="1%"), LEVEL), np.array([LEVEL]), [0])
    both = Policy(margin="0.02 nats", profile="nvfp4")
    assert determine_margin(both, 1.99, floor).nats == pytest.approx(0.0199)
    assert determine_margin(both, 2.01, floor).nats == 0.02
    assert determine_margin(both, 0.0, floor) is None


# One run apart.


def apart(others: list[float], by: float) -> bool:
    return one_apart([[*others, sum(others) / len(others) + by]])


def test_a_run_lies_apart_by_one_false_alarm_in_a_hundred() -> None:
    others = [1.0, 2.0, 3.0, 2.0]
    spread = math.sqrt(2.0 / 3.0 * (1.0 + 1.0 / 4.0))
    limit = float(student.ppf(1.0 - 0.01 / (2 * 5), 3)) * spread
    assert not apart(others, limit * (1.0 - 1e-9))
    assert apart(others, limit * (1.0 + 1e-9))
    assert apart(others, -limit * (1.0 + 1e-9))


def test_a_run_apart_needs_two_degrees_of_freedom_without_it() -> None:
    assert not apart([1.0, 2.0], 1e9)
    assert apart([1.0, 2.0, 3.0], 1e9)


# What one arm alone lacks.

WINDOW = make_window(1000, 0, 0.2, "declared")


def logged(steps: object) -> Curve:
    at = np.array(steps, dtype=np.int64)
    return curve_from_arrays(at, np.full(len(at), 3.0))


@pytest.mark.parametrize(
    ("steps", "missing"),
    [
        (range(1000), []),
        ([step for step in range(1000) if step != 900], [900]),
        ([step for step in range(1000) if step < 998], [998, 999]),
        (range(9, 1000, 10), []),
        ([step for step in range(9, 1000, 10) if step != 899], [899]),
        ([*range(800), 998, 999], []),  # two points show no grid
        ([*range(800), 997, 998, 999], []),  # nor three, of which most would be missing
    ],
)
def test_the_grid_of_a_log_shows_what_it_lacks(steps: object, missing: list[int]) -> None:
    assert missing_steps(np.array(steps, dtype=np.int64), WINDOW).tolist() == missing


@pytest.mark.parametrize(("points", "seen"), [(20, True), (19, False)])
def test_a_grid_has_a_tenth_of_its_points(points: int, seen: bool) -> None:
    """Of the window's 199 intervals, 20 points have a tenth and 19 have less."""
    steps = np.append(np.arange(800), np.arange(800, 800 + points))
    found = missing_steps(steps, WINDOW)
    assert len(found) == (200 - points if seen else 0)


def test_what_both_arms_lack_no_arm_lacks_alone() -> None:
    without = [step for step in range(1000) if step not in (850, 851, 900)]
    base, cand = logged(range(1000)), logged(without)
    lacking = lacking_points([cand], [base], WINDOW)
    assert (lacking.points, lacking.longest) == (3, 2)
    assert lacking_points([base], [cand], WINDOW).points == 0
    assert lacking_points([cand], [cand], WINDOW).points == 0
