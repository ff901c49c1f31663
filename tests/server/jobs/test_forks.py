"""Forks on the record: which runs can be parents, what a fork trains, and that nothing counts one as a run of its own."""

import numpy as np
import pytest

from parity import criteria_from_mapping
from server.curves import loading
from server.database import store
from server.database.tables import Job, Run
from server.documents.job import job_document
from server.errors import ConflictError, InvalidError
from server.jobs import baselines, floors, live
from server.jobs.conclude import decide, write_outcome
from server.jobs.fingerprint import equal_run, fingerprint_of, fork_of, run_spec, unsound
from server.jobs.forks import ForkedArm, Forks, submit_forks
from server.jobs.submit import submit_job
from tests.server.analyses import stated_rounding
from training.overrides import Override
from training.spec import Arm

pytestmark = pytest.mark.both_databases

STEPS, STEP, UNTIL = 100, 60, 80
POLICY = criteria_from_mapping({"margin": "1.0%"})
TO_FP8 = Override(recipe="fp8_current", from_step=STEP)
IDLE = Override(recipe="nvfp4", projections=("up",), from_step=STEP)


@pytest.fixture
def parents(database, make_job):
    """A judged job whose candidate kept the checkpoint of step 60 in two of its three runs; its id."""
    spec = make_job(STEPS, candidates=(Arm(recipe="nvfp4", replicates=3),), keep_checkpoints=(STEP,))
    with database.write() as session:
        job = submit_job(session, spec, POLICY)
        job.status, job.device_class, job.threads = "running", "cpu:test", 1
        for run in job.runs:
            loss = 1.4 + np.random.default_rng(run.position).normal(0, 0.01, STEPS)
            store.append(session, run.id, "train", 1, np.arange(STEPS), {"lm_loss": loss, "loss": loss})
            run.state, run.epoch, run.steps_done, run.rounding = "finished", 1, STEPS, stated_rounding(run)
            run.manifest = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}
            run.kept_checkpoints = [STEP] if run.replicate < 2 else []
        session.flush()
        write_outcome(session, job.id, decide(session, job.id))
        return job.id


def wanted(job, **changes):
    whole = {"arm": "nvfp4", "step": STEP, "until": UNTIL, "draws": 2, "arms": (ForkedArm(name="to_fp8", changes=(TO_FP8,)),)}
    return Forks(job=job, **whole | changes)


@pytest.fixture
def forks(database, parents):
    with database.write() as session:
        return submit_forks(session, wanted(parents)).id


def finished(session, job):
    for run in job.runs:
        at = np.arange(run.fork_step, run.planned_steps)
        loss = 1.4 + np.random.default_rng(run.position).normal(0, 0.01, len(at))
        store.append(session, run.id, "train", 1, at, {"lm_loss": loss, "loss": loss})
        run.state, run.epoch, run.steps_done = "finished", 1, run.planned_steps
        run.manifest, run.fingerprint = {"engine": "maxtext", "data_digest": "d", "device_class": "cpu"}, "f"


def test_a_job_of_forks_has_one_for_each_parent_arm_and_draw(database, parents, forks):
    with database.read() as session:
        job = session.get_one(Job, forks)
        rows = [(run.arm.name, run.replicate, run.fork_draw, run.steps_done, run.planned_steps) for run in job.runs]
        assert rows == [
            ("unchanged", 0, 1, STEP, UNTIL),
            ("unchanged", 1, 1, STEP, UNTIL),
            ("to_fp8", 0, 1, STEP, UNTIL),
            ("to_fp8", 1, 1, STEP, UNTIL),
            ("unchanged", 0, 2, STEP, UNTIL),
            ("unchanged", 1, 2, STEP, UNTIL),
        ]
        assert {(run.parent.job_id, run.parent.arm.name) for run in job.runs} == {(parents, "nvfp4")}
        assert (job.device_class, job.threads, job.config_hash) == ("cpu:test", 1, None)
        changed = job.runs[2]
        start = fork_of(changed)
        start.check(run_spec(changed))
        assert run_spec(changed).overrides == (TO_FP8,)
        assert (start.parent, start.step, start.draw) == (run_spec(changed.parent), STEP, 1)
        assert fingerprint_of(run_spec(changed), {}, start) != fingerprint_of(run_spec(changed), {})
        assert job_document(session, job, 60.0).share_done == 0.0


def test_no_fork_is_a_run_of_its_own_anywhere(database, forks):
    with database.write() as session:
        job = session.get_one(Job, forks)
        finished(session, job)
        job.status = "running"
        fork = job.runs[0]
        curve = loading.curve(session, fork)
        assert curve.context["forked_from"] == f"run {fork.forked_from} at step {STEP}"
        assert int(curve.steps[0]) == STEP
        assert equal_run(session, "f") is None
        assert "is a fork of run" in unsound(session, fork)
        assert [*floors._groups(session, job, "family")] == []
        assert all(not arm.runs for arm in job.arms)
        assert baselines._offered(session, job.id) == []
        with pytest.raises(ConflictError, match="has no run that was judged"):
            baselines.promote(session, "name", job.id, None, "reason", "who", None)
    assert live.watch(database, forks) == []
    live.catch_up(database, forks)
    with database.write() as session:
        assert write_outcome(session, forks, decide(session, forks))
    with database.read() as session:
        job = session.get_one(Job, forks)
        assert (job.status, job.verdicts, job.reruns) == ("concluded", [], None)
        document = job_document(session, job, 60.0)
        assert document.share_done == 1.0
        assert [len(arm.forks) for arm in document.arms] == [4, 2]
        assert document.arms[0].forks[0].fork.step == STEP


def test_forks_that_failed_end_the_job_with_the_reason(database, forks):
    with database.write() as session:
        job = session.get_one(Job, forks)
        finished(session, job)
        job.status, job.runs[3].state, job.runs[3].code = "running", "failed", "CHECKPOINT_NOT_FOUND"
        job.runs[3].message = "gone"
        outcome = decide(session, job.id)
    assert (outcome.code, outcome.complete) == ("CHECKPOINT_NOT_FOUND", False)
    assert "1 of 6 runs did not finish" in outcome.message


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"step": 50}, ConflictError, r"kept no checkpoint of step 50 \(kept: 60\); add keep_checkpoints: \[50\]"),
        ({"arm": "fp8"}, InvalidError, "has no arm 'fp8'"),
        ({"until": STEP}, InvalidError, "a step after 60"),
        ({"until": STEPS + 1}, InvalidError, "at most schedule.steps = 100"),
        ({"arms": (ForkedArm(name="x", changes=(Override(recipe="bf16", from_step=10),)),)}, InvalidError, "from_step: 60 or later"),
        (
            {"arms": (ForkedArm(name="x", changes=(IDLE,)),)},
            InvalidError,
            "changes something",
        ),
        ({"arms": ()}, InvalidError, "at least one candidate arm"),
    ],
)
def test_what_cannot_be_forked_is_refused(database, parents, changes, error, why):
    with database.write() as session, pytest.raises(error, match=why):
        submit_forks(session, wanted(parents, **changes))


def test_a_fork_has_no_forks(database, forks):
    with database.write() as session, pytest.raises(ConflictError, match="no runs trained from step 0"):
        submit_forks(session, wanted(forks, arm="to_fp8"))


def test_a_parent_stays_as_long_as_its_forks(database, parents, forks):
    from server.retention import curves, jobs

    with database.read() as session:
        assert parents not in session.scalars(jobs._unneeded(1e12)).all()
        parent = session.get_one(Job, forks).runs[0].parent
        assert parent.id not in [run_id for run_id, _ in session.execute(curves._unneeded(1e12))]
        assert session.get_one(Run, parent.id).kept_checkpoints == [STEP]


def test_every_page_of_a_job_of_forks_opens(database, forks, api):
    with database.write() as session:
        finished(session, session.get_one(Job, forks))
    paths = ["", "/overlay", "/gap", "/live", "/verdict", "/evidence.zip", "/overlay?name=grad_norm"]
    for path in [f"/jobs/{forks}", "/jobs", "/queue", *(f"/api/v1/jobs/{forks}{path}" for path in paths)]:
        answer = api.get(path)
        assert answer.status_code < 500, (path, answer.text[:500])
    document = api.get(f"/api/v1/jobs/{forks}").json()
    assert document["arms"][1]["forks"][0]["fork"]["step"] == STEP
