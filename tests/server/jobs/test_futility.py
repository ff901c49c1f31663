"""Early stop over the record: told once, never a pass or a fail, and what is stopped is the arm that is beyond hope."""

import time

import numpy as np
import pytest

from parity import criteria_from_mapping
from server.database import events, store
from server.database.states import begin_attempt
from server.database.tables import Attempt, Job, Run
from server.jobs import futility
from server.jobs.conclude import decide, ready_to_conclude
from server.jobs.submit import submit_job
from training.spec import Arm

pytestmark = pytest.mark.both_databases

STEPS = 2000


@pytest.fixture
def live(database, make_job):
    """A function that submits a job whose runs are all training and returns its id; gaps by arm are given to `record`."""

    def start(**criteria):
        spec = make_job(STEPS, candidates=(Arm(recipe="nvfp4"), Arm(recipe="mxfp8")))
        with database.write() as session:
            job = submit_job(session, spec, criteria_from_mapping({"margin": "1.0%", **criteria}))
            job.status = "running"
            for run in job.runs:
                run.state, run.epoch, run.started_at = "running", 1, time.time()
                begin_attempt(session, run.id, 1, None)
            return job.id

    return start


def _record(database, job_id, first, last, gaps):
    at = np.arange(first, last)
    batch = np.random.default_rng(first).normal(0, 0.1, len(at))
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            noise = np.random.default_rng([first, run.position]).normal(0, 0.01, len(at))
            store.append(session, run.id, "train", 1, at, {"lm_loss": 2.0 + batch + noise + gaps.get(run.arm.name, 0.0)})


def _watch(database, job_id):
    with database.write() as session:
        return futility.watch(session, job_id)


def _states(database, job_id):
    with database.read() as session:
        return {run.arm.name: (run.state, run.code) for run in session.get_one(Job, job_id).runs}


def test_what_a_newer_attempt_has_replaced_is_forgotten(database, live):
    job_id = live()
    _record(database, job_id, 0, 200, {})
    assert _watch(database, job_id) == []
    with database.write() as session:
        job = session.get_one(Job, job_id)
        run = next(run for run in job.runs if run.arm.name == "nvfp4")
        run.epoch = 2
    _watch(database, job_id)  # the new attempt has recorded nothing yet
    with database.write() as session:
        assert session.get_one(Job, job_id).early_stop[run.id]["next_step"] == 200
        store.append(session, run.id, "train", 2, np.arange(50), {"lm_loss": np.full(50, 2.0)})
    _watch(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).early_stop[run.id]["next_step"] == 50


def test_a_futile_pair_is_one_event_and_trains_on(database, live):
    job_id = live()
    for first in range(0, 600, 100):
        _record(database, job_id, first, first + 100, {"nvfp4": 0.3})
        futile = _watch(database, job_id)
        if futile:
            break
    assert futile == ["nvfp4"]
    assert _watch(database, job_id) == []
    with database.read() as session:
        emitted = [event for event in events.after(session, job_id, 0) if event.kind == "hopeless"]
    assert len(emitted) == 1
    assert "hopeless after" in emitted[0].payload["message"]
    assert set(_states(database, job_id).values()) == {("running", None)}


def test_looking_often_or_once_finds_the_same(database, live):
    often, once = live(), live()
    for first in range(0, 600, 50):
        for job_id in (often, once):
            _record(database, job_id, first, first + 50, {"nvfp4": 0.3, "mxfp8": 0.01})
        _watch(database, often)
    _watch(database, once)
    with database.read() as session:
        remembered = [
            {run.arm.name: (session.get_one(Job, job_id).early_stop or {}).get(run.id) for run in session.get_one(Job, job_id).runs}
            for job_id in (often, once)
        ]
    assert remembered[0] == remembered[1]
    assert remembered[0]["nvfp4"]["hopeless"]
    assert remembered[0]["mxfp8"]["hopeless"] is None
    assert remembered[0]["mxfp8"]["next_step"] == 600


def test_where_the_policy_says_stop_the_arm_ends_without_pass_or_fail(database, live):
    job_id = live(early_stop="stop")
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    assert _watch(database, job_id) == ["nvfp4"]
    states = _states(database, job_id)
    assert states["nvfp4"] == ("finished", "EARLY_STOP")
    assert states["mxfp8"] == states["fp8_current"] == ("running", None)
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            if run.arm.name == "nvfp4":
                assert session.get_one(Attempt, (run.id, 1)).code == "EARLY_STOP"
    _record(database, job_id, 600, STEPS, {})
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.state = "finished"
    with database.read() as session:
        outcome = decide(session, job_id)
    assert outcome.code == "EARLY_STOP"
    assert "hopeless after" in outcome.message


def test_the_baseline_ends_with_its_last_candidate(database, live):
    job_id = live(early_stop="stop")
    _record(database, job_id, 0, 600, {"nvfp4": 0.3, "mxfp8": 0.3})
    assert sorted(_watch(database, job_id)) == ["mxfp8", "nvfp4"]
    assert set(_states(database, job_id).values()) == {("finished", "EARLY_STOP")}
    with database.read() as session:
        assert ready_to_conclude(session, job_id)
        verdicts = [document["verdict"] for document, _ in decide(session, job_id).verdicts]
    assert verdicts == ["inconclusive", "inconclusive"]


def test_queued_replicates_of_a_stopped_arm_are_cancelled(database, live):
    job_id = live(early_stop="stop")
    with database.write() as session:
        spare = next(run for run in session.get_one(Job, job_id).runs if run.arm.name == "nvfp4")
        session.add(
            Run(
                **{name: getattr(spare, name) for name in ("job_id", "arm_id", "seed", "capability", "planned_steps", "created_at")},
                id="r000000000000-0000000000",
                position=9,
                replicate=1,
                state="queued",
            )
        )
    _record(database, job_id, 0, 600, {"nvfp4": 0.3})
    _watch(database, job_id)
    with database.read() as session:
        assert session.get_one(Run, "r000000000000-0000000000").state == "cancelled"
