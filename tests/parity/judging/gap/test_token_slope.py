"""How well the slope of a training is known: the fit's error and the runs' own noise."""

import math

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.window import make_window
from parity.judging.gap.token_slope import TokenSlope, token_slope
from parity.judging.policy import Policy

STEPS = 2000
POWER = 0.5


@pytest.mark.parametrize("runs", [1, 3])
def test_at_a_constant_rate_run_noise_adds_that_of_the_fall_over_the_last_half(runs: int) -> None:
    """The slope is p A T^-p, taken from a fall of A ((T/2)^-p - T^-p) nats; run noise of tau at
    both ends puts an error of sqrt(2) tau on that fall.
    """
    t = np.arange(1, STEPS + 1)
    drawn = np.random.default_rng(0).normal(0.0, 0.01, (runs, STEPS))
    baseline = [
        curve_from_arrays(t, 2.0 + 3.0 * t**-POWER + own, columns={"learning_rate": np.ones(STEPS)})
        for own in drawn
    ]
    window = make_window(STEPS, 1, 0.2, "declared")
    exact, noisy = (
        token_slope(Policy(margin="5% tokens"), [], baseline, window, 2.07, tau)
        for tau in (0.0, 0.002)
    )
    assert isinstance(exact, TokenSlope)
    assert isinstance(noisy, TokenSlope)
    assert noisy.nats == exact.nats
    at_half, at_end = (3.0 * (STEPS * part) ** -POWER for part in (0.5, 1.0))
    truth = POWER * at_end
    expected = math.sqrt(2.0) * 0.002 * truth / (at_half - at_end) / math.sqrt(runs)
    assert math.sqrt(noisy.error**2 - exact.error**2) == pytest.approx(expected)
