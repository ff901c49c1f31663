import dataclasses
from functools import partial

import numpy as np
import pytest

import parity
from parity import criteria_from_mapping, judge
from parity.design.plan import Design, _interval, _power, cheapest_design, gpu_hours, plan

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

ONE = criteria_from_mapping({"margin": "1%"})
NEAREST = {"baseline_rounding": "nearest", "candidate_rounding": "nearest"}


def test_where_the_policy_forbids_a_pass_its_chance_is_0() -> None:
    """Few points forbid a pass, very few a fail too; so does assumed noise where the policy rejects it."""
    few = plan(Design(level=3.34, planned_steps=500, baseline_runs=8, candidate_runs=8, **NEAREST), ONE)
    assert [power.pass_chance for power in few.power] == [0.0] * 4
    assert few.power[-1].fail_chance > 0.9
    assert "cannot pass" in few.advice
    very_few = plan(Design(level=3.34, planned_steps=200, baseline_runs=8, candidate_runs=8, **NEAREST), ONE)
    assert [power.inconclusive_chance for power in very_few.power] == [1.0] * 4
    reject = criteria_from_mapping({"margin": "1%", "assumed_noise": "reject"})
    outlook = plan(Design(level=3.34, planned_steps=2000, baseline_runs=5, **NEAREST), reject)
    assert (outlook.power[0].pass_chance, outlook.decides) == (0.0, False)
    assert outlook.cheapest is not None
    assert (outlook.cheapest.baseline_runs, outlook.cheapest.candidate_runs, plan(outlook.cheapest, reject).decides) == (3, 3, True)


def test_one_nvfp4_run_with_the_assumed_floor_is_not_blessed() -> None:
    outlook = plan(Design(level=3.9, planned_steps=10_000, baseline_recipe="fp8_current", candidate_recipe="nvfp4"), ONE)
    assert not outlook.decides
    assert outlook.largest_gap_that_passes / 3.9 == pytest.approx(0.0018, abs=1e-4)
    assert outlook.largest_gap_that_passes == pytest.approx(0.0070, abs=5e-5)
    assert f" {100 * outlook.power[0].pass_chance:.0f} %" in outlook.advice
    assert outlook.cheapest is not None
    assert plan(outlook.cheapest, ONE).decides


def test_deterministic_recipes_decide_at_one_percent_with_one_run() -> None:
    outlook = plan(Design(level=3.34, planned_steps=1530, **NEAREST), ONE)
    assert outlook.decides
    assert outlook.cheapest == outlook.design
    assert outlook.half_width / 3.34 == pytest.approx(0.00314, rel=0.02)


def test_the_cheapest_is_the_cheapest() -> None:
    design = Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4")
    best = cheapest_design(design, ONE, 0.03)
    assert best is not None
    total = best.baseline_runs + best.candidate_runs
    for base in range(1, total):
        smaller = plan(
            Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4", baseline_runs=base, candidate_runs=total - base), ONE
        )
        if total - base - 1 > 0:
            fewer = Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4", baseline_runs=base, candidate_runs=total - base - 1)
            assert not plan(fewer, ONE).decides
        assert smaller.half_width >= plan(best, ONE).half_width or not smaller.decides


def test_an_impossible_margin_is_refused_with_what_would_help() -> None:
    outlook = plan(Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4"), criteria_from_mapping({"margin": "0.05%"}))
    assert not outlook.decides
    assert outlook.cheapest is None
    assert 0.0 < outlook.power[0].pass_chance < 0.5
    assert f" {100 * outlook.power[0].pass_chance:.0f} %" in outlook.advice
    assert "cannot pass" not in outlook.advice
    assert "wider margin" in outlook.advice


def test_chances_agree_with_the_judge_on_simulated_reruns() -> None:
    """Half a margin at K = 1: the plan's chance of a pass against 300 judged pairs with the assumed run floor."""
    expected = (
        plan(Design(level=3.34, planned_steps=1000, pair_sd=0.0038, **NEAREST), criteria_from_mapping({"margin": "0.6%"}))
        .power[1]
        .pass_chance
    )
    rng, policy, passes = np.random.default_rng(0), criteria_from_mapping({"margin": "0.6%"}), 0
    law = 3.34 - 8 / np.sqrt(1000) + 8 / np.sqrt(np.arange(1, 1001))
    for _ in range(300):
        batch = rng.normal(0, 0.08, 1000)
        base, cand = (law + batch + 0.0008 * 3.34 * rng.normal() + rng.normal(0, 0.0038 / np.sqrt(2), 1000) for _ in range(2))
        arms = [curve_from_arrays(np.arange(1000), loss) for loss in (base, cand + 0.003 * base[800:].mean())]
        passes += judge([arms[0]], {"c": [arms[1]]}, policy, planned_steps=1000)[0].verdict == "pass"
    assert passes / 300 == pytest.approx(expected, abs=0.10)


def test_hours_and_bad_designs() -> None:
    assert gpu_hours(Design(level=3.0, planned_steps=3600, step_seconds=2.0, devices=8, baseline_runs=2, candidate_runs=3)) == 80.0
    assert gpu_hours(Design(level=3.0, planned_steps=3600)) is None
    for bad in (
        {"level": 0.0},
        {"planned_steps": 0},
        {"candidate_runs": 0},
        {"autocorrelation": 1.0},
        {"baseline_recipe": "nvpf4"},
        {"candidate_rounding": "up"},
    ):
        with pytest.raises(ValueError, match="expected"):
            Design(**{"level": 3.0, "planned_steps": 100, **bad})
    with pytest.raises(ValueError, match="noise-floor margin"):
        plan(Design(level=3.0, planned_steps=1000), criteria_from_mapping({"profile": "noise-floor"}))


def test_chances_add_up() -> None:
    for power in plan(Design(level=3.0, planned_steps=1000), ONE).power:
        assert power.pass_chance + power.inconclusive_chance + power.fail_chance == pytest.approx(1.0)


def test_a_window_of_too_few_steps_needs_a_longer_run() -> None:
    """500 steps leave 100 in the window and 200 are needed: 1,000 steps are the least, whatever the runs."""
    outlook = plan(Design(level=3.34, planned_steps=500, step_seconds=3.6, baseline_runs=8, candidate_runs=8, **NEAREST), ONE)
    assert not outlook.decides
    assert "its window holds 100 steps and 200 are needed" in outlook.advice
    assert outlook.cheapest is not None
    assert (outlook.cheapest.baseline_runs, outlook.cheapest.candidate_runs, outlook.cheapest.planned_steps) == (1, 1, 1000)
    assert "1 baseline run and 1 candidate run of 1,000 steps, 2 device hours" in outlook.advice


def test_the_cheapest_of_all_designs_by_brute_force() -> None:
    """Noisy pairs, where steps help: the search finds what trying every design finds."""
    noisy = Design(level=3.0, planned_steps=1000, pair_sd=0.15, autocorrelation=0.2)
    tried = []
    for steps in (1000, 1250, 1500, 2000, 3000, 4000, 6000, 8000):
        for base in range(1, 17):
            for cand in range(1, 17):
                design = dataclasses.replace(noisy, planned_steps=steps, baseline_runs=base, candidate_runs=cand)
                gap = _interval(design, ONE)
                half = gap.half_width(0.95)
                if _power(0.0, 0.03, half, gap.se).pass_chance >= 0.8 and _power(2.0, 0.03, half, gap.se).fail_chance >= 0.8:
                    tried.append(((base + cand) * steps, half, design))
    best = cheapest_design(noisy, ONE, 0.03)
    assert best == min(tried, key=lambda entry: entry[:2])[2]
    assert best.planned_steps > 1000


def test_more_steps_shrink_only_the_within_pair_term() -> None:
    short, long = (plan(Design(level=3.0, planned_steps=steps), ONE) for steps in (1000, 4000))
    assert long.run_se == short.run_se
    assert long.within_se == pytest.approx(short.within_se / 2.0)
    assert "More steps shrink only the within-pair error" in long.note


def test_a_design_with_runs_to_spare_is_told_the_cheaper_one() -> None:
    outlook = plan(Design(level=3.34, planned_steps=2000, baseline_runs=4, candidate_runs=4, **NEAREST), ONE)
    assert outlook.decides
    assert "A cheaper one decides too: 1 baseline run and 1 candidate run of 2,000 steps." in outlook.advice
