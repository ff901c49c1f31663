import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.policy import (
    PROFILES,
    Amount,
    Policy,
    PolicyError,
    parse_margin,
    policy_from_mapping,
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1.0%", 0.01, "relative"),
        (" 1.0 % ", 0.01, "relative"),
        ("0.01 nats", 0.01, "nats"),
        (0.01, 0.01, "nats"),
        ("1e-2", 0.01, "nats"),
    ]
    + [(text, 0.05, "tokens") for text in ("5% tokens", " 5 % tokens ", "5 % tokens at 0.2 nats")],
)
def test_margins(text: object, value: float, unit: str) -> None:
    amount = parse_margin(text)
    assert amount.value == pytest.approx(value)
    assert amount.unit == unit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1 percent",
        "-1%",
        "0",
        "nan",
        "inf%",
        True,
        None,
        [],
        "1e",
        "1%%",
        0.0,
        -0.1,
        float("nan"),
    ],
)
def test_margins_that_are_none(text: object) -> None:
    with pytest.raises(PolicyError, match="expected a positive amount"):
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
    "text",
    [
        "0% tokens",
        "-5% tokens",
        "5 tokens",
        "5% tokens at 0 nats",
        "5% tokens at nan nats",
        "5% tokens at 0.2",
    ],
)
def test_tokens_that_are_none(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_margin(text)


def test_tokens_are_nats_by_their_slope_alone() -> None:
    assert parse_margin("5% tokens at 0.2 nats").nats(3.0) == pytest.approx(0.2 * math.log(1.05))
    with pytest.raises(ValueError, match="slope"):
        parse_margin("5% tokens").nats(3.0)


def test_a_job_must_state_a_margin() -> None:
    with pytest.raises(PolicyError, match=r'policy\.margin.*a margin such as "1.0%"'):
        policy_from_mapping({})


@pytest.mark.parametrize(
    ("mapping", "path"),
    [
        ({"margin": "1%", "margins": 1}, "policy.margins"),
        ({"margin": "x"}, "policy.margin"),
        ({"profile": "nvfp5"}, "policy.profile"),
        ({"profile": "step-noise"}, "policy.profile"),
        ({"margin": "1%", "confidence": "high"}, "policy.confidence"),
        ({"margin": "1%", "confidence": 95}, "policy.confidence"),
        ({"margin": "1%", "confidence": True}, "policy.confidence"),
        ({"margin": "1%", "window_fraction": 0.0}, "policy.window_fraction"),
        ({"margin": "1%", "min_points": 1.5}, "policy.min_points"),
        ({"margin": "1%", "min_points": 5}, "policy.min_points"),
        ({"margin": "1%", "assumed_noise": "maybe"}, "policy.assumed_noise"),
        ({"margin": "1%", "two_sided": "yes"}, "policy.two_sided"),
        ({"margin": "1%", "may_differ": "engine"}, "policy.may_differ"),
        ({"margin": "1%", "baseline_run_noise": -1}, "policy.baseline_run_noise"),
        (
            {"margin": "1%", "baseline_run_noise": "1% tokens at 0.2 nats"},
            "policy.baseline_run_noise",
        ),
        ({"margin": "1%", "checks": ["loss", "luck"]}, "policy.checks"),
        ({"margin": "1%", "checks": ["grad_norm"]}, "policy.checks"),
        ({"margin": "1%", "pairing": 3}, "policy.pairing"),
    ],
)
def test_errors_carry_path_value_and_expectation(mapping: dict[str, object], path: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy_from_mapping(mapping)
    assert caught.value.path == path
    assert caught.value.expected


def test_a_mapping_is_asked_for() -> None:
    with pytest.raises(PolicyError, match="a mapping of"):
        policy_from_mapping([])  # type: ignore[arg-type]


def test_a_document_gives_the_same_policy_back() -> None:
    policy = policy_from_mapping(
        {
            "margin": "0.5 %",
            "profile": "bf16-bar",
            "confidence": 0.9,
            "may_differ": ["remat"],
            "candidate_run_noise": "0.004 nats",
        }
    )
    assert policy_from_mapping(policy.document()) == policy


@pytest.mark.parametrize("profile", list(PROFILES))
def test_profiles_name_themselves(profile: str) -> None:
    assert Policy(profile=profile).profile_name == profile
    assert Policy(margin=Amount(value=0.01, unit="nats")).profile_name == "custom"
