"""At which value does each warning appear?"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.resolution import Resolution
from parity.judging.decide import warnings_of
from parity.judging.gap.margin import Margin
from parity.judging.measurements import Measurements
from parity.judging.noise.arm_noise import Prior
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
PLAN = 2000


def just_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


@pytest.fixture(scope="module")
def honest(make_run: MakeRun, judge_pair: JudgePair) -> Measurements:
    return judge_pair(make_run(), make_run(seed=2)).measurements


def warned(measurements: Measurements, **changes: object) -> set[str]:
    return {reason.code for reason in warnings_of(dataclasses.replace(measurements, **changes))}


def resolved(measurements: Measurements, **changes: object) -> dict[str, Resolution]:
    return {"resolution": dataclasses.replace(measurements.resolution, **changes)}


@pytest.mark.parametrize(("rounding_step", "named"), [(5e-4, True), (just_below(5e-4), False)])
def test_losses_of_three_decimals_are_named(
    rounding_step: float, named: bool, honest: Measurements
) -> None:
    assert ("ROUNDED" in warned(honest, **resolved(honest, rounding_step=rounding_step))) == named


@pytest.mark.parametrize(("weight", "named"), [(0.5, True), (just_below(0.5), False)])
def test_a_smoothed_series_is_named(weight: float, named: bool, honest: Measurements) -> None:
    assert ("SMOOTHED" in warned(honest, **resolved(honest, smoothing=weight))) == named


@pytest.mark.parametrize(
    ("r", "weak"), [(0.9, False), (just_below(0.9), True), (0.5, True), (just_below(0.5), False)]
)
def test_batches_that_agree_less_than_usual_are_named(
    r: float, weak: bool, honest: Measurements
) -> None:
    assert ("PAIRING_WEAK" in warned(honest, r_pair=r)) == weak
    unproven = warned(honest, r_pair=r, same_data_recorded=True)
    assert ("PAIRING_UNPROVEN" in unproven) == (r < 0.5)


@pytest.mark.parametrize(("missing", "named"), [(4, False), (5, True)])
def test_a_log_that_lacks_more_than_a_hundredth_of_its_steps_is_named(
    missing: int, named: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Of the 400 steps of the window."""
    keep = np.ones(PLAN, dtype=bool)
    keep[1700 : 1700 + 20 * missing : 20] = False
    runs = [make_run(seed=seed) for seed in (1, 2)]
    base, cand = (curve_from_arrays(r.steps[keep], r.loss[keep]) for r in runs)
    assert ("STEPS_MISSING" in judge_pair(base, cand, planned_steps=PLAN).codes) == named


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, False),
        ({"confidence": 0.95}, False),
        ({"confidence": 0.9499}, True),
        ({"window_fraction": 0.1}, False),
        ({"window_fraction": 0.0999}, True),
        ({"run_noise_df": 4.0}, False),
        ({"run_noise_df": 4.001}, True),
    ],
)
def test_a_policy_that_makes_a_pass_easier_is_named(
    changes: dict[str, float], named: bool, honest: Measurements
) -> None:
    policy = dataclasses.replace(honest.policy, **changes)
    assert ("POLICY_UNUSUAL" in warned(honest, policy=policy)) == named


@pytest.mark.parametrize(("df", "named"), [(30.0, False), (30.001, True)])
def test_stated_noise_may_rest_on_thirty_degrees(
    df: float, named: bool, honest: Measurements
) -> None:
    stated = {"baseline_run_noise": "0.1%", "candidate_run_noise": "0.1%", "run_noise_df": df}
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed", **stated})
    assert ("POLICY_UNUSUAL" in warned(honest, policy=policy)) == named


@pytest.mark.parametrize(("share", "named"), [(2.9999e-4, True), (3.0001e-4, False)])
@pytest.mark.parametrize("arm", [0, 1])
def test_noise_below_three_ten_thousandths_of_the_loss_is_named(
    share: float, named: bool, arm: int, honest: Measurements
) -> None:
    s = honest.statistics
    noises = list(s.noises)
    prior = Prior(tau=share * s.baseline.level, df=4.0, basis="declared")
    noises[arm] = dataclasses.replace(noises[arm], prior=prior)
    changed = dataclasses.replace(s, noises=tuple(noises))
    assert ("POLICY_UNUSUAL" in warned(honest, statistics=changed)) == named


@pytest.mark.parametrize("candidates", [1, 12])
def test_a_candidate_is_better_than_noise_at_the_widened_level(
    candidates: int, make_run: MakeRun
) -> None:
    """The interval that is shown ends below zero."""
    base, cand = make_run(), make_run(seed=2)

    def judged(gap: float) -> Verdict:
        from parity.judging.multiplicity import Multiplicity

        moved = dataclasses.replace(cand, loss=cand.loss + gap)
        return judge(
            [base],
            {"c": [moved]},
            Policy(margin="0.1 nats", schedule="decayed"),
            planned_steps=PLAN,
            multiplicity=Multiplicity(candidates=candidates),
        )[0]

    level = 1.0 - 0.05 / candidates
    hi = judged(0.0).measurements.statistics.interval.bounds(level)[1]
    assert "BETTER_THAN_NOISE" in judged(-hi - 1e-6).codes
    assert "BETTER_THAN_NOISE" not in judged(-hi + 1e-6).codes


@pytest.mark.parametrize(("first", "named"), [(101, False), (102, True)])
def test_a_log_that_begins_after_a_twentieth_of_the_plan_is_named(
    first: int, named: bool, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    runs = [make_run(seed=seed) for seed in (1, 2)]
    base, cand = (curve_from_arrays(r.steps[first:], r.loss[first:]) for r in runs)
    assert ("LOG_STARTS_LATE" in judge_pair(base, cand, planned_steps=PLAN).codes) == named


@pytest.mark.parametrize(
    ("ends", "named"),
    [
        (((-0.02, 0.0299), (-0.02, 0.0299)), False),
        (((-0.02, 0.0299), (-0.02, 0.03)), True),
        (((0.0301, 0.1), (0.03, 0.1)), True),
        (((0.0301, 0.1), (0.0301, 0.2)), False),
    ],
)
def test_a_window_that_would_decide_otherwise_is_named(
    ends: tuple[tuple[float, float], ...], named: bool, honest: Measurements
) -> None:
    entries = tuple(
        {"fraction": 0.1 * number, "n": 9, "mean": 0.0, "lo": lo, "hi": hi}
        for number, (lo, hi) in enumerate(ends, 1)
    )
    margin = Margin(nats=0.03, rel=0.01, source="")
    changed = dataclasses.replace(honest.statistics, sensitivity=entries, margin=margin)
    assert ("WINDOW_SENSITIVE" in warned(honest, statistics=changed)) == named
