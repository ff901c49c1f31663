"""A forecast in words says what the verdict will probably be."""

import math
from typing import Any

import pytest

from parity.judging.live.rules import State
from parity.judging.policy import policy_from_mapping
from parity.report.forecast import (
    Outlook,
    change_words,
    course,
    live_interval,
    live_lead,
    live_measure,
    margin_basis,
)


class _Live:
    state: State = "open"
    trend: float | None = None
    step, gap, low, high, margin = 674, 0.0195, 0.0054, 0.0349, 0.0171

    def __init__(self, passes: float, fails: float, **changes: Any) -> None:
        self.passes, self.fails, self.inconclusive = passes, fails, 1.0 - passes - fails
        vars(self).update(changes)


@pytest.mark.parametrize(
    ("passes", "fails", "lead"),
    [
        (0.85, 0.05, "nvfp4 is on course to pass."),
        (0.0, 0.99, "nvfp4 is on course to fail."),
        (0.01, 0.04, "nvfp4 will probably stay inconclusive."),
        (0.4, 0.3, "nvfp4 is still open."),
    ],
)
def test_a_forecast_says_what_will_probably_be(passes: float, fails: float, lead: str) -> None:
    live: Outlook = _Live(passes, fails)
    assert live_lead("nvfp4", live) == lead
    assert live_measure("fp8", live) == "Its final gap is forecast at 0.0202 nats above fp8."


@pytest.mark.parametrize(
    ("live", "lead"),
    [
        (
            _Live(0.95, 0.0, trend=0.004),
            "nvfp4 is on course to pass, unless its gap goes on rising.",
        ),
        (_Live(0.95, 0.0, trend=-0.004), "nvfp4 is on course to pass."),
        (
            _Live(0.0, 0.95, trend=-0.004),
            "nvfp4 is on course to fail, unless its gap goes on falling.",
        ),
        (_Live(0.0, 0.95, trend=0.004), "nvfp4 is on course to fail."),
        (_Live(0.3, 0.3, trend=0.004), "nvfp4 is still open."),
    ],
)
def test_a_trend_against_a_forecast_is_its_condition(live: Outlook, lead: str) -> None:
    assert live_lead("nvfp4", live) == lead


def test_what_the_rules_say_stands_before_the_chances() -> None:
    assert course(_Live(0.0, 0.5, state="futile")) == "futile"
    assert course(_Live(0.0, 0.5, state="will_fail")) == "fail"
    assert course(_Live(0.0, 0.5)) == "open"
    assert live_lead("nvfp4", _Live(0.0, 0.5, state="futile")) == "nvfp4 can hardly pass any more."


@pytest.mark.parametrize(
    ("policy", "margin", "basis"),
    [
        ({"margin": "1 %"}, 0.0171, "1 % of today's loss"),
        ({"profile": "fp8-grade"}, 0.0043, "0.25 % of today's loss"),
        ({"margin": "1 %", "profile": "fp8-grade"}, 0.0043, "0.25 % of today's loss"),
        ({"margin": "0.02 nats"}, 0.02, "stated"),
        ({"margin": "0.02 nats", "profile": "fp8-grade"}, 0.0043, "0.25 % of today's loss"),
        ({"margin": "5% tokens at 0.2 nats"}, 0.2 * math.log1p(0.05), "5 % tokens at 0.2 nats"),
        ({"profile": "noise-floor"}, 0.003, "the noise floor so far"),
    ],
)
def test_the_margin_of_a_forecast_says_what_it_is_worth(
    policy: dict[str, str], margin: float, basis: str
) -> None:
    assert margin_basis(policy_from_mapping(policy), margin) == basis
    said = live_interval(_Live(0.4, 0.3, margin=margin), basis)
    assert f"({basis})." in said


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"gap": 0.0095, "step": 700}, "the gap fell from +0.0195 to +0.0095"),
        ({"gap": 0.0295, "step": 700}, "the gap rose from +0.0195 to +0.0295"),
        ({"low": 0.0154, "high": 0.0249}, "the forecast narrowed from ±0.0147 to ±0.0047"),
        ({"margin": 0.0101}, "the margin fell from 0.0171 to 0.0101, as the loss did"),
    ],
)
def test_a_change_of_a_forecast_has_what_moved_the_most_as_its_reason(
    now: dict[str, Any], reason: str
) -> None:
    said = change_words(_Live(0.4, 0.3), _Live(0.9, 0.0, **now))
    assert said == f"It was still open at step 674; by step {now.get('step', 674)} {reason}."
