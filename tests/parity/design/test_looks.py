"""What further looks and candidates do to a plan."""

import dataclasses
import itertools

import pytest

from parity.design import plan_words as sentences
from parity.design.chances import NO_FAMILIES, chances
from parity.design.experiment import Design, run_steps
from parity.design.looks import looks_ahead
from parity.design.plan import plan
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy

PAIR = Design(
    planned_steps=10_000, level=2.4, baseline_recipe="fp8_current", candidate_recipe="nvfp4"
)


def test_one_look_has_none_ahead_and_todays_chances() -> None:
    outlook = plan(PAIR, Policy(margin="1%"))
    assert outlook.looks == ()
    assert outlook.confidence == 0.95
    assert sentences.looks(outlook) == ""


def test_the_first_look_of_several_agrees_with_the_exact_chances() -> None:
    policy = Policy(margin="1%", looks=3)
    ahead = looks_ahead(PAIR, policy, NO_FAMILIES, 0.024)
    exact = chances(PAIR, policy)
    # 1,000 draws: 3 standard errors
    assert ahead[0].passed == pytest.approx(exact.passes(0.0, 0.024), abs=0.05)
    assert ahead[0].failed == pytest.approx(exact.fails(0.048, 0.024), abs=0.05)
    assert ahead[0].run_steps == run_steps(PAIR)


def test_looks_only_add_decisions_and_cost() -> None:
    ahead = looks_ahead(PAIR, Policy(margin="1%", looks=3), NO_FAMILIES, 0.024)
    for before, after in itertools.pairwise(ahead):
        assert before.passed <= after.passed <= 1.0
        assert before.failed <= after.failed <= 1.0
        assert before.run_steps <= after.run_steps <= run_steps(after.design)
    assert [look.confidence for look in ahead] == pytest.approx(
        [Multiplicity(looks=3).confidence(0.95)] * 3
    )
    assert ahead[-1].passed > 0.85


def test_a_plan_has_one_number_for_each_chance() -> None:
    """Three decimals of the exact chance, of which 1,000 draws would be another number."""
    outlook = plan(PAIR, Policy(margin="0.6%", looks=2))
    at_first, by_the_end = outlook.pass_chance, outlook.pass_chance_by_the_end
    assert (at_first, by_the_end) == (outlook.looks[0].passed, outlook.looks[1].passed)
    assert 0.1 < at_first < by_the_end < 1.0
    printed = f"{sentences.headline(outlook)} {sentences.looks(outlook)}"
    first, end = f"{100 * at_first:.0f} %", f"{100 * by_the_end:.0f} %"
    assert [printed.count(chance) for chance in (first, end)] == [1, 2]
    assert f"{end} probability by look 2" in printed
    assert end in sentences.one_line(outlook)
    assert outlook.power[-1].fail_chance == outlook.looks[0].failed


def test_looks_at_a_policy_that_forbids_a_pass_promise_none() -> None:
    rejects = Policy(margin="1%", looks=2, assumed_noise="reject")
    outlook = plan(PAIR, rejects)
    assert (bool(outlook.no_pass), sentences.looks(outlook)) == (True, "")


def test_candidates_share_the_error_and_the_baseline() -> None:
    three = dataclasses.replace(PAIR, candidates=3)
    assert run_steps(three) == 40_000
    alone, shared = (plan(design, Policy(margin="1%")) for design in (PAIR, three))
    assert shared.confidence == pytest.approx(1.0 - 0.05 / 3)
    assert shared.half_width > alone.half_width
    assert shared.pass_chance < alone.pass_chance
    assert "3 candidates" in sentences.one_line(shared)
    assert "98.3 %" in sentences.looks(shared)


def test_the_same_plan_twice() -> None:
    policy = Policy(margin="1%", looks=2)
    assert looks_ahead(PAIR, policy, NO_FAMILIES, 0.024) == looks_ahead(
        PAIR, policy, NO_FAMILIES, 0.024
    )


@pytest.mark.parametrize("candidates", [0, -1])
def test_no_candidate_is_refused(candidates: int) -> None:
    with pytest.raises(ValueError, match="candidates is"):
        dataclasses.replace(PAIR, candidates=candidates)
