"""What the rules say of a prediction: each limit, from both sides."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

from parity.judging.live.prediction import Prediction, Scenario
from parity.judging.live.rules import due_forecasts, forecast_at, state_of

LEVEL = 3.0


def certain(mean: float, sd: float) -> Scenario:
    return Scenario(mean=mean, variances=np.array([sd**2]), weights=np.array([1.0]))


def outlook(
    mean: float, sd: float = 0.01, drift: float | None = None, weight: float = 0.0
) -> Prediction:
    """A margin of 0.03 and a half-width of 0.01: a pass is below 0.02, a fail above 0.04."""
    stays = certain(mean, sd)
    return Prediction(
        share=0.5,
        step=1,
        gap=mean,
        gap_half_width=0.0,
        level=LEVEL,
        margin=0.03,
        half_width=0.01,
        two_sided=False,
        stays=stays,
        drifts=stays if drift is None else certain(drift, sd),
        drift_weight=weight,
    )


def z(p: float) -> float:
    return float(norm.isf(p))


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        (0.02 - 0.005 * z(0.0999), "on_course"),
        (0.02 - 0.005 * z(0.1001), "open"),
        (-0.03 + 0.005 * z(0.0999), "on_course"),  # and not better by more than the margin
        (-0.03 + 0.005 * z(0.1001), "open"),
    ],
)
def test_a_forecast_is_on_course_above_nine_tenths(mean: float, expected: str) -> None:
    assert state_of(outlook(mean, sd=0.005)) == expected


def test_a_candidate_will_fail_above_ninety_nine_percent() -> None:
    assert state_of(outlook(0.04 + 0.01 * z(0.0099))) == "will_fail"
    assert state_of(outlook(0.04 + 0.01 * z(0.0101))) == "futile"


def test_a_candidate_is_futile_where_it_passes_in_less_than_one_percent() -> None:
    """And where run-to-run noise, twice the half-width, explains no such gap."""
    explained = dataclasses.replace(outlook(0.0), half_width=0.02)  # 0.03 is the smaller limit
    for p, expected in ((0.0099, "futile"), (0.0101, "open")):
        made = dataclasses.replace(outlook(0.02 + 0.01 * z(p)), half_width=0.01)
        assert state_of(made) == expected
        margin = dataclasses.replace(explained, stays=certain(0.03 + 0.01 * z(p), 0.01))
        margin = dataclasses.replace(margin, drifts=margin.stays)
        assert state_of(margin) == expected
    assert state_of(outlook(0.035), looks_left=1) == "open"


@pytest.mark.parametrize(("p", "expected"), [(0.0149, "will_fail"), (0.0151, "open")])
def test_a_drift_that_would_pass_in_one_and_a_half_percent_stops_nothing(
    p: float, expected: str
) -> None:
    made = outlook(0.09, drift=0.02 + 0.01 * z(p), weight=1e-6)
    assert state_of(made) == expected


def test_a_forecast_holds_the_middle_nine_tenths_and_half() -> None:
    made = forecast_at(outlook(0.01))
    assert made.low == pytest.approx(0.01 - 0.01 * z(0.05), abs=1e-9)
    assert made.high == pytest.approx(0.01 + 0.01 * z(0.05), abs=1e-9)
    assert made.low_half == pytest.approx(0.01 - 0.01 * z(0.25), abs=1e-9)
    assert made.high_half == pytest.approx(0.01 + 0.01 * z(0.25), abs=1e-9)


@pytest.mark.parametrize(
    ("looked", "done", "due"),
    [(0, 7, []), (0, 8, [(8,)]), (8, 9, []), (8, 10, [(10,)]), (0, 80, 37)],
)
def test_forecasts_are_due_from_a_tenth_of_the_plan_every_fortieth(
    looked: int, done: int, due: list[tuple[int, ...]] | int
) -> None:
    made = list(due_forecasts([looked], [done], 1))
    assert len(made) == due if isinstance(due, int) else made == due


@pytest.mark.parametrize(
    ("change", "sd", "trend"),
    [
        (0.0031, 0.001, 0.0031),
        (-0.0031, 0.001, -0.0031),
        (0.0029, 0.001, None),  # less than three standard deviations
        (0.0029, 0.0001, None),  # less than a tenth of the margin
        (0.0031, None, None),
        (None, None, None),
    ],
)
def test_a_trend_is_more_than_noise_and_matters_against_the_margin(
    change: float | None, sd: float | None, trend: float | None
) -> None:
    seen = dataclasses.replace(outlook(0.0), change=change, change_sd=sd)
    assert forecast_at(seen).trend == trend


def test_a_forecast_keeps_what_it_counts_on_and_whether_noise_is_measured() -> None:
    seen = dataclasses.replace(outlook(0.0, drift=0.01, weight=0.15), noise_measured=True)
    assert forecast_at(seen).goes_on == 0.15
    assert forecast_at(seen).noise_measured is True
