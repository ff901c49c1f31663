from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import judge

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]


def evaluated(run: Curve, offset: float, every: int = 50) -> Curve:
    values = np.where(run.steps % every == 0, run.loss + offset, np.nan)
    return curve_from_arrays(
        run.steps, run.loss, columns={"validation_loss": values}, recipe=run.recipe
    )


def test_validation_gap_is_the_mean_over_common_evaluations(
    make_run: MakeRun, one_percent: Policy
) -> None:
    base, cand = evaluated(make_run(), 0.5), evaluated(make_run(seed=2), 0.52, every=100)
    (verdict,) = judge([base], {"c": [cand]}, one_percent, planned_steps=2000)
    gap = verdict.document()["validation"]
    steps = np.arange(1600, 2000, 100)
    assert gap["n"] == 4
    assert gap["mean"] == pytest.approx((cand.loss[steps] + 0.52 - base.loss[steps] - 0.5).mean())
    assert gap["lo"] < gap["mean"] < gap["hi"]
    assert gap["hi"] - gap["lo"] > 2 * 2.7 * verdict.document()["se_parts"]["run"]


def test_without_evaluations_there_is_nothing(make_run: MakeRun, one_percent: Policy) -> None:
    (verdict,) = judge(
        [make_run()], {"c": [evaluated(make_run(seed=2), 0.0)]}, one_percent, planned_steps=2000
    )
    assert verdict.document()["validation"] is None
    apart = [evaluated(make_run(seed=seed), 0.0, every) for seed, every in ((1, 3001), (2, 3002))]
    (verdict,) = judge(apart[:1], {"c": apart[1:]}, one_percent, planned_steps=2000)
    assert verdict.document()["validation"] is None
