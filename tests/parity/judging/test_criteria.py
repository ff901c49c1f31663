import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.criteria import PROFILES, Amount, Criteria, CriteriaError, criteria_from_mapping, parse_margin


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [("1.0%", 0.01, "relative"), (" 1.0 % ", 0.01, "relative"), ("0.01 nats", 0.01, "nats"), (0.01, 0.01, "nats"), ("1e-2", 0.01, "nats")]
    + [(text, 0.05, "tokens") for text in ("5% tokens", " 5 % tokens ", "5 % tokens at 0.2 nats")],
)
def test_margins(text: object, value: float, unit: str) -> None:
    amount = parse_margin(text)
    assert amount.value == pytest.approx(value)
    assert amount.unit == unit


@pytest.mark.parametrize("text", ["", "abc", "1 percent", "-1%", "0", "nan", "inf%", True, None, [], "1e", "1%%", 0.0, -0.1, float("nan")])
def test_margins_that_are_none(text: object) -> None:
    with pytest.raises(CriteriaError, match="expected a positive amount"):
        parse_margin(text)


@given(st.floats(1e-6, 1.0), st.sampled_from(["relative", "nats"]))
def test_an_amount_survives_its_text(value: float, unit: str) -> None:
    amount = Amount(value=value, unit=unit)  # type: ignore[arg-type]
    back = parse_margin(str(amount))
    assert back.unit == unit
    assert back.value == pytest.approx(value, rel=1e-9)


@given(st.floats(1e-6, 10.0), st.one_of(st.none(), st.floats(1e-6, 10.0)))
def test_tokens_survive_their_text(value: float, slope: float | None) -> None:
    back = parse_margin(str(Amount(value=value, unit="tokens", slope=slope)))
    assert back.unit == "tokens"
    assert back.value == pytest.approx(value, rel=1e-9)
    assert back.slope == (None if slope is None else pytest.approx(slope, rel=1e-9))


@pytest.mark.parametrize(
    "text", ["0% tokens", "-5% tokens", "5 tokens", "5% tokens at 0 nats", "5% tokens at nan nats", "5% tokens at 0.2"]
)
def test_tokens_that_are_none(text: str) -> None:
    with pytest.raises(CriteriaError):
        parse_margin(text)


def test_tokens_are_nats_by_their_slope_alone() -> None:
    assert parse_margin("5% tokens at 0.2 nats").nats(3.0) == pytest.approx(0.2 * math.log(1.05))
    with pytest.raises(ValueError, match="slope"):
        parse_margin("5% tokens").nats(3.0)


def test_a_job_must_state_a_margin() -> None:
    with pytest.raises(CriteriaError, match=r'criteria\.margin.*a margin such as "1.0%"'):
        criteria_from_mapping({})


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        ({"margin": "1%", "margins": 1}, "criteria.margins"),
        ({"margin": "x"}, "criteria.margin"),
        ({"profile": "nvfp5"}, "criteria.profile"),
        ({"profile": "step-noise"}, "criteria.profile"),
        ({"margin": "1%", "confidence": "high"}, "criteria.confidence"),
        ({"margin": "1%", "confidence": 95}, "criteria.confidence"),
        ({"margin": "1%", "confidence": True}, "criteria.confidence"),
        ({"margin": "1%", "window_fraction": 0.0}, "criteria.window_fraction"),
        ({"margin": "1%", "min_points": 1.5}, "criteria.min_points"),
        ({"margin": "1%", "min_points": 5}, "criteria.min_points"),
        ({"margin": "1%", "assumed_noise": "maybe"}, "criteria.assumed_noise"),
        ({"margin": "1%", "two_sided": "yes"}, "criteria.two_sided"),
        ({"margin": "1%", "may_differ": "engine"}, "criteria.may_differ"),
        ({"margin": "1%", "baseline_run_floor": -1}, "criteria.baseline_run_floor"),
        ({"margin": "1%", "baseline_run_floor": "1% tokens at 0.2 nats"}, "criteria.baseline_run_floor"),
        ({"margin": "1%", "gates": ["loss", "luck"]}, "criteria.gates"),
        ({"margin": "1%", "gates": ["grad_norm"]}, "criteria.gates"),
        ({"margin": "1%", "pairing": 3}, "criteria.pairing"),
    ],
)
def test_errors_carry_path_value_and_expectation(mapping: dict[str, object], path: str) -> None:
    with pytest.raises(CriteriaError) as caught:
        criteria_from_mapping(mapping)
    assert caught.value.path == path
    assert caught.value.expected


def test_a_mapping_is_asked_for() -> None:
    with pytest.raises(CriteriaError, match="a mapping of"):
        criteria_from_mapping([])  # type: ignore[arg-type]


def test_a_document_gives_the_same_policy_back() -> None:
    policy = criteria_from_mapping(
        {"margin": "0.5 %", "profile": "bf16-bar", "confidence": 0.9, "may_differ": ["remat"], "candidate_run_floor": "0.004 nats"}
    )
    assert criteria_from_mapping(policy.document()) == policy


@pytest.mark.parametrize("profile", list(PROFILES))
def test_profiles_name_themselves(profile: str) -> None:
    assert Criteria(profile=profile).profile_name == profile
    assert Criteria(margin=Amount(value=0.01, unit="nats")).profile_name == "custom"
