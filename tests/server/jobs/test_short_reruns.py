"""Short reruns of a job: trained with it, ended with it, measured by the judge and never judged,
reused or promoted.
"""

import dataclasses
import json

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Job, Run
from server.documents.jobs import job_document
from server.jobs import baselines, forecasts
from server.jobs.conclude import decide, ready_to_conclude
from server.jobs.fingerprint import equal_run, run_spec, unsound
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import config_hash, submit_job
from tests.server.analyses import stated_rounding
from training.spec import ArmSpec, ShortReruns

pytestmark = pytest.mark.both_databases

STEPS = 1500
POLICY = policy_from_mapping({"margin": "1.0%"})
SHORT = ShortReruns(runs=2, stop_at=0.5)


@pytest.fixture
def job_with_short_reruns(database, make_job):
    """A function that writes a job with two short reruns per arm; all runs have ended, with curves
    of their length; returns its id.
    """

    def record(state="finished", noise_gap=0.0, bad=None):
        spec = make_job(STEPS, candidates=(ArmSpec(recipe="mxfp8"),), short_reruns=SHORT)
        batch = np.random.default_rng(7).normal(0, 0.1, STEPS)
        own = np.random.default_rng(8)
        with database.write() as session:
            job = submit_job(session, spec, POLICY)
            job.status = "running"
            for run in job.runs:
                at = np.arange(run.planned_steps)
                offset = own.normal(0, 0.001) + (noise_gap if run.kind == "short" else 0.0)
                loss = (
                    1.4
                    + 1.5 * np.exp(-at / 100)
                    + batch[: len(at)]
                    + offset
                    + own.normal(0, 0.01, len(at))
                )
                if bad == run.position:
                    loss[-1] = np.nan
                store.append(session, run.id, "train", 1, at, {"lm_loss": loss, "loss": loss})
                run.state, run.attempt_number, run.steps_done, run.rounding = (
                    state,
                    1,
                    len(at),
                    stated_rounding(run),
                )
                run.manifest = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}
                run.fingerprint = "f"
            return job.id

    return record


def test_a_job_trains_its_short_reruns_after_its_full_runs(database, make_job):
    spec = make_job(40, baseline=ArmSpec(recipe="fp8_current", replicates=2), short_reruns=SHORT)
    with database.write() as session:
        job_id = submit_job(session, spec, POLICY).id
    with database.read() as session:
        job = session.get_one(Job, job_id)
        runs = [(run.arm.name, run.replicate, run.kind, run.planned_steps) for run in job.runs]
        assert runs == [
            ("fp8_current", 0, "full", 40),
            ("nvfp4", 0, "full", 40),
            ("fp8_current", 1, "full", 40),
            ("fp8_current", 2, "short", 20),
            ("nvfp4", 2, "short", 20),
            ("fp8_current", 3, "short", 20),
            ("nvfp4", 3, "short", 20),
        ]
        baseline = job.arms[0]
        assert [run.replicate for run in baseline.runs] == [0, 1]
        assert [run.replicate for run in baseline.short_reruns] == [2, 3]
        noise = baseline.short_reruns[0]
        assert (run_spec(noise).schedule.steps, run_spec(noise).replicate) == (40, 2)
        document = job_document(session, job, 5.0)
        assert [
            (arm.planned_steps, len(arm.runs), len(arm.short_reruns)) for arm in document.arms
        ] == [(80, 2, 2), (40, 1, 2)]
        assert {run.kind for run in document.arms[0].short_reruns} == {"short"}


def test_short_reruns_of_engine_external_await_their_trainer(database, make_job):
    spec = make_job(40, engine="external", short_reruns=SHORT)
    with database.write() as session:
        job = submit_job(session, spec, POLICY)
        assert {run.state for run in job.runs} == {"awaiting_data"}
        assert [run.planned_steps for run in job.runs if run.kind == "short"] == [20] * 4


def test_a_job_without_noise_keeps_its_hash_and_document(make_job):
    spec = make_job(40)
    assert "short_reruns" not in spec.document()
    with_noise = dataclasses.replace(spec, short_reruns=SHORT)
    assert with_noise.document()["short_reruns"] == {"runs": 2, "stop_at": 0.5}
    assert config_hash(spec, POLICY, "") != config_hash(with_noise, POLICY, "")


def test_the_judge_measures_short_reruns_and_does_not_judge_them(database, job_with_short_reruns):
    job_id = job_with_short_reruns(noise_gap=0.002)
    with database.read() as session:
        ((document, _),) = decide(session, job_id).verdicts
    for arm in ("baseline", "candidate"):
        early = document["tau"][arm]["early_stopped"]
        assert (early["runs"], early["stop"], early["first"], early["last"]) == (2, 0.5, 450, 749)
        assert document[arm]["runs"] == 1
        assert [run["label"].split()[1] for run in document["inputs"]["short_reruns"][arm]] == [
            "short",
            "short",
        ]
    assert abs(document["gap"]["mean"]) < 0.005


def test_a_short_rerun_that_diverged_blocks_a_pass_and_one_that_failed_is_left_out(
    database, job_with_short_reruns
):
    job_id = job_with_short_reruns(bad=3)
    with database.read() as session:
        ((document, _),) = decide(session, job_id).verdicts
        run = session.get_one(Job, job_id).runs[3]
        assert (run.kind, run.arm.role) == ("short", "candidate")
    assert document["codes"][0] == "SHORT_RERUN_DIVERGED"
    with database.write() as session:
        run = session.get_one(Run, run.id)
        run.state, run.code, run.message = "failed", "WORKER_CRASHED", "out of memory"
    with database.read() as session:
        ((document, _),) = decide(session, job_id).verdicts
    assert "SHORT_RERUN_DIVERGED" not in document["codes"]
    assert document["tau"]["candidate"]["early_stopped"]["runs"] == 1


def test_a_job_ends_with_its_short_reruns_and_is_cancelled_with_them(
    database, job_with_short_reruns
):
    job_id = job_with_short_reruns()
    with database.write() as session:
        session.get_one(Job, job_id).runs[-1].state = "queued"
    with database.read() as session:
        assert not ready_to_conclude(session, job_id)
    with database.write() as session:
        cancel_job(session, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).runs[-1].state == "cancelled"


def test_a_short_rerun_is_no_source_of_reuse_no_member_and_no_control(
    database, job_with_short_reruns
):
    job_id = job_with_short_reruns()
    with database.write() as session:
        job = session.get_one(Job, job_id)
        full, noise = job.arms[0].runs[0], job.arms[0].short_reruns[0]
        noise.fingerprint = "of the short rerun"
        session.flush()
        assert equal_run(session, "f").id == full.id
        assert equal_run(session, "of the short rerun") is None
        assert "stopped early" in unsound(session, noise)
        promoted = baselines.promote(session, "b", job.id, None, "why", "who", None)
        assert [link.run_id for link in promoted.runs] == [full.id]
        with pytest.raises(Exception, match=r"already belongs|independent|in the baseline"):
            baselines.attach_controls(session, promoted, job_id, "why", "who")
        with pytest.raises(Exception, match="stopped early"):
            baselines.attach_controls(session, promoted, noise.id, "why", "who")


def test_live_forecasts_look_at_full_runs_alone_and_stops_the_short_reruns_of_a_futile_arm(
    database, make_job
):
    spec = make_job(2000, candidates=(ArmSpec(recipe="mxfp8"),), short_reruns=SHORT)
    policy = policy_from_mapping({"margin": "1.0%", "early_stop": "stop"})
    with database.write() as session:
        job = submit_job(session, spec, policy)
        job.status, job_id = "running", job.id
        for run in job.runs:
            run.state, run.attempt_number = ("running", 1) if run.kind == "full" else ("queued", 0)
            at = np.arange(600)
            batch = np.random.default_rng(1).normal(0, 0.1, 600)
            loss = (
                2.0
                + batch
                + np.random.default_rng(run.position).normal(0, 0.01, 600)
                + (0.4 if run.arm.role == "candidate" else 0.0)
            )
            store.append(session, run.id, "train", 1, at, {"lm_loss": loss})
    assert forecasts.watch(database, job_id) == ["mxfp8"]
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert set(job.early_stop["pairs"]) == {run.id for run in job.arms[1].runs}
        assert {run.state for arm in job.arms for run in arm.short_reruns} == {"cancelled"}


def test_the_page_and_the_list_of_runs_show_them_as_what_they_are(api, job_with_short_reruns):
    job_id = job_with_short_reruns()
    listed = api.get(f"/api/v1/jobs/{job_id}/runs").json()
    assert [(run["arm"], run["kind"], run["planned_steps"]) for run in listed] == [
        ("fp8_current", "full", 1500), ("fp8_current", "short", 750), ("fp8_current", "short", 750),
        ("mxfp8", "full", 1500), ("mxfp8", "short", 750), ("mxfp8", "short", 750),
    ]  # fmt: skip
    page = api.get(f"/jobs/{job_id}").text
    assert page.count("short rerun: stops early, is not judged") == 4
    assert page.count("Short reruns are not used here") == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"short_reruns": {"runs": 0}}, "short_reruns.runs"),
        ({"short_reruns": {"runs": 17}}, "short_reruns.runs"),
        ({"short_reruns": {"stop_at": 0.39}}, "short_reruns.stop_at"),
        ({"short_reruns": {"stop_at": 0.95}}, "short_reruns.stop_at"),
        ({"short_reruns": {"runs": 3, "every": 2}}, "every"),
        (
            {"short_reruns": {}, "engine": "external", "schedule": {"steps": 1, "warmup_steps": 0}},
            "schedule.steps",
        ),
    ],
)
def test_a_job_file_with_impossible_noise_is_refused(api, request_body, change, field):
    body = json.loads(json.dumps(request_body))
    body["job"] |= change
    answer = api.post("/api/v1/jobs", json=body)
    assert answer.status_code == 422
    assert field in answer.text
