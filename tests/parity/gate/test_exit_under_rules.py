"""The exit code of a gate: its rules loosen, the server's pin and a stated schedule tighten."""

import dataclasses

import pytest

from parity.gate.exit_under_rules import exit_code_under
from parity.gate.outcome import GateOutcome, result_of
from parity.gate.rules import GateRules, gate_rules_from_mapping
from parity.judging.policy import PolicyError

OUTCOME = GateOutcome(
    result="infrastructure",
    revision="r",
    trouble="no worker",
    job="j1",
    source="new",
    reason="new",
    url="http://x/jobs/j1",
)


@pytest.mark.parametrize(
    ("result", "rules", "code"),
    [
        ("infrastructure", {}, 4),
        ("infrastructure", {"on_infra": "pass"}, 0),
        ("infrastructure", {"on_inconclusive": "pass"}, 4),
        ("timeout", {"on_infra": "pass", "on_inconclusive": "pass"}, 5),
        ("timeout", {"advisory": True}, 0),
        ("fail", {"on_infra": "pass", "on_inconclusive": "pass"}, 1),
        ("fail", {"advisory": True}, 0),
        ("inconclusive", {"on_infra": "pass"}, 3),
        ("pass", {}, 0),
    ],
)
def test_the_exit_code_under_rules(result, rules, code):
    left_with, note = exit_code_under(
        dataclasses.replace(OUTCOME, result=result), GateRules(**rules)
    )
    assert left_with == code
    assert bool(note) == (code == 0 and result != "pass")


@pytest.mark.parametrize(
    ("result", "rules", "pinned", "code"),
    [
        ("fail", {"advisory": True}, {}, 1),
        ("fail", {"advisory": True}, {"advisory": True}, 0),
        ("infrastructure", {"on_infra": "pass"}, {}, 4),
        ("infrastructure", {"on_infra": "pass"}, {"on_infra": "pass"}, 0),
        ("infrastructure", {}, {"on_infra": "pass"}, 4),
        ("timeout", {"advisory": True}, {"on_infra": "pass"}, 5),
        ("pass", {"advisory": True}, {}, 0),
    ],
)
def test_what_the_server_pinned_is_not_loosened(result, rules, pinned, code):
    told = {
        "repository": "team/model",
        "on_inconclusive": "fail",
        "on_infra": "fail",
        "advisory": False,
    } | pinned
    left_with, note = exit_code_under(
        dataclasses.replace(OUTCOME, result=result, pinned=told), GateRules(**rules)
    )
    loosened = [key for key, value in rules.items() if pinned.get(key) != value]
    assert left_with == code
    assert ("team/model" in note) is bool(loosened)


@pytest.mark.parametrize(
    ("result", "rules", "server", "code"),
    [
        ("pass", {}, 1, 1),
        ("fail", {"advisory": True}, 1, 1),
        ("pass", {}, 0, 0),
        ("fail", {}, 0, 1),  # pinned as advisory, and not by this gate
        ("inconclusive", {}, 3, 3),
    ],
)
def test_the_servers_exit_code_is_not_loosened(result, rules, server, code):
    told = {
        "repository": "team/model",
        "on_inconclusive": "fail",
        "on_infra": "fail",
        "advisory": False,
    }
    outcome = dataclasses.replace(
        OUTCOME, result=result, trouble=None, pinned=told, server_code=server
    )
    assert exit_code_under(outcome, GateRules(**rules))[0] == code


def _verdict(code, gap=None, verdict="inconclusive"):
    return {
        "verdict": verdict,
        "codes": [code],
        "gap": gap,
        "margin": gap and {"nats": 0.014},
        "candidate": {"name": "c"},
        "window": {"n": 200},
    }


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([_verdict("CI_STRADDLES_MARGIN", {"lo": 0.0, "hi": 0.02})], 0),
        ([_verdict("EMPTY")], 3),
        ([_verdict("ARMS_IDENTICAL", {"lo": 0.0, "hi": 0.0})], 3),
        ([_verdict("CI_STRADDLES_MARGIN", {"lo": 0.0, "hi": 0.02}), _verdict("EMPTY")], 3),
        ([], 3),
    ],
)
def test_on_inconclusive_pass_accepts_a_measured_gap_only(verdicts, code):
    outcome = GateOutcome(result="inconclusive", revision="r", verdicts=verdicts)
    left_with, note = exit_code_under(outcome, GateRules(on_inconclusive="pass"))
    assert (left_with, "does not apply" in note) == (code, code == 3)


def test_a_sign_off_is_needed_for_every_open_candidate_and_never_helps_a_fail():
    straddles = _verdict("CI_STRADDLES_MARGIN", {"lo": 0.0, "hi": 0.02})
    other = straddles | {"candidate": {"name": "d"}}
    signed = {"c": {"candidate": "c"}}
    passed = straddles | {"verdict": "pass", "candidate": {"name": "d"}}
    failed = straddles | {"verdict": "fail", "candidate": {"name": "d"}}
    for verdicts, result, is_accepted in (
        ([straddles], "inconclusive", True),
        ([straddles, passed], "inconclusive", True),
        ([straddles, other], "inconclusive", False),
        ([straddles, failed], "fail", False),
        ([passed], "pass", False),
        ([], "inconclusive", False),
    ):
        outcome = GateOutcome(result=result, revision="r", verdicts=verdicts, accepted=signed)
        assert outcome.is_accepted is is_accepted
        assert (exit_code_under(outcome, GateRules())[0] == 0) is (is_accepted or result == "pass")
    troubled = GateOutcome(
        result="inconclusive", revision="r", verdicts=[straddles], accepted=signed, trouble="x"
    )
    assert not troubled.is_accepted


def _passed(as_of="refuse", code="SCHEDULE_STATED"):
    return _verdict("WITHIN_MARGIN", {"lo": -0.01, "hi": 0.01}, "pass") | {
        "codes": ["WITHIN_MARGIN", code],
        "params": {"policy": {"as_of": as_of}},
    }


@pytest.mark.parametrize(
    ("verdicts", "rules", "result", "code"),
    [
        ([_passed()], {}, "inconclusive", 3),
        ([_passed("accept")], {}, "pass", 0),
        ([_passed(code="ROUNDED")], {}, "pass", 0),
        ([_passed()], {"on_inconclusive": "pass"}, "inconclusive", 0),
        ([_passed(code="ROUNDED"), _passed()], {}, "inconclusive", 3),
        ([_passed(), _verdict("GAP_EXCEEDS_MARGIN", verdict="fail")], {}, "fail", 1),
    ],
)
def test_the_end_of_a_schedule_that_is_only_stated_passes_no_gate(verdicts, rules, result, code):
    assert result_of(verdicts) == result
    outcome = dataclasses.replace(OUTCOME, result=result, trouble=None, verdicts=verdicts)
    left_with, note = exit_code_under(outcome, GateRules(**rules))
    assert left_with == code
    assert ("SCHEDULE_STATED" in note) == (code == 3)


def test_a_sign_off_of_another_candidate_does_not_cover_a_stated_schedule():
    signed = _verdict("CI_STRADDLES_MARGIN")
    outcome = dataclasses.replace(
        OUTCOME, result="inconclusive", trouble=None, verdicts=[signed], accepted={"c": {}}
    )
    assert outcome.is_accepted
    assert not dataclasses.replace(outcome, verdicts=[signed, _passed()]).is_accepted


FINE = {"exit_code": 0, "headline": "h", "scope": "s", "blocked": None}
CHANGED = FINE | {"exit_code": 1}
BLOCKED = FINE | {"blocked": "another precision would look like that"}
NO_RULES = GateRules()
PINNED = {"repository": "r", "on_inconclusive": "fail", "on_infra": "fail", "advisory": False}


def _short(name="head", code="TOO_FEW_STEPS", verdict="inconclusive"):
    return {"candidate": {"name": name}, "verdict": verdict, "codes": [code, "AS_OF"], "params": {}}


def _left(verdicts, numerics, pinned="pass", rules=NO_RULES):
    told = None if pinned is None else PINNED | {"on_same_numerics": pinned}
    outcome = dataclasses.replace(
        OUTCOME,
        trouble=None,
        result=result_of(verdicts),
        verdicts=verdicts,
        numerics=numerics,
        pinned=told,
    )
    return exit_code_under(outcome, rules)


def test_same_numerics_leave_with_0_only_where_the_operator_pinned_that():
    assert _left([_short()], {"head": FINE})[0] == 0
    assert _left([_short()], {"head": FINE})[1].startswith("same numerics, no verdict")
    for pinned in ("fail", None):
        assert _left([_short()], {"head": FINE}, pinned)[0] == 3
    # a server of before has no such key
    outcome = dataclasses.replace(
        OUTCOME,
        trouble=None,
        result="inconclusive",
        verdicts=[_short()],
        numerics={"head": FINE},
        pinned=PINNED,
    )
    assert exit_code_under(outcome, GateRules())[0] == 3


@pytest.mark.parametrize(
    ("verdicts", "numerics", "code"),
    [
        ([_short()], {}, 3),
        ([_short()], {"head": CHANGED}, 3),
        ([_short()], {"head": BLOCKED}, 3),
        ([_short()], {"other": FINE}, 3),
        ([_short(), _short("other")], {"head": FINE}, 3),
        ([_short(), _short("other")], {"head": FINE, "other": FINE}, 0),
        ([_short(), _short("other", "WITHIN_MARGIN", "pass")], {"head": FINE}, 0),
        ([_short(), _short("other", "DIVERGED", "fail")], {"head": FINE}, 1),
        ([_short(code="CONFOUNDED")], {"head": FINE}, 3),
        ([_short(verdict="fail")], {"head": FINE}, 1),
    ],
)
def test_same_numerics_speak_of_candidates_that_are_too_short_alone(verdicts, numerics, code):
    assert _left(verdicts, numerics)[0] == code


@pytest.mark.parametrize("rules", [{}, {"on_inconclusive": "pass"}, {"advisory": True}])
def test_options_that_are_pinned_stricter_do_not_take_same_numerics_away(rules):
    assert _left([_short()], {"head": FINE}, rules=GateRules(**rules))[0] == 0
    assert _left([_short()], {"head": CHANGED}, rules=GateRules(**rules))[0] == 3


def test_no_file_and_no_option_has_the_key():
    with pytest.raises(PolicyError, match="on_same_numerics"):
        gate_rules_from_mapping({"on_same_numerics": "pass"})
