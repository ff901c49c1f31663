"""The limits of the window, of spikes in it, and of its noise: just inside and just outside."""

import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.spikes import binomial_upper, diverged_late, find_spikes, spikes_over_run
from parity.judging.curves.step_noise import (
    block_average,
    lag1,
    mean_se,
    mean_ses,
    newey_west_prewhitened,
    step_noise,
)
from parity.judging.curves.window import decay_phase, drift, make_window, plan_window


def run(first: int, last: int, every: int = 1) -> Curve:
    steps = np.arange(first, last + 1, every)
    return curve_from_arrays(steps, np.full(len(steps), 3.0))


@pytest.mark.parametrize(("last", "reached"), [(9949, True), (9948, False)])
def test_a_plan_is_reached_but_for_half_a_percent(last: int, reached: bool) -> None:
    window = plan_window([run(0, 9999), run(0, last)], 10_000, False, 0.2)
    assert (window.unreached == "") == reached
    assert window.last == (9999 if reached else last)


@pytest.mark.parametrize(("last", "reached"), [(9900, True), (9899, False)])
def test_a_plan_is_reached_but_for_one_logging_interval(last: int, reached: bool) -> None:
    """Of a log that begins at step 100 or later, whose plan ends at step 10,000."""
    window = plan_window([run(last % 100 + 100, last, 100)], 10_000, False, 0.2)
    assert (window.unreached == "") == reached


def rated(constant: int, fallen: float = 0.5, points: int = 100) -> Curve:
    """A run whose rate is constant over so many points of its last fifth, then lower."""
    steps = np.arange(5 * points)
    rate = np.ones(len(steps))
    rate[4 * points + constant :] = fallen
    return curve_from_arrays(steps, np.full(len(steps), 3.0), columns={"learning_rate": rate})


@pytest.mark.parametrize(
    ("constant", "is_cut"), [(49, False), (50, True), (988, True), (989, False)]
)
def test_a_decay_is_judged_alone_where_it_begins_after_a_twentieth_of_the_window(
    constant: int, is_cut: bool
) -> None:
    """And has twelve points."""
    window = make_window(5000, 0, 0.2, "declared")
    made = decay_phase(window, rated(constant, points=1000), 12)
    assert made.decay_from == (4000 + constant if is_cut else None)


@pytest.mark.parametrize(("fallen", "is_cut"), [(0.99905, False), (0.99895, True)])
def test_a_rate_falls_where_it_is_a_thousandth_lower(fallen: float, is_cut: bool) -> None:
    window = make_window(500, 0, 0.2, "declared")
    assert (decay_phase(window, rated(50, fallen), 12).decay_from is not None) == is_cut


def test_a_rate_that_begins_at_zero_keeps_the_window() -> None:
    window = make_window(500, 0, 0.2, "declared")
    steps = np.arange(500)
    columns = {"learning_rate": np.where(steps < 450, 0.0, -1.0)}
    zero = curve_from_arrays(steps, np.full(500, 3.0), columns=columns)
    assert decay_phase(window, zero, 12) == window


# Spikes: 400 points of +1 and -1 have a median of 0 and a MAD of 1.


def quiet(points: int = 400) -> np.ndarray:
    return np.resize([1.0, -1.0], points)


LIMIT = 8.0 * 1.482602218505602


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("size", "spikes"), [(LIMIT - 1e-9, 0), (LIMIT + 1e-9, 1)])
def test_a_spike_is_eight_robust_deviations_away(sign: float, size: float, spikes: int) -> None:
    gap = quiet()
    gap[[100, 101]] = sign * size, -sign  # as many on each side of the median
    found = find_spikes(gap, 3.0)
    assert (found.candidate, found.baseline) == ((spikes, 0) if sign > 0.0 else (0, spikes))
    assert np.flatnonzero(found.mask).tolist() == (list(range(95, 106)) if spikes else [])


@pytest.mark.parametrize(
    ("size", "level", "quantum", "spikes"),
    [
        (2.9e-6, 3.0, 0.0, 0),
        (3.1e-6, 3.0, 0.0, 1),
        (0.0249, 3.0, 0.01, 0),
        (0.0251, 3.0, 0.01, 1),
    ],
)
def test_without_noise_a_spike_is_a_millionth_of_the_loss_or_two_and_a_half_printed_steps(
    size: float, level: float, quantum: float, spikes: int
) -> None:
    gap = np.zeros(400)
    gap[100] = size
    assert find_spikes(gap, level, quantum).candidate == spikes


@pytest.mark.parametrize(("points", "spikes"), [(30, 1), (31, 0)])
def test_what_fills_more_than_a_tenth_of_the_window_is_a_level(points: int, spikes: int) -> None:
    """With five points on each side it is 40 of 400."""
    gap = quiet()
    gap[100 : 100 + points] = 50.0
    found = find_spikes(gap, 3.0)
    assert (found.candidate, int(found.mask.sum())) == (spikes, 40 * spikes)
    assert find_spikes(gap, 3.0, part_of_run=True).candidate == 1


@pytest.mark.parametrize(
    ("points", "last", "spikes"),
    [
        (300, 290, 1),
        (300, 291, 0),
        (400, 390, 1),
        (400, 391, 0),
        (1000, 978, 1),
        (1000, 979, 0),
    ],
)
def test_what_has_not_returned_before_the_end_is_no_spike(
    points: int, last: int, spikes: int
) -> None:
    """The last 8 points, or the last 2 %, and what touches them."""
    gap = quiet(points)
    gap[last] = 50.0
    assert find_spikes(gap, 3.0).candidate == spikes
    assert find_spikes(gap, 3.0, part_of_run=True).candidate == 1


@pytest.mark.parametrize(
    ("points", "blocks"), [(199, None), (200, 2), (299, 2), (300, 3), (2000, 20), (2100, 20)]
)
def test_spikes_of_a_run_are_counted_in_up_to_twenty_blocks_of_a_hundred_points(
    points: int, blocks: int | None
) -> None:
    made = spikes_over_run(quiet(points), np.arange(points), 3.0)
    assert (made["blocks"] if made else None) == blocks


def test_two_hundred_spikes_of_an_arm_are_listed() -> None:
    gap = quiet(20_000)
    gap[50::60] = 100.0
    made = spikes_over_run(gap, np.arange(20_000), 3.0)
    assert made["candidate"] > 200
    assert len(made["steps"][1]) == 200


@pytest.mark.parametrize(
    ("candidate", "baseline", "alone"),
    [(6, 0, False), (7, 0, True), (9, 1, False), (10, 1, True), (15, 4, True)],
)
def test_an_arm_alone_has_spikes_where_chance_gives_them_in_one_percent(
    candidate: int, baseline: int, alone: bool
) -> None:
    gap = quiet(800)
    gap[20 : 20 + 40 * candidate : 40] = 50.0
    gap[40 : 40 + 40 * baseline : 40] = -50.0
    found = find_spikes(gap, 3.0, part_of_run=True)
    assert (found.candidate, found.baseline) == (candidate, baseline)
    assert found.candidate_alone == alone
    share = binomial_upper(candidate, candidate + baseline)
    assert found.p_candidate_more == pytest.approx(share)


# Late divergence: the end above three margins, and two above the first half.


@pytest.mark.parametrize(
    ("first_half", "end", "diverged"),
    [(0.0, 3.0, False), (0.0, 3.01, True), (1.5, 3.5, False), (1.5, 3.51, True)],
)
def test_a_late_divergence_is_above_three_margins_and_above_its_own_beginning(
    first_half: float, end: float, diverged: bool
) -> None:
    gap = np.full(40, first_half)
    gap[-4:] = end
    assert diverged_late(gap, 1.0) == diverged


def test_the_end_is_a_tenth_and_the_beginning_a_half_of_twenty_points_or_more() -> None:
    assert diverged_late(np.array([0.0] * 18 + [5.0] * 2), 1.0)
    assert not diverged_late(np.array([0.0] * 18 + [5.0] * 1), 1.0)
    assert not diverged_late(np.array([0.0] * 19 + [5.0] * 1), 1.0)
    assert diverged_late(np.array([0.0] * 37 + [5.0] * 3), 1.0)  # of 4 points the median
    assert not diverged_late(np.array([0.0] * 39 + [5.0] * 1), 1.0)
    assert not diverged_late(np.array([4.0] * 11 + [0.0] * 25 + [5.0] * 4), 1.0)
    assert diverged_late(np.array([4.0] * 9 + [0.0] * 27 + [5.0] * 4), 1.0)


# The noise of a mean.


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


def test_a_drift_needs_eight_points() -> None:
    gap = np.array([0.0, 0.1, 0.3, 0.2, 0.5, 0.4, 0.7, 0.8])
    assert drift(gap[:7], np.arange(7)) == (0.0, 0.0)
    change, error = drift(gap, np.arange(8))
    assert change > 0.5
    assert error > 0.0


def test_lag_one_of_a_constant_is_none() -> None:
    assert lag1(np.full(5, 2.0)) == 0.0
    assert lag1(np.array([1.0, -1.0, 1.0, -1.0])) == pytest.approx(-0.75)
