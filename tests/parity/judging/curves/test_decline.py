"""Does a loss fall as before a decay? Its limits, from both sides."""

import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.decline import falls_as_before


def lossy(law: np.ndarray) -> Curve:
    noise = np.random.default_rng(0).normal(0.0, 1e-4, len(law))
    return curve_from_arrays(np.arange(len(law)), law + noise, label="l")


def bent(excess: float, points: int = 2000) -> np.ndarray:
    """A line in ln(step) that stays above itself by this share of its slope at the end."""
    x = np.log(np.arange(1, points + 1) / points)
    late = np.clip((x - math.log(0.6)) / (math.log(0.95) - math.log(0.6)), 0.0, 1.0)
    return 4.0 - 0.3 * x + 0.3 * excess * late


def test_a_loss_falls_as_before_where_it_ends_above_its_line_by_a_third_of_its_slope() -> None:
    found = [falls_as_before(lossy(bent(excess))) for excess in np.linspace(0.1, 0.4, 31)]
    assert found == sorted(found)
    turns = 0.1 + 0.01 * found.index(True)
    law = bent(turns)
    x = np.log(np.arange(1, 2001) / 2000)
    half, end = x > math.log(0.5), x > math.log(0.9)
    line_part = (x > math.log(0.25)) & (x <= math.log(0.6))
    slope = -np.polyfit(x[half], law[half], 1)[0]
    fitted = np.polyval(np.polyfit(x[line_part], law[line_part], 1), x[end]).mean()
    assert (np.median(law[end]) - fitted) / slope == pytest.approx(0.35, abs=0.02)


@pytest.mark.parametrize(("points", "seen"), [(199, False), (200, True)])
def test_a_loss_shows_that_from_two_hundred_points_on(points: int, seen: bool) -> None:
    assert falls_as_before(lossy(bent(0.5, points))) == seen
