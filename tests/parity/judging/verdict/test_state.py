"""At which point of the training a comparison speaks: finished, or as of a step."""

from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.schedule import UNKNOWN_SLOPE, log_slope
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
N = 2000
PROGRESS = np.arange(N) / (N - 1)
RATES = {
    "cosine": 1e-3 * (1 + np.cos(np.pi * PROGRESS)) / 2,
    "constant": np.full(N, 1e-3),
    "cut": 1e-3 * (1 + np.cos(0.8 * np.pi * PROGRESS)) / 2,
    "high": 1e-3 * (0.3 + 0.7 * (1 + np.cos(np.pi * PROGRESS)) / 2),
}
UNSTATED = policy_from_mapping({"margin": "1%"})
STATED = policy_from_mapping({"margin": "1%", "schedule": "decayed"})


def judged(
    make_run: MakeRun,
    rates: str | None,
    policy=UNSTATED,
    gap: float = 0.0,
    end: int = N,
    **options: object,
) -> Verdict:
    runs = []
    for seed, own in ((1, 0.0), (2, gap)):
        columns = {} if rates is None else {"learning_rate": RATES[rates][:end]}
        run = make_run(N, seed=seed, gap=own)
        runs.append(
            curve_from_arrays(run.steps[:end], run.loss[:end], columns=columns, rounding="nearest")
        )
    return judge(runs[:1], {"c": runs[1:]}, policy, **({"planned_steps": N} | options))[0]


def test_recorded_rates_that_decayed_finish_a_run_and_need_no_statement(make_run: MakeRun) -> None:
    verdict = judged(make_run, "cosine")
    assert (verdict.verdict, verdict.document()["schedule"]["finished"]) == ("pass", True)
    assert not {"AS_OF", "SCHEDULE_STATED"} & set(verdict.codes)


@pytest.mark.parametrize("rates", [None, "constant", "cut", "high"])
@pytest.mark.parametrize("options", [{}, {"planned_steps": None, "assume_complete": True}])
def test_a_plan_alone_finishes_nothing(rates: str | None, options: dict, make_run: MakeRun) -> None:
    verdict = judged(make_run, rates, **options)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "AS_OF")


def test_the_owner_may_state_it_unless_a_recorded_rate_contradicts(make_run: MakeRun) -> None:
    stated = judged(make_run, None, STATED)
    assert (stated.verdict, "SCHEDULE_STATED" in stated.codes) == ("pass", True)
    assert judged(make_run, None, STATED, planned_steps=None).verdict == "pass"
    for rates in ("constant", "high"):
        assert judged(make_run, rates, STATED).codes[0] == "AS_OF"
    assert judged(make_run, "cut", STATED, planned_steps=None).codes[0] == "AS_OF"


def test_an_unfinished_run_can_fail_and_passes_only_where_the_policy_accepts_it(
    make_run: MakeRun,
) -> None:
    accepts = policy_from_mapping({"margin": "1%", "as_of": "accept"})
    for end in (1000, 1500):
        assert judged(make_run, None, gap=0.2, end=end).verdict == "fail"
        assert judged(make_run, None, gap=0.2, end=end, policy=accepts).verdict == "fail"
        refused, accepted = (
            judged(make_run, None, policy, end=end) for policy in (UNSTATED, accepts)
        )
        assert (refused.verdict, refused.codes[0]) == ("inconclusive", "AS_OF")
        assert (accepted.verdict, "AS_OF" in accepted.codes) == ("pass", True)
        assert accepted.document()["schedule"]["step"] == end - 1


def test_a_few_steps_that_are_missing_at_the_end_are_no_fault(make_run: MakeRun) -> None:
    assert judged(make_run, "cosine", STATED, end=N - 10).verdict == "pass"
    assert judged(make_run, "cosine", STATED, end=N - 11).codes[0] == "AS_OF"


def test_the_slope_of_a_power_law() -> None:
    steps = np.arange(1, 5001)
    loss = 2.0 * (steps / 5000.0) ** -0.1
    assert log_slope(steps, loss, loaded=False) == pytest.approx(0.1, rel=0.1)


def test_a_log_that_says_little_of_its_slope_is_taken_to_be_steep() -> None:
    steps = np.arange(1, 5001)
    loss = 2.0 * (steps / 5000.0) ** -0.1
    late = steps > 1500
    own = log_slope(steps, loss, loaded=False)
    assert log_slope(steps[late], loss[late], loaded=False) == pytest.approx(2.0 * own, rel=0.1)
    renumbered = steps[: int(late.sum())], loss[late]
    assert log_slope(*renumbered, loaded=False) == UNKNOWN_SLOPE
    assert log_slope(*renumbered, loaded=True) < 0.1
    assert log_slope(steps, 2.0 + 0.0 * loss, loaded=False) == 0.0
    assert log_slope(steps[:2], loss[:2], loaded=False) == UNKNOWN_SLOPE
