"""Few points: a pass from 12 on, a fail from 8 on, and an interval that covers; decided by errors,
not by counts.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

import parity
from parity.judging.curves.curve import Curve
from parity.judging.curves.step_noise import mean_se
from parity.judging.gap.interval import t_quantile
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge
from tests.conftest import some

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]


def sparse(run: Curve, stride: int) -> Curve:
    return curve_from_arrays(
        run.steps[stride - 1 :: stride], run.loss[stride - 1 :: stride], label=run.label
    )


def judged(base: Curve, cand: Curve, policy: Policy) -> Verdict:
    return judge([base], {"c": [cand]}, policy, planned_steps=2000)[0]


@pytest.mark.parametrize("stride", [1, 5, 10, 20, 25, 33])
def test_an_honest_pair_passes_and_a_broken_one_fails_at_every_logging_interval(
    stride: int, make_run: MakeRun, one_percent: Policy
) -> None:
    base = sparse(make_run(), stride)
    assert judged(base, sparse(make_run(seed=2), stride), one_percent).verdict == "pass"
    broken = judged(base, sparse(make_run(seed=2, gap=0.06), stride), one_percent)
    assert (broken.verdict, broken.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")


@pytest.mark.parametrize(
    ("stride", "passes", "fails"),
    [(33, True, True), (40, False, True), (50, False, True), (57, False, False)],
)
def test_the_least_points(
    stride: int, passes: bool, fails: bool, make_run: MakeRun, one_percent: Policy
) -> None:
    """Every 33rd of 2,000 steps leaves 12 in the window, every 50th 8."""
    base = sparse(make_run(), stride)
    honest, broken = (
        judged(base, sparse(make_run(seed=2), stride), one_percent),
        judged(base, sparse(make_run(seed=2, gap=0.3), stride), one_percent),
    )
    assert (honest.verdict == "pass", broken.verdict == "fail") == (passes, fails)
    assert ("TOO_FEW_STEPS" in honest.codes) == (not passes)


@settings(max_examples=some(60))
@given(
    st.integers(8, 35),
    st.floats(0.0, 0.06),
    st.integers(2, 60),
    st.integers(1, 60),
    st.floats(0.0, 5.0),
)
def test_a_worse_point_undoes_no_fail_and_gains_no_pass(
    make_run: MakeRun,
    one_percent: Policy,
    stride: int,
    gap: float,
    seed: int,
    point: int,
    by: float,
) -> None:
    base, cand = sparse(make_run(), stride), sparse(make_run(seed=seed, gap=gap), stride)
    loss = cand.loss.copy()
    loss[-min(point, len(loss) // 5)] += by
    before, after = (
        judged(base, cand, one_percent).verdict,
        judged(base, curve_from_arrays(cand.steps, loss), one_percent).verdict,
    )
    assert before != "fail" or after == "fail"
    assert after != "pass" or before == "pass"


def test_a_missing_point_counts_as_the_worst_one(make_run: MakeRun, one_percent: Policy) -> None:
    base, cand = sparse(make_run(), 20), sparse(make_run(seed=2), 20)
    keep = np.delete(np.arange(len(cand.steps)), [88, 93])
    whole = judged(base, cand, one_percent).document()["gap"]
    holed = judged(
        base, curve_from_arrays(cand.steps[keep], cand.loss[keep]), one_percent
    ).document()["gap"]
    assert holed["hi"] - holed["mean"] > whole["hi"] - whole["mean"]


@pytest.mark.parametrize(
    ("n", "rho", "least"),
    [
        (12, 0.0, 0.97),
        (12, 0.6, 0.93),
        (20, 0.9, 0.91),
        (50, 0.6, 0.94),
        (80, 0.9, 0.93),
        (200, 0.9, 0.93),
    ],
)
def test_coverage_of_the_within_pair_error_on_few_points(n: int, rho: float, least: float) -> None:
    noise = lfilter(
        [1.0], [1.0, -rho], np.random.default_rng(7).normal(size=(1000, n + 300)), axis=1
    )[:, 300:]
    errors = [mean_se(series) for series in noise]
    hits = [
        abs(series.mean()) <= t_quantile(0.95, se.df) * se.value
        for series, se in zip(noise, errors, strict=True)
    ]
    assert np.mean(hits) >= least
