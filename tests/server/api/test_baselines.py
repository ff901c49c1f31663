"""Who may change what the name of a baseline means: its owner, and whoever approves."""

import pytest
from sqlalchemy import update

from server.database.tables import Baseline
from server.web.access import api_tokens
from tests.server.conftest import people_of

pytestmark = pytest.mark.both_databases
URL = "/api/v1/baselines"
REASON = {"reason": "the release's FP8"}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def people(database):
    """Tokens of people as headers, by name; `alice again` is alice's token after a rotation."""
    people = people_of(
        database, {"alice": ["submit"], "bob": ["submit"], "carol": ["approve"], "root": ["admin"]}
    )
    with database.write() as session:
        _, rotated = api_tokens.rotate_token(session, people["alice id"], 1.0)
    return people | {"alice again": {"Authorization": f"Bearer {rotated}"}}


@pytest.fixture
def promote(api, judged, people):
    """A function that promotes a new job's baseline as `fp8` for somebody; the response."""

    def make(who, **more):
        job_id, _ = judged({"nvfp4": 0.0}, verdict=False)
        return api.post(
            URL, json={"name": "fp8", "job": job_id, **REASON, **more}, headers=people[who]
        )

    return make


@pytest.fixture
def expire(api, people):
    """A function that expires a version of `fp8` for somebody; the response."""
    return lambda who, version: api.post(
        f"{URL}/fp8/versions/{version}:expire", json=REASON, headers=people[who]
    )


def test_a_stranger_replaces_expires_and_measures_no_baseline_of_somebody_else(
    api, promote, expire, people, judged
):
    assert promote("alice").status_code == 201
    reruns, _ = judged({"nvfp4": 0.0}, verdict=False)
    body = {"runs_of": reruns, **REASON}
    answers = [
        promote("bob"),
        expire("bob", 1),
        api.post(f"{URL}/fp8/versions/1/controls", json=body, headers=people["bob"]),
    ]
    assert [answer.status_code for answer in answers] == [403] * 3
    assert all("'alice'" in answer.json()["detail"] for answer in answers)
    newest = api.get(f"{URL}/fp8", headers=people["bob"]).json()
    assert (newest["version"], newest["controls"], newest["expired"]) == (1, 0, False)
    assert promote("bob", name="bobs").status_code == 201


@pytest.mark.parametrize("who", ["alice", "alice again", "carol", "root"])
def test_the_owner_with_whatever_token_and_whoever_approves_may(promote, expire, who):
    promote("alice")
    second = promote(who)
    assert (second.status_code, second.json().get("version")) == (201, 2)
    assert expire(who, 1).status_code == 200


def test_the_newest_version_says_whose_a_name_is(promote, expire):
    promote("alice")
    promote("carol")
    assert [expire("alice", version).status_code for version in (1, 2)] == [403, 403]


@pytest.mark.parametrize(
    ("who", "status"), [("alice", 403), ("bob", 403), ("carol", 201), ("root", 201)]
)
def test_a_name_of_which_no_owner_is_known_needs_somebody_who_approves(
    database, promote, who, status
):
    promote("alice")
    with database.write() as session:
        session.execute(update(Baseline).values(owner=None))
    assert promote(who).status_code == status


def test_a_job_names_the_version_and_who_promoted_it(api, promote, judged, people, register):
    register()
    promote("alice")
    _, request = judged({"nvfp4": 0.0}, verdict=False)
    request["job"]["name"] = "later"
    job = api.post(
        "/api/v1/jobs", json={**request, "baseline": {"name": "fp8"}}, headers=people["bob"]
    ).json()
    assert job["baseline"] == {"name": "fp8", "version": 1, "controls": 0, "promoted_by": "alice"}
