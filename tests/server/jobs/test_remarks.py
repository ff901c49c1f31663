"""Tags, notes and sign-offs over REST: who may, what holds, and until when."""

import json
import time

import pytest

from server.database.tables import Job, SignOff, Verdict
from server.jobs import sign_offs
from server.web.access import api_tokens
from tests.parity.cli.schemas import check
from tests.server.conftest import people_of

pytestmark = pytest.mark.both_databases
OPEN, CLEAR = {"mxfp8": 0.013}, {"mxfp8": 0.3}
BODY = {"candidate": "mxfp8", "reason": "release 2.1; reruns are queued", "days": 14}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "requests_per_minute": 100_000})


@pytest.fixture
def people(database):
    """Headers of people, by name; `owner` submits jobs, `approver` and `chief` (an admin) do
    not.
    """
    scopes = {
        "owner": ["submit", "approve"],
        "approver": ["approve"],
        "reader": ["view"],
        "other": ["submit"],
        "chief": ["admin"],
    }
    return people_of(database, scopes)


@pytest.fixture
def job(database, judged, people):
    """A function that makes a job of the owner that was judged; its id."""

    def make(gaps):
        job_id, _ = judged(gaps)
        with database.write() as session:
            session.get_one(Job, job_id).submitted_by = people["owner id"]
        return job_id

    return make


def test_the_owner_sets_the_tags_and_lists_find_them(api, job, people):
    job_id = job(OPEN)
    url = f"/api/v1/jobs/{job_id}/tags"
    assert api.put(url, json={"tags": ["b", "a", "b"]}, headers=people["owner"]).json()["tags"] == [
        "a",
        "b",
    ]
    assert api.put(url, json={"tags": ["b", "c"]}, headers=people["owner"]).json()["tags"] == [
        "b",
        "c",
    ]
    assert api.put(url, json={"tags": ["x"]}, headers=people["other"]).status_code == 403
    for wrong in (
        ["two words"],
        [""],
        ["a\n"],
        ["é"],
        ["x" * 65],
        [f"t{number}" for number in range(21)],
    ):
        assert api.put(url, json={"tags": wrong}, headers=people["owner"]).status_code == 422, wrong
    assert [
        each["id"]
        for each in api.get("/api/v1/jobs?tag=b&tag=c", headers=people["reader"]).json()["items"]
    ] == [job_id]
    assert api.get("/api/v1/jobs?tag=a", headers=people["reader"]).json()["items"] == []
    assert api.put(url, json={"tags": []}, headers=people["owner"]).json()["tags"] == []


def test_a_note_has_its_author_and_time_and_is_plain_text(api, job, people):
    job_id = job(OPEN)
    url = f"/api/v1/jobs/{job_id}/notes"
    assert (
        api.post(
            url, json={"text": "  <b>odd</b>\nline two "}, headers=people["approver"]
        ).status_code
        == 201
    )
    (note,) = (
        api.post(url, json={"text": "x"}, headers=people["reader"]).status_code == 403
        and api.get(f"/api/v1/jobs/{job_id}/remarks", headers=people["reader"]).json()["notes"]
    )
    assert (note["who"], note["text"], note["created_at"][:2]) == (
        "approver",
        "<b>odd</b>\nline two",
        "20",
    )
    page = api.get(f"/jobs/{job_id}", headers=people["reader"]).text
    assert "&lt;b&gt;odd&lt;/b&gt;" in page
    assert "<b>odd" not in page
    for wrong in (" ", "x" * 4001, "bell \a", "nul \0"):
        assert api.post(url, json={"text": wrong}, headers=people["other"]).status_code == 422, (
            wrong
        )


def test_somebody_else_with_scope_approve_signs_off_an_inconclusive_verdict(api, job, people):
    job_id = job(OPEN)
    url = f"/api/v1/jobs/{job_id}/sign-offs"
    refused = {
        name: api.post(url, json=BODY, headers=people[name]).status_code
        for name in ("owner", "reader", "other")
    }
    assert refused == dict.fromkeys(refused, 403)
    answer = api.post(url, json=BODY, headers=people["approver"])
    (signed,) = answer.json()["sign_offs"]
    assert (answer.status_code, signed["who"], signed["state"], signed["reason"]) == (
        201,
        "approver",
        "valid",
        BODY["reason"],
    )
    twice = api.post(url, json=BODY, headers=people["chief"])
    assert (twice.status_code, twice.json()["type"]) == (409, "urn:parity:problem:sign-off")
    assert api.get(f"/api/v1/jobs/{job_id}", headers=people["reader"]).json()["sign_offs"] == [
        signed
    ]
    # The verdict itself does not change.
    assert (
        api.get(f"/api/v1/jobs/{job_id}/verdict", headers=people["reader"]).json()["verdicts"][0][
            "verdict"
        ]
        == "inconclusive"
    )
    again = f"{url}/{signed['id']}:revoke"
    assert (
        api.post(again, json={"reason": "the reruns failed"}, headers=people["other"]).status_code
        == 403
    )
    for reason in ("the reruns failed", "another reason"):
        (revoked,) = api.post(again, json={"reason": reason}, headers=people["chief"]).json()[
            "sign_offs"
        ]
        assert (revoked["state"], revoked["revoked_by"], revoked["revoke_reason"]) == (
            "revoked",
            "chief",
            "the reruns failed",
        )
    assert api.post(url, json=BODY, headers=people["approver"]).status_code == 201
    assert (
        api.post(
            f"{url}/s000000000000-0000000000:revoke",
            json={"reason": "no such one"},
            headers=people["chief"],
        ).status_code
        == 404
    )


def test_an_admin_does_not_sign_off_an_own_job(api, database, job, people):
    job_id = job(OPEN)
    with database.write() as session:
        chief, text = api_tokens.create_token(session, "second chief", ["admin"], None)
        session.flush()
        session.get_one(Job, job_id).submitted_by = chief.id
    refused = api.post(
        f"/api/v1/jobs/{job_id}/sign-offs", json=BODY, headers={"Authorization": f"Bearer {text}"}
    )
    assert (refused.status_code, "another person" in refused.json()["detail"]) == (403, True)


def test_a_fail_a_pass_and_an_unknown_candidate_are_never_signed_off(api, job, people):
    for gaps, word in ((CLEAR, "fail"), ({"mxfp8": 0.0}, "pass")):
        answer = api.post(
            f"/api/v1/jobs/{job(gaps)}/sign-offs", json=BODY, headers=people["approver"]
        )
        assert (answer.status_code, f"the verdict is {word}" in answer.json()["detail"]) == (
            409,
            True,
        )
    job_id = job(OPEN)
    assert (
        api.post(
            f"/api/v1/jobs/{job_id}/sign-offs",
            json=BODY | {"candidate": "x"},
            headers=people["approver"],
        ).status_code
        == 404
    )
    for wrong in ({"days": 0}, {"days": 91}, {"days": "inf"}, {"reason": "ok"}, {"until": "2030"}):
        assert (
            api.post(
                f"/api/v1/jobs/{job_id}/sign-offs", json=BODY | wrong, headers=people["approver"]
            ).status_code
            == 422
        ), wrong


def test_a_sign_off_ends_with_its_time_its_verdict_and_its_policy(api, owner_database, job, people):
    job_id = job(OPEN)
    url = f"/api/v1/jobs/{job_id}"
    for change in ("expired", "verdict", "policy"):
        # After each change another one can be made.
        assert (
            api.post(f"{url}/sign-offs", json=BODY, headers=people["approver"]).status_code == 201
        )
        with owner_database.write() as session:
            if change == "expired":
                session.query(SignOff).one().expires_at = time.time() - 0.001
            elif change == "verdict":
                verdict = session.query(Verdict).one()
                verdict.document = verdict.document.replace(
                    '"confidence": 0.95', '"confidence": 0.94'
                )
                verdict.document_sha256 = verdict.columns_sha256 = None
            else:
                row = session.get_one(Job, job_id)
                row.policy = row.policy | {"margin": "2.0 %"}
        *_, signed = api.get(f"{url}/remarks", headers=people["reader"]).json()["sign_offs"]
        assert signed["state"] == ("expired" if change == "expired" else "void")


def test_the_forms_of_the_page_are_for_those_who_may(api, job, people):
    job_id = job(OPEN)
    words = {
        name: api.get(f"/jobs/{job_id}", headers=people[name]).text
        for name in ("owner", "approver", "reader")
    }
    has = {
        name: [form in text for form in ('/tags"', '/notes"', '/sign-offs"')]
        for name, text in words.items()
    }
    assert has == {
        "owner": [True, True, False],
        "approver": [False, True, True],
        "reader": [False, False, False],
    }
    assert "can be signed off by a person with scope approve" in words["owner"]
    form = {"candidate": "mxfp8", "reason": BODY["reason"], "days": "7"}
    sent = {
        name: api.post(
            f"/jobs/{job_id}/sign-offs", data=form, headers=people[name], follow_redirects=False
        ).status_code
        for name in words
    }
    assert sent == {"owner": 403, "approver": 303, "reader": 403}
    assert "Accepted, not a pass" in api.get(f"/jobs/{job_id}", headers=people["reader"]).text
    assert (
        api.post(
            f"/jobs/{job_id}/tags",
            data={"tags": "a, b"},
            headers=people["owner"],
            follow_redirects=False,
        ).status_code
        == 303
    )
    remarks = api.get(f"/api/v1/jobs/{job_id}/remarks", headers=people["reader"]).json()
    check("remarks", remarks)
    (signed,) = remarks["sign_offs"]
    revoke = f"/jobs/{job_id}/sign-offs/{signed['id']}/revoke"
    assert (
        api.post(
            revoke,
            data={"reason": "the reruns failed"},
            headers=people["approver"],
            follow_redirects=False,
        ).status_code
        == 303
    )
    assert "Accepted, not a pass" not in api.get(f"/jobs/{job_id}", headers=people["reader"]).text


def test_a_verdict_without_a_measured_gap_says_why_nobody_can_sign_it_off(
    api, owner_database, job, people
):
    job_id = job(OPEN)
    with owner_database.write() as session:
        verdict = session.query(Verdict).one()
        verdict.document = json.dumps(
            json.loads(verdict.document) | {"codes": ["DATA_ORDER_MISMATCH"]}
        )
        verdict.document_sha256 = verdict.columns_sha256 = None
    answer = api.post(f"/api/v1/jobs/{job_id}/sign-offs", json=BODY, headers=people["approver"])
    assert (answer.status_code, "DATA_ORDER_MISMATCH" in answer.json()["detail"]) == (409, True)
    assert "cannot be signed off" in api.get(f"/jobs/{job_id}", headers=people["approver"]).text


def test_a_job_that_is_not_judged_has_nothing_to_sign(database, recorded):
    job_id = recorded({"mxfp8": 0.0}, done=10, state="running")
    with database.write() as session, pytest.raises(Exception, match="has no verdict"):
        sign_offs.sign_off(session, job_id, "mxfp8", "local", BODY["reason"], 1.0)
