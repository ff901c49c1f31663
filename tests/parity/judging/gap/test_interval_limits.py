"""The interval at its limits: chances next to certainty, and equal runs."""

import pytest

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import exact_interval, interval
from parity.judging.noise.arm_noise import RunTerm


@pytest.mark.parametrize(("gap", "chance"), [(0.0, 0.5), (1e9, 0.9999), (-1e9, 0.0001)])
def test_no_chance_is_nearer_to_certain_than_one_in_ten_thousand(gap: float, chance: float) -> None:
    measured = interval(
        0.0, StandardError(value=1.0, df=4.0), RunTerm(variance=1.0, df=4.0, seeds=1)
    )
    assert measured.chance_below(gap) == pytest.approx(chance, abs=1e-8)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9998])
def test_a_chance_is_that_of_the_interval_that_reaches_to_the_gap(confidence: float) -> None:
    measured = interval(
        0.3, StandardError(value=1.0, df=7.0), RunTerm(variance=1.0, df=4.0, seeds=1)
    )
    half = measured.half_width(confidence)
    assert measured.chance_below(0.3 + half) == pytest.approx(0.5 + confidence / 2, abs=1e-7)
    assert measured.chance_below(0.3 - half) == pytest.approx(0.5 - confidence / 2, abs=1e-7)


def test_the_interval_of_equal_runs_is_what_rounding_hides() -> None:
    measured = exact_interval(0.001, RunTerm(variance=1.0, df=4.0, seeds=1))
    assert measured.bounds(0.95) == (-0.001, 0.001)
