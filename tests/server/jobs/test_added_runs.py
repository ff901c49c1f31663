"""Runs that are added before the verdict: as planned while nothing was seen, else as a look;
refused otherwise; and on record.
"""

import json
import threading

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from parity.report.view import view_of
from parity.report.words import words
from server.database.metrics import store
from server.database.tables import Job, Run
from server.errors import ConflictError, LookError
from server.jobs import ledger
from server.jobs.added_runs import AddedRunRequest, add_runs, meaning
from server.jobs.conclude import conclude
from server.jobs.fingerprint import run_spec
from server.jobs.submit import submit_job
from tests.server.conftest import people_of
from training.spec import ArmSpec, ShortReruns

pytestmark = pytest.mark.both_databases
ANY = AddedRunRequest()


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def people(database):
    return people_of(
        database, {"owner": ["submit"], "other": ["submit"], "reader": ["view"], "chief": ["admin"]}
    )


@pytest.fixture
def queued(database, make_job, people):
    """A function that queues a job of the owner, with so many registered looks; its id."""

    def make(looks=1, **changes):
        arms = {
            "baseline": ArmSpec(recipe="fp8_current"),
            "candidates": (ArmSpec(recipe="nvfp4"), ArmSpec(recipe="mxfp8")),
        }
        with database.write() as session:
            job = submit_job(
                session,
                make_job(40, **arms | changes),
                policy_from_mapping({"margin": "1%", "looks": looks}),
                people["owner id"],
            )
            ledger.register(session, job)
            return job.id

    return make


@pytest.fixture
def trained(owner_database):
    """A function that gives one run of a candidate some steps."""

    def train(job_id, steps=3):
        with owner_database.write() as session:
            run = next(run for run in session.get_one(Job, job_id).runs if run.arm.position)
            run.state, run.attempt_number, run.steps_done = "running", 1, steps

    return train


def test_before_anything_is_seen_a_run_is_as_planned(api, database, queued, people):
    job_id = queued()
    answer = api.post(f"/api/v1/jobs/{job_id}:add-run", json={"runs": 3}, headers=people["owner"])
    job = answer.json()
    assert (answer.status_code, job["look"]["number"]) == (202, 1)
    assert [[run["replicate"] for run in arm["runs"]] for arm in job["arms"]] == [[0, 1]] * 3
    assert [arm["replicates"] for arm in (job["spec"]["baseline"], *job["spec"]["candidates"])] == [
        2,
        2,
        2,
    ]
    assert [run["state"] for run in job["arms"][0]["runs"]] == ["queued", "queued"]
    (note,) = job["notes"]
    assert (note["who"], "before a candidate had trained" in note["text"]) == ("owner", True)
    with database.read() as session:
        added = [run for run in session.get_one(Job, job_id).runs if run.is_added]
        assert {(run.arm.name, run.replicate, run_spec(run).replicate) for run in added} == {
            (name, 1, 1) for name in ("fp8_current", "nvfp4", "mxfp8")
        }


def test_once_a_candidate_has_trained_it_takes_a_registered_look(api, queued, trained, people):
    job_id = queued(looks=2)
    trained(job_id)
    job = api.post(f"/api/v1/jobs/{job_id}:add-run", json={}, headers=people["owner"]).json()
    assert (
        job["look"]["number"],
        job["look"]["looks"],
        "as look 2" in job["notes"][0]["text"],
    ) == (2, 2, True)
    third = api.post(f"/api/v1/jobs/{job_id}:add-run", json={}, headers=people["owner"])
    assert (third.status_code, third.json()["type"]) == (409, "urn:parity:problem:look")


def test_without_a_look_left_a_late_run_is_refused_and_nothing_changes(
    api, database, queued, trained, people
):
    job_id = queued()
    trained(job_id)
    answer = api.post(f"/api/v1/jobs/{job_id}:add-run", json={}, headers=people["owner"])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:parity:problem:look")
    job = api.get(f"/api/v1/jobs/{job_id}", headers=people["reader"]).json()
    assert (
        [len(arm["runs"]) for arm in job["arms"]],
        job["spec"]["baseline"]["replicates"],
        job["notes"],
    ) == ([1, 1, 1], 1, [])


def test_where_nobody_counts_looks_only_an_early_run_is_added(database, make_job, trained):
    with database.write() as session:
        spec = make_job(
            40,
            engine="external",
            baseline=ArmSpec(recipe="fp8_current"),
            candidates=(ArmSpec(recipe="nvfp4"),),
        )
        job_id = submit_job(
            session, spec, policy_from_mapping({"margin": "1%", "looks": 3}), "local"
        ).id
    with database.write() as session:
        job = add_runs(session, job_id, ANY, "local")
        assert [run.state for run in job.runs] == ["awaiting_data"] * 4
    trained(job_id)
    with database.write() as session, pytest.raises(LookError, match="nobody counts"):
        add_runs(session, job_id, ANY, "local")


def test_the_next_look_comes_after_those_of_other_jobs_on_the_question(
    database, queued, trained, people
):
    first, second = queued(looks=3), queued(looks=3)
    trained(first)
    with database.write() as session:
        assert session.get_one(Job, second).look == 2
        assert add_runs(session, first, ANY, "local").look == 3
    trained(second)
    with database.write() as session, pytest.raises(LookError):
        add_runs(session, second, ANY, "local")


def test_a_named_question_of_external_runs_has_looks(database, make_job, trained):
    with database.write() as session:
        spec = make_job(
            40,
            engine="external",
            baseline=ArmSpec(recipe="fp8_current"),
            candidates=(ArmSpec(recipe="nvfp4"),),
        )
        job = submit_job(
            session,
            spec,
            policy_from_mapping({"margin": "1%", "looks": 2, "question": "driver 2"}),
            "local",
        )
        ledger.register(session, job)
        job_id = job.id
    trained(job_id)
    with database.write() as session:
        assert add_runs(session, job_id, ANY, "local").look == 2


def test_a_repeated_request_adds_nothing(api, queued, people):
    job_id = queued()
    sent = [
        api.post(
            f"/api/v1/jobs/{job_id}:add-run", json={"runs": 3}, headers=people["owner"]
        ).status_code
        for _ in range(2)
    ]
    assert sent == [202, 409]


def test_two_at_once_that_both_saw_three_runs_add_one(database, queued):
    job_id, ended, start = queued(), [], threading.Barrier(2)

    def press():
        start.wait()
        try:
            with database.write() as session:
                add_runs(session, job_id, AddedRunRequest(runs=3), "local")
            ended.append("added")
        except ConflictError:
            ended.append("refused")

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["added", "refused"]


def test_the_number_of_an_added_run_is_that_of_no_short_rerun(database, queued):
    job_id = queued(short_reruns=ShortReruns(runs=2))
    with database.write() as session:
        job = add_runs(session, job_id, ANY, "local")
        numbers = [(run.arm.name, run.replicate) for run in job.runs]
        assert len(numbers) == len(set(numbers)) == 12
        assert {run.replicate for run in job.runs if run.is_added} == {3}


def test_after_a_verdict_that_is_settled_nothing_is_added(database, queued, owner_database):
    job_id = queued(looks=3)
    with owner_database.write() as session:
        # the baseline and the first of two candidates
        for run in session.get_one(Job, job_id).runs[:2]:
            run.state, run.attempt_number, run.steps_done = "finished", 1, 40
    with database.write() as session, pytest.raises(ConflictError, match="its verdict is known"):
        add_runs(session, job_id, ANY, "local")


def test_who_may_and_to_what(api, database, queued, judged, people, owner_database):
    job_id = queued()
    callers = ("reader", "other", "chief", "owner")
    codes = {
        who: api.post(f"/api/v1/jobs/{job_id}:add-run", json={}, headers=people[who]).status_code
        for who in callers
    }
    assert codes == {"reader": 403, "other": 403, "chief": 202, "owner": 202}
    pages = {
        who: f'action="/jobs/{job_id}/add-run"'
        in api.get(f"/jobs/{job_id}", headers=people[who]).text
        for who in ("reader", "owner")
    }
    assert pages == {"reader": False, "owner": True}
    sent = {
        who: api.post(
            f"/jobs/{job_id}/add-run",
            data={"runs": "9"},
            headers=people[who],
            follow_redirects=False,
        ).status_code
        for who in ("reader", "owner")
    }
    assert sent == {"reader": 403, "owner": 303}
    with owner_database.write() as session:
        session.get_one(Job, job_id).runs[0].code = "EARLY_STOP"
    assert (
        api.post(f"/api/v1/jobs/{job_id}:add-run", json={}, headers=people["owner"]).status_code
        == 409
    )
    ended = judged({"mxfp8": 0.0})[0]
    assert (
        api.post(f"/api/v1/jobs/{ended}:add-run", json={}, headers=people["chief"]).status_code
        == 409
    )
    with database.read() as session:
        assert (meaning(session.get_one(Job, ended)), meaning(session.get_one(Job, job_id))) == (
            "",
            "",
        )


def test_the_verdict_says_which_runs_were_added(database, owner_database, recorded):
    """A job with one run an arm gets a second one, which is recorded like the first."""
    job_id = recorded({"nvfp4": 0.3}, replicates=1)
    with owner_database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.state, run.steps_done = "queued", 0  # as before it trained
        add_runs(session, job_id, ANY, "local")
    generator = np.random.default_rng(3)
    with owner_database.write() as session:
        first, second = (
            [run for run in session.get_one(Job, job_id).runs if run.is_added is added]
            for added in (False, True)
        )
        for old, new in zip(first, second, strict=True):
            steps, columns = store.read(session, old.id, "train", ["lm_loss", "learning_rate"])
            own = {**columns, "lm_loss": columns["lm_loss"] + generator.normal(0, 0.01, len(steps))}
            store.append(session, new.id, "train", 1, steps, own)
            for run in (old, new):
                run.state, run.attempt_number, run.steps_done = "finished", 1, len(steps)
        assert {run.arm.position for run in second} == {0, 1}
    conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        (document,) = [row.document for row in job.verdicts]
        assert session.query(Run).filter(Run.job_id == job_id).count() == 4
    arms = json.loads(document)["inputs"]
    noted = {
        arm: [[note.partition(" ")[0] for note in run["notes"]] for run in arms[arm]]
        for arm in ("baseline", "candidate")
    }
    assert noted == {"baseline": [[], ["added:"]], "candidate": [[], ["added:"]]}
    assert "1 run per arm added later" in words(view_of(json.loads(document))).strip[2].why
