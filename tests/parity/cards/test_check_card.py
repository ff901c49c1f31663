"""A card agrees with its evidence in every field, or each field that does not is named."""

from dataclasses import replace

import numpy as np
import pytest

from parity.cards.card import CardSignOff, CardStatement
from parity.cards.check_card import check_alone, check_card, other_judge
from parity.cards.make_card import ServerFacts
from tests.parity.cards.cases import CASES, STATES, card_of, case


@pytest.fixture(scope="module")
def cards():
    return {name: card_of(make()) for name, make in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_card_agrees_with_the_evidence_that_it_was_made_of(name, cards):
    check = check_card(cards[name], card_of(CASES[name]()), is_rejudged=True)
    assert (check.result, check.differences) == ("verified", ())
    assert [line.partition(":")[0] for line in check.unverified] == ["parity"]
    assert cards[name].state == STATES[name]


def _first(card, **changes):
    first, *others = card.candidates
    return replace(card, candidates=[replace(first, **changes), *others])


def _interval(card, **changes):
    gap = card.candidates[0].gap
    return _first(card, gap=replace(gap, deciding=replace(gap.deciding, **changes)))


PLANTED = {
    "the verdict is flipped": (
        lambda card: replace(
            _first(card, verdict="pass"), state="pass", headline="PASS: You may switch to nvfp4."
        ),
        {"state", "headline", "candidates.nvfp4", "candidates.nvfp4.verdict"},
    ),
    "only the headline hides the fail": (
        lambda card: replace(card, headline="PASS: You may switch to nvfp4."),
        {"headline"},
    ),
    "the gap is rounded": (
        lambda card: _first(
            card, gap=replace(card.candidates[0].gap, mean=round(card.candidates[0].gap.mean, 4))
        ),
        {"candidates.nvfp4.gap.mean"},
    ),
    "the interval is that of another level": (
        lambda card: _interval(card, lo=0.0447, hi=0.0539),
        {"candidates.nvfp4.gap.deciding.lo", "candidates.nvfp4.gap.deciding.hi"},
    ),
    "the level is another": (
        lambda card: _interval(card, level=0.99),
        {"candidates.nvfp4.gap.deciding.level"},
    ),
    "a statement is removed": (
        lambda card: replace(card, statements=card.statements[1:]),
        {"statements.planned_steps"},
    ),
    "a statement is changed": (
        lambda card: replace(
            card, statements=[replace(card.statements[0], value="1000"), *card.statements[1:]]
        ),
        {"statements.planned_steps"},
    ),
    "a statement is added": (
        lambda card: replace(
            card,
            statements=[
                *card.statements,
                CardStatement(fact="start", arm=None, value="loaded", by=None),
            ],
        ),
        {"statements.start"},
    ),
    "the digest is changed": (
        lambda card: replace(card, evidence_sha256="0" * 64),
        {"evidence_sha256"},
    ),
    "the margin is widened": (
        lambda card: _first(card, margin=replace(card.candidates[0].margin, nats=0.08)),
        {"candidates.nvfp4.margin.nats", "candidates.nvfp4"},
    ),
    "the policy's margin is widened": (
        lambda card: replace(card, policy=card.policy | {"margin": "5 %"}),
        {"policy.margin"},
    ),
    "a code is left out": (
        lambda card: _first(card, codes=card.candidates[0].codes[:1]),
        {"candidates.nvfp4.codes"},
    ),
    "another recipe": (
        lambda card: _first(card, arm=replace(card.candidates[0].arm, recipe="mxfp8")),
        {"candidates.nvfp4.arm.recipe"},
    ),
    "a candidate is left out": (
        lambda card: replace(card, candidates=[]),
        None,
    ),
    "another commit": (
        lambda card: replace(card, commits={"code_revision": "ffff"}),
        {"commits.code_revision"},
    ),
    "another device": (
        lambda card: replace(card, devices={}),
        {"devices.device_class"},
    ),
    "less noise": (
        lambda card: _first(card, arm=replace(card.candidates[0].arm, noise=None)),
        None,
    ),
    "more steps": (
        lambda card: _first(card, last_step=150_000),
        {"candidates.nvfp4.last_step"},
    ),
}


@pytest.mark.parametrize("change", PLANTED)
def test_a_planted_change_is_found_and_named(change, cards):
    plant, fields = PLANTED[change]
    check = check_card(plant(cards["fail"]), cards["fail"], is_rejudged=True)
    assert check.result == "differs"
    if fields is not None:
        assert {line.partition(": ")[0] for line in check.differences} == fields


@pytest.mark.parametrize("name", [name for name in CASES if name != "fail"])
def test_the_card_of_other_evidence_differs(name, cards):
    check = check_card(cards["fail"], cards[name], is_rejudged=True)
    assert "evidence_sha256" in {line.partition(": ")[0] for line in check.differences}


def test_the_last_bit_of_a_number_on_another_machine_is_no_difference(cards):
    def moved(value):
        return float(np.nextafter(value, np.inf) * (1 + 1e-13))

    for card in cards.values():
        gap = card.candidates[0].gap
        interval = replace(gap.deciding, lo=moved(gap.deciding.lo), hi=moved(gap.deciding.hi))
        other = _first(card, gap=replace(gap, mean=moved(gap.mean), deciding=interval))
        assert check_card(card, other, is_rejudged=True).result == "verified"


@pytest.mark.parametrize(
    "change",
    ["the verdict is flipped", "only the headline hides the fail", "the margin is widened"],
)
def test_a_card_alone_is_not_verified_and_one_that_contradicts_itself_differs(change, cards):
    assert check_alone(cards["fail"]).result == "not verified"
    plant, _ = PLANTED[change]
    if change != "the verdict is flipped":
        assert check_alone(plant(cards["fail"])).result == "differs"
    else:  # its interval is above the margin
        assert any("a pass" in line for line in check_alone(plant(cards["fail"])).differences)


def test_what_only_the_server_knows_is_not_verified_by_a_bundle():
    made = case({"mxfp8": 0.0134})
    sign_off = {
        "candidate": "mxfp8",
        "who": "jane",
        "expires_at": "2027-01-01T00:00:00Z",
        "reason": "reruns are queued",
        "state": "valid",
    }
    of_job = card_of(made, facts=ServerFacts(job="j1", sign_offs=[sign_off]))
    assert of_job.sign_offs == [
        CardSignOff(**{key: value for key, value in sign_off.items() if key != "state"})
    ]
    check = check_card(of_job, card_of(made), is_rejudged=True)
    assert check.result == "verified"
    fields = {line.partition(":")[0] for line in check.unverified}
    assert {"job", "failed_by", "sign_offs.mxfp8"} <= fields
    again = check_card(of_job, of_job, is_rejudged=True)
    assert {"job", "sign_offs.mxfp8"} <= {*again.verified}


def test_an_expired_sign_off_is_not_on_a_card():
    for state in ("expired", "revoked", "void"):
        sign_off = dict.fromkeys(("candidate", "who", "expires_at", "reason"), "x")
        facts = ServerFacts(job="j1", sign_offs=[sign_off | {"state": state}])
        assert card_of(case({"mxfp8": 0.0134}), facts=facts).sign_offs == []


def test_a_fail_of_the_same_question_makes_the_card_of_a_pass_a_fail():
    made = case({"mxfp8": 0.0})
    card = card_of(made, facts=ServerFacts(job="j2", failed_by="j1"))
    assert (card.state, card.headline.startswith("FAIL: "), card.candidates[0].verdict) == (
        "fail",
        True,
        "pass",
    )
    assert check_card(card, card, is_rejudged=True).result == "verified"
    hidden = replace(card, failed_by=None, state="pass", headline=card_of(made).headline)
    assert check_card(hidden, card, is_rejudged=True).result == "differs"


def test_who_stated_something_is_verified_only_where_the_evidence_names_them(cards):
    card = cards["fail"]
    named = replace(card, statements=[replace(card.statements[0], by="jane"), *card.statements[1:]])
    check = check_card(named, card, is_rejudged=True)
    assert check.result == "verified"
    assert any(line.startswith("statements.planned_steps.by: ") for line in check.unverified)
    assert check_card(card, named, is_rejudged=True).result == "differs"
    named_twice = check_card(named, replace(named, statements=card.statements), is_rejudged=True)
    assert named_twice.result == "verified"


def test_a_card_of_another_judge_is_not_called_verified(cards):
    assert other_judge(cards["pass"]).result == "other judge"
    assert check_card(cards["pass"], cards["pass"], is_rejudged=False).result == "other judge"


def test_a_card_under_a_standing_fail_is_verified_by_its_bundle():
    made = case({"mxfp8": 0.0})
    of_job = card_of(made, facts=ServerFacts(job="j2", failed_by="j1"))
    check = check_card(of_job, card_of(made), is_rejudged=True)
    assert (check.result, check.differences) == ("verified", ())
    assert any(line.startswith("failed_by: ") for line in check.unverified)


def test_a_failing_candidate_that_is_left_out_is_found(cards):
    card = cards["several candidates"]
    kept = [candidate for candidate in card.candidates if candidate.verdict == "pass"]
    cut = replace(card, candidates=kept, state="pass", headline="PASS: You may switch to mxfp8.")
    check = check_card(cut, card, is_rejudged=True)
    assert {"candidates.nvfp4.verdict", "state"} <= {
        line.partition(": ")[0] for line in check.differences
    }


@pytest.mark.parametrize("names", [("x (2)", "x"), ("x", "x (2)"), ("x.gap", "x"), ("by", "x.by")])
def test_names_that_look_alike_hide_no_candidate(names, cards):
    first = cards["fail"].candidates[0]
    named = [replace(first, arm=replace(first.arm, name=name)) for name in names]
    card = replace(cards["fail"], candidates=named)
    assert check_card(card, card, is_rejudged=True).result == "verified"
    for index in (0, 1):
        changed = [*named]
        changed[index] = replace(named[index], last_step=1)
        check = check_card(replace(card, candidates=changed), card, is_rejudged=True)
        assert check.result == "differs"


def test_a_statement_or_a_fact_whose_name_ends_like_an_authors_is_compared(cards):
    card = cards["fail"]
    stated = CardStatement(fact="recipe", arm="fp8.by", value="nvfp4", by=None)
    for changed in (
        replace(card, statements=[*card.statements, stated]),
        replace(card, commits=card.commits | {"code.by": "ffff"}),
        replace(card, policy=card.policy | {"sign_offs.mxfp8": "x"}),
    ):
        assert check_card(changed, card, is_rejudged=True).result == "differs"
        assert check_card(card, changed, is_rejudged=True).result == "differs"
