"""The search names the units that cost something, stops at its largest cost, and goes on where it
was.
"""

from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from parity_lab.analysis import (
    arm_forks,
    gradient_batches,
    next_measurement,
    search,
    steps_spent,
    tree,
)
from parity_lab.analysis_plan import make_setup, setup_from
from parity_lab.answer import answer
from parity_lab.answer_lines import answer_lines
from tests.conftest import some, some_of
from tests.parity_lab.simulated import SD, UNITS, measure, results_of, setup_of

GUILTY = "1.gate.dgrad"
COSTS = {GUILTY: 0.02}


def forks_of(setup, costs, seed, earlier=None):
    """The results of the forks alone, with other noise for each seed."""
    results = {**(earlier or {})}
    while pending := search(setup, results).pending:
        results |= {
            fork.key: measure(setup, replace(fork, key=f"{fork.key}/{seed}"), costs)
            for fork in pending
        }
    return results


def test_a_guilty_unit_is_named_with_its_cost_and_nothing_is_left():
    setup = setup_of()
    whole = answer(setup, results_of(setup, COSTS))
    assert whole["complete"]
    assert [part["gemms"] for part in whole["named"]] == [[GUILTY]]
    part = whole["named"][0]
    for way in ("without", "alone"):
        assert part[way]["low"] > 0
        assert part[way]["value"] == pytest.approx(0.02, abs=2 * SD)
    assert whole["effect"]["low"] < 0.02 < whole["effect"]["high"]
    assert whole["unexplained"]["value"] == pytest.approx(0.0, abs=2 * SD)
    assert (whole["noise"]["on"], whole["noise"]["off"]) == pytest.approx((SD, SD), rel=0.5)
    assert whole["noise"]["enough"]
    assert whole["steps_spent"] <= setup.most_steps
    assert abs(whole["instant"]["whole"]["value"]) < 0.001  # the forward pass does not see it
    assert whole["gradients"][0]["name"] == "all"


def test_the_forward_part_of_a_unit():
    setup = setup_of()
    instant = answer(setup, results_of(setup, {"0.gate.fprop": 0.02}))["instant"]
    parts = {part["name"]: part["without"]["value"] for part in instant["gemms"]}
    assert max(parts, key=parts.get) == "0.gate.fprop"
    assert parts["0.gate.fprop"] == pytest.approx(instant["whole"]["value"], abs=1e-3)
    assert [part["name"] for part in instant["ingredients"]] == ["rht"]


def test_an_effect_is_named_whatever_its_sign():
    setup = setup_of()
    whole = answer(setup, results_of(setup, {GUILTY: -0.02}))
    assert [part["gemms"] for part in whole["named"]] == [[GUILTY]]
    assert whole["named"][0]["without"]["high"] < 0


def test_a_healthy_candidate_has_no_guilty_unit_in_most_cases():
    named = 0
    for seed in range(40):
        setup = setup_of()
        named += bool(answer(setup, forks_of(setup, {}, seed))["named"])
    assert named <= 4  # 1 is expected; more than 4 have a chance of 1 %


def test_opposite_effects_that_cancel_together_are_named():
    """Both are found only where their clusters part: the root must show something, here a third
    unit.
    """
    setup = setup_of()
    costs = {"0.gate.fprop": 0.03, "0.down.fprop": -0.03, "1.down.wgrad": 0.02}
    named = {
        unit for part in answer(setup, results_of(setup, costs))["named"] for unit in part["gemms"]
    }
    assert "1.down.wgrad" in named


def test_the_interval_of_what_is_unexplained_covers():
    hits = 0
    count = some(300)
    for seed in range(count):
        setup = setup_of()
        rest = answer(setup, forks_of(setup, COSTS, seed))["unexplained"]
        hits += rest["low"] <= 0 <= rest["high"]
    assert hits >= 0.87 * count  # 95 % are expected


OVERLAP = {"0.gate.fprop": 0.03, "1.down.wgrad": 0.02, ("0.gate.fprop", "1.down.wgrad"): -0.01}


def test_named_units_that_overlap_have_an_interaction_and_leave_nothing():
    hits, covered, count = 0, 0, some(150)
    for seed in range(count):
        setup = setup_of(most_steps=100_000.0)
        results = forks_of(setup, OVERLAP, seed)
        whole = answer(setup, results)
        assert {tuple(part["gemms"]) for part in whole["named"]} == {
            ("0.gate.fprop",),
            ("1.down.wgrad",),
        }
        parts = sum(part["without"]["value"] for part in whole["named"])
        total = parts + whole["interaction"]["value"] + whole["unexplained"]["value"]
        assert total == pytest.approx(whole["effect"]["value"], abs=1e-12)
        hits += whole["unexplained"]["low"] <= 0 <= whole["unexplained"]["high"]
        # each off gains 0.01 less than its own cost
        covered += whole["interaction"]["low"] <= 0.01 <= whole["interaction"]["high"]
    assert hits >= 0.85 * count  # 95 % are expected
    assert covered >= 0.85 * count
    assert any(line.startswith("interaction: ") for line in answer_lines(plan_of(setup), whole))


def test_the_forks_with_all_named_units_off_are_within_the_largest_cost():
    """With the cost of one cut both halves can be named: without both everything is off, which is
    measured already.
    """
    setup = setup_of()
    for cuts in range(1, 8):
        limited = replace(
            setup, most_steps=setup.least_steps + (4 * cuts - 2) * 3 * setup.fork_steps
        )
        whole = answer(limited, results_of(limited, OVERLAP))
        assert whole["complete"]
        assert whole["unexplained"] is not None
        assert whole["steps_spent"] <= limited.most_steps
    one = replace(setup, most_steps=setup.steps_for_one)
    halves = answer(one, results_of(one, OVERLAP))
    assert [len(part["gemms"]) > 1 for part in halves["named"]] == [True, True]
    assert halves["unexplained"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert halves["steps_spent"] <= setup.steps_for_one


@pytest.mark.parametrize("count", some_of(range(2, 20), 3, 0))
def test_the_default_cost_finds_any_one_unit_whatever_the_last_bit_of_the_sum(count):
    units = tuple(f"0.layer{at}.fprop" for at in range(count))
    for guilty in (units[0], units[-1]):
        setup = setup_of(units=units)
        even = {
            batch.key: {name: [1.0, 0.9, 1.0, 0.1, 0.01] for name in ("all", *units)}
            for batch in gradient_batches(setup)
        }
        whole = answer(setup, results_of(setup, {guilty: 0.02}, earlier=even))
        assert [part["gemms"] for part in whole["named"]] == [[guilty]]
        assert not whole["stopped"]


def test_the_same_results_give_the_same_next_measurement():
    setup = setup_of()
    whole = results_of(setup, COSTS)
    for count in (0, 1, 30, 60, len(whole) - 1):
        begun = dict(list(whole.items())[:count])
        measurement = next_measurement(setup, begun)
        assert measurement is not None
        assert measurement.key == list(whole)[count]
    assert next_measurement(setup, whole) is None
    assert next_measurement(setup_from(asdict(setup)), dict(reversed(whole.items()))) is None


def test_the_search_stops_at_its_largest_cost_and_names_the_smallest_cluster_so_far():
    setup = setup_of()
    setup = replace(setup, most_steps=setup.least_steps + 6 * 3 * setup.fork_steps)
    results = results_of(setup, COSTS)
    whole = answer(setup, results)
    assert whole["stopped"]
    assert whole["complete"]
    assert steps_spent(setup, results) <= setup.most_steps
    assert GUILTY in whole["named"][0]["gemms"]
    assert 1 < len(whole["named"][0]["gemms"]) < len(UNITS)
    assert whole["untested"]


def pointing_to(unit, setup):
    """Gradients of which this unit has all the error."""
    sums = {name: [1.0, 0.9, 1.0, 1e-9, 0.0] for name in ("all", *UNITS)} | {
        unit: [1.0, 0.9, 1.0, 1.0, 0.1]
    }
    return {batch.key: sums for batch in gradient_batches(setup)}


def test_a_unit_that_the_gradient_split_points_to_costs_a_third_and_is_found_where_it_costs_little():  # noqa: E501
    setup = setup_of()
    results = results_of(setup, {GUILTY: 0.02}, earlier=pointing_to(GUILTY, setup))
    whole = answer(setup, results)
    assert [part["gemms"] for part in whole["named"]] == [[GUILTY]]
    assert whole["steps_spent"] == setup.steps_for_one
    assert whole["steps_spent"] - setup.least_steps < (setup.steps_for_any - setup.least_steps) / 3
    weak = {GUILTY: 1.3 * SD}
    named = [
        [
            part["gemms"]
            for part in answer(setup, forks_of(setup, weak, seed, pointing_to(unit, setup)))[
                "named"
            ]
        ]
        for unit in (GUILTY, UNITS[0])
        for seed in range(20)
    ]
    assert named[:20].count([[GUILTY]]) >= 15
    assert named[:20].count([[GUILTY]]) > named[20:].count([[GUILTY]])


def test_a_second_look_has_as_many_forks_as_the_ends_and_leaves_the_first_look_as_it_was():
    setup = setup_of()
    results = {**forks_of(setup, {GUILTY: 1.3 * SD}, 3, pointing_to(GUILTY, setup))}
    arms = Counter(key.rsplit("/", 2)[0] for key in results if key.startswith("fork/"))
    assert set(arms.values()) == {18}
    units = tree(setup, results)
    first = [
        fork.key
        for cluster in units.halves(units.units)
        for fork in arm_forks(setup, units, "alone", cluster, setup.draws)
    ]
    last = [
        key
        for key in results
        if key.startswith("fork/")
        and key.rsplit("/", 2)[0] != "fork/alone all"
        and key not in first
    ]
    begun = {key: value for key, value in results.items() if key not in last}
    assert search(setup, begun).pending
    assert {fork.key for fork in search(setup, begun).pending} <= set(last)


def test_a_second_look_beyond_the_largest_cost_is_not_taken_and_the_answer_says_so():
    setup = setup_of()
    setup = replace(setup, most_steps=setup.least_steps + 2 * 3 * setup.fork_steps)
    whole = answer(setup, results_of(setup, {GUILTY: 1.3 * SD}, earlier=pointing_to(GUILTY, setup)))
    assert whole["complete"]
    assert [len(part["gemms"]) for part in whole["named"]] == [len(UNITS)]
    assert (whole["stopped"], whole["untested"]) == (True, [])
    assert any(line.startswith("stopped: ") for line in answer_lines(plan_of(setup), whole))
    assert any(line.startswith("  GEMMs: ") for line in answer_lines(plan_of(setup), whole))


def plan_of(setup):
    return {
        "gap": {"verdict": "fail", "gap": 0.01, "low": 0.005, "high": 0.015},
        "fork_step": 600,
        "fork_steps": 60,
        "pair_steps": 2000,
    }


def test_weights_are_even_where_the_gradient_split_says_nothing():
    setup = setup_of()
    even = tree(setup, {})
    assert even.units == UNITS
    assert len(set(even.weights)) == 1
    for error in (0.0, float("nan"), float("inf")):
        sums = {name: [1.0, 0.9, 1.0, error, 0.0] for name in ("all", *UNITS)}
        assert tree(setup, {batch.key: sums for batch in gradient_batches(setup)}) == even
    pointed = tree(setup, pointing_to(GUILTY, setup))
    assert pointed.halves(pointed.units)[0] == (GUILTY,)
    assert pointed.weight((GUILTY,)) == pytest.approx(0.75 + 0.25 / len(UNITS), abs=1e-5)


def test_no_two_forks_have_the_same_draw():
    setup = setup_of()
    units = tree(setup, {})
    named = units.units[::2]  # no cluster of the tree
    forks = [
        fork
        for cluster in units.clusters()
        for way in ("without", "alone")
        for fork in arm_forks(setup, units, way, cluster, 6)
    ]
    forks += arm_forks(setup, units, "without", named, 6)
    keys = {fork.key for fork in forks}
    # halves of all units share their arms
    assert len({(fork.parent, fork.draw) for fork in forks}) == len(keys) == len(forks) - 2 * 18
    assert min(fork.draw for fork in forks) == 1


def test_what_has_begun_is_partial():
    setup = setup_of()
    begun = answer(setup, results_of(setup, COSTS, most=10))
    assert (begun["complete"], begun["effect"], begun["instant"], begun["named"]) == (
        False,
        None,
        None,
        [],
    )
    assert search(setup, {}).pending
    forks_begun = answer(setup, results_of(setup, COSTS, most=80))
    assert forks_begun["effect"] is not None
    assert not forks_begun["complete"]


@pytest.mark.parametrize("parents", [1, 2, 3])
def test_fewer_parents_have_more_forks_each(parents):
    setup = setup_of(parents=tuple(f"r{at}" for at in range(parents)))
    assert parents * setup.noise_draws == 18
    assert 3 <= parents * setup.draws <= 4
    assert setup.fork_steps == 100
    assert setup.least_steps < setup.steps_for_one < setup.most_steps
    assert setup.most_steps == setup.steps_for_any + setup.together_steps


def test_forks_end_with_the_run():
    assert setup_of(fork_step=990).fork_steps == 10
    for length in (0, 401):
        with pytest.raises(ValueError, match="fork_steps"):
            setup_of(fork_steps=length)
    assert make_setup(
        units=("a",), ingredients=(), parents=("r",), fork_step=5, run_steps=10, most_steps=7.0
    ).most_steps == pytest.approx(7.0)


def test_equal_forks_tell_nothing():
    setup = setup_of()
    units = tree(setup, {})
    results = {
        fork.key: 1.0
        for way in ("without", "alone")
        for fork in arm_forks(setup, units, way, UNITS, setup.noise_draws)
    }
    with pytest.raises(ValueError, match="a draw of its own"):
        search(setup, results)
    assert np.isfinite(setup.smallest_effect(SD))
