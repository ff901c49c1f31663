"""Is the series what the trainer measured? Each limit of rounding, smoothing and holes, from both
sides.
"""

import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.alignment import Aligned, align
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.resolution import (
    longest_hole,
    memory_steps,
    noise_ratio,
    regular_share,
    rounding_step,
    smoothing_weight,
)
from parity.judging.curves.step_noise import step_noise
from parity.judging.curves.window import make_window

POINTS = 400


def noise(seed: int, points: int = POINTS, sd: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, points)


def run(loss: object, steps: object = None, **extra: object) -> Curve:
    values = np.asarray(loss, dtype=float)
    at = np.arange(len(values)) if steps is None else steps
    return curve_from_arrays(at, values, **extra)


LOSS = 3.0 + noise(0)


def pair(base: np.ndarray, cand: np.ndarray) -> Aligned:
    return align([run(base)], [run(cand)])


@pytest.mark.parametrize(
    ("points", "same", "known"),
    [(14, True, False), (15, True, True), (118, False, False), (119, False, True)],
)
def test_the_noise_of_arms_is_compared_from_eight_or_sixty_points_on(
    points: int, same: bool, known: bool
) -> None:
    """Of the last half, which has the middle point."""
    both = pair(LOSS[:points], LOSS[:points])
    assert (noise_ratio(both, 0.0, same_batches=same) is not None) == known


@pytest.mark.parametrize(("times", "known"), [(0.501, False), (0.499, True)])
def test_it_is_compared_where_it_is_twice_the_printed_step(times: float, known: bool) -> None:
    step = times * step_noise(LOSS[POINTS // 2 :])
    assert (noise_ratio(pair(LOSS, LOSS), step, same_batches=True) is not None) == known


@pytest.mark.parametrize(("times", "known"), [(1.9, False), (2.1, True)])
def test_or_twice_a_millionth_of_the_loss(times: float, known: bool) -> None:
    own = (LOSS - 3.0) / step_noise(LOSS[POINTS // 2 :]) * times * 3e-6 + 3.0
    assert (noise_ratio(pair(own, own), 0.0, same_batches=True) is not None) == known


@pytest.mark.parametrize(("whole", "seen"), [(0.61, True), (0.59, False)])
def test_a_step_is_that_of_six_changes_in_ten(whole: float, seen: bool) -> None:
    """The others are between its multiples."""
    rng = np.random.default_rng(0)
    points = 10_001
    change = 0.01 * rng.integers(-9, 10, points - 1)
    other = rng.permutation(points - 1) >= whole * (points - 1)
    other[:64] = np.arange(64) >= 40  # the first ones refute no step
    change += 0.00371 * other
    loss = 30.0 + np.append(0.0, np.cumsum(change))
    assert (rounding_step(loss) == 0.01) == seen


@pytest.mark.parametrize(("values", "seen"), [(119, True), (121, False)])
def test_an_odd_step_is_that_of_few_values(values: int, seen: bool) -> None:
    """Below three values in ten points, of 400."""
    at = np.resize(np.arange(values), POINTS)
    loss = 3.0 + 0.01 * math.pi * np.random.default_rng(0).permutation(at)
    assert (rounding_step(loss) > 0.0) == seen
    if seen:
        assert rounding_step(loss) == pytest.approx(0.01 * math.pi)


def test_two_values_show_no_step() -> None:
    assert rounding_step(np.resize([3.0, 3.01], 400)) == 0.0
    assert rounding_step(np.resize([3.0, 3.01, 3.02], 400)) == pytest.approx(0.01)


@pytest.mark.parametrize(("points", "seen"), [(39, False), (40, True)])
def test_smoothing_is_seen_from_forty_points_on(points: int, seen: bool) -> None:
    loss = np.cumsum(noise(0, points))  # all memory
    assert (smoothing_weight(loss) > 0.3) == seen


@pytest.mark.parametrize(("size", "seen"), [(0.9e-6, False), (1.1e-6, True)])
def test_changes_below_a_millionth_of_the_loss_are_no_noise(size: float, seen: bool) -> None:
    change = np.cumsum(noise(0))
    change = np.diff(change)
    change = (change - change.mean()) / np.abs(change - change.mean()).max()
    loss = 3.0 + np.append(0.0, np.cumsum(3.0 * size * change))
    assert (smoothing_weight(loss) > 0.3) == seen


@pytest.mark.parametrize(("points", "memory"), [(39, False), (40, True)])
def test_a_memory_is_known_from_forty_points_on(points: int, memory: bool) -> None:
    loss = np.linspace(3.0, 2.0, points)
    far = points // 8
    assert memory_steps(loss) == pytest.approx(far**2 if memory else 1.0)


def test_a_spike_is_capped_at_six_robust_deviations() -> None:
    loss = 3.0 + np.resize([0.01, -0.01], POINTS)
    limit = 6.0 * 1.482602218505602 * 0.01
    capped, spiked = loss.copy(), loss.copy()
    capped[200], spiked[200] = 3.0 + limit, 8.0
    assert memory_steps(spiked) == pytest.approx(memory_steps(capped))


WINDOW = make_window(1000, 0, 0.2, "declared")


@pytest.mark.parametrize(
    ("missing", "hole"),
    [
        (range(0), 0.0),
        ([900], 0.0),
        ([900, 901], 1 / 200),
        (range(790, 810), 9 / 200),
        (range(990, 1000), 0.0),
    ],
)
def test_a_hole_is_what_is_beyond_two_logging_intervals(missing: Any, hole: float) -> None:
    """And inside the window."""
    steps = np.array([step for step in range(1000) if step not in missing])
    assert longest_hole(steps, WINDOW) == pytest.approx(hole)


def test_the_share_of_a_regular_grid() -> None:
    assert regular_share(np.arange(0, 100, 5)) == 1.0
    assert regular_share(np.delete(np.arange(0, 100, 5), 3)) == pytest.approx(19 / 20)
    assert regular_share(np.array([0, 5, 10, 15, 20, 22])) == pytest.approx(4 / 5)
