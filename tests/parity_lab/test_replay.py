"""Nothing is named unless the runs on record follow from their specifications."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from parity_lab.analysis import next_measurement, steps_spent
from parity_lab.analysis_plan import make_setup, setup_from
from parity_lab.answer import answer
from parity_lab.answer_lines import answer_lines
from parity_lab.parting import parts_at
from parity_lab.replay import RERUNS, WINDOW, RatesDiffer, RecordedRun, Replay, check, planned
from tests.parity_lab.simulated import bit_equal, results_of, setup_of

GUILTY = "1.gate.dgrad"
RUNS = [
    RecordedRun(run=f"{arm[0]}{at}", arm=arm, steps=1000, checkpoints=(600,))
    for arm in ("baseline", "candidate")
    for at in range(3)
]
OWN = Replay(run="c0", arm="candidate", first=0, steps=100)
DEPARTED = bit_equal(WINDOW) | {"departs": 3, "by": 0.01, "first": 0.0, "mean": 0.01}


def rerun(spread):
    """The results of the reruns of a replay whose mean is 0.01 nats below the record."""
    return {
        f"rerun/c0/0/{draw}": {"first": 0.0, "mean": 0.01 + spread} for draw in range(1, RERUNS + 1)
    }


def replayed_setup(**changes):
    return setup_of(recorded=RUNS, **changes)


def test_an_honest_record_is_explained_as_before():
    setup = replayed_setup()
    results = results_of(setup, {GUILTY: 0.02})
    whole = answer(setup, results)
    assert (whole["replay"]["outcome"], whole["replay"]["code"]) == ("reproduced", None)
    assert "bit for bit" in whole["replay"]["sentence"]
    assert [part["gemms"] for part in whole["named"]] == [[GUILTY]]
    assert whole["steps_spent"] == steps_spent(setup, results) <= setup.most_steps
    assert (
        whole["steps_spent"]
        - answer(setup_of(), results_of(setup_of(), {GUILTY: 0.02}))["steps_spent"]
        == setup.replay_steps
    )


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
    key = next(replay.key for replay in setup.replays if replay.arm == "candidate")
    whole = answer(setup, results_of(setup, {GUILTY: 0.02}) | {key: result})
    assert (whole["replay"]["outcome"], whole["replay"]["code"]) == (outcome, code)
    assert (whole["complete"], whole["named"], whole["tested"], whole["effect"]) == (
        True,
        [],
        [],
        None,
    )
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
    assert (whole["complete"], whole["replay"]["code"], whole["steps_spent"]) == (
        True,
        "NOT_IN_PRECISION",
        0,
    )
    assert (
        "from step 7 on the learning rates on record differ (0.001 in the baseline, 0.0013 in the "
        "candidate)" in whole["replay"]["sentence"]
    )


@pytest.mark.parametrize(
    ("spread", "outcome"),
    [(0.02, "reproduced"), (-0.004, "reproduced"), (0.001, "differs"), (0.0, "differs")],
)
def test_where_bits_may_differ_reruns_say_what_is_noise(spread, outcome):
    results = {OWN.key: DEPARTED | {"exact": False}}
    for draw in range(1, RERUNS + 1):
        replays = check([OWN], results, accept_noise=True)
        assert (replays.outcome, replays.pending.draw, replays.pending.steps) == (
            "pending",
            draw,
            WINDOW,
        )
        results[replays.pending.key] = rerun(spread)[replays.pending.key]
    assert check([OWN], results, accept_noise=True).outcome == outcome
    strict = check([OWN], results)
    assert strict.code == ("NOT_REPLAYED" if outcome == "reproduced" else "NOT_IN_PRECISION")


def test_the_first_step_comes_before_any_update_and_is_judged_alone():
    results = {OWN.key: DEPARTED | {"exact": False, "departs": 0, "first": 0.002}} | rerun(0.02)
    # reruns begin 0.002 from it
    assert check([OWN], results, accept_noise=True).outcome == "reproduced"
    same = {key: {"first": 0.002, "mean": 0.03} for key in rerun(0.02)}
    assert check([OWN], results | same).outcome == "differs"


def test_the_windows_of_a_run_and_the_whole_of_another():
    plan = planned(RUNS, 1)
    assert {
        (replay.run, replay.first, replay.steps) for replay in plan if replay.arm == "candidate"
    } == {
        ("c0", 0, 1000),
        ("c0", 600, WINDOW),
        *((run, first, WINDOW) for run in ("c1", "c2") for first in (0, 600)),
    }
    assert [replay.steps for replay in plan[-2:]] == [1000, 1000]  # what costs most comes last
    # it diverged before its checkpoint
    short = RecordedRun(run="d", arm="candidate", steps=10, checkpoints=(600,))
    assert [(replay.first, replay.steps) for replay in planned([short], 0)] == [(0, 10)]


@pytest.mark.parametrize(("steps", "pairs"), [(400, 2), (1000, 1), (10_000, 0)])
def test_what_is_replayed_whole_costs_half_as_much_as_one_gemm_at_most(steps, pairs):
    units = tuple(
        f"{block}.{name}.{gemm}"
        for gemm in ("f", "d", "w")
        for block in range(2)
        for name in ("gate", "up", "down")
    )
    recorded = [replace(run, steps=steps, checkpoints=(steps // 2,)) for run in RUNS]
    bare = make_setup(
        units=units,
        ingredients=(),
        parents=("b0", "b1", "b2"),
        fork_step=steps // 2,
        run_steps=steps,
    )
    setup = make_setup(
        units=units,
        ingredients=(),
        parents=("b0", "b1", "b2"),
        fork_step=steps // 2,
        run_steps=steps,
        recorded=recorded,
    )
    assert sum(replay.steps == steps for replay in setup.replays) == 2 * pairs
    assert setup.steps_for_one == pytest.approx(bare.steps_for_one + setup.replay_steps)
    if steps == 10_000:
        assert setup.steps_for_one <= 0.25 * 2 * steps


def test_a_setup_of_an_earlier_version_goes_on_and_says_that_it_was_not_checked():
    document = {
        name: value
        for name, value in asdict(setup_of()).items()
        if name not in ("replays", "rates")
    }
    setup = setup_from(document)
    whole = answer(setup, results_of(setup, {GUILTY: 0.02}))
    assert [part["gemms"] for part in whole["named"]] == [[GUILTY]]
    assert whole["replay"]["outcome"] == "not planned"
    assert "not excluded" in whole["replay"]["sentence"]


def pair(steps=600):
    """The columns of two runs on the same batches, with weights that drift apart."""
    random, at = np.random.default_rng(5), np.arange(steps)
    batches = random.normal(0, 0.05, steps)
    return [
        {
            "lm_loss": 2 + np.exp(-at / 50) + batches + random.normal(0, 0.01, steps),
            "param_norm": np.exp(np.cumsum(random.normal(1e-4, 1e-5, steps))),
            "update_norm": np.exp(-at / 300) * random.lognormal(0, 0.02, steps),
        }
        for _ in range(2)
    ]


def test_a_pair_parts_where_its_data_or_its_state_do_and_nowhere_else():
    ours, theirs = pair()
    assert parts_at(ours, theirs) is None
    assert (
        parts_at(
            ours,
            {
                **theirs,
                "lm_loss": theirs["lm_loss"] + 0.3,
                "update_norm": 1.2 * theirs["update_norm"],
            },
        )
        is None
    )
    other = theirs["lm_loss"].copy()
    other[300:360] = pair(900)[1]["lm_loss"][600:660]
    data = parts_at(ours, {**theirs, "lm_loss": other})
    assert abs(data.step - 300) < 24
    assert "data" in data.how
    jumped = theirs["param_norm"] * np.where(np.arange(600) >= 400, 1.002, 1)
    assert parts_at(ours, {**theirs, "param_norm": jumped}).step == 400
    spiked = theirs["update_norm"] * np.where(np.arange(600) == 450, 3, 1)
    assert parts_at(ours, {**theirs, "update_norm": spiked}).step == 450
    first, last = (
        {name: column[:200] for name, column in record.items()}
        for record in (ours, {**theirs, "param_norm": jumped})
    )
    assert parts_at(first, last) is None  # too short to tell


def test_equal_runs_do_not_part_until_their_arithmetic_does():
    ours, theirs = pair()
    late = {name: np.where(np.arange(600) >= 300, theirs[name], ours[name]) for name in ours}
    late["param_norm"] = ours["param_norm"] * np.exp(
        np.cumsum(np.where(np.arange(600) >= 300, np.random.default_rng(1).normal(0, 1e-5, 600), 0))
    )
    assert parts_at(ours, ours) is None
    assert parts_at(ours, late) is None


def test_without_norms_on_record_only_the_data_are_looked_at():
    ours, theirs = (
        {**record, "param_norm": np.full(600, np.nan), "update_norm": np.full(600, np.nan)}
        for record in pair()
    )
    assert parts_at(ours, theirs) is None


def test_what_differs_on_record_comes_before_where_the_replay_departs():
    setup = replayed_setup()
    key = next(replay.key for replay in setup.replays if replay.arm == "candidate")
    gap = {"gap": 0.05, "low": 0.04, "high": 0.06, "verdict": "fail"}
    difference = {"key": "version.jax", "baseline": "0.10.2", "other": "0.10.1"}
    plan = {"gap": gap, "differences": [difference]}
    lines = [*answer_lines(plan, answer(setup, results_of(setup, {}) | {key: DEPARTED}))]
    assert [line.partition(":")[0] for line in lines] == [
        "gap of the full runs",
        "differs on record",
        "replay",
        "named",
        "cost",
    ]
    assert "version.jax: 0.10.2 in the baseline" in lines[1]
    assert "at step 3 the loss on record is +0.0100 nats from it" in lines[2]


def test_within_noise_nothing_is_named_unless_that_is_accepted():
    setup = replayed_setup()
    candidate_replay = next(replay for replay in setup.replays if replay.arm == "candidate")
    noisy = {
        f"rerun/{candidate_replay.run}/{candidate_replay.first}/{draw}": {
            "first": 0.001,
            "mean": 0.03,
        }
        for draw in range(1, RERUNS + 1)
    }
    results = (
        results_of(setup, {GUILTY: 0.02})
        | {candidate_replay.key: DEPARTED | {"exact": False}}
        | noisy
    )
    refused, accepted = (
        answer(one_setup, results) for one_setup in (setup, replace(setup, accept_noise=True))
    )
    assert (refused["replay"]["code"], refused["named"]) == ("NOT_REPLAYED", [])
    assert "within the noise of reruns only" in refused["replay"]["sentence"]
    assert [part["gemms"] for part in accepted["named"]] == [[GUILTY]]
    assert "which hides small causes" in accepted["replay"]["sentence"]
