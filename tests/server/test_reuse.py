"""Which job answers a gate's question: the one that was trained already, or a new one once anything that decides has changed."""

import copy
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from server.conclusion import conclude
from server.database.models import Job, Run, Worker, new_id

pytestmark = pytest.mark.both_databases

TRAINER = {"code_sha256": "a" * 64, "trainer_version": "0.1.0", "version.jax": "0.10.2", "env.JAX_PLATFORMS": "cpu"}


@pytest.fixture
def register(database):
    """A function that registers a worker with this trainer; `age` seconds since it was heard of."""

    def add(trainer=TRAINER, age=0.0, device_class="cpu"):
        with database.write() as session:
            device = {"device_class": device_class, "threads_per_run": 1} | ({"trainer": trainer} if trainer else {})
            now = time.time()
            session.add(Worker(id=new_id("w"), name="w", capability="cpu", slots=1, device=device, started_at=now, heartbeat_at=now - age))

    return add


@pytest.fixture
def trained(database, recorded):
    """A concluded job of this trainer; returns its id and the request that asks the same."""
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        for run in session.scalars(select(Run)):
            run.manifest, run.finished_at = {**run.manifest, **TRAINER}, time.time()
    conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        return job_id, {"job": copy.deepcopy(job.spec), "criteria": job.criteria}


def _gate(api, request, **more):
    answer = api.post("/api/v1/jobs:gate", json={**request, **more})
    assert answer.status_code in (200, 202), answer.text
    document = answer.json()
    assert answer.status_code == (202 if document["found"] == "new" else 200)
    assert answer.headers["Location"] == document["job"]["links"]["self"]
    return document


def test_a_concluded_job_answers_the_same_question(api, trained, register):
    register()
    job_id, request = trained
    found = _gate(api, request)
    assert (found["found"], found["job"]["id"]) == ("concluded", job_id)
    assert 0 <= found["age_seconds"] < 600
    assert found["expires_at"] > found["job"]["finished_at"]
    (listed,) = api.get("/api/v1/jobs", params={"config_hash": found["job"]["config_hash"]}).json()["items"]
    assert listed["id"] == job_id
    assert api.get("/api/v1/jobs", params={"config_hash": "0" * 64}).json()["items"] == []
    assert api.get("/api/v1/jobs", params={"config_hash": "x"}).status_code == 422


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"revision": "b7c1"}, "nobody asked this before"),
        ({"max_age_days": 0}, "days old"),
        ({"fresh": True}, "afresh"),
        ({"criteria": {"margin": "2%"}}, "nobody asked"),
    ],
)
def test_another_question_is_trained_once(api, trained, register, more, reason):
    register()
    job_id, request = trained
    first = _gate(api, request, **more)
    assert (first["found"], first["job"]["status"]) == ("new", "queued")
    assert reason in first["reason"]
    assert first["job"]["id"] != job_id
    if not more.get("fresh"):
        again = _gate(api, request, **more)
        assert (again["found"], again["job"]["id"], again["age_seconds"]) == ("running", first["job"]["id"], None)


@pytest.mark.parametrize(
    ("trainer", "reason"),
    [
        (TRAINER | {"code_sha256": "b" * 64}, "code_sha256 is bbbbbbbbbbbb… on w, was aaaaaaaaaaaa…"),
        (TRAINER | {"version.jax": "0.12"}, "version.jax is 0.12"),
        (TRAINER | {"env.NVTE_X": "1"}, "env.NVTE_X is 1 on w, was not stated"),
        ({name: value for name, value in TRAINER.items() if name != "env.JAX_PLATFORMS"}, "env.JAX_PLATFORMS is not stated"),
        (None, "does not say what it trains with"),
    ],
)
def test_a_changed_trainer_never_gets_yesterdays_verdict(api, trained, register, trainer, reason):
    register()  # as good as the job's, beside one that is not
    register(trainer)
    found = _gate(api, trained[1])
    assert found["found"] == "new"
    assert reason in found["reason"]


def test_without_a_live_worker_the_last_one_says_what_trains(api, trained, register):
    assert "no worker is known" in _gate(api, trained[1])["reason"]
    api.post(f"/api/v1/jobs/{_gate(api, trained[1])['job']['id']}:cancel")
    register(TRAINER | {"code_sha256": "old"}, age=9999)
    register(age=9999)
    assert _gate(api, trained[1])["job"]["id"] == trained[0]


def test_data_that_changed_under_its_path_is_told_by_the_newest_run_on_it(api, database, trained, register):
    register()
    _, request = trained
    request["job"]["data"] |= {"source": "text", "path": "/corpus"}
    first = _gate(api, request)["job"]["id"]

    def finish(job_id, digest):
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.status, job.finished_at = "concluded", time.time()
            for run in job.runs:
                run.state, run.finished_at, run.manifest = "finished", time.time(), TRAINER | {"data_digest": digest}

    finish(first, "d1")
    assert _gate(api, request)["job"]["id"] == first
    finish(_gate(api, request, revision="other")["job"]["id"], "d2")
    again = _gate(api, request)
    assert again["found"] == "new"
    assert "the data at /corpus changed" in again["reason"]


def test_two_who_ask_at_once_get_one_job(api, request_body):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: _gate(api, request_body), range(4)))
    assert len({answer["job"]["id"] for answer in found}) == 1
    assert sorted(answer["found"] for answer in found) == ["new", "running", "running", "running"]


def test_a_fresh_call_may_be_repeated_under_its_key(api, request_body):
    ids = set()
    for _ in range(2):
        answer = api.post("/api/v1/jobs:gate", json={**request_body, "fresh": True}, headers={"Idempotency-Key": "k"})
        ids.add(answer.json()["job"]["id"])
    assert len(ids) == 1


def test_the_name_of_a_field_is_closed(api, request_body):
    assert api.post("/api/v1/jobs:gate", json={**request_body, "revison": "x"}).status_code == 422
    assert api.post("/api/v1/jobs:gate", json={**request_body, "revision": "x" * 201}).status_code == 422


def test_every_field_of_the_specification_is_asked(make_job):
    from parity import criteria_from_mapping
    from server.jobs import config_hash

    criteria, spec = criteria_from_mapping({"margin": "1%"}), make_job()
    hashes = {
        config_hash(dataclasses.replace(spec, **change), criteria, "") for change in ({}, {"seed": 1}, {"name": "x"}, {"remat": True})
    }
    assert len(hashes) == 4
