"""Who asked for a job in a gate: groups of two principals with one name are two, and who asked does
not sign off.
"""

import pytest

from server.database.tables import Job
from tests.server.conftest import people_of

pytestmark = pytest.mark.both_databases
OPEN = {"mxfp8": 0.013}
SIGN_OFF = {"candidate": "mxfp8", "reason": "release 2.1; reruns are queued", "days": 14}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def people(database):
    """Headers of people who submit and approve, by name; and their principals."""
    return people_of(database, dict.fromkeys(("alice", "bob", "carol"), ("submit", "approve")))


@pytest.fixture
def ask(api, people):
    """A function that gates a request for somebody; the job's id."""

    def asked(who, request, **more):
        answer = api.post("/api/v1/jobs:gate", json={**request, **more}, headers=people[who])
        assert answer.status_code in (200, 202), answer.text
        return answer.json()["job"]["id"]

    return asked


@pytest.fixture
def status(api, people):
    return lambda job_id: api.get(f"/api/v1/jobs/{job_id}", headers=people["carol"]).json()[
        "status"
    ]


@pytest.fixture
def sign_off(api, people):
    return lambda who, job_id: (
        api.post(f"/api/v1/jobs/{job_id}/sign-offs", json=SIGN_OFF, headers=people[who]).status_code
    )


@pytest.fixture
def alices(database, judged, people, register):
    """An inconclusive job of alice, and the request that asks the same."""
    register()
    job_id, request = judged(OPEN)
    with database.write() as session:
        session.get_one(Job, job_id).submitted_by = people["alice id"]
    return job_id, request


def test_a_group_of_somebody_else_with_the_same_name_goes_on(ask, status, request_body):
    both = ask("alice", request_body, revision="a", group="nightly")
    assert ask("bob", request_body, revision="a", group="nightly") == both
    ask("alice", request_body, revision="b", group="nightly")
    assert status(both) == "queued", "bob waits for it"
    ask("bob", request_body, revision="c", group="nightly")
    assert status(both) == "cancelled", "nobody waits for it any more"


def test_groups_of_older_versions_are_those_of_the_submitter(ask, status, request_body, database):
    job_id = ask("alice", request_body, revision="a", group="nightly")
    with database.write() as session:
        session.get_one(Job, job_id).gate_groups = ["nightly"]
    ask("bob", request_body, revision="b", group="nightly")
    assert status(job_id) == "queued"
    ask("alice", request_body, revision="c", group="nightly")
    assert status(job_id) == "cancelled"


def test_a_job_that_was_submitted_without_a_gate_is_cancelled_by_none(
    api, people, ask, status, request_body, database
):
    job_id = ask("alice", request_body, revision="a")
    with database.write() as session:
        session.get_one(Job, job_id).gate_groups = None  # as an older version wrote it
    assert ask("bob", request_body, revision="a", group="nightly") == job_id
    ask("bob", request_body, revision="b", group="nightly")
    assert status(job_id) == "queued"


@pytest.mark.parametrize("more", [{}, {"group": "bob/model#1"}, {"lookup": True}])
def test_who_asked_for_a_job_does_not_sign_it_off(ask, alices, sign_off, more):
    job_id, request = alices
    assert ask("bob", request, **more) == job_id
    assert (sign_off("alice", job_id), sign_off("bob", job_id)) == (403, 403)
    assert sign_off("carol", job_id) == 201


def test_who_asked_and_then_asked_for_another_does_not_sign_off_either(ask, sign_off, request_body):
    job_id = ask("alice", request_body, revision="a", group="nightly")
    ask("bob", request_body, revision="a", group="nightly")
    ask("bob", request_body, revision="b", group="nightly")
    assert sign_off("bob", job_id) == 403
    assert sign_off("carol", job_id) == 404  # it may, once there is a verdict
