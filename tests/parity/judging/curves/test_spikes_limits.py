"""The limits of spikes and of a late divergence, just inside and just outside."""

import numpy as np
import pytest

from parity.judging.curves.spikes import binomial_upper, diverged_late, find_spikes, spikes_over_run


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
    ("size", "level", "rounding_step", "spikes"),
    [
        (2.9e-6, 3.0, 0.0, 0),
        (3.1e-6, 3.0, 0.0, 1),
        (0.0249, 3.0, 0.01, 0),
        (0.0251, 3.0, 0.01, 1),
    ],
)
def test_without_noise_a_spike_is_a_millionth_of_the_loss_or_two_and_a_half_printed_steps(
    size: float, level: float, rounding_step: float, spikes: int
) -> None:
    gap = np.zeros(400)
    gap[100] = size
    assert find_spikes(gap, level, rounding_step).candidate == spikes


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
