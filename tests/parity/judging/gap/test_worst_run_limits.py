"""Of which candidates the worst run is asked."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_se
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def several(
    make_run: MakeRun, runs: int, worse: float, points: int = 400, seed: int = 1
) -> tuple[list[Curve], list[Curve]]:
    """Seeds with one pair each; the last run of the candidate is worse."""
    base = [
        dataclasses.replace(
            make_run(points, batch_seed=number, pair_sd=0.0, seed=number), seed=number
        )
        for number in range(runs)
    ]
    rng = np.random.default_rng(seed)
    cand = [
        dataclasses.replace(run, loss=run.loss + rng.normal(0.0, 0.0005, points), label=f"c{k}")
        for k, run in enumerate(base)
    ]
    cand[-1] = dataclasses.replace(cand[-1], loss=cand[-1].loss + worse)
    return base, cand


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_worst_run_is_asked_of_two_runs_and_more(
    runs: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = several(make_run, runs, 0.1)
    verdict = judge_pair(base, cand)
    worst = verdict.measurements.worst_run
    if runs == 1:
        assert worst is None
    else:
        assert (worst.label, worst.is_above) == (f"c{runs - 1}", True)
    assert ("RUN_ABOVE_MARGIN" in verdict.codes) == (runs > 1)


@pytest.mark.parametrize("runs", [2, 3])
def test_two_runs_of_which_one_is_above_the_margin_do_not_pass(
    runs: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """The limit is the margin and what one run and its pair differ by chance."""
    policy = Policy(margin="0.06 nats", schedule="decayed")
    base, cand = several(make_run, runs, 0.0)
    others = [dataclasses.replace(run, loss=run.loss - 0.06) for run in cand[:-1]]
    clean = judge_pair(base, [*others, cand[-1]], policy)
    level = clean.measurements.statistics.baseline.level
    gap = (cand[-1].loss - base[-1].loss)[-80:]
    limits = []
    for part in (gap, gap[40:]):
        error = mean_se(part)
        run = float(student.ppf(0.975, 4.0)) * 0.0009 * level * math.sqrt(2.0)
        half = math.hypot(run, float(student.ppf(0.975, error.df)) * error.value)
        limits.append(0.06 + half - float(part.mean()))
    shift = min(limits)  # the plain ends; capped ones differ by less than the noise
    for beyond, above in ((-0.0005, False), (0.0005, True)):
        moved = dataclasses.replace(cand[-1], loss=cand[-1].loss + shift + beyond)
        verdict = judge_pair(base, [*others, moved], policy)
        assert ("RUN_ABOVE_MARGIN" in verdict.codes) == above
        assert verdict.verdict != "pass" or not above


@pytest.mark.parametrize(("every", "is_asked"), [(25, True), (27, False)])
def test_the_last_half_of_a_run_is_asked_from_sixteen_points_on(
    every: int, is_asked: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """A run that is worse over the last half of 400 steps alone, of which 16 or 15 are logged."""
    base, cand = several(make_run, 2, 0.0, 2000)
    late = np.arange(2000) >= 1800
    cand[-1] = dataclasses.replace(cand[-1], loss=cand[-1].loss + 0.05 * late)
    cand[0] = dataclasses.replace(cand[0], loss=cand[0].loss - 0.05 * late)
    thin = [
        [
            curve_from_arrays(
                run.steps[1999 % every :: every],
                run.loss[1999 % every :: every],
                seed=run.seed,
                label=run.label,
                rounding="nearest",
            )
            for run in arm
        ]
        for arm in (base, cand)
    ]
    verdict = judge_pair(*thin, planned_steps=2000)
    assert verdict.measurements.statistics.n == (16 if is_asked else 15)
    assert verdict.measurements.worst_run.is_above == is_asked
