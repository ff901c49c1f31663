"""What must agree between two arms besides the recipe: each limit, from both sides."""

import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.alignment import Aligned, align
from parity.judging.curves.averages import averaging_lift
from parity.judging.curves.context import parameter_count, without_assumed_floor
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import pair_correlation
from parity.judging.curves.mismatch import find_mismatch
from parity.judging.curves.resolution import (
    longest_hole,
    memory_steps,
    noise_ratio,
    quantum,
    regular_share,
    smoothing_weight,
)
from parity.judging.curves.step_noise import step_noise
from parity.judging.curves.treatment import equal_start, same_first_batch
from parity.judging.curves.window import make_window

POINTS = 400


def noise(seed: int, points: int = POINTS, sd: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, points)


def run(loss: object, steps: object = None, **extra: object) -> Curve:
    values = np.asarray(loss, dtype=float)
    at = np.arange(len(values)) if steps is None else steps
    return curve_from_arrays(at, values, **extra)


def mismatch(base: Curve, cand: Curve, r: float | None = 1.0, step: float = 0.0):
    return find_mismatch([base], [cand], align([base], [cand]), r, step)


# Whose run-to-run noise nobody may assume.


@pytest.mark.parametrize(
    ("parameters", "small"),
    [("9999999", True), ("10000000", False), ("9.99M", True), ("10M", False), ("1e7", False)],
)
def test_a_model_below_ten_million_parameters_is_small(parameters: str, small: bool) -> None:
    made = run(noise(0), context={"parameters": parameters})
    assert (without_assumed_floor([made]) is not None) == small


@pytest.mark.parametrize(
    ("text", "count"),
    [("2", 2.0), ("2k", 2e3), ("2M", 2e6), ("2b", 2e9), ("2T", 2e12), ("2,000", 2e3), ("2x", None)],
)
def test_a_number_of_parameters_as_people_write_it(text: str, count: float | None) -> None:
    assert parameter_count(text) == count


# Logs that do not fit together.

LOSS = 3.0 + noise(0)


@pytest.mark.parametrize("shift", [-3, -2, -1, 1, 2, 3])
def test_logs_that_are_moved_by_one_or_two_points_are_shifted(shift: int) -> None:
    base = run(LOSS)
    moved = run(LOSS, np.arange(POINTS) + 3 + shift)
    made = mismatch(run(LOSS, np.arange(POINTS) + 3), moved, 0.0)
    assert made.shift == (shift if abs(shift) <= 2 else None)
    assert mismatch(base, base, 0.0).shift is None


@pytest.mark.parametrize(("r", "asked"), [(0.5, False), (math.nextafter(0.5, 0.0), True)])
def test_a_shift_is_looked_for_where_the_batches_agree_by_less_than_half(
    r: float, asked: bool
) -> None:
    base, moved = run(LOSS), run(LOSS, np.arange(POINTS) + 1)
    assert (mismatch(base, moved, r).shift == 1) == asked


@pytest.mark.parametrize(("own", "same"), [(0.15, True), (0.3, False)])
def test_shifted_batches_agree_by_half(own: float, same: bool) -> None:
    """Noise of its own that is 1.7 times that of the batches leaves a correlation of 0.5."""
    cand = LOSS + noise(1, sd=own)
    late = pair_correlation(LOSS[:-1], cand[:-1])
    made = mismatch(run(LOSS), run(cand, np.arange(POINTS) + 1), 0.0)
    assert (late >= 0.5) == same
    assert (made.shift == 1) == same


@pytest.mark.parametrize(("points", "scaled"), [(2040, True), (2041, False)])
def test_logs_of_another_unit_have_as_many_points_within_two_percent(
    points: int, scaled: bool
) -> None:
    longer = 3.0 + noise(0, points)
    base = run(longer[:2000], np.arange(2000) * 7 + 1)
    cand = run(longer, np.arange(points) * 1000 + 3)
    assert (mismatch(base, cand, None).factor is not None) == scaled
    assert (mismatch(cand, base, None).factor is not None) == scaled


@pytest.mark.parametrize(("later", "factor"), [(0, None), (2, 2.0)])
def test_logs_of_another_unit_share_less_than_half_of_their_steps(
    later: int, factor: float | None
) -> None:
    """Of 400 steps every second one is in both logs, 200 or 199 of them."""
    cand = run(LOSS, 2 * np.arange(POINTS) + later)
    assert mismatch(run(LOSS), cand, None).factor == factor


@pytest.mark.parametrize(
    ("ratio", "unit"),
    [(1.02, True), (0.98, True), (1.021, False), (0.979, False)],
)
def test_bits_are_nats_times_1_44_within_two_percent(ratio: float, unit: bool) -> None:
    """In logs that begin in the middle, of which no other ratio is told."""
    at = np.arange(POINTS) + 10_000
    for own in (1.0 / math.log(2.0), math.log(2.0)):
        other = run(LOSS * own * (1.0 + (ratio - 1.0) * 0.999), at)
        assert (mismatch(run(LOSS, at), other).ratio is not None) == unit


@pytest.mark.parametrize(
    ("ratio", "unit"), [(1.249, False), (1.251, True), (0.801, False), (0.799, True)]
)
@pytest.mark.parametrize("first", [20, 22])
def test_losses_that_begin_a_fifth_apart_are_in_another_unit(
    ratio: float, unit: bool, first: int
) -> None:
    """Where the logs begin within a twentieth of their last step (419 and 421 here)."""
    at = np.arange(POINTS) + first
    made = mismatch(run(LOSS, at), run(ratio * LOSS, at)).ratio
    assert (made is not None) == (unit and first == 20)
    if made is not None:
        assert made == pytest.approx(ratio)


@pytest.mark.parametrize(("change", "unit"), [(1.099, True), (1.101, False)])
def test_a_unit_is_the_same_at_the_beginning_and_over_the_run(change: float, unit: bool) -> None:
    ratios = np.full(POINTS, 2.0 * change)
    ratios[:8] = 2.0
    assert (mismatch(run(LOSS), run(ratios * LOSS)).ratio is not None) == unit


@pytest.mark.parametrize(("points", "unit"), [(7, False), (8, True)])
def test_a_unit_is_told_from_eight_points_on(points: int, unit: bool) -> None:
    base = run(LOSS[:points])
    assert (mismatch(base, run(2.0 * LOSS[:points])).ratio is not None) == unit


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_first_losses_differ_beyond_what_a_recipe_explains(side: float) -> None:
    def start(share: float, first: int = 0):
        other = LOSS.copy()
        other[0] *= 1.0 + side * share
        at = np.arange(POINTS) + first
        return mismatch(run(LOSS, at), run(other, at))

    assert start(0.0059).first_gap is None
    assert start(0.0061).first_gap.share == pytest.approx(side * 0.0061)
    assert start(0.0061).first_gap.nats == pytest.approx(side * 0.0061 * LOSS[0])
    assert start(0.0149).start is None
    assert start(0.0151).start == pytest.approx(side * 0.0151)
    assert start(0.0151, first=1).start is not None
    assert start(0.0151, first=2).start is None


@pytest.mark.parametrize(("share", "hides"), [(0.499, False), (0.501, True)])
def test_rounding_hides_batches_where_it_is_half_of_their_noise(share: float, hides: bool) -> None:
    base, cand = run(LOSS), run(LOSS + noise(1, sd=0.05))
    aligned = align([base], [cand])
    sizes = [step_noise(arm[0, POINTS // 2 :]) for arm in (aligned.baseline, aligned.candidate)]
    step = math.sqrt(12.0 * share) * max(sizes)
    assert mismatch(base, cand, 1.0, step).rounding_hides == hides


# Equal starts.


def begins(loss: float, first: int = 0, recipe: str = "fp8", **extra: object) -> Curve:
    return run([loss, 3.0, 2.9], np.arange(3) + first, recipe=recipe, **extra)


def starts_equal(base: Curve, cand: Curve, step: float = 1e-4) -> bool:
    return equal_start([base], [cand], step) is not None


@pytest.mark.parametrize(("step", "seen"), [(1e-4, True), (1.001e-4, False)])
def test_an_equal_start_needs_four_decimals(step: float, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    assert starts_equal(begins(loss), begins(loss, recipe="nvfp4"), step) == seen
    assert same_first_batch([begins(loss)], [begins(loss)], step) == seen


@pytest.mark.parametrize(("first", "seen"), [(0, True), (1, True), (2, False)])
def test_an_equal_start_is_at_step_zero_or_one(first: int, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    assert starts_equal(begins(loss, first), begins(loss, first, "nvfp4")) == seen
    assert not starts_equal(begins(loss, 0), begins(loss, 1, "nvfp4"))


@pytest.mark.parametrize(
    ("size", "step", "uniform"),
    [
        (1000.0, 1e-4, True),  # a whole number of tokens, which four decimals tell to 0.05
        (1000.04, 1e-4, True),
        (1000.4, 1e-4, False),
        (3000.0, 1e-4, True),
        (3000.5, 1e-4, False),  # to 0.15 of a token
        (50_304.0, 1e-4, True),  # to 2.5 tokens, so a multiple of 64
        (50_306.0, 1e-4, True),
        (50_308.0, 1e-4, False),
        (50_336.0, 1e-4, False),
        (50_336.0, 0.0, True),  # known to a tenth of a token
        (50_336.5, 0.0, False),
    ],
)
def test_a_model_that_predicts_all_tokens_alike_shows_nothing(
    size: float, step: float, uniform: bool
) -> None:
    loss = math.log(size)
    assert starts_equal(begins(loss), begins(loss, recipe="nvfp4"), step) != uniform


@pytest.mark.parametrize(("by", "seen"), [(0.99e-3, True), (1.01e-3, False)])
def test_gradient_norms_that_differ_by_a_thousandth_show_the_recipe(by: float, seen: bool) -> None:
    loss = math.log(50_304 + 32)
    columns = [{"grad_norm": np.full(3, 2.0 * (1.0 + own))} for own in (0.0, by)]
    base = begins(loss, columns=columns[0])
    cand = begins(loss, recipe="nvfp4", columns=columns[1])
    assert starts_equal(base, cand) == seen


# Is the series what the trainer measured?


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
    assert (quantum(loss) == 0.01) == seen


@pytest.mark.parametrize(("values", "seen"), [(119, True), (121, False)])
def test_an_odd_step_is_that_of_few_values(values: int, seen: bool) -> None:
    """Below three values in ten points, of 400."""
    at = np.resize(np.arange(values), POINTS)
    loss = 3.0 + 0.01 * math.pi * np.random.default_rng(0).permutation(at)
    assert (quantum(loss) > 0.0) == seen
    if seen:
        assert quantum(loss) == pytest.approx(0.01 * math.pi)


def test_two_values_show_no_step() -> None:
    assert quantum(np.resize([3.0, 3.01], 400)) == 0.0
    assert quantum(np.resize([3.0, 3.01, 3.02], 400)) == pytest.approx(0.01)


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


# Holes.

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


# What averages could add.


@pytest.mark.parametrize(("ratio", "lag"), [(0.5, 2.0), (0.4, 2.5), (0.2, 5.0), (0.9, 0.5 / 0.81)])
def test_an_average_lags_by_what_its_noise_leaves_open(ratio: float, lag: float) -> None:
    """On a straight line it is too high by its lag times the slope; four times that counts."""
    line = 10.0 - 0.001 * np.arange(2000)
    wavy = run(line + np.resize([1e-9, -1e-9], 2000))
    lift = averaging_lift(wavy, np.arange(1900, 2000), ratio, make_window(2000, 0, 0.2, "declared"))
    assert lift.mean() == pytest.approx(4.0 * lag * 0.001, rel=1e-3)
