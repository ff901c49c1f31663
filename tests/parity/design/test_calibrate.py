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
    of_seed = curve_from_arrays(reruns[1].steps, reruns[1].loss, seed=1)
    with pytest.raises(ValueError, match=r"no pair of these 2 runs could be measured: .*seed"):
        calibrate([reruns[0], of_seed], planned_steps=1750)


def test_runs_of_stated_seeds_are_no_reruns(reruns: tuple[Curve, ...]) -> None:
    def of_seeds(*seeds: int) -> list[Curve]:
        runs = zip(reruns, seeds, strict=False)
        return [curve_from_arrays(run.steps, run.loss, seed=seed) for run, seed in runs]

    for seeds in ((1, 2), (1, 1, 2)):
        with pytest.raises(ValueError, match=r"2 seeds \(1, 2\).*no run-to-run noise"):
            calibrate(of_seeds(*seeds), planned_steps=1750)
    assert calibrate(of_seeds(1, 1), planned_steps=1750, margins=(0.01,)).tau.value > 0.0


def _runs_with(shared: float, own: float, runs: int = 3) -> list[Curve]:
    """Runs of 400 steps with so much noise of their batches in common, and so much of their own
    (nats), which state no seed.
    """
    rng = np.random.default_rng(3)
    steps = np.arange(400)
    common = shared * rng.standard_normal(400)
    return [
        curve_from_arrays(
            steps, 3.0 + common + own * rng.standard_normal(400), label=f"r{number}.csv"
        )
        for number in range(runs)
    ]


def test_runs_of_other_batches_are_no_reruns() -> None:
    with pytest.raises(
        ValueError, match=r"r0.csv and r1.csv read different batches.*no run-to-run noise"
    ):
        calibrate(_runs_with(shared=0.0, own=0.05))


def test_the_correlation_tells_whether_runs_read_the_same_batches() -> None:
    reruns, large_batches = _runs_with(shared=0.05, own=0.005), _runs_with(shared=0.04, own=0.05)
    assert (calibrate(reruns, margins=(0.01,)).correlation or 0.0) > 0.9
    hidden = calibrate(large_batches, margins=(0.01,)).correlation
    assert hidden is not None
    assert 0.1 < hidden < 0.5, "too little batch noise to tell, which is no proof of other batches"


def test_a_few_points_do_not_show_other_batches() -> None:
    few = [curve_from_arrays(np.arange(60), run.loss[:60]) for run in _runs_with(0.0, 0.05, 2)]
    assert calibrate(few, margins=(0.01,)).runs == 2
