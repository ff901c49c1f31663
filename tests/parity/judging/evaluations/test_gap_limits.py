"""The error of few evaluations: each limit, from both sides."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.gap import few_errors, gap_interval, printed_step
from parity.judging.noise.arm_noise import prior_for
from parity.judging.policy import Policy

STEPS = np.arange(1, 11) * 100
PLAN, LEVEL = 1000, 3.0


def run(loss: object, seed: int = 0, steps: Any = STEPS, label: str = "", **extra: Any) -> Curve:
    made = np.broadcast_to(np.asarray(loss, dtype=float), len(np.atleast_1d(steps)))
    return curve_from_arrays(
        steps, made, seed=seed, label=label, **{"rounding": "nearest", **extra}
    )


OWN = 1e-3 * np.array([3.0, -2.0, 4.0, -3.0, 2.0, -4.0, 0.0, 0.0, 0.0, 0.0])


def own(seed: int) -> np.ndarray:
    """What a run has of its own early in its training, so that none is a copy of another."""
    return OWN * np.random.default_rng(seed).uniform(0.5, 1.5, len(OWN))


@pytest.mark.parametrize(("n", "factor"), [(1, 1.0), (2, 1.5), (11, 1.5)])
def test_few_evaluations_have_a_noise_of_their_own(n: int, factor: float) -> None:
    d = np.random.default_rng(n).normal(0.0, 0.001, (1, n))
    error, df = few_errors(d, 0.0005 * LEVEL)
    squares = float(((d - d.mean()) ** 2).sum())
    assert df[0] == n + 3
    expected = math.sqrt(factor * (4 * (0.0005 * LEVEL) ** 2 + squares) / (n + 3) / n)
    assert error[0] == pytest.approx(expected)


@pytest.mark.parametrize("confidence", [0.95, 1.0 - 0.05 / 12])
@pytest.mark.parametrize(("n", "few"), [(11, True), (12, False)])
def test_up_to_eleven_evaluations_are_few(n: int, few: bool, confidence: float) -> None:
    """Equal gaps: few have the assumed noise of single evaluations, twelve have none."""
    prior = prior_for("bf16", None, Policy(margin="1%"), LEVEL)
    one = np.zeros(1, np.int64)
    base = np.full((1, n), LEVEL)
    gap = gap_interval((base, base + 0.01), (prior, prior), (one, one), 0.0)
    run_half = float(student.ppf(0.5 + confidence / 2, 4.0)) * 0.0009 * LEVEL * math.sqrt(2.0)
    within = math.sqrt(1.5 * 4 * (0.0005 * LEVEL) ** 2 / (n + 3) / n)
    own = float(student.ppf(0.5 + confidence / 2, n + 3)) * within if few else 0.0
    assert gap.half_width(confidence) == pytest.approx(math.hypot(run_half, own), rel=1e-9)


@pytest.mark.parametrize(("runs", "within"), [((1, 1), True), ((2, 1), True), ((2, 2), False)])
def test_two_runs_an_arm_have_the_noise_of_evaluations_in_their_spread(
    runs: tuple[int, int], within: bool
) -> None:
    prior = prior_for("bf16", None, Policy(margin="1%"), LEVEL)
    arms = [LEVEL + 0.001 * np.arange(own)[:, None] * np.ones((own, 3)) for own in runs]
    seeds = tuple(np.zeros(own, np.int64) for own in runs)
    gap = gap_interval((arms[0], arms[1]), (prior, prior), seeds, 0.0)
    assert (gap.within.value > 0.0) == within


def test_the_first_thousand_losses_show_the_decimals() -> None:
    """Six of them, which no change shows any more, and one loss that has seven."""
    losses = np.round(3.0 + np.random.default_rng(0).normal(0.0, 0.1, 1200), 6)
    for at, step in ((1000, 1e-6), (999, 1e-7)):
        made = losses.copy()
        made[at] = 3.0123457
        assert printed_step([run(made, steps=np.arange(1200))]) == pytest.approx(step, abs=0.0)
