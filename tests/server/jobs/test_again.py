"""A new job from one that has ended: the patch, the note, the proposals of a verdict, and who
may.
"""

import html
import json
import re

import pytest

from parity.judging.policy import policy_from_mapping
from server.database.tables import Job
from server.jobs.again import merged
from server.jobs.proposal import proposal
from tests.server.conftest import people_of

pytestmark = pytest.mark.both_databases
OPEN, CLEAR = {"nvfp4": 0.013}, {"nvfp4": 0.3}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def people(database):
    return people_of(
        database,
        {"owner": ["submit"], "other": ["submit"], "reader": ["view"], "approver": ["approve"]},
    )


@pytest.fixture
def proposed(database):
    """A function that gives the proposal of a job."""

    def of(job_id):
        with database.read() as session:
            return proposal(session.get_one(Job, job_id))

    return of


@pytest.fixture
def with_blocks(owner_database):
    """A function that gives the model of a job some blocks, without other curves."""

    def change(job_id, blocks):
        with owner_database.write() as session:
            job = session.get_one(Job, job_id)
            job.spec = {**job.spec, "model": {**job.spec["model"], "n_layers": blocks}}
        return job_id

    return change


@pytest.mark.parametrize(
    ("target", "patch", "made"),
    [  # the examples of RFC 7396, appendix A, whose target is an object
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_is_merged_as_the_standard_says(target, patch, made):
    assert merged(target, patch) == made


def test_a_preset_replaces_the_whole_model():
    request = {"job": {"model": {"d_model": 64, "n_layers": 2}}}
    assert merged(request, {"job": {"model": {"preset": "20m"}}}) == {
        "job": {"model": {"preset": "20m"}}
    }
    assert merged(request, {"job": {"model": {"n_layers": 3}}}) == {
        "job": {"model": {"d_model": 64, "n_layers": 3}}
    }


def test_a_job_is_made_again_with_a_change_and_says_where_it_comes_from(api, judged, people):
    job_id, request = judged(CLEAR)
    patch = {"job": {"schedule": {"learning_rate": 1e-3}}, "tags": ["second"]}
    answer = api.post(
        f"/api/v1/jobs/{job_id}:again",
        json={"patch": patch},
        headers=people["other"] | {"Idempotency-Key": "k"},
    )
    made = answer.json()
    assert (answer.status_code, answer.headers["Location"], made["status"]) == (
        202,
        f"/api/v1/jobs/{made['id']}",
        "queued",
    )
    assert made["spec"] == {
        **request["job"],
        "schedule": {**request["job"]["schedule"], "learning_rate": 1e-3},
    }
    assert (made["policy"], made["tags"]) == (request["policy"], ["second"])
    (note,) = made["notes"]
    assert (
        note["who"],
        job_id in note["text"],
        json.dumps(patch, sort_keys=True) in note["text"],
    ) == ("other", True, True)
    again = api.post(
        f"/api/v1/jobs/{job_id}:again",
        json={"patch": patch},
        headers=people["other"] | {"Idempotency-Key": "k"},
    ).json()
    assert (again["id"], len(again["notes"])) == (made["id"], 1)


def test_a_patch_is_checked_like_a_submission(api, judged, people):
    job_id, _ = judged(CLEAR)
    for patch, pointer in (
        ({"job": {"schedule": {"steps": "many"}}}, "/job/schedule/steps"),
        ({"job": {"schedule": {"step": 3}}}, "/job/schedule/step"),
        ({"name": "x"}, "/name"),
        ({"job": None}, "/job"),
    ):
        answer = api.post(
            f"/api/v1/jobs/{job_id}:again", json={"patch": patch}, headers=people["owner"]
        )
        assert (answer.status_code, [each["pointer"] for each in answer.json()["errors"]]) == (
            422,
            [pointer],
        ), patch
    high = api.post(
        f"/api/v1/jobs/{job_id}:again", json={"patch": {"priority": 5}}, headers=people["owner"]
    )
    assert high.status_code == 403
    assert (
        api.post(
            f"/api/v1/jobs/{job_id}:again", json={"patch": []}, headers=people["owner"]
        ).status_code
        == 422
    )


def test_only_a_job_that_has_ended_is_made_again_and_only_by_who_may_submit(
    api, judged, recorded, people
):
    job_id, _ = judged(CLEAR)
    open_id = recorded(CLEAR, done=10, state="running")
    assert (
        api.post(f"/api/v1/jobs/{open_id}:again", json={}, headers=people["owner"]).status_code
        == 409
    )
    for who in ("reader", "approver"):
        assert (
            api.post(f"/api/v1/jobs/{job_id}:again", json={}, headers=people[who]).status_code
            == 403
        )
        sent = api.post(
            f"/jobs/{job_id}/again",
            data={"patch": "{}"},
            headers=people[who],
            follow_redirects=False,
        )
        assert sent.status_code == 403


def test_the_button_of_a_fail_tries_what_the_sentence_says(
    api, database, judged, people, proposed, with_blocks
):
    job_id, request = judged(CLEAR)
    assert proposed(job_id) is None  # one block: nothing would be left in nvfp4
    with_blocks(job_id, 2)
    pages = {
        who: api.get(f"/jobs/{job_id}", headers=people[who]).text for who in ("owner", "reader")
    }
    offered = {who: f'action="/jobs/{job_id}/again"' in page for who, page in pages.items()}
    assert offered == {"owner": True, "reader": False}
    wanted = proposed(job_id)
    assert "Keep the last blocks in bf16" in pages["owner"]
    assert html.escape(wanted.label) in pages["owner"]
    patch = html.unescape(re.search(r'name="patch" value="([^"]*)"', pages["owner"])[1])
    for _ in range(2):  # pressed twice
        sent = api.post(
            f"/jobs/{job_id}/again",
            data={"patch": patch, "key": "1"},
            headers=people["owner"],
            follow_redirects=False,
        )
        assert sent.status_code == 303
    made = api.get(f"/api/v1{sent.headers['Location']}", headers=people["owner"]).json()
    assert api.get("/api/v1/jobs?count=true", headers=people["owner"]).json()["total"] == 2
    (arm,) = made["spec"]["candidates"]
    assert (arm["recipe"], arm["overrides"]) == (
        "nvfp4",
        [{"blocks": ["last 1"], "recipe": "bf16"}],
    )
    assert made["spec"]["baseline"] == request["job"]["baseline"]
    with database.read() as session:  # another question, not a further look at the first
        first, second = session.get_one(Job, job_id), session.get_one(Job, made["id"])
        assert first.arms[1].question != second.arms[1].question


def test_a_patch_that_is_no_json_object_is_refused_by_the_form(api, judged, people):
    job_id, _ = judged(CLEAR)
    for patch in ("", "[]", "{", "1"):
        sent = api.post(
            f"/jobs/{job_id}/again",
            data={"patch": patch},
            headers=people["owner"],
            follow_redirects=False,
        )
        assert sent.status_code == 422, patch


def test_nothing_is_proposed_where_the_sentence_names_no_recipe(judged, proposed):
    assert proposed(judged({"nvfp4": 0.0})[0]) is None  # a pass
    assert proposed(judged(OPEN)[0]) is None  # undecided, and its one look is used


def test_a_fail_of_fp8_tries_the_first_and_last_blocks_where_there_are_enough(
    judged, proposed, with_blocks
):
    job_id, _ = judged({"mxfp8": 0.3})
    assert proposed(with_blocks(job_id, 2)) is None  # nothing would be left in fp8
    wanted = proposed(with_blocks(job_id, 4))
    assert wanted.patch["job"]["candidates"][0]["overrides"] == [
        {"blocks": ["first 1", "last 1"], "recipe": "bf16"}
    ]


def test_no_engine_is_offered_what_it_cannot_train(owner_database, judged, proposed, with_blocks):
    job_id = with_blocks(judged(CLEAR)[0], 2)
    assert proposed(job_id) is not None
    for engine in ("maxtext", "external"):
        with owner_database.write() as session:
            job = session.get_one(Job, job_id)
            job.engine, job.spec = engine, {**job.spec, "engine": engine}
        assert proposed(job_id) is None, engine


def test_one_more_pair_is_offered_while_a_look_is_left_and_reuses_the_runs(
    api, database, judged, people, proposed
):
    job_id, _ = judged({"mxfp8": 0.008}, looks=2, replicates=1)
    wanted = proposed(job_id)
    assert wanted.label.startswith("Add a pair of runs: decides with ")
    made = api.post(
        f"/api/v1/jobs/{job_id}:again", json={"patch": wanted.patch}, headers=people["owner"]
    ).json()
    assert [len(arm["runs"]) for arm in made["arms"]] == [2, 2]
    assert (made["look"]["number"], made["look"]["looks"]) == (2, 2)
    with database.read() as session:
        job = session.get_one(Job, made["id"])
        # so its runs are reused by their fingerprints
        assert job.arms[1].question == session.get_one(Job, job_id).arms[1].question
        assert policy_from_mapping(job.policy).looks == 2
    third = api.post(
        f"/api/v1/jobs/{job_id}:again", json={"patch": wanted.patch}, headers=people["owner"]
    )
    assert (third.status_code, third.json()["type"]) == (409, "urn:parity:problem:look")


def test_the_runs_are_those_that_the_sentence_names(judged, proposed):
    job_id, _ = judged({"mxfp8": 0.01}, looks=2, replicates=1)
    wanted = proposed(job_id)
    (candidate,), base = wanted.patch["job"]["candidates"], wanted.patch["job"]["baseline"]
    assert (
        wanted.label
        == f"Add {base['replicates'] - 1} runs of fp8_current and {candidate['replicates'] - 1} "
        "runs of mxfp8"
    )
    assert candidate["replicates"] > 2
