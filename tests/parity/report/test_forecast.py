"""A forecast in words says what the verdict will probably be."""

import pytest

from parity.report.forecast import Outlook, live_lead, live_measure


class _Live:
    step, gap, low, high, margin = 674, 0.0195, 0.0054, 0.0349, 0.0171

    def __init__(self, passes: float, fails: float) -> None:
        self.passes, self.fails, self.inconclusive = passes, fails, 1.0 - passes - fails


@pytest.mark.parametrize(
    ("passes", "fails", "lead"),
    [
        (0.85, 0.05, "nvfp4 is on course to pass."),
        (0.0, 0.99, "nvfp4 is on course to fail."),
        (0.01, 0.04, "nvfp4 will probably stay undecided."),
        (0.4, 0.3, "nvfp4 is still open."),
    ],
)
def test_a_forecast_says_what_will_probably_be(passes: float, fails: float, lead: str) -> None:
    live: Outlook = _Live(passes, fails)
    assert live_lead("nvfp4", live) == lead
    assert live_measure("fp8", live) == "Its final gap is forecast at 0.0202 nats above fp8."
