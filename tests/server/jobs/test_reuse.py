"""Which job answers a gate's question: the one that was trained already, or a new one once anything
that decides has changed.
"""

import copy
import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from parity.judging.policy import policy_from_mapping
from server.database.tables import Job, Verdict, new_id
from server.jobs import data_digests
from server.jobs.fingerprint import job_spec, run_spec
from server.jobs.lifecycle import end_job
from server.jobs.reuse import GateSubmission, answer
from tests.server.conftest import TRAINER

both = pytest.mark.both_databases


@pytest.fixture
def trained(judged):
    return judged({"nvfp4": 0.0})


def _gate(api, request, **more):
    answer = api.post("/api/v1/jobs:gate", json={**request, **more})
    assert answer.status_code in (200, 202), answer.text
    document = answer.json()
    assert answer.status_code == (202 if document["found"] == "new" else 200)
    assert answer.headers["Location"] == document["job"]["links"]["self"]
    return document


@both
def test_a_concluded_job_answers_the_same_question(api, trained, register):
    register()
    job_id, request = trained
    answer = _gate(api, request)
    assert (answer["found"], answer["job"]["id"]) == ("concluded", job_id)
    assert 0 <= answer["age_seconds"] < 600
    assert answer["expires_at"] > answer["job"]["finished_at"]
    (listed,) = api.get(
        "/api/v1/jobs", params={"config_hash": answer["job"]["config_hash"]}
    ).json()["items"]
    assert listed["id"] == job_id
    assert api.get("/api/v1/jobs", params={"config_hash": "0" * 64}).json()["items"] == []
    assert api.get("/api/v1/jobs", params={"config_hash": "x"}).status_code == 422


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"revision": "b7c1"}, "revision changed: none -> b7c1"),
        ({"max_age_days": 0}, "days old"),
        ({"fresh": True}, "fresh training"),
        ({"policy": {"margin": "2%"}}, "no earlier job"),
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
        assert (again["found"], again["job"]["id"], again["age_seconds"]) == (
            "running",
            first["job"]["id"],
            None,
        )


@pytest.mark.parametrize("end", ["running", "cancelled", "failed"])
def test_a_repeated_fresh_gate_says_what_has_become_of_its_job(
    api, database, trained, register, end
):
    register()
    _, request = trained
    ask = partial(
        api.post,
        "/api/v1/jobs:gate",
        json={**request, "fresh": True},
        headers={"Idempotency-Key": "once"},
    )
    first = ask().json()
    assert first["found"] == "new"
    if end != "running":
        with database.write() as session:
            assert end_job(session, first["job"]["id"], end, code="X", message="as it goes")
    again = ask()
    document = again.json()
    assert (again.status_code, document["found"], document["job"]["id"]) == (
        200,
        end,
        first["job"]["id"],
    )
    assert (document["age_seconds"], document["expires_at"]) == (None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"code_sha256": "b" * 64}, "code_sha256 is bbbbbbbbbbbb… on w, was aaaaaaaaaaaa…"),
        ({"version.jax": "0.12"}, "version.jax is 0.12"),
        ({"env.NVTE_X": "1"}, "env.NVTE_X is 1 on w, was not stated"),
        ({"env.JAX_PLATFORMS": None}, "env.JAX_PLATFORMS is not stated"),
        (
            dict.fromkeys(("code_sha256", "trainer_version", "version.jax", "env.JAX_PLATFORMS")),
            "has not registered its library versions",
        ),
    ],
)
def test_a_changed_trainer_never_gets_yesterdays_verdict(api, trained, register, changes, reason):
    register()  # as good as the job's, beside one that is not
    register(**changes)
    answer = _gate(api, trained[1])
    assert answer["found"] == "new"
    assert reason in answer["reason"]


def test_without_a_live_worker_the_last_one_says_what_trains(api, trained, register):
    first = _gate(api, trained[1])
    assert "no registered worker" in first["reason"]
    api.post(f"/api/v1/jobs/{first['job']['id']}:cancel")
    register(age=9999, code_sha256="old")
    register(age=9999)
    assert _gate(api, trained[1])["job"]["id"] == trained[0]


def _read(database, job_id, digest):
    """End a job as a worker does that read this digest."""
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "concluded", time.time()
        for run in job.runs:
            if run.state == "queued":
                run.state, run.finished_at, run.manifest = (
                    "finished",
                    time.time(),
                    TRAINER | {"data_digest": digest, "device_class": "cpu"},
                )
                data_digests.record_data(session, run_spec(run), run.id, run.manifest)


@both
def test_data_that_changed_under_its_path_shows_in_what_a_worker_read_last(
    api, database, trained, register
):
    register()
    _, request = trained
    request["job"]["data"] |= {"source": "text", "path": "/corpus"}
    first = _gate(api, request)["job"]["id"]
    _read(database, first, "d1")
    assert _gate(api, request)["job"]["id"] == first
    _read(database, _gate(api, request, revision="other")["job"]["id"], "d2")
    assert "the data at /corpus changed" in _lookup(api, request)["reason"]
    # Who only says what lies there changes nothing: a run that has a baseline's curve, and one of
    # somebody's own trainer.
    with database.write() as session:
        _age_rows(
            session.get_one(Job, _gate(api, request, revision="reuses")["job"]["id"]),
            data_digest="d1",
        )
    external = copy.deepcopy(request)
    external["job"] |= {"engine": "external", "name": "own"}
    run = api.post("/api/v1/jobs", json=external).json()["arms"][0]["runs"][0]["id"]
    assert (
        api.post(f"/api/v1/runs/{run}:attach", json={"manifest": {"data_digest": "d1"}}).status_code
        == 200
    )
    assert _lookup(api, request)["found"] == "none"
    again = _gate(api, request)
    assert again["found"] == "new"
    assert "the data at /corpus changed" in again["reason"]
    _read(database, again["job"]["id"], "d1")
    assert _gate(api, request)["job"]["id"] == again["job"]["id"], "a worker has read d1 again"


def test_a_verdict_on_data_that_are_known_by_name_says_so(api, database, trained, register):
    register()
    job_id, request = trained
    assert "by name" not in _lookup(api, request)["reason"]
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.manifest = {**run.manifest, "data_digest": "named:hub"}
    answer = _lookup(api, request)
    assert (answer["job"]["id"], "by name" in answer["reason"]) == (job_id, True)


@both
def test_a_path_that_postgresql_cannot_hold_spoils_no_other_gate(api, database, trained, register):
    register()
    _, request = trained
    request["job"]["data"] |= {"source": "text", "path": "/corpus"}
    first = _gate(api, request)["job"]["id"]
    _read(database, first, "d1")
    with database.write() as session:
        job = session.get_one(Job, _gate(api, request, revision="b")["job"]["id"])
        job.spec = {**job.spec, "data": {**job.spec["data"], "path": "a\0b"}}
        _age_rows(job)
    assert _gate(api, request)["job"]["id"] == first


def _age_rows(job, **manifest):
    """End a job whose runs read no data here."""
    job.status, job.finished_at = "concluded", time.time()
    for run in job.runs:
        run.state, run.finished_at, run.manifest = "finished", time.time(), TRAINER | manifest


def _lookup(api, request, **more):
    answer = api.post("/api/v1/jobs:gate", json={**request, "lookup": True, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


@both
def test_a_lookup_returns_what_is_recorded_and_queues_nothing(api, trained, register, database):
    register()
    job_id, request = trained
    recorded = _lookup(api, request)
    assert (recorded["found"], recorded["job"]["id"]) == ("concluded", job_id)
    assert recorded["age_seconds"] >= 0
    for more, reason in (
        ({"revision": "b7c1"}, "revision changed: none -> b7c1"),
        ({"max_age_days": 0}, "days old"),
    ):
        missing = _lookup(api, request, **more)
        assert (missing["found"], missing["job"], missing["age_seconds"]) == ("none", None, None)
        assert reason in missing["reason"]
    queued = _gate(api, request, revision="b7c1")["job"]["id"]
    assert (
        f"job {queued} is queued and has no verdict yet"
        in _lookup(api, request, revision="b7c1")["reason"]
    )
    refused = api.post("/api/v1/jobs:gate", json={**request, "lookup": True, "fresh": True})
    assert (refused.status_code, "lookup and fresh" in refused.json()["detail"]) == (422, True)
    with database.read() as session:
        assert session.query(Job).count() == 2


def test_a_lookup_sees_an_older_verdict_behind_a_job_that_trains(api, trained, register, database):
    register()
    job_id, request = trained
    assert _gate(api, request, fresh=True)["found"] == "new"
    assert _lookup(api, request)["job"]["id"] == job_id


@both
def test_the_newer_question_of_a_group_cancels_what_only_it_waited_for(api, request_body, database):
    def asked(revision, group=""):
        return _gate(api, request_body, revision=revision, group=group)["job"]["id"]

    def state(job_id):
        job = api.get(f"/api/v1/jobs/{job_id}").json()
        return job["status"], job["message"]

    first = asked("a", "me/model#7")
    shared = asked("b", "me/model#8")
    assert asked("b", "me/model#7") == shared
    assert state(first) == ("cancelled", f"superseded by job {shared}, the newer one of me/model#7")
    assert asked("b", "me/model#7") == shared, "the same question again cancels nothing"
    newer = asked("c", "me/model#7")
    assert state(shared)[0] == "queued", "pull request 8 waits for it"
    assert asked("c") == newer, "a gate without a group"
    assert asked("d", "me/model#7") != newer
    assert state(newer)[0] == "queued", "somebody else wants it"
    assert asked("c", "me/model#8") == newer
    assert state(shared)[0] == "cancelled"
    by_hand = api.post("/api/v1/jobs", json=request_body).json()["id"]
    asked("e", "me/model#7")
    assert state(by_hand)[0] == "queued"


def test_two_who_ask_at_once_get_one_job(api, request_body):
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: _gate(api, request_body), range(4)))
    assert len({answer["job"]["id"] for answer in answers}) == 1
    assert sorted(answer["found"] for answer in answers) == ["new", "running", "running", "running"]


def test_a_fresh_call_may_be_repeated_under_its_key(api, request_body):
    ids = set()
    for _ in range(2):
        answer = api.post(
            "/api/v1/jobs:gate",
            json={**request_body, "fresh": True},
            headers={"Idempotency-Key": "k"},
        )
        ids.add(answer.json()["job"]["id"])
    assert len(ids) == 1


def test_the_name_of_a_field_is_closed(api, request_body):
    assert api.post("/api/v1/jobs:gate", json={**request_body, "revison": "x"}).status_code == 422
    for revision in ("x" * 201, "\x00", "a\nb"):
        assert (
            api.post("/api/v1/jobs:gate", json={**request_body, "revision": revision}).status_code
            == 422
        )


def test_every_field_of_the_specification_changes_the_hash(make_job):
    from parity.judging.policy import policy_from_mapping
    from server.jobs.submit import config_hash

    policy, spec = policy_from_mapping({"margin": "1%"}), make_job()
    hashes = {
        config_hash(dataclasses.replace(spec, **change), policy, "")
        for change in ({}, {"seed": 1}, {"name": "x"}, {"remat": True})
    }
    assert len(hashes) == 4


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs:gate"])
def test_a_repeated_submission_gets_its_job_whatever_became_of_the_baseline(api, judged, path):
    """The answer was lost, and before it is asked for again the name means another version, or
    none.
    """

    def promote():
        job, request = judged({"nvfp4": 0.0}, verdict=False)
        assert (
            api.post(
                "/api/v1/baselines", json={"name": "fp8", "job": job, "reason": "r"}
            ).status_code
            == 201
        )
        return request

    def submitted(**baseline):
        answer = api.post(
            path,
            json={**body, "baseline": {"name": "fp8", **baseline}},
            headers={"Idempotency-Key": "k"},
        )
        document = answer.json()
        return answer.status_code, document.get("job", document).get("id")

    body = promote() | ({"fresh": True} if "gate" in path else {})
    status, job = submitted()
    assert status == 202
    promote()
    assert submitted()[1] == job
    assert (
        api.post("/api/v1/baselines/fp8/versions/2:expire", json={"reason": "r"}).status_code == 200
    )
    assert submitted()[1] == job
    assert submitted(version=1)[0] == 422


def _age(database, job_id, outcome=None, days=0.0):
    """Make a job concluded this long ago, with this outcome of its candidates."""
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "concluded", time.time() - days * 86_400
        for arm in job.arms[1:] if outcome else ():
            document = json.dumps(
                {"codes": ["GAP_EXCEEDS_MARGIN" if outcome == "fail" else "X"], "verdict": outcome}
            )
            session.add(
                Verdict(
                    id=new_id("v"),
                    job_id=job_id,
                    candidate=arm.name,
                    outcome=outcome,
                    document=document,
                    created_at=time.time(),
                )
            )


def _as_sent(request, *, replicates=1, name="mine", **policy):
    body = copy.deepcopy(request)
    body["job"]["name"] = name
    for arm in (body["job"]["baseline"], *body["job"]["candidates"]):
        arm["replicates"] = replicates
    body["policy"] |= policy
    return body


@both
def test_a_second_look_at_todays_answer_is_not_counted_with_yesterdays(api, request_body, database):
    first = _gate(api, _as_sent(request_body, looks=2))["job"]["id"]
    _age(database, first, "pass", days=1)
    today = _gate(api, _as_sent(request_body, looks=2), max_age_days=0.5)["job"]["id"]
    _age(database, today, "fail")
    second = _gate(api, _as_sent(request_body, looks=2, replicates=2))
    assert second["found"] == "new"
    with database.read() as session:
        assert session.get_one(Job, second["job"]["id"]).look == 2


@both
def test_one_question_is_renewed_once_whatever_its_jobs_are_called(api, request_body, database):
    names = ("a", "b", "c")
    for name in names:
        _age(
            database,
            _gate(api, _as_sent(request_body, looks=3, name=name))["job"]["id"],
            "inconclusive",
            days=1,
        )
    looks = []
    for name in names:
        job_id = _gate(api, _as_sent(request_body, looks=3, name=name), fresh=True)["job"]["id"]
        _age(database, job_id, "inconclusive")
        with database.read() as session:
            looks.append(session.get_one(Job, job_id).look)
    assert looks == [1, 2, 3]
    assert (
        api.post(
            "/api/v1/jobs:gate", json={**_as_sent(request_body, looks=3), "fresh": True}
        ).status_code
        == 409
    )


@pytest.fixture
def looked(api, request_body, database):
    """A request whose one look had no decision, on runs of the usual trainer."""
    job_id = _gate(api, _as_sent(request_body))["job"]["id"]
    _age(database, job_id, "inconclusive")
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.state, run.finished_at, run.manifest = "finished", time.time(), TRAINER
    return _as_sent(request_body)


@pytest.mark.parametrize("known", [[], [dict.fromkeys(TRAINER)], [{"code_sha256": "b" * 64}, {}]])
def test_a_trainer_that_may_be_the_same_gives_no_further_look(api, looked, register, known):
    """No worker is known, or one without its versions, or one with another trainer next to one with
    the job's.
    """
    for changes in known:
        register(**changes)
    refused = api.post("/api/v1/jobs:gate", json=looked)
    assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (409, "look")
    assert "cannot be reused" in refused.json()["detail"]


def test_another_trainer_is_another_question(api, looked, register):
    register(code_sha256="b" * 64)
    assert _gate(api, looked)["found"] == "new"


@pytest.mark.parametrize(
    ("outcome", "found"), [("inconclusive", "concluded"), ("fail", "concluded"), ("pass", "new")]
)
def test_another_word_for_the_revision_is_answered_by_a_verdict_that_did_not_pass(
    api, request_body, database, outcome, found
):
    first = _gate(api, request_body, revision="r1")
    assert first["found"] == "new"
    with database.write() as session:
        job = session.get_one(Job, first["job"]["id"])
        job.status, job.finished_at = "concluded", time.time()
        document = json.dumps({"codes": ["GAP_EXCEEDS_MARGIN"], "verdict": outcome})
        for arm in job.arms[1:]:
            verdict = Verdict(
                id=new_id("v"),
                job_id=job.id,
                candidate=arm.name,
                outcome=outcome,
                document=document,
                created_at=time.time(),
            )
            session.add(verdict)
    with database.write() as session:
        spec, policy = (
            job_spec(session.get_one(Job, first["job"]["id"])),
            policy_from_mapping(request_body["policy"]),
        )
        question = GateSubmission(
            spec=spec, policy=policy, revision="r2", max_age_days=7.0, fresh=False
        )
        reply = answer(session, question, "someone", None, 60.0)
        assert (reply.found, reply.job.id == first["job"]["id"]) == (found, found == "concluded")
        assert ("did not pass" in reply.reason) == (found == "concluded")
