import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from parity.design.calibrate import calibrate
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge


def test_public_reruns(reruns: tuple[Curve, ...]) -> None:
    calibration = calibrate(reruns[:4], planned_steps=1750)
    means = np.array([run.loss[1400:].mean() for run in reruns[:4]])
    assert (calibration.runs, calibration.pairs) == (4, 12)
    assert calibration.tau.value == pytest.approx(means.std(ddof=1))
    assert calibration.tau.lo == pytest.approx(means.std(ddof=1) * np.sqrt(3 / chi2.ppf(0.975, 3)))
    assert calibration.tau.hi == pytest.approx(means.std(ddof=1) * np.sqrt(3 / chi2.ppf(0.025, 3)))
    assert calibration.covers_zero == 1.0
    assert calibration.naive_rejects > 0.7
    assert [entry["margin_rel"] for entry in calibration.margins] == [0.01, 0.005, 0.0025]
    assert all(
        sum(entry[state] for state in ("pass", "inconclusive", "fail")) == pytest.approx(1.0)
        for entry in (*calibration.margins, *calibration.injected)
    )
    assert calibration.margins[0]["pass"] == 1.0
    double = next(
        entry
        for entry in calibration.injected
        if (entry["margin_rel"], entry["gap_in_margins"]) == (0.01, 2.0)
    )
    assert double["fail"] == 1.0


def test_shares_are_those_of_the_judge(reruns: tuple[Curve, ...]) -> None:
    policy = policy_from_mapping({"schedule": "decayed", "margin": "0.25%"})
    states = [
        judge([a], {"c": [b]}, policy, planned_steps=1750)[0].verdict
        for a, b in itertools.permutations(reruns[:4], 2)
    ]
    calibration = calibrate(reruns[:4], planned_steps=1750, margins=(0.0025,))
    assert calibration.margins[0]["pass"] == states.count("pass") / 12


def test_the_plan_defaults_to_the_longest_run_and_a_short_one_is_told_by_its_code(
    reruns: tuple[Curve, ...],
) -> None:
    short = curve_from_arrays(reruns[1].steps[:1500], reruns[1].loss[:1500])
    calibration = calibrate([reruns[0], short], margins=(0.01,))
    assert calibration.codes == {"AS_OF": 2}


@pytest.mark.parametrize(("runs", "says"), [(1, "1 run was given"), (0, "0 run was given")])
def test_one_run_is_no_group(runs: int, says: str, reruns: tuple[Curve, ...]) -> None:
    with pytest.raises(ValueError, match=says):
        calibrate(reruns[:runs])


def test_runs_without_common_steps_or_any_step(reruns: tuple[Curve, ...]) -> None:
    far = curve_from_arrays([10_000, 10_001], [1.0, 1.0])
    with pytest.raises(ValueError, match="no common step in the window"):
        calibrate([reruns[0], far])
    with pytest.raises(ValueError, match="the runs have no steps"):
        calibrate([curve_from_arrays([], []), curve_from_arrays([], [])])


def test_runs_of_which_no_pair_can_be_judged_are_refused(reruns: tuple[Curve, ...]) -> None:
    runs = [
        curve_from_arrays(run.steps, run.loss, seed=seed) for seed, run in enumerate(reruns[:2], 1)
    ]
    with pytest.raises(ValueError, match=r"no pair of these 2 runs could be measured: .*seed"):
        calibrate(runs, planned_steps=1750)
