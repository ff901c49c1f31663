"""Steps outside the plan: they are named, and they cannot hide a worse candidate."""

from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.outside_plan import last_recorded
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
PLAN = 2000


def changed_after(run: Curve, step: int, value: float) -> Curve:
    """The run with a constant added from a step on."""
    return curve_from_arrays(run.steps, np.where(run.steps >= step, run.loss + value, run.loss))


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        (2000, "pass"),
        (2001, "pass"),
        (2090, "pass"),
        (2110, "inconclusive"),
        (3000, "inconclusive"),
    ],
)
def test_runs_that_go_on_far_beyond_the_plan_have_another_plan(
    steps: int, verdict: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    result = judge_pair(make_run(steps), make_run(steps, seed=2), planned_steps=PLAN)
    assert result.verdict == verdict
    assert ("BEYOND_PLAN" in result.codes) == (steps > PLAN)


@pytest.mark.parametrize("beyond", [1, 10, 90])
@pytest.mark.parametrize("worse", [0.05, 1.0, 1e9, np.nan, np.inf])
def test_a_candidate_that_breaks_right_after_the_plan_does_not_pass(
    beyond: int, worse: float, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = (
        make_run(PLAN + beyond),
        changed_after(make_run(PLAN + beyond, seed=2), PLAN, worse),
    )
    result = judge_pair(base, cand, planned_steps=PLAN)
    assert (result.verdict, result.codes[0]) == ("inconclusive", "BEYOND_PLAN")


@pytest.mark.parametrize("worse", [1.0, np.nan])
def test_nor_where_the_baseline_ends_with_the_plan(
    worse: float, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = changed_after(make_run(PLAN + 50, seed=2), PLAN, worse)
    result = judge_pair(make_run(PLAN), cand, planned_steps=PLAN)
    assert (result.verdict, result.codes[0]) == ("inconclusive", "BEYOND_PLAN")


@pytest.mark.parametrize("seed", range(2, 12))
def test_honest_runs_that_go_on_a_little_pass(
    seed: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    for base, cand in ((PLAN, PLAN + 3), (PLAN + 40, PLAN + 40), (PLAN + 40, PLAN)):
        result = judge_pair(make_run(base), make_run(cand, seed=seed), planned_steps=PLAN)
        assert result.verdict == "pass"
        assert "BEYOND_PLAN" in result.codes


@pytest.mark.parametrize("every", [1, 7, 50, 150])
@pytest.mark.parametrize("first", [0, 1])
def test_what_a_record_keeps_of_a_longer_run_shows_it(
    first: int, every: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    def kept(seed: int) -> Curve:
        run = make_run(2 * PLAN, seed=seed)
        logged = (run.steps % every == 0) & (run.steps + first <= last_recorded(PLAN))
        return curve_from_arrays(run.steps[logged] + first, run.loss[logged])

    result = judge_pair(kept(1), kept(2), planned_steps=PLAN)
    assert result.verdict != "pass"
    assert "BEYOND_PLAN" in result.codes


def test_a_fail_inside_the_plan_stays_a_fail(make_run: MakeRun, judge_pair: JudgePair) -> None:
    assert (
        judge_pair(make_run(3000), make_run(3000, seed=2, gap=0.2), planned_steps=PLAN).verdict
        == "fail"
    )


@pytest.mark.parametrize(("first", "late"), [(0, False), (90, False), (110, True), (1000, True)])
def test_a_log_that_begins_late_is_named(
    first: int, late: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    runs = [make_run(seed=seed) for seed in (1, 2)]
    cut = [curve_from_arrays(run.steps[first:], run.loss[first:]) for run in runs]
    assert ("LOG_STARTS_LATE" in judge_pair(*cut, planned_steps=PLAN).codes) == late
