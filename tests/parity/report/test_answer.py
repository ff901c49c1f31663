"""The one answer of several candidates: the worst state and one lead; the rest is of the candidate
that decides.
"""

from dataclasses import replace
from typing import Any

import pytest

from parity.report.answer import LONGEST_LEAD, advising, answer_words, lead_of_all, lead_of_names
from parity.report.view import View
from parity.report.words import words
from tests.parity.report.test_candidates import views_named


def renamed(view: View, name: str) -> View:
    return replace(view, candidate=replace(view.candidate, name=name, title=name))


def test_one_candidate_has_the_words_of_its_verdict(documents: dict[str, Any]) -> None:
    for view in views_named(documents, *documents):
        assert answer_words([view]) == words(view)


@pytest.mark.parametrize(
    ("names", "state", "lead"),
    [
        (("pass", "fail"), "fail", "fail fails. You may switch to pass."),
        (
            ("straddle", "pass", "fail"),
            "fail",
            "fail fails. You may switch to pass. straddle is open.",
        ),
        (("pass", "straddle"), "inconclusive", "You may switch to pass. straddle is open."),
        (("fail", "nan"), "fail", "fail and nan fail."),
    ],
)
def test_the_worst_state_leads_and_each_candidate_is_named(
    names: tuple[str, ...], state: str, lead: str, documents: dict[str, Any]
) -> None:
    answer = answer_words(views_named(documents, *names))
    assert (answer.verdict, answer.lead) == (state, lead)


def test_measure_and_interval_are_of_the_candidate_that_decides_and_name_it(
    documents: dict[str, Any],
) -> None:
    views = views_named(documents, "pass", "fail", "straddle")
    answer, fail = answer_words(views), words(views[1])
    assert answer.measure == fail.measure.replace("It ends", "fail ends")
    assert answer.interval == fail.interval
    assert answer.strip == fail.strip


def test_the_reason_of_a_fail_without_a_gap_names_its_candidate(documents: dict[str, Any]) -> None:
    answer = answer_words(views_named(documents, "pass", "nan"))
    assert answer.measure.startswith("nan: ") or "nan" in answer.measure


def test_the_next_step_is_of_the_candidate_that_decides(documents: dict[str, Any]) -> None:
    views = views_named(documents, "pass", "straddle")
    advised = advising(views)
    assert advised is not None
    assert advised.candidate.name == "straddle"
    assert answer_words(views).next.startswith("straddle: ")


def test_where_a_fail_decides_the_nearest_of_the_open_ones_has_its_step_too(
    documents: dict[str, Any],
) -> None:
    views = views_named(documents, "pass", "straddle", "fail")
    step = words(views[1]).next
    assert answer_words(views).next_open == f"straddle, which is open: {step}"
    two = [*views, renamed(views[1], "other")]
    assert answer_words(two).next_open.startswith(
        "straddle, of the 2 that are open the nearest to a decision: "
    )


@pytest.mark.parametrize("names", [("pass", "fail"), ("pass", "straddle"), ("straddle",)])
def test_nothing_is_added_where_no_other_candidate_is_open(
    names: tuple[str, ...], documents: dict[str, Any]
) -> None:
    assert answer_words(views_named(documents, *names)).next_open == ""


def test_an_accepted_verdict_tells_nobody_to_wait_and_keeps_its_state(
    documents: dict[str, Any],
) -> None:
    views = views_named(documents, "straddle", "fail")
    signed: Any = {"straddle": {"candidate": "straddle", "expires_at": "2026-12-13T17:00:00Z"}}
    said = answer_words(views[:1], accepted=signed)
    assert said.lead == "straddle is open, but accepted: you may use it until 2026-12-13."
    assert (said.verdict, said.next) == ("inconclusive", words(views[0]).next)
    assert answer_words(views, accepted=signed).lead == answer_words(views).lead
    assert answer_words(views[1:], accepted=signed).lead == "Do not switch to fail."


def test_several_that_pass_as_of_a_step_say_so(documents: dict[str, Any]) -> None:
    (view,) = views_named(documents, "pass")
    early = [replace(renamed(view, name), finished=False) for name in ("a", "b")]
    assert lead_of_all(early) == f"As of {view.point} you may switch to a or b."


def test_arms_of_one_recipe_pass_and_are_no_switch(documents: dict[str, Any]) -> None:
    (view,) = views_named(documents, "pass")
    revisions = [replace(renamed(view, name), compares=True) for name in ("a", "b")]
    assert lead_of_all(revisions) == "a and b pass."


@pytest.mark.parametrize(
    ("names", "lead"),
    [
        (
            {"fail": 17, "inconclusive": 11, "pass": 2},
            "17 of 30 fail, 11 are open. pass-00 and pass-01 pass.",
        ),
        ({"fail": 17, "inconclusive": 1, "pass": 12}, "17 of 30 fail, 1 is open, 12 pass."),
        ({"fail": 30}, "All 30 fail."),
        ({"inconclusive": 30}, "All 30 are open."),
        ({"pass": 30}, "All 30 pass."),
        ({"inconclusive": 29, "pass": 1}, "29 of 30 are open. pass-00 passes."),
        ({"fail": 1, "pass": 1}, "fail-00 fails. pass-00 passes."),
    ],
)
def test_where_the_names_do_not_fit_they_are_counted(names: dict[str, int], lead: str) -> None:
    listed = {state: [f"{state}-{i:02}" for i in range(n)] for state, n in names.items()}
    assert lead_of_names(listed) == lead
    assert len(lead) <= LONGEST_LEAD


def test_no_lead_is_longer_than_a_line_however_long_the_names() -> None:
    for length in range(1, 120):
        names = {"fail": ["f" * length], "pass": ["p" * length], "inconclusive": ["i" * length]}
        assert len(lead_of_names(names)) <= LONGEST_LEAD
