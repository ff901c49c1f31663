"""The numbers of a policy: what may be stated, what is assumed, and how looks share the error."""

import math

import pytest
from scipy.stats import t as student

from parity.judging.multiplicity import Multiplicity, look_weight, pairs_confidence
from parity.judging.noise.arm_noise import assumed_share, prior_for
from parity.judging.policy import (
    PROFILES,
    Amount,
    Policy,
    PolicyError,
    parse_margin,
    policy_from_mapping,
)


def just_above(value: float) -> float:
    return math.nextafter(value, math.inf)


def just_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


@pytest.mark.parametrize(
    ("looks", "quantile"), [(2, 3.44), (5, 4.39), (10, 5.13), (20, 5.87), (30, 6.29)]
)
@pytest.mark.parametrize("candidates", [1, 12])
@pytest.mark.parametrize("nominal", [0.95, 0.99])
def test_each_look_and_candidate_gets_its_share_of_the_error(
    looks: int, quantile: float, candidates: int, nominal: float
) -> None:
    """A policy of 95 % is at t(4) = 3.44 with two looks; another one has the same share of its
    error, of 1 in 20."""
    tails = 2.0 * float(student.sf(quantile, 4.0))
    spent = (1.0 - nominal) * tails / 0.05 / candidates
    shared = Multiplicity(looks=looks, candidates=candidates)
    assert 1.0 - shared.confidence(nominal) == pytest.approx(spent, rel=1e-6)
    assert 1.0 - shared.within_confidence(nominal) == pytest.approx((1.0 - nominal) / candidates)
    assert shared.levels(nominal) == (
        shared.confidence(nominal),
        shared.within_confidence(nominal),
    )


@pytest.mark.parametrize("candidates", [1, 12])
def test_one_look_shares_the_error_among_candidates_alone(candidates: int) -> None:
    levels = Multiplicity(candidates=candidates).levels(0.95)
    assert levels == pytest.approx((1.0 - 0.05 / candidates, 1.0 - 0.05 / candidates))
    assert look_weight(1) == 1.0


def test_looks_that_are_left() -> None:
    assert (Multiplicity(look=1, looks=3).left, Multiplicity(look=3, looks=3).left) == (2, 0)


def test_thirty_looks_may_be_registered_and_no_more() -> None:
    assert Multiplicity(look=30, looks=30).looks == 30
    with pytest.raises(ValueError, match="looks"):
        Multiplicity(looks=31)
    assert Policy(margin="1%", looks=30).looks == 30
    with pytest.raises(PolicyError):
        Policy(margin="1%", looks=31)


@pytest.mark.parametrize(("candidates", "pairs"), [(2, 1), (3, 3), (4, 6), (12, 66)])
def test_all_pairs_of_candidates_share_the_error(candidates: int, pairs: int) -> None:
    assert 1.0 - pairs_confidence(0.95, candidates) == pytest.approx(0.05 / pairs)


@pytest.mark.parametrize(
    ("key", "low", "high", "beyond"),
    [
        ("confidence", 0.5, 0.9999, (just_below(0.5), just_above(0.9999))),
        ("window_fraction", 0.01, 1.0, (just_below(0.01), just_above(1.0))),
        ("min_points", 12, 10**9, (11, 10**9 + 1)),
        ("run_noise_df", 1.0, 1e6, (just_below(1.0), just_above(1e6))),
        ("looks", 1, 30, (0, 31)),
        ("accuracy_margin_points", 0.001, 100.0, (just_below(0.001), just_above(100.0))),
    ],
)
def test_what_a_policy_may_state(
    key: str, low: float, high: float, beyond: tuple[float, float]
) -> None:
    for value in (low, high):
        assert getattr(policy_from_mapping({"margin": "1%", key: value}), key) == value
    for value in beyond:
        with pytest.raises(PolicyError, match=key):
            policy_from_mapping({"margin": "1%", key: value})


@pytest.mark.parametrize(
    ("largest", "beyond"),
    [
        ("100%", "100.001%"),
        ("100 nats", "100.001 nats"),
        ("1000% tokens", "1000.01% tokens"),
        ("5% tokens at 100 nats", "5% tokens at 100.001 nats"),
    ],
)
def test_the_largest_margins(largest: str, beyond: str) -> None:
    assert parse_margin(largest).value > 0.0
    with pytest.raises(PolicyError, match="at most"):
        parse_margin(beyond)


def test_the_profiles_are_what_their_documents_say() -> None:
    assert {
        "nvfp4": Amount(value=0.01, unit="relative"),
        "nvfp4-decay": Amount(value=0.015, unit="relative"),
        "fp8-grade": Amount(value=0.0025, unit="relative"),
        "bf16-bar": Amount(value=0.01, unit="nats"),
        "noise-floor": None,
    } == PROFILES


def test_a_policy_that_states_a_margin_alone() -> None:
    policy = Policy(margin="1%")
    assert (policy.confidence, policy.window_fraction, policy.min_points) == (0.95, 0.2, 12)
    assert (policy.run_noise_df, policy.accuracy_margin_points, policy.looks) == (4.0, 2.0, 1)


@pytest.mark.parametrize(
    ("slope", "share"),
    [
        (None, 0.0009),
        (0.0, 0.0015),
        (0.124, 0.0015),
        (0.126, 0.001512),
        (-0.126, 0.001512),
        (0.2, 0.0024),
    ],
)
def test_what_is_assumed_of_run_to_run_noise(slope: float | None, share: float) -> None:
    assert assumed_share(slope) == pytest.approx(share, rel=1e-12)
    policy = Policy(margin="1%")
    for rounding, factor in (("nearest", 1.0), ("stochastic", 1.5), (None, 1.5)):
        prior = prior_for(None, None, policy, 2.0, rounding, slope=slope)
        assert prior.tau == pytest.approx(2.0 * factor * share, rel=1e-12)
        assert (prior.df, prior.assumed) == (4.0, True)


def test_a_loss_of_another_kind_counts_as_unfinished() -> None:
    other = Policy(margin="1%", loss_unit="other")
    assert prior_for(None, None, other, 2.0, "nearest").tau == pytest.approx(0.003)
    assert prior_for(None, None, other, 2.0, "nearest", slope=0.2).tau == pytest.approx(0.0048)
