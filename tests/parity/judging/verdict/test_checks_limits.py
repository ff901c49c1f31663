"""The limits of the secondary checks: what just passes, what is open, and what just fails."""

import dataclasses
import math

import pytest

from parity.judging.codes import AS_OF
from parity.judging.decision import Decision, Reason
from parity.judging.gap.margin import Margin
from parity.judging.policy import Policy
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.validation import ValidationGap
from parity.judging.verdict.checks import apply_checks, checks

MARGIN = Margin(nats=0.03, rel=0.01, source="1 %")


def just_above(value: float) -> float:
    return math.nextafter(value, math.inf)


def just_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def state(name: str, **measured: object) -> str | None:
    """What a check that is on the policy's list says of what was measured."""
    policy = Policy(margin="1%", checks=("loss", name))
    made = {one["name"]: one for one in checks(Advisory(**measured), MARGIN, policy)}
    assert {one["role"] for other, one in made.items() if other != name} == {"advises"}
    assert made[name]["role"] == "decides"
    return made[name]["state"]


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.05, "pass"),
        (just_below(0.05), "inconclusive"),
        (0.01, "inconclusive"),
        (just_below(0.01), "fail"),
    ],
)
def test_spikes_pass_from_five_percent_on_and_fail_below_one(p: float, expected: str) -> None:
    spikes = {"baseline": 0, "candidate": 4, "p_candidate_more": p, "blocks": 2, "steps": [[], []]}
    assert state("spikes", run_spikes=spikes) == expected


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (just_above(1.0), 1.2, "pass"),
        (1.0, 1.2, "inconclusive"),
        (0.8, 1.0, "inconclusive"),
        (0.8, just_below(1.0), "fail"),
    ],
)
def test_a_net_speedup_is_a_gain_above_one(lo: float, hi: float, expected: str) -> None:
    speedup = {"value": 0.5 * (lo + hi), "lo": lo, "hi": hi}
    assert state("net_speedup", net_speedup=speedup) == expected


@pytest.mark.parametrize(
    ("lo", "hi", "last_lo", "expected"),
    [
        (-0.01, just_below(0.03), 0.03, "pass"),
        (-0.01, 0.03, 0.03, "inconclusive"),
        (0.03, 0.05, 0.03, "inconclusive"),
        (just_above(0.03), 0.05, 0.03, "fail"),
        (-0.01, 0.02, just_above(0.03), "fail"),
    ],
)
def test_a_validation_gap_is_held_against_the_margin(
    lo: float, hi: float, last_lo: float, expected: str
) -> None:
    gap = ValidationGap(mean=0.01, lo=lo, hi=hi, n=4, last_lo=last_lo, infinite=False)
    assert state("validation_loss", validation=gap) == expected
    infinite = dataclasses.replace(gap, infinite=True)
    assert state("validation_loss", validation=infinite) == "fail"


@pytest.mark.parametrize("veto", [True, False])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("code", ["WITHIN_MARGIN", AS_OF.code])
def test_a_validation_gap_above_the_margin_blocks_what_would_pass(
    code: str, listed: bool, veto: bool
) -> None:
    worse = ValidationGap(mean=0.05, lo=0.04, hi=0.06, n=4, last_lo=0.04, infinite=False)
    policy = Policy(
        margin="1%",
        checks=("loss", "validation_loss") if listed else ("loss",),
        validation="veto" if veto else "advise",
    )
    reached = "pass" if code == "WITHIN_MARGIN" else "inconclusive"
    decision = Decision(state=reached, deciding=Reason(code=code, sentence=""), others=())
    made = apply_checks(decision, checks(Advisory(validation=worse), MARGIN, policy), policy)
    if listed:
        expected = ("fail", "VALIDATION_LOSS_FAILS")
    else:
        expected = ("inconclusive", "VALIDATION_LOSS_WORSE") if veto else (reached, code)
    assert (made.state, made.deciding.code) == expected
