"""The level of a confirmation, its chances, and the largest gap that passes with a power."""

import numpy as np
import pytest

from parity_lab.belief import confirmation
from tests.parity_lab.world import DESIGN, OWN, POLICY


def test_confirmations_share_the_error():
    assert OWN.confidence == pytest.approx(0.975)
    assert OWN.error == pytest.approx(0.025)
    assert confirmation(DESIGN, POLICY, 0.03, 1).confidence == POLICY.confidence
    assert (1 - OWN.confidence) / 2 * 2 == pytest.approx(OWN.error)
    for number in (0, 6):
        with pytest.raises(ValueError, match=str(number)):
            confirmation(DESIGN, POLICY, 0.03, number)


def test_a_gap_at_the_margin_passes_no_more_often_than_its_share_of_the_error():
    assert OWN.passes(0.03) <= (1 - OWN.confidence) / 2 + 1e-3


def test_the_largest_gap_has_the_power_and_a_larger_one_has_less():
    target = OWN.largest_gap(0.95)
    assert OWN.passes(target) == pytest.approx(0.95, abs=1e-6)
    assert OWN.passes(1.01 * target) < 0.95
    assert confirmation(DESIGN, POLICY, 0.003, 2).largest_gap() is None


def test_the_expected_chance_is_the_mean_over_what_is_known_of_the_gap():
    draws = 0.02 + 0.004 * np.random.default_rng(3).standard_normal(4000)
    slow = np.mean([OWN.passes(gap) for gap in draws])
    both = OWN.expected(np.array([0.02, 0.02]), np.array([0.004, 0.0]))
    assert both[0] == pytest.approx(slow, abs=0.02)
    assert both[1] == pytest.approx(OWN.passes(0.02), abs=1e-3)


def test_the_guarantee_names_error_margin_and_confirmations():
    assert "2.5 %" in OWN.guarantee
    assert "0.03 nats" in OWN.guarantee
    assert "2 times" in OWN.guarantee
    assert "once" in confirmation(DESIGN, POLICY, 0.03, 1).guarantee
