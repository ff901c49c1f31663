"""Several candidates: the safest one leads, and the others are counted."""

from typing import Any

from parity.report.candidates import others_words, safest_first, tally
from parity.report.view import views_of


def test_the_safest_candidate_leads_and_the_others_are_counted(documents: dict[str, Any]) -> None:
    cases = [
        {**documents[name], "candidate": {**documents[name]["candidate"], "name": name}}
        for name in ("nan", "fail", "straddle", "pass")
    ]
    assert [view.candidate.name for view in safest_first(views_of(cases))] == [
        "pass",
        "straddle",
        "fail",
        "nan",
    ]
    assert others_words(views_of(cases)) == "fail, nan fail; straddle is undecided."
    assert tally(views_of(cases)) == [("pass", 1), ("inconclusive", 1), ("fail", 2)]
    assert others_words(views_of(cases[:1])) == ""
