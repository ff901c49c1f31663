"""Fewer points than a pass needs: a clear fail from 50 on, never a pass, and an interval that covers (decision 0012)."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

import parity
from parity import Criteria, Curve, Verdict, judge
from parity.judging.interval import t_quantile
from parity.judging.noise import mean_se

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def sparse(run: Curve, stride: int) -> Curve:
    return curve_from_arrays(run.steps[::stride], run.loss[::stride], label=run.label)


def judged(base: Curve, cand: Curve, criteria: Criteria) -> Verdict:
    return judge([base], {"c": [cand]}, criteria, planned_steps=2000)[0]


def test_a_broken_run_logged_every_fifth_step_fails(make_run: MakeRun, one_percent: Criteria) -> None:
    base, cand = (sparse(make_run(seed=seed), 5) for seed in (1, 2))
    position = cand.steps / cand.steps[-1]
    broken = curve_from_arrays(cand.steps, cand.loss * (1.0 + 0.075 * position), label="broken")
    verdict = judged(base, broken, one_percent)
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")
    assert verdict.codes.count("TOO_FEW_STEPS") == 1
    assert verdict.measurements.statistics is not None
    assert verdict.measurements.statistics.n == 80


@pytest.mark.parametrize(("stride", "verdict"), [(8, "fail"), (9, "inconclusive")])
def test_fifty_points_are_the_least(stride: int, verdict: str, make_run: MakeRun, one_percent: Criteria) -> None:
    """Every 8th of 2,000 steps leaves 50 in the window, every 9th leaves 44."""
    judgement = judged(sparse(make_run(), stride), sparse(make_run(seed=2, gap=0.3), stride), one_percent)
    assert judgement.verdict == verdict
    assert (judgement.codes[0] == "TOO_FEW_STEPS") == (verdict == "inconclusive")
    assert judgement.codes.count("TOO_FEW_STEPS") == 1


def test_a_gap_of_the_margin_does_not_fail_on_few_points(make_run: MakeRun, one_percent: Criteria) -> None:
    verdict = judged(sparse(make_run(), 5), sparse(make_run(seed=2, gap=0.03), 5), one_percent)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "TOO_FEW_STEPS")


@settings(max_examples=60)
@given(st.integers(3, 40), st.floats(-0.5, 0.5), st.integers(2, 60), st.sampled_from([0.0, 0.6, 0.9]))
def test_few_points_never_pass(make_run: MakeRun, one_percent: Criteria, stride: int, gap: float, seed: int, rho: float) -> None:
    verdict = judged(sparse(make_run(), stride), sparse(make_run(seed=seed, gap=gap, rho=rho), stride), one_percent)
    assert verdict.verdict != "pass"
    assert "TOO_FEW_STEPS" in verdict.codes
    assert verdict.verdict == "inconclusive" or stride <= 8


@pytest.mark.parametrize("n", [50, 80])
@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_coverage_of_the_within_pair_error_on_few_points(n: int, rho: float) -> None:
    noise = lfilter([1.0], [1.0, -rho], np.random.default_rng(7).normal(size=(1000, n + 300)), axis=1)[:, 300:]
    errors = [mean_se(series) for series in noise]
    hits = [abs(series.mean()) <= t_quantile(0.95, se.df) * se.value for series, se in zip(noise, errors, strict=True)]
    assert np.mean(hits) >= 0.92
