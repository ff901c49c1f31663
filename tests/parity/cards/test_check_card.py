"""A card agrees with its evidence in every field, or each field that does not is named."""

from dataclasses import replace

import numpy as np
import pytest

from parity.cards.card import CardStatement
from parity.cards.check_card import check_alone, check_card, other_judge
from parity.cards.make_card import ServerFacts
from tests.parity.cards.cases import CASES, STATES, card_of, case

JOB, FAILED_JOB = "j0123456789ab-0000000002", "j0123456789ab-0000000001"
SIGN_OFF = {
    "candidate": "mxfp8",
    "who": "jane",
    "expires_at": "2027-01-01T00:00:00Z",
    "reason": "reruns are queued",
    "state": "valid",
}


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


def _signed(**changes):
    """The card of a job with an inconclusive candidate that somebody signed off."""
    facts = ServerFacts(job=JOB, sign_offs=[SIGN_OFF | changes])
    return card_of(case({"mxfp8": 0.0134}), facts=facts)


def _fields(lines):
    return {line.partition(": ")[0] for line in lines}


def test_a_sign_off_is_verified_by_the_job_and_not_by_a_bundle():
    card = _signed()
    assert [one.who for one in card.sign_offs] == ["jane"]
    check = check_card(card, replace(card, job=None, sign_offs=[]), is_rejudged=True)
    assert (check.result, check.differences) == ("not verified", ())
    assert {"job", "failed_by", "sign_offs.mxfp8"} <= _fields(check.unverified)
    check = check_card(card, card, is_rejudged=True, is_live=True)
    assert check.result == "verified"
    assert {"job", "sign_offs.mxfp8"} <= {*check.verified}


def test_a_sign_off_without_a_job_is_that_of_its_bundle_or_differs():
    card = replace(_signed(), job=None)
    assert check_card(card, card, is_rejudged=True).result == "verified"
    for recorded in ([], _signed(reason="other words, of another day").sign_offs):
        check = check_card(card, replace(card, sign_offs=recorded), is_rejudged=True)
        assert (check.result, _fields(check.differences)) == ("differs", {"sign_offs.mxfp8"})


def test_a_sign_off_that_the_job_has_no_record_of_differs_and_one_that_ended_is_not_verified():
    card, unsigned = _signed(), replace(_signed(), sign_offs=[])
    assert check_card(card, unsigned, is_rejudged=True, is_live=True).result == "differs"
    of_bundle = check_card(card, unsigned, is_rejudged=True)
    assert (of_bundle.result, of_bundle.differences) == ("not verified", ())
    check = check_card(card, unsigned, is_rejudged=True, is_live=True, ended=card.sign_offs)
    assert (check.result, check.differences) == ("not verified", ())
    renewed = _signed(reason="the reruns are late")
    check = check_card(card, renewed, is_rejudged=True, is_live=True, ended=card.sign_offs)
    assert (check.result, check.differences) == ("not verified", ())


def test_a_card_that_is_older_than_a_sign_off_is_verified():
    card = replace(_signed(), sign_offs=[])
    check = check_card(card, _signed(), is_rejudged=True)
    assert (check.result, check.differences) == ("verified", ())
    assert "sign_offs.mxfp8" in _fields(check.unverified)


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4", "llama_70b"])
def test_a_sign_off_of_what_is_not_inconclusive_contradicts_the_card(name, cards):
    card = cards["several candidates"]
    (signed,) = _signed().sign_offs
    attacked = replace(card, job=JOB, sign_offs=[replace(signed, candidate=name)])
    for check in (check_alone(attacked), check_card(attacked, attacked, is_rejudged=True)):
        assert (check.result, _fields(check.differences)) == ("differs", {f"sign_offs.{name}"})
    honest = replace(card, job=JOB, sign_offs=[replace(signed, candidate="nvfp4_no_rht")])
    assert check_alone(honest).result == "not verified"
    twice = replace(honest, sign_offs=honest.sign_offs * 2)
    assert check_alone(twice).result == "differs"


def test_an_expired_sign_off_is_not_on_a_card():
    for state in ("expired", "revoked", "void"):
        sign_off = dict.fromkeys(("candidate", "who", "expires_at", "reason"), "x")
        facts = ServerFacts(job=JOB, sign_offs=[sign_off | {"state": state}])
        assert card_of(case({"mxfp8": 0.0134}), facts=facts).sign_offs == []


def test_a_fail_of_the_same_question_makes_the_card_of_a_pass_a_fail():
    made = case({"mxfp8": 0.0})
    card = card_of(made, facts=ServerFacts(job=JOB, failed_by=FAILED_JOB))
    assert (card.state, card.headline.startswith("FAIL: "), card.candidates[0].verdict) == (
        "fail",
        True,
        "pass",
    )
    assert check_card(card, card, is_rejudged=True, is_live=True).result == "verified"
    hidden = replace(card, failed_by=None, state="pass", headline=card_of(made).headline)
    for is_live in (True, False):
        for job in (JOB, None):
            check = check_card(replace(hidden, job=job), card, is_rejudged=True, is_live=is_live)
            assert check.result == "differs"
            assert {"state", "headline"} <= _fields(check.differences)


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


@pytest.mark.parametrize("failed_by", [FAILED_JOB, None])
def test_whether_a_question_failed_before_is_not_verified_by_runs_alone(failed_by):
    made = case({"mxfp8": 0.0})
    of_job = card_of(made, facts=ServerFacts(job=JOB, failed_by=failed_by))
    check = check_card(of_job, card_of(made), is_rejudged=True)
    assert (check.result, check.differences) == ("not verified", ())
    assert {"state", "headline", "failed_by"} <= _fields(check.unverified)
    assert not {"state", "headline"} & {*check.verified}
    assert check_card(of_job, of_job, is_rejudged=True).result == "verified"
    other = replace(of_job, headline=f"{of_job.state.upper()}: as agreed")
    assert check_card(other, card_of(made), is_rejudged=True).result == "differs"


@pytest.mark.parametrize("failed_by", [FAILED_JOB, None])
def test_the_card_of_a_job_is_verified_by_what_its_bundle_records(failed_by):
    card = card_of(case({"mxfp8": 0.0}), facts=ServerFacts(job=JOB, failed_by=failed_by))
    check = check_card(card, card, is_rejudged=True)
    assert (check.result, check.differences) == ("verified", ())
    assert _fields(check.unverified) == {"parity", "job", "failed_by"}
    assert {"state", "headline"} <= {*check.verified}


def test_a_fail_after_the_bundle_was_made_is_not_verified_by_it():
    made = case({"mxfp8": 0.0})
    card = card_of(made, facts=ServerFacts(job=JOB, failed_by=FAILED_JOB))
    check = check_card(card, card_of(made, facts=ServerFacts(job=JOB)), is_rejudged=True)
    assert (check.result, check.differences) == ("not verified", ())
    assert {"state", "headline", "failed_by"} <= _fields(check.unverified)


def test_the_bundle_of_another_job_differs():
    made = case({"mxfp8": 0.0})
    card, other = (card_of(made, facts=ServerFacts(job=job)) for job in (JOB, FAILED_JOB))
    for is_live in (True, False):
        check = check_card(card, other, is_rejudged=True, is_live=is_live)
        assert (check.result, _fields(check.differences)) == ("differs", {"job"})


def test_a_card_of_runs_is_verified_by_the_job_that_they_were_sent_to():
    made = case({"mxfp8": 0.0})
    of_job = card_of(made, facts=ServerFacts(job=JOB))
    for is_live in (True, False):
        check = check_card(card_of(made), of_job, is_rejudged=True, is_live=is_live)
        assert (check.result, check.differences) == ("verified", ())
        assert {"job", "failed_by"} <= _fields(check.unverified)


@pytest.mark.parametrize("name", ["fail", "inconclusive"])
def test_a_job_that_no_earlier_fail_changes_is_verified_by_its_bundle(name, cards):
    of_job = replace(cards[name], job=JOB)
    assert check_card(of_job, cards[name], is_rejudged=True).result == "verified"


@pytest.mark.parametrize(
    "changes",
    [
        {"parity": "0.1.0. Reviewed and reproduced by MLCommons"},
        {"parity": "0.1.0\n\n## Correction"},
        {"parity": "0.1.\u09e6"},
        {"judge": "0.8.0, certified"},
        {"job": "j1. PASS at 70B, 15 T tokens"},
        {"job": JOB, "failed_by": "another"},
        {"failed_by": FAILED_JOB},
    ],
)
def test_free_text_where_a_version_or_an_id_stands_is_a_contradiction(changes, cards):
    attacked = replace(cards["fail"], **changes)
    assert check_alone(attacked).result == "differs"
    assert check_card(attacked, cards["fail"], is_rejudged=True).result == "differs"


@pytest.mark.parametrize("version", ["0.1.0", "1.2", "0.2.0rc1"])
def test_the_version_of_another_parity_is_none(version, cards):
    card = replace(cards["fail"], parity=version)
    assert check_card(card, cards["fail"], is_rejudged=True).result == "verified"


@pytest.mark.parametrize(
    "author", ["Jane; recipe of mxfp8 bf16, by NVIDIA", "Jane\n\n### FAIL", "", " Jane", "x" * 101]
)
def test_an_author_that_reads_as_more_than_a_name_differs(author, cards):
    card = cards["fail"]
    first, *others = card.statements
    named = replace(card, statements=[replace(first, by=author), *others])
    assert check_card(named, card, is_rejudged=True).result == "differs"
    assert check_card(named, named, is_rejudged=True).result == "verified"


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
