"""When do two arms read the same batches? Each limit from both sides, on correlations of second
differences that are built exactly.
"""

import math

import numpy as np
import pytest

from parity.judging.curves.alignment import Aligned, align
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.data_order import (
    hidden_correlation,
    is_proven_somewhere,
    pair_correlation,
    worst_correlation,
)


def integrated(changes: np.ndarray, before: int = 0, level: float = 3.0) -> np.ndarray:
    """Losses whose second differences are these, after so many points of a constant."""
    slopes = np.append(0.0, np.cumsum(changes))
    values = np.append(0.0, np.cumsum(slopes))
    values -= np.linspace(0.0, values[-1], len(values))
    return np.append(np.full(before, level), level + 1e-3 * values)


def crossed(r: float, points: int, of: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Two rows of changes that correlate exactly r over the last `of` of so many points, and are
    equal before."""
    rng = np.random.default_rng(points)
    of = points if of is None else of
    one = rng.choice([-1.0, 1.0], points)
    other = one.copy()
    x, z = one[-of:] - one[-of:].mean(), rng.normal(size=of).clip(-2.0, 2.0)
    z -= z.mean()
    z -= x * (x @ z) / (x @ x)
    z *= math.sqrt(float(x @ x) / float(z @ z))
    other[-of:] = r * x + math.sqrt(max(1.0 - r * r, 0.0)) * z
    return one, other


def late(r: float, points: int, of: int | None = None) -> Aligned:
    """A pair whose last half has these second differences."""
    base, cand = (integrated(row, points + 2) for row in crossed(r, points, of))
    return align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in (base, cand)))


def worst(pair: Aligned) -> float | None:
    runs = [
        [curve_from_arrays(pair.steps, row) for row in arm]
        for arm in (pair.baseline, pair.candidate)
    ]
    return worst_correlation(pair, *runs)


@pytest.mark.parametrize(("points", "is_known"), [(15, True), (14, False)])
def test_a_correlation_needs_six_second_differences(points: int, is_known: bool) -> None:
    """The last half of 15 points has eight of them."""
    loss = 3.0 + np.random.default_rng(0).normal(0.0, 0.1, points)
    found = pair_correlation(loss, loss)
    assert (found is not None) == is_known


@pytest.mark.parametrize(("size", "is_known"), [(7.9e-7, False), (8.1e-7, True)])
def test_below_the_spacing_of_float32_there_is_no_noise(size: float, is_known: bool) -> None:
    loss = np.full(40, 3.0)
    loss[30] += 1.5 * size  # its second difference is -2 times that
    found = pair_correlation(loss, loss)
    assert (found is not None) == is_known


@pytest.mark.parametrize(("points", "r"), [(399, 0.5), (400, 0.0), (401, 0.0)])
def test_blocks_of_two_hundred_points_are_looked_at_from_two_of_them_on(
    points: int, r: float
) -> None:
    """Other data in the last half of the last half would hide in the whole."""
    found = worst(late(0.0, points, points // 2))
    assert found == pytest.approx(r, abs=0.02)


def test_a_long_run_has_twenty_blocks() -> None:
    """Other data in the last 200 points of 8,000 are half of a block of 400."""
    assert worst(late(0.0, 8000, 200)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("r", "hidden"),
    [(0.151, True), (0.149, False), (0.499, True), (0.501, False)],
)
def test_an_order_is_hidden_between_the_limits_of_other_and_of_equal_batches(
    r: float, hidden: bool
) -> None:
    found = hidden_correlation(late(r, 350))
    assert (found is not None) == hidden
    if found is not None:
        assert found == pytest.approx(r, abs=1e-6)


@pytest.mark.parametrize(("part", "hidden"), [(0.04, True), (-0.04, False)])
def test_an_order_is_hidden_where_no_block_shows_other_batches(part: float, hidden: bool) -> None:
    """A block of 200 points may be below the whole by 4 x 1.4 / sqrt(200) = 0.396."""
    points = 1000
    one, other = crossed(0.45, points)
    own = slice(points - 200, None)
    x = one[own] - one[own].mean()
    z = other[own] - other[own].mean()
    z -= x * (x @ z) / (x @ x)
    z *= math.sqrt(float(x @ x) / float(z @ z))

    def made(r: float) -> Aligned:
        changed = other.copy()
        changed[own] = r * x + math.sqrt(1.0 - r * r) * z
        runs = [integrated(row, points + 2) for row in (one, changed)]
        return align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in runs))

    whole = pair_correlation(made(0.0).baseline[0], made(0.0).candidate[0])
    limit = whole - 4.0 * 1.4 / math.sqrt(200.0)
    found = hidden_correlation(made(limit + part))
    assert (found is not None) == hidden


def proven(r: float, points: int) -> bool:
    """Whether a pair is proven whose halves have so many second differences."""
    one, other = crossed(r, points)
    rows = [np.append(integrated(row), integrated(row)) for row in (one, other)]
    return is_proven_somewhere(
        align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in rows))
    )


@pytest.mark.parametrize(("r", "is_proven"), [(0.501, True), (0.499, False)])
def test_batches_are_proven_from_a_correlation_of_a_half_on(r: float, is_proven: bool) -> None:
    assert proven(r, 150) == is_proven


@pytest.mark.parametrize("r", [0.6, 0.8, 0.9])
def test_batches_are_proven_where_four_errors_lie_between_them_and_chance(r: float) -> None:
    """atanh(r) sqrt(n - 5) / 1.4 is at least 4."""
    least = math.ceil((4.0 * 1.4 / math.atanh(r)) ** 2 + 5.0)
    assert proven(r, least)
    assert not proven(r, least - 1)


def test_a_quarter_of_the_run_is_enough_and_an_eighth_is_not() -> None:
    rng = np.random.default_rng(0)
    base, own = rng.normal(0.0, 0.1, 800), rng.normal(0.0, 0.1, 800)
    for points, is_proven in ((200, True), (100, False)):
        cand = own.copy()
        cand[:points] = base[:points]
        if points < 200:
            cand[points:200] = rng.normal(0.0, 0.3, 200 - points)
        pair = align(
            [curve_from_arrays(np.arange(800), 3.0 + base)],
            [curve_from_arrays(np.arange(800), 3.0 + cand)],
        )
        assert is_proven_somewhere(pair) == is_proven
