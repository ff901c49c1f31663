"""The margin that would pass is the smallest that does: a search over the judge finds the same."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.codes import BY_CODE
from parity.judging.curves.curve import Curve
from parity.judging.measurements import NO_FURTHER_RUNS, Compared
from parity.judging.multiplicity import ONE_LOOK
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.margin_to_pass import decided_at
from parity.judging.verdict.pair import PairQuestion, judge_pair
from parity.judging.verdict.verdict import Verdict, judge
from parity.report.facts import facts
from parity.report.view import view_of
from tests.conftest import some

MakeRun = Callable[..., Curve]
HAIR = 1e-6
WIDEST = 0.04  # of the loss: a wider one is refused for its width


def _judged(make_run: MakeRun, margin: float, gap: float, seed: int, **policy: Any) -> Verdict:
    """A pair of 600 steps at a margin that is a share of the loss."""
    base, cand = make_run(600), make_run(600, seed=seed, gap=gap)
    stated = policy_from_mapping(
        {"schedule": "decayed", "margin": f"{100 * margin:.15g}%"} | policy
    )
    (verdict,) = judge([base], {"cand": [cand], "other": [cand]}, stated, planned_steps=600)[:1]
    return verdict


def _searched(passes: Callable[[float], bool]) -> float | None:
    """The smallest margin that passes, by halving; None where the widest does not."""
    low, high = 0.0, WIDEST
    if not passes(high):
        return None
    while high - low > 1e-3 * HAIR * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


@settings(max_examples=some(12))
@given(
    st.sampled_from([-0.05, -0.02, -0.003, 0.0, 0.004, 0.02, 0.05]),
    st.integers(2, 30),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_it_is_what_a_search_over_the_judge_finds(
    make_run: MakeRun, gap: float, seed: int, two_sided: bool, looks: int
) -> None:
    policy = {"two_sided": two_sided, "looks": looks}

    def judged(margin: float) -> Verdict:
        return _judged(make_run, margin, gap, seed, **policy)

    verdict = judged(0.01)
    named = verdict.advice.margin_to_pass
    assert (named is not None) is BY_CODE[verdict.codes[0]].decided_by_interval
    if named is None:
        return
    share = named * verdict.margin.rel / verdict.margin.nats
    found = _searched(lambda margin: judged(margin).verdict == "pass")
    assert found == pytest.approx(share, rel=HAIR)
    assert judged(share * (1.0 + HAIR)).verdict == "pass"
    assert judged(share * (1.0 - HAIR)).verdict != "pass"


def test_a_better_candidate_needs_no_margin_as_wide_as_its_gain_and_interval(
    make_run: MakeRun,
) -> None:
    """The lower end counts under a two-sided policy alone."""
    one, two = (
        _judged(make_run, 0.01, -0.02, 2, two_sided=two_sided) for two_sided in (False, True)
    )
    ends = [verdict.document()["gap"] for verdict in (one, two)]
    assert one.advice.margin_to_pass == pytest.approx(-ends[0]["mean"])
    assert two.advice.margin_to_pass == pytest.approx(-ends[1]["lo"])


def test_as_of_a_point_no_margin_is_said_to_pass(make_run: MakeRun) -> None:
    """Its honest twin has come to its end."""

    def fact(schedule: str) -> str:
        verdict = _judged(make_run, 0.006, 0.016, 2, schedule=schedule)
        assert verdict.codes[0] == "CI_STRADDLES_MARGIN"
        return str(facts(view_of(verdict.document())))

    assert "would pass" not in fact("unstated")
    assert "would pass" in fact("decayed")


@settings(max_examples=some(20))
@given(
    st.sampled_from([-0.05, -0.003, 0.0, 0.004, 0.02, 0.05]),
    st.integers(2, 30),
    st.sampled_from([0.05, 0.3, 1.0, 3.0]),
    st.sampled_from([0.2, 0.9, 1.1, 5.0]),
)
def test_what_is_decided_at_another_margin_is_what_the_judge_decides_there(
    make_run: MakeRun, gap: float, seed: int, percent: float, factor: float
) -> None:
    def question(share: float) -> PairQuestion:
        return PairQuestion(
            compared=Compared("base", "cand"),
            baseline=[make_run(600)],
            candidate=[make_run(600, seed=seed, gap=gap)],
            policy=policy_from_mapping({"schedule": "decayed", "margin": f"{share:g}%"}),
            planned_steps=600,
            assume_complete=False,
            noise_families=NoiseFamilies(None, {}),
            further=NO_FURTHER_RUNS,
            multiplicity=ONE_LOOK,
            evaluations={},
        )

    there = question(percent * factor)
    assert decided_at(judge_pair(question(percent)), there.policy) == judge_pair(there).decision
