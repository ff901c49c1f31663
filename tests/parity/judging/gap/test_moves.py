"""Which commit moved the gap: what run-to-run noise explains names nobody, and shared curves count
as what they are.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve
from parity.judging.gap.moves import CONFIDENCE, Move, Point, VerdictGroup, moves, point_of
from parity.judging.verdict.verdict import Verdict

TAU = 0.003


def _point(
    gap: float,
    number: object,
    *,
    baseline: str = "b",
    question: str = "q",
    tau: float = TAU,
    df: float = 4.0,
) -> Point:
    return Point(
        gap=gap,
        baseline_variance=tau**2,
        candidate_variance=tau**2,
        run_df=df,
        within_variance=1e-8,
        within_df=10.0,
        baseline=baseline,
        series=f"s{number}",
        question=question,
    )


def _history(*gaps: float | None, **more: object) -> list[VerdictGroup]:
    """One job a commit; None: a commit without a gap."""
    return [
        VerdictGroup(name=f"c{number}", points=[] if gap is None else [_point(gap, number, **more)])  # type: ignore[arg-type]
        for number, gap in enumerate(gaps)
    ]


def _words(pairs: list[Move]) -> list[str]:
    return [each.what for each in pairs]


def test_a_step_beyond_run_noise_names_its_commit_and_its_direction() -> None:
    pairs = moves(_history(0.001, 0.0, 0.1, 0.099, 0.002))
    assert _words(pairs) == ["none", "worse", "none", "better"]
    worse = pairs[1]
    assert (worse.before, worse.after, worse.skipped) == ("c1", "c2", ())
    assert worse.difference == pytest.approx(0.1)
    assert worse.lo > 0.0


def test_a_step_within_run_noise_names_nobody() -> None:
    assert _words(moves(_history(0.0, 0.004, -0.003, 0.005))) == ["none"] * 3


def test_the_differences_of_a_history_share_the_error() -> None:
    two, many = moves(_history(0.0, 0.0)), moves(_history(*[0.0] * 11))
    assert two[0].confidence == pytest.approx(CONFIDENCE)
    assert many[0].confidence == pytest.approx(1.0 - (1.0 - CONFIDENCE) / 10)
    assert many[0].hi > two[0].hi
    # So that a difference that would be named alone is not named among ten.
    edge = two[0].hi * 1.05
    assert _words(moves(_history(0.0, edge))) == ["worse"]
    assert "worse" not in _words(moves(_history(*[0.0] * 10, edge)))


def test_a_history_in_which_nothing_moves_names_a_commit_in_at_most_one_case_of_twenty() -> None:
    rng = np.random.default_rng(5)
    histories, named = 400, 0
    for _ in range(histories):
        # Every job has a candidate's offset of its own, and every third one another baseline.
        baselines = rng.normal(0.0, TAU, 4)
        gaps = [
            (rng.normal(0.0, TAU) - baselines[number // 3], f"b{number // 3}")
            for number in range(9)
        ]
        groups = [
            VerdictGroup(name=str(number), points=[_point(gap, number, baseline=name, df=200.0)])
            for number, (gap, name) in enumerate(gaps)
        ]
        named += any(each.what in ("worse", "better") for each in moves(groups))
    assert named / histories <= 0.05 + 2 * (0.05 * 0.95 / histories) ** 0.5


def test_a_baseline_that_both_sides_use_cancels() -> None:
    shared, own = (
        moves([*_history(0.0), VerdictGroup(name="c1", points=[_point(0.0, 1, baseline=name)])])[0]
        for name in ("b", "other")
    )
    assert own.hi / shared.hi == pytest.approx(2**0.5, rel=1e-3)


def test_several_jobs_of_a_commit_average_their_candidates_and_not_a_baseline_that_they_share() -> (
    None
):
    def width(baselines: tuple[str, ...]) -> float:
        after = VerdictGroup(
            name="after",
            points=[
                _point(0.0, 10 + number, baseline=name) for number, name in enumerate(baselines)
            ],
        )
        return moves([*_history(0.0, baseline="first"), after])[0].hi

    assert width(("x",) * 4) > 1.1 * width(("w", "x", "y", "z"))
    assert width(("x",)) > width(("x",) * 4)


def test_copies_of_one_series_count_once() -> None:
    after = [_point(0.02, 1)] * 8
    once, copied = (
        moves([*_history(0.0), VerdictGroup(name="c1", points=points)])[0]
        for points in (after[:1], after)
    )
    assert once == copied


def test_neighbours_with_another_question_are_not_compared_and_spend_no_error() -> None:
    groups = _history(0.0, 0.0, 0.5)
    other = VerdictGroup(
        name="c3", points=[dataclasses.replace(_point(0.9, 3), question="another model")]
    )
    pairs = moves([*groups[:2], other])
    assert _words(pairs) == ["none", "not compared"]
    assert pairs[1].difference is None
    assert pairs[0].confidence == pytest.approx(CONFIDENCE)
    mixed = VerdictGroup(name="c1", points=[_point(0.0, 1), _point(0.9, 2, question="another")])
    assert _words(moves([*_history(0.0), mixed])) == ["not compared"]


def test_commits_without_a_gap_are_skipped_by_name() -> None:
    pairs = moves(_history(0.0, None, None, 0.2))
    assert (_words(pairs), pairs[0].skipped) == (["worse"], ("c1", "c2"))
    assert moves(_history(None, 0.0, None)) == []


def test_a_verdict_is_a_point_of_a_history_where_its_gap_was_measured(
    make_run: Callable[..., Curve], judge_pair: Callable[..., Verdict]
) -> None:
    runs = [make_run(seed=seed, offset_sd=0.003) for seed in (1, 2, 3)]
    verdict = judge_pair(runs[:2], runs[2:])
    document = verdict.document()
    point = point_of(document, "b", "q")
    assert point is not None
    assert (point.baseline, point.question) == ("b", "q")
    assert point.gap == verdict.gap.mean
    total = point.baseline_variance + point.candidate_variance + point.within_variance
    assert total == pytest.approx(verdict.gap.se**2)
    assert point.baseline_variance < point.candidate_variance  # two runs against one
    for part in ("gap", "se_parts", "tau"):
        assert point_of({**document, part: None}, "b", "q") is None  # type: ignore[misc]
