"""Nothing is named unless the runs on record follow from their specifications."""

from dataclasses import asdict, replace

import pytest

from parity_lab.analysis import make_setup, next_measurement, setup_from, steps_spent
from parity_lab.answer import answer
from parity_lab.replay import RERUNS, WINDOW, RatesDiffer, Recorded, Replay, check, planned
from tests.parity_lab.simulated import bit_equal, results_of, setup_of

GUILTY = "1.gate.dgrad"
RUNS = [Recorded(run=f"{arm[0]}{at}", arm=arm, steps=1000, kept=(600,)) for arm in ("baseline", "candidate") for at in range(3)]
OWN = Replay(run="c0", arm="candidate", first=0, steps=100)
DEPARTED = bit_equal(WINDOW) | {"departs": 3, "by": 0.01, "first": 0.0, "mean": 0.01}


def rerun(spread):
    """The results of the reruns of a replay whose mean is 0.01 nats below the record."""
    return {f"rerun/c0/0/{draw}": {"first": 0.0, "mean": 0.01 + spread} for draw in range(1, RERUNS + 1)}


def replayed_setup(**changes):
    return setup_of(recorded=RUNS, **changes)


def test_an_honest_record_is_explained_as_before():
    setup = replayed_setup()
    results = results_of(setup, {GUILTY: 0.02})
    whole = answer(setup, results)
    assert (whole["replay"]["outcome"], whole["replay"]["code"]) == ("reproduced", None)
    assert "bit for bit" in whole["replay"]["sentence"]
    assert [each["gemms"] for each in whole["named"]] == [[GUILTY]]
    assert whole["steps_spent"] == steps_spent(setup, results) <= setup.most_steps
    assert whole["steps_spent"] - answer(setup_of(), results_of(setup_of(), {GUILTY: 0.02}))["steps_spent"] == setup.replay_steps


@pytest.mark.parametrize(
    ("result", "outcome", "code"),
    [
        (DEPARTED, "differs", "NOT_IN_PRECISION"),
        (DEPARTED | {"by": None, "exact": False}, "differs", "NOT_IN_PRECISION"),
        (bit_equal(0) | {"missing": "gone"}, "unchecked", "NOT_REPLAYED"),
    ],
)
def test_a_record_that_does_not_follow_names_nothing_whatever_the_forks_say(result, outcome, code):
    setup = replayed_setup()
    key = next(each.key for each in setup.replays if each.arm == "candidate")
    whole = answer(setup, results_of(setup, {GUILTY: 0.02}) | {key: result})
    assert (whole["replay"]["outcome"], whole["replay"]["code"]) == (outcome, code)
    assert (whole["complete"], whole["named"], whole["tested"], whole["effect"]) == (True, [], [], None)
    assert key.split("/")[1] in whole["replay"]["sentence"]


def test_it_ends_at_the_first_replay_that_departs():
    setup = replayed_setup()
    results = results_of(setup, {}, most=4)
    results[next(reversed(results))] |= {"departs": 5, "by": 1e-7}  # equal bits are expected here
    assert next_measurement(setup, results) is None
    assert not any(key.startswith(("instant", "fork")) for key in results)
    assert steps_spent(setup, results) == 4 * WINDOW


def test_learning_rates_that_differ_end_it_before_anything_is_trained():
    setup = replace(replayed_setup(), rates=RatesDiffer(step=7, baseline=1e-3, candidate=1.3e-3))
    assert setup_from(asdict(setup)) == setup
    assert next_measurement(setup, {}) is None
    whole = answer(setup, {})
    assert (whole["complete"], whole["replay"]["code"], whole["steps_spent"]) == (True, "NOT_IN_PRECISION", 0)
    assert (
        "from step 7 on the learning rates on record differ (0.001 in the baseline, 0.0013 in the candidate)" in whole["replay"]["sentence"]
    )


@pytest.mark.parametrize(("spread", "outcome"), [(0.02, "reproduced"), (-0.004, "reproduced"), (0.001, "differs"), (0.0, "differs")])
def test_where_bits_may_differ_reruns_say_what_is_noise(spread, outcome):
    results = {OWN.key: DEPARTED | {"exact": False}}
    for draw in range(1, RERUNS + 1):
        own = check([OWN], results)
        assert (own.outcome, own.pending.draw, own.pending.steps) == ("pending", draw, WINDOW)
        results[own.pending.key] = rerun(spread)[own.pending.key]
    assert check([OWN], results).outcome == outcome


def test_the_first_step_comes_before_any_update_and_is_judged_alone():
    results = {OWN.key: DEPARTED | {"exact": False, "departs": 0, "first": 0.002}} | rerun(0.02)
    assert check([OWN], results).outcome == "reproduced"  # reruns begin 0.002 from it
    same = {key: {"first": 0.002, "mean": 0.03} for key in rerun(0.02)}
    assert check([OWN], results | same).outcome == "differs"


def test_the_windows_of_a_run_and_the_whole_of_another():
    plan = planned(RUNS, 1)
    assert {(each.run, each.first, each.steps) for each in plan if each.arm == "candidate"} == {
        ("c0", 0, 1000),
        ("c0", 600, WINDOW),
        *((run, first, WINDOW) for run in ("c1", "c2") for first in (0, 600)),
    }
    assert [each.steps for each in plan[-2:]] == [1000, 1000]  # what costs most comes last
    short = Recorded(run="d", arm="candidate", steps=10, kept=(600,))  # it diverged before its checkpoint
    assert [(each.first, each.steps) for each in planned([short], 0)] == [(0, 10)]


@pytest.mark.parametrize(("steps", "pairs"), [(400, 2), (1000, 1), (10_000, 0)])
def test_what_is_replayed_whole_costs_half_as_much_as_one_gemm_at_most(steps, pairs):
    units = tuple(f"{block}.{name}.{gemm}" for gemm in ("f", "d", "w") for block in range(2) for name in ("gate", "up", "down"))
    recorded = [replace(run, steps=steps, kept=(steps // 2,)) for run in RUNS]
    bare = make_setup(units=units, ingredients=(), parents=("b0", "b1", "b2"), fork_step=steps // 2, run_steps=steps)
    setup = make_setup(units=units, ingredients=(), parents=("b0", "b1", "b2"), fork_step=steps // 2, run_steps=steps, recorded=recorded)
    assert sum(each.steps == steps for each in setup.replays) == 2 * pairs
    assert setup.steps_for_one == pytest.approx(bare.steps_for_one + setup.replay_steps)
    if steps == 10_000:
        assert setup.steps_for_one <= 0.25 * 2 * steps


def test_a_setup_of_an_earlier_version_goes_on_and_says_that_it_was_not_checked():
    document = {name: value for name, value in asdict(setup_of()).items() if name not in ("replays", "rates")}
    setup = setup_from(document)
    whole = answer(setup, results_of(setup, {GUILTY: 0.02}))
    assert [each["gemms"] for each in whole["named"]] == [[GUILTY]]
    assert whole["replay"]["outcome"] == "not planned"
    assert "not excluded" in whole["replay"]["sentence"]
