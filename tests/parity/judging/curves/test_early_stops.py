"""Reruns that were stopped early: which count, and what they show."""

import dataclasses

import numpy as np
import pytest

from parity.judging.curves.arms import Controls, make_arms
from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.early_stops import usable_early_stops
from parity.judging.curves.window import make_window
from parity.judging.policy import Policy

NO_CONTROLS = Controls(used=(), left_out=(), offsets=np.empty(0))


@pytest.mark.parametrize("level", [0.0, 2.0])
def test_reruns_of_an_arm_whose_loss_is_0_before_their_stop_show_nothing(
    one_percent: Policy, level: float
) -> None:
    """Their spread is a share of the loss. Losses are multiples of 1/1024 and, after step 99, come
    in pairs of a number and its negative, so that their mean is exactly 0.
    """
    pairs = np.random.default_rng(0).integers(1, 1024, 200) / 1024
    loss = np.concatenate([np.arange(100, 0, -1) / 8, np.stack([pairs, -pairs], axis=1).ravel()])
    base = curve_from_arrays(np.arange(500), loss + level, rounding="nearest")
    own = np.random.default_rng(1).normal(0.0, 0.1, 500)
    rerun = curve_from_arrays(
        np.arange(300), (base.loss + own + 0.02)[:300], rounding="nearest", label="rerun"
    )
    cand = dataclasses.replace(base, loss=base.loss + own[::-1])
    window = make_window(500, 0, 0.2, "declared")
    arms = make_arms(("b", "c"), [base], [cand], one_percent, window)
    found, _ = usable_early_stops(arms, NO_CONTROLS, ([rerun], []), one_percent, window)
    assert (len(found.used), len(found.left_out)) == ((0, 1) if level == 0.0 else (1, 0))
    assert (found.spread is None) == (level == 0.0)
    assert found.diverged == ()
