"""Several candidates: their order, the one that decides, and how many have each state."""

from typing import Any

from parity.report.candidates import deciding, decisiveness, safest_first, tally
from parity.report.view import View, views_of


def views_named(documents: dict[str, Any], *names: str) -> list[View]:
    renamed: list[Any] = [
        {**documents[name], "candidate": {**documents[name]["candidate"], "name": name}}
        for name in names
    ]
    return views_of(renamed)


def test_the_safest_candidate_comes_first_and_all_are_counted(documents: dict[str, Any]) -> None:
    views = views_named(documents, "nan", "fail", "straddle", "pass")
    names = [view.candidate.name for view in safest_first(views)]
    assert names == ["pass", "straddle", "fail", "nan"]
    assert tally(views) == [("fail", 2), ("pass", 1), ("inconclusive", 1)]


def test_of_fails_one_without_a_gap_decides_then_the_farthest_above(
    documents: dict[str, Any],
) -> None:
    views = views_named(documents, "pass", "fail", "straddle", "nan")
    assert deciding(views).candidate.name == "nan"
    assert deciding(views[:3]).candidate.name == "fail"
    assert decisiveness("fail", (0.03, 0.02, 0.04), 0.01) > decisiveness(
        "fail", (0.02, 0.015, 0.05), 0.01
    )


def test_of_undecided_candidates_the_nearest_to_a_decision_decides() -> None:
    near, far = (0.0, -0.02, 0.011), (0.01, -0.02, 0.04)
    assert decisiveness("inconclusive", near, 0.01) > decisiveness("inconclusive", far, 0.01)
    assert decisiveness("inconclusive", far, 0.01) > decisiveness("inconclusive", None, 0.01)
    below = (0.0, -0.01, 0.005)  # open for another reason: nothing of the gap is missing
    assert decisiveness("inconclusive", below, 0.01) == 0.0


def test_of_passes_the_nearest_to_the_margin_decides() -> None:
    assert decisiveness("pass", (0.0, -0.01, 0.009), 0.01) > decisiveness(
        "pass", (0.001, 0.0, 0.002), 0.01
    )


def test_candidates_with_other_margins_are_compared_in_margins() -> None:
    assert decisiveness("fail", (0.03, 0.02, 0.04), 0.01) > decisiveness(
        "fail", (0.05, 0.04, 0.06), 0.02
    )
