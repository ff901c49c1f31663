"""What stopping candidates that will fail or are futile saves, as a plan says it."""

import pytest

from parity.design import plan_words as sentences
from parity.design.chances import NO_FAMILIES
from parity.design.experiment import Design
from parity.design.plan import plan
from parity.design.stops import stops
from parity.judging.policy import Policy

PAIR = Design(
    planned_steps=10_000,
    level=2.4,
    baseline_recipe="fp8_current",
    candidate_recipe="mxfp8",
    step_seconds=2.0,
)


def test_a_policy_that_advises_saves_nothing() -> None:
    outlook = plan(PAIR, Policy(margin="1%"))
    assert outlook.stops == ()
    assert sentences.stops(outlook) == ""


def test_a_larger_gap_is_stopped_earlier_and_none_is_not() -> None:
    rows = stops(PAIR, Policy(margin="1%", early_stop="stop"), NO_FAMILIES, 0.024, 0.95)
    assert [row.gap_in_margins for row in rows] == [0.0, 1.0, 2.0]
    assert rows[0].stopped <= 0.05
    assert rows[2].stopped == 1.0
    assert rows[0].trained > rows[1].trained > rows[2].trained
    # twice the margin is seen before half of the plan more often than not
    assert rows[2].trained < 0.6
    for row in rows:
        assert row.saved_run_steps == pytest.approx((1.0 - row.trained) * 10_000)
        assert row.saved_gpu_hours == pytest.approx(row.saved_run_steps * 2.0 / 3600.0)
