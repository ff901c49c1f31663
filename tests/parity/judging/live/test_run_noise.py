"""Run-to-run noise of a training that goes on: what is borrowed, and what ended runs say of it."""

import pytest

from parity.judging.live.run_noise import LiveArm, LiveRunNoise, run_noise
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import NoiseSource
from parity.judging.policy import policy_from_mapping

LEVEL = 2.0
POLICY = policy_from_mapping({"margin": "1%"})
SOURCE = NoiseSource(
    family="f",
    noise=FamilyNoise(
        share=0.0004,
        df=12.0,
        estimated_df=30.0,
        groups=10,
        runs=100,
        outliers=(),
        levels=(1.95, 2.1),
    ),
)


def of(baseline: LiveArm, candidate: LiveArm) -> LiveRunNoise:
    return run_noise((baseline, candidate), POLICY, LEVEL, (SOURCE, SOURCE))


@pytest.mark.parametrize("spread", [0.0008, 0.02])
def test_ended_runs_say_as_much_of_a_family_in_either_arm(spread: float) -> None:
    """One spread as the family expects, and one that contradicts it."""
    ended = LiveArm(
        rounding="nearest",
        runs=3,
        means=(LEVEL - spread, LEVEL, LEVEL + spread),
        seeds=(0, 0, 0),
    )
    none = LiveArm(rounding="nearest", runs=3)
    first, second = of(ended, none), of(none, ended)
    assert second.pair_variance == pytest.approx(first.pair_variance)
    assert second.end.variance == pytest.approx(first.end.variance)
    expected = 2.0 * (0.0004 * LEVEL) ** 2
    assert (second.pair_variance < 1.5 * expected) == (spread < 0.001)
