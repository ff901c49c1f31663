"""What a job can decide before it trains, and what the record adds to it."""

import dataclasses

import numpy as np
import pytest
from sqlalchemy import select

from parity.design.plan_words import one_line
from parity.judging.policy import FINISHED_NOISE, policy_from_mapping
from server.database.metrics import store
from server.database.tables import Baseline, Job
from server.jobs import baselines
from server.jobs.noise_tables import keep_reruns, reruns_of
from server.jobs.outlook import (
    MOST_CANDIDATES,
    Known,
    equal_earlier_run,
    noise_families_for,
    planned,
)
from training.spec import ArmSpec, ShortReruns
from training.switches import Switches

POLICY = policy_from_mapping({"margin": "1.0%"})


def _like_the_recorded(make_job, **changes):
    return make_job(1500, **{"baseline": ArmSpec(recipe="fp8_current"), "seed": 5} | changes)


def test_an_equal_earlier_baseline_gives_loss_and_step_time(database, recorded, make_job):
    recorded({"nvfp4": 0.0})
    with database.read() as session:
        known = equal_earlier_run(session, _like_the_recorded(make_job), POLICY)
    assert known.level == pytest.approx(1.4, abs=0.02)
    assert known.step_seconds == pytest.approx(0.04)


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline": ArmSpec(recipe="mxfp8")},
        {"layer_policy": "all_linears"},
        {"gradient_accumulation": 2},
        {"engine": "external"},
    ],
)
def test_another_specification_is_not_known(database, recorded, make_job, changes):
    recorded({"nvfp4": 0.0})
    with database.read() as session:
        assert equal_earlier_run(session, _like_the_recorded(make_job, **changes), POLICY) is None


def test_a_run_that_ended_early_or_diverged_is_not_known(database, recorded, make_job):
    recorded({"nvfp4": 0.0}, done=900)
    diverged = recorded({"nvfp4": 0.0})
    with database.write() as session:
        for run in session.get_one(Job, diverged).runs:
            run.code = "DIVERGED"
    with database.read() as session:
        assert equal_earlier_run(session, _like_the_recorded(make_job), POLICY) is None


def test_a_run_without_step_times_gives_the_loss_alone(database, recorded, make_job):
    job = recorded({"nvfp4": 0.0}, done=0)
    with database.write() as session:
        steps = np.arange(1500)
        for run in session.get_one(Job, job).runs:
            store.append(session, run.id, "train", 1, steps, {"lm_loss": np.full(1500, 2.0)})
            run.steps_done = 1500
    with database.read() as session:
        known = equal_earlier_run(session, _like_the_recorded(make_job), POLICY)
    assert (known.level, known.step_seconds) == (2.0, None)


def test_replicates_rounding_and_what_is_known_are_in_the_design(make_job):
    spec = make_job(
        5000,
        devices=2,
        baseline=ArmSpec(recipe="fp8_current", replicates=2),
        candidates=(
            ArmSpec(recipe="nvfp4", replicates=3),
            ArmSpec(recipe="nvfp4", name="nearest", switches=Switches(stochastic_rounding=False)),
        ),
    )
    known = Known(run="r1", level=2.5, step_seconds=0.5)
    first, second = (one.plan for one in planned(spec, POLICY, known))
    assert (first.design.baseline_runs, first.design.candidate_runs, first.design.level) == (
        2,
        3,
        2.5,
    )
    assert (first.design.candidate_rounding, second.design.candidate_rounding) == (
        "stochastic",
        "nearest",
    )
    assert [arm.share for arm in second.run_noise] == pytest.approx(
        [FINISHED_NOISE, FINISHED_NOISE]
    )
    # both candidates with as many runs
    assert first.gpu_hours == pytest.approx((2 + 2 * 3) * 5000 * 0.5 * 2 / 3600)
    shares = planned(dataclasses.replace(spec), POLICY, None)[0].plan
    assert shares.unit == "share of the loss"


def test_the_plan_borrows_the_noise_of_reruns_on_record(database, recorded, make_job):
    for rerun in range(1, 5):
        job_id = recorded({"mxfp8": 0.0}, rerun=rerun, replicates=4)
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status = "concluded"
            keep_reruns(job, reruns_of(session, job))
    spec = make_job(1500, candidates=(ArmSpec(recipe="mxfp8"),))
    with database.read() as session:
        noise_families = noise_families_for(session, spec)
        assert (
            noise_families_for(session, dataclasses.replace(spec, layer_policy="all_linears")).of(
                "baseline", "nearest"
            )
            is None
        )
    (one,) = planned(spec, POLICY, None, noise_families)
    assert [arm.basis.partition(" ")[0] for arm in one.plan.run_noise] == ["borrowed", "borrowed"]
    assert one.plan.design.level == pytest.approx(1.4, abs=0.02)


def test_reruns_that_stop_early_and_controls_are_in_the_design_and_in_the_line(make_job):
    (plain,) = planned(make_job(5000), POLICY, None)
    (noisy,) = planned(
        make_job(5000, short_reruns=ShortReruns(runs=2, stop_at=0.4)), POLICY, None, controls=3
    )
    design = noisy.plan.design
    assert (design.short_reruns, design.stop_at, design.controls) == (2, 0.4, 3)
    assert (plain.plan.run_steps, noisy.plan.run_steps) == (10_000, 18_000)
    assert noisy.plan.half_width < plain.plan.half_width
    assert "2 reruns per arm that stop at 40 %, 3 controls" in one_line(noisy.plan)
    assert "without" not in one_line(noisy.plan)


def test_the_baseline_that_a_job_names_gives_loss_step_time_and_controls(
    api, database, judged, register
):
    register()
    first, request = judged({"mxfp8": 0.0}, verdict=False)
    reruns, _ = judged({"mxfp8": 0.0}, verdict=False, rerun=1)
    with database.write() as session:
        promoted = baselines.promote(session, "fp8", first, None, "why", "who", None)
        baselines.attach_controls(session, promoted, reruns, "why", "who")
    body = {"job": request["job"], "policy": request["policy"]}
    own = api.post("/api/v1/jobs:plan", json=body).json()["candidates"][0]["plan"]
    answer = api.post("/api/v1/jobs:plan", json=body | {"baseline": {"name": "fp8"}}).json()
    plan = answer["candidates"][0]["plan"]
    with database.read() as session:
        (version,) = session.scalars(select(Baseline)).all()
        assert (
            plan["design"]["controls"] == sum(link.role == "control" for link in version.runs) > 0
        )
        assert answer["known"]["run"] in {
            link.run_id for link in version.runs if link.role == "member"
        }
    assert plan["half_width"] < own["half_width"]
    refused = api.post("/api/v1/jobs:plan", json=body | {"baseline": {"name": "nobody"}})
    assert refused.status_code == 404


def test_a_margin_that_cannot_be_planned_with_has_its_reason(make_job):
    (one,) = planned(make_job(5000), policy_from_mapping({"profile": "bf16-bar"}), None)
    assert (one.plan, "level is missing" in one.why_not) == (None, True)
    (one,) = planned(make_job(5000), policy_from_mapping({"profile": "noise-floor"}), None)
    assert "noise-floor" in one.why_not


def test_a_job_of_many_candidates_has_the_first_planned(make_job):
    arms = tuple(
        ArmSpec(recipe="nvfp4", name=f"n{number}") for number in range(MOST_CANDIDATES + 3)
    )
    assert len(planned(make_job(5000, candidates=arms), POLICY, None)) == MOST_CANDIDATES
