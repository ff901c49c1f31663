"""The assignments of the experiment are what they say, worlds are fixed by their number, and tables
count what is on record.
"""

import json

import numpy as np
import pytest

from experiments import assignments, search, search_world
from experiments.search_methods import greedy, ranking
from parity_lab.assignments import Space, all_assignments
from parity_lab.belief import Evaluation, Result
from training.rules import PROJECTIONS
from training.segments import Plan, resolve
from training.switches import GEMMS, NO_SWITCHES, from_document

NOISE = search_world.RunNoise(fork=0.001, baseline=0.003, candidate=0.005)
FIT = search_world.Fit(
    gaps=np.linspace(0.0, 0.03, 8),
    forks=np.linspace(0.0, 0.01, 8),
    scores={"SNR": np.linspace(0.1, 1.0, 8)},
    pairs=(-0.1, 0.1),
    fork_pairs=(0.0, 0.1),
    noise=NOISE,
)


@pytest.mark.parametrize("assignment", ["00000000", "10000000", "00010000", "01100110", "11111110"])
def test_the_choice_of_an_assignment_is_what_its_overrides_give(assignment):
    space = Space(switches=search.switches())
    plan = Plan(
        recipe="nvfp4",
        switches=NO_SWITCHES,
        overrides=tuple(map(from_document, space.overrides(assignment))),
        bf16_from_step=None,
        bf16_scope="all",
        quantized=frozenset(PROJECTIONS),
        keep_first=0,
        keep_last=0,
        n_layers=assignments.MODEL.n_layers,
        steps=assignments.STEPS,
    )
    (part,) = resolve(plan)
    ends = {span.first: span.last for span in part.spans}
    own = assignments.choice(assignment)
    for first, projection, gemm, arithmetic in part.cells():
        for block in range(first, ends[first] + 1):
            assert own[block, PROJECTIONS.index(projection), GEMMS.index(gemm)] == (
                arithmetic.recipe == "nvfp4"
            )


def test_the_grid_treats_blocks_alike_and_the_ends_differ_in_one_switch():
    assert len(set(assignments.grid())) == 16
    assert all(assignment[:4] == assignment[4:] for assignment in assignments.grid())
    assert len(set(assignments.ends())) == 16
    assert {assignment.count("1") for assignment in assignments.ends()} == {1, 7}


def test_modelled_times_fall_with_every_switch():
    times = search.times()
    assert times[0] == pytest.approx(1.0)
    assert 1.0 / times[-1] == pytest.approx(1.73)
    for number in range(256):
        for bit in range(8):
            assert times[number | 1 << bit] <= times[number]


def test_a_world_is_fixed_by_its_number_and_its_target_has_the_power():
    first, again, other = (search_world.truth(FIT, number) for number in (3, 3, 4))
    assert (first.gaps == again.gaps).all()
    assert (first.gaps != other.gaps).any()
    assert first.gaps[0] == 0.0
    own = first.setting
    assert own.confirmation.passes(own.target) == pytest.approx(0.95, abs=0.01)
    assert first.policy.confidence == own.confirmation.confidence


def test_the_judges_interval_decides_a_confirmation():
    setting, policy = search_world.truth(FIT, 3).setting, search_world.truth(FIT, 3).policy
    evaluation = Evaluation(kind="confirmation", assignment="00000001", number=0)
    baseline = np.array([2.0, 2.003, 1.998, 2.001])
    for gap, passed in ((0.0, True), (setting.confirmation.margin, False), (0.2, False)):
        own = search_world.judged(
            evaluation, baseline, baseline + gap, policy, setting.confirmation.margin
        )
        assert own.passed is passed
        assert own.value == pytest.approx(gap)


@pytest.mark.parametrize(
    "method", [greedy, ranking(np.linspace(0.1, 1.0, 8), 3 * assignments.STEPS)]
)
def test_other_methods_find_an_assignment_where_nothing_is_noisy(method):
    truth = search_world.truth(FIT, 5)

    class Exact:
        steps = 0

        def __call__(self, evaluation):
            self.steps += 1
            gap = float(truth.gaps[int(evaluation.assignment, 2)])
            if evaluation.kind == "confirmation":
                return Result(evaluation=evaluation, value=gap, passed=gap <= truth.setting.target)
            return Result(evaluation=evaluation, value=1.83 + gap)

    own = method(truth.setting, Exact())
    assert own.assignment in all_assignments(8)
    assert 0 < own.steps <= 36


def test_the_table_counts_passes_and_speeds(tmp_path, monkeypatch):
    row = {"kind": "simulated", "method": "search", "confirmations": 1, "steps": 600}
    rows = [
        {**row, "world": at, "assignment": "00000001", "speed": 1.0, "gap_in_margins": 0.5}
        for at in range(3)
    ]
    rows.append(
        {
            **row,
            "world": 3,
            "assignment": None,
            "confirmations": 2,
            "speed": None,
            "gap_in_margins": None,
        }
    )
    record = tmp_path / "search.jsonl"
    record.write_text("".join(json.dumps(each) + "\n" for each in rows))
    monkeypatch.setattr(search, "RECORD", record)
    monkeypatch.setattr(search, "switch_table", lambda: iter(()))
    line = next(line for line in search.table() if line.startswith("| search"))
    assert line.startswith("| search | 3 of 4 (19 to 99 %) | 3 of 4")
    assert line.endswith("| 1.000 | 600 |")
    assert search.share(0, 10).startswith("0 of 10 (0 to 31")
