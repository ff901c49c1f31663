"""The table of the searches, from runs whose gaps are known."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.heal_cases import (
    BASELINE,
    CASES,
    JOB_SEED,
    MARGIN_SHARE,
    REPLICATES,
    STEPS,
    SWITCHES,
    run_of,
)
from experiments.heal_record import HealRecord, key_of, records
from experiments.heal_table import JOBS, CaseRuns, table

CASE, CONTROL = CASES[0], next(case for case in CASES if case.is_control)
NAME, JOB = next(iter(JOBS.items()))
LEVEL, GAP = 3.0, 0.10
SEEDS = range(4)
EARLY = dict(zip(SWITCHES, (0.005, 0.01, 0.09, 0.095), strict=True))
"""Gaps of switches of which the second heals and the third does not."""


def recorded(case, gaps):
    """Every run of a case: the gap of each arm, 0.002 nats of run-to-run noise, and the noise of
    steps, most of which the runs of a seed share.
    """
    random = np.random.default_rng(0)
    for seed in SEEDS:
        of_seed = 0.05 * random.normal(size=STEPS)
        for replicate in range(REPLICATES if seed == JOB_SEED else 1):
            candidate = run_of(case.size, case.candidate, seed, replicate)
            arms = [(run_of(case.size, BASELINE, seed, replicate), 0.0), (candidate, gaps[STEPS])]
            arms += [
                (replace(candidate, then=case.later(step)), gap)
                for step, gap in gaps.items()
                if step < STEPS
            ]
            for spec, gap in arms:
                size, arm, then, *_ = key_of(case.size, spec)
                first = spec.then.from_step if spec.then else 0
                fallen = 1 - np.exp(-np.arange(first, STEPS) / 50.0)  # gaps grow with it
                noise = of_seed[first:] + 0.005 * random.normal(size=STEPS - first)
                offset = gap + 0.002 * random.normal()
                yield HealRecord(
                    size=size,
                    arm=arm,
                    then=then,
                    seed=seed,
                    replicate=replicate,
                    first=first,
                    losses=[*(LEVEL - fallen + fallen * offset + noise)],
                    code="",
                    device="",
                )


def runs_of(case, gaps):
    return CaseRuns(case, {record.key: record for record in recorded(case, gaps)})


def test_the_search_names_the_switch_that_all_runs_name():
    runs = runs_of(CASE, EARLY | {STEPS: GAP})
    assert runs.has(JOB)
    margin, truth = runs.margin(), runs.over_seeds()
    assert margin == pytest.approx(MARGIN_SHARE * GAP, rel=0.1)
    assert (truth.right_step(margin), truth.possible_steps(margin)) == (
        SWITCHES[1],
        [SWITCHES[1]],
    )
    answer = runs.search(JOB, margin)
    assert answer.step == SWITCHES[1]
    assert {look.step: look.verdict for look in answer.looks}[SWITCHES[2]] == "fail"


def test_no_switch_is_right_where_none_heals():
    runs = runs_of(CASE, dict.fromkeys((*SWITCHES, STEPS), GAP))
    assert runs.over_seeds().right_step(runs.margin()) == 0
    assert runs.search(JOB, runs.margin()).step == 0


def test_a_switch_after_one_that_does_not_heal_is_not_right():
    gaps = dict(zip(SWITCHES, (0.005, 0.09, 0.01, 0.09), strict=True))
    runs = runs_of(CASE, gaps | {STEPS: GAP})
    assert runs.over_seeds().right_step(runs.margin()) == SWITCHES[0]


def test_the_runs_of_a_search_are_no_part_of_the_truth_over_runs():
    runs = runs_of(CASE, EARLY | {STEPS: GAP})
    assert [runs.over_runs(job).units for job in (JOB, JOB[:1])] == [0, 2]


def test_the_table_counts_what_agrees_and_names_where_the_law_breaks():
    lines = [*table([*recorded(CASE, EARLY | {STEPS: GAP})], [NAME], [MARGIN_SHARE])]
    counted = [line for line in lines if "named within a fifth" in line]
    assert len(counted) == 2  # margins of the gap over all seeds, and over the job's
    said = "0 open; over seeds 1 of 1 named within a fifth, 1 estimated so, 0 of"
    assert all(said in line for line in counted)
    assert not any("SMALLER" in line for line in lines)
    broken = dict(zip(SWITCHES, (0.09, 0.09, 0.01, 0.09), strict=True))
    (named,) = table([*recorded(CASE, broken | {STEPS: GAP})], [])
    assert f"SMALLER {SWITCHES[1]} to {SWITCHES[2]}" in named


def test_a_control_has_nothing_to_heal():
    runs = runs_of(CONTROL, {STEPS: 0.0})
    assert runs.judged(STEPS, JOB, runs.margin()).verdict == "pass"


def test_what_is_on_record_is_planned():
    sizes = {case.size.name for case in CASES}
    arms = {run_of(case.size, case.candidate, 0, 0).label for case in CASES} | {BASELINE["recipe"]}
    for record in records():
        assert (record.size in sizes, record.arm in arms) == (True, True)
        assert len(record.losses) == STEPS - record.first
