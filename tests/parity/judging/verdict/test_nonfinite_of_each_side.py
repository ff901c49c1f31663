"""At how many NaN losses of 2,000 a candidate fails, a baseline is invalid, and a rerun that was
stopped early blocks a pass: each side has its own code, at the same limit.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from parity.judging.curves.curve import Curve
from parity.judging.verdict.verdict import Verdict

JudgePair = Callable[..., Verdict]
MakeRun = Callable[..., Curve]
LIMIT = 20  # 1 % of 2,000 points


def broken(run: Curve, bad: int) -> Curve:
    """The run with `bad` losses of NaN, well before its window and its end."""
    loss = run.loss.copy()
    loss[500 : 500 + bad] = np.nan
    return replace(run, loss=loss)


def codes_of(side: str, bad: int, judge_pair: JudgePair, make_run: MakeRun) -> tuple[str, ...]:
    """The codes where one side has `bad` losses of NaN."""
    base, cand, rerun = (make_run(seed=seed, rounding="nearest") for seed in (1, 2, 3))
    rerun = replace(rerun, replicate=1, steps=rerun.steps[:1600], loss=rerun.loss[:1600])
    sides = {"baseline": base, "candidate": cand, "rerun": rerun}
    # the rerun has fewer points: 16 of 1,600 are its 1 %
    sides[side] = broken(sides[side], bad * len(sides[side].loss) // 2000)
    return judge_pair(
        sides["baseline"], sides["candidate"], short_reruns={"cand": [sides["rerun"]]}
    ).codes


@pytest.mark.parametrize(
    ("side", "code"),
    [
        ("candidate", "NONFINITE_CAND"),
        ("baseline", "BASELINE_INVALID"),
        ("rerun", "SHORT_RERUN_DIVERGED"),
    ],
)
def test_one_percent_of_a_side_decides_and_less_does_not(
    side: str, code: str, judge_pair: JudgePair, make_run: MakeRun
) -> None:
    assert code in codes_of(side, LIMIT, judge_pair, make_run)
    assert code not in codes_of(side, LIMIT - 2, judge_pair, make_run)


@pytest.mark.parametrize(
    ("first", "last", "runs", "sentence"),
    [
        (1999, 1999, 1, "cand has 1 NaN, infinite or blank loss: the last one, at step 1,999."),
        (
            1990,
            1999,
            1,
            (
                "cand has 10 NaN, infinite or blank losses, the first at step 1,990 and the last "
                "at the end of its run."
            ),
        ),
        (
            1999,
            1999,
            2,
            "cand has 1 NaN, infinite or blank loss at step 1,999; 1 of its 2 runs ends with one.",
        ),
        (
            500,
            599,
            1,
            (
                "cand has 100 NaN, infinite or blank losses, the first at step 500; they are up "
                "to 5.0 % of a run's steps."
            ),
        ),
    ],
)
def test_it_is_said_where_they_are_and_which_runs_end_with_one(
    first: int, last: int, runs: int, sentence: str, judge_pair: JudgePair, make_run: MakeRun
) -> None:
    arms = [[make_run(seed=seed) for seed in range(start, start + runs)] for start in (0, 0)]
    loss = arms[1][0].loss.copy()
    loss[first : last + 1] = np.nan
    arms[1][0] = replace(arms[1][0], loss=loss)
    verdict = judge_pair(*arms)
    assert verdict.document()["reasons"][0]["sentence"] == sentence
