"""When do two logs not fit together? Shifts, units and first losses, at each limit."""

import math

import numpy as np
import pytest

from parity.judging.curves.alignment import align
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import pair_correlation
from parity.judging.curves.mismatch import find_mismatch
from parity.judging.curves.step_noise import step_noise

POINTS = 400


def noise(seed: int, points: int = POINTS, sd: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, points)


def run(loss: object, steps: object = None, **extra: object) -> Curve:
    values = np.asarray(loss, dtype=float)
    at = np.arange(len(values)) if steps is None else steps
    return curve_from_arrays(at, values, **extra)


def mismatch(base: Curve, cand: Curve, r: float | None = 1.0, step: float = 0.0):
    return find_mismatch([base], [cand], align([base], [cand]), r, step)


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
