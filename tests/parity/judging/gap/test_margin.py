"""Which margin decides."""

import math

import numpy as np
import pytest

from parity.judging.gap.margin import determine_margin
from parity.judging.noise.arm_noise import arm_noise, prior_for
from parity.judging.policy import Policy

TAU, LEVEL = 1e-4, 3.0


@pytest.mark.parametrize(("runs", "is_known"), [(3, False), (4, True)])
def test_a_noise_floor_needs_four_runs(runs: int, is_known: bool) -> None:
    policy = Policy(profile="noise-floor")
    means = LEVEL + 0.001 * np.resize([1.0, -1.0], runs)
    noise = arm_noise(prior_for(None, None, policy, LEVEL), means, [0] * runs)
    margin = determine_margin(policy, LEVEL, noise)
    assert (margin is not None) == is_known
    if margin is not None:
        assert margin.nats == pytest.approx(3.0 * math.sqrt(2.0) * noise.measured)


def test_the_smaller_margin_decides_and_none_is_a_share_of_nothing() -> None:
    noise = arm_noise(prior_for(None, None, Policy(margin="1%"), LEVEL), np.array([LEVEL]), [0])
    both = Policy(margin="0.02 nats", profile="nvfp4")
    assert determine_margin(both, 1.99, noise).nats == pytest.approx(0.0199)
    assert determine_margin(both, 2.01, noise).nats == 0.02
    assert determine_margin(both, 0.0, noise) is None
