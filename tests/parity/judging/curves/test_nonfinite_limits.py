"""Losses that are not finite: one of a few points is no divergence."""

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.nonfinite import nonfinite


def broken(points: int, bad: int, *, at_end: bool = False) -> Curve:
    loss = np.full(points, 3.0)
    loss[1 : 1 + bad] = np.nan
    if at_end:
        loss[-1] = np.inf
    return curve_from_arrays(np.arange(points), loss)


@pytest.mark.parametrize(
    ("points", "bad", "blocks", "fails"),
    [
        (100, 1, False, False),
        (200, 2, True, False),
        (201, 2, False, False),
        (300, 3, True, True),
        (301, 3, False, False),
        (50, 2, True, False),
        (50, 3, True, True),
    ],
)
def test_two_and_three_losses_and_a_hundredth_count(
    points: int, bad: int, blocks: bool, fails: bool
) -> None:
    found = nonfinite([broken(points, bad)], 0, points)
    assert (found.count, found.blocks, found.fails) == (bad, blocks, fails)
    assert found.worst_share == pytest.approx(bad / points)


@pytest.mark.parametrize(("first", "fails"), [(0, False), (601, True), (599, False)])
def test_a_hundredth_of_the_window_is_enough(first: int, fails: bool) -> None:
    """Three of the last 300 points, of 901 in all; 602 is the first that is bad."""
    loss = np.full(901, 3.0)
    loss[602:605] = np.nan
    found = nonfinite([curve_from_arrays(np.arange(901), loss)], first, 900)
    assert found.fails == fails


def test_one_loss_at_the_end_fails_and_one_after_it_does_not() -> None:
    run = broken(1000, 0, at_end=True)
    assert nonfinite([run], 0, 999).fails
    assert nonfinite([run], 0, 999).blocks
    assert nonfinite([run], 0, 998).count == 0


@pytest.mark.parametrize(("loss", "bad"), [(1e6, 0), (1.000001e6, 1), (-1e6, 0), (-1.000001e6, 1)])
def test_a_loss_above_a_million_is_as_good_as_infinite(loss: float, bad: int) -> None:
    run = curve_from_arrays([1, 2, 3], [3.0, loss, 3.0])
    assert nonfinite([run], 0, 3).count == bad
