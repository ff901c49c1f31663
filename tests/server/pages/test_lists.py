"""The list of jobs, the candidates side by side, and the tokens."""

import re

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

from server.api.lists import Wanted, job_list
from server.database.tables import Job, Token
from server.jobs.conclude import decide, write_outcome
from server.pages.job_lists import JOBS_A_PAGE
from server.settings import Settings
from server.web import auth

LOOKS = ["light"]


def _conclude(database, job_id):
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        write_outcome(session, job_id, outcome)


def test_the_list_is_filtered_by_state_verdict_and_name(database, recorded):
    failed, running = recorded({"nvfp4": 0.05}), recorded({"nvfp4": 0.0}, done=10, state="running")
    _conclude(database, failed)
    with database.write() as session:
        session.get_one(Job, running).name = "100%_done"
        session.get_one(Job, running).submitted_by = auth.LOCAL.id
    questions = [{}, {"verdict": "fail"}, {"verdict": "pass"}, {"status": "running"}, {"name": "%_D"}, {"name": "other"}]
    with database.read() as session:
        lists = [job_list(session, Wanted(**each), "newest", None, JOBS_A_PAGE, counted=True) for each in questions]
    assert [[job.id for job in each.items] for each in lists] == [[running, failed], [failed], [], [running], [running], []]
    assert [each.total for each in lists] == [2, 1, 0, 1, 1, 0]
    assert lists[0].items[0].submitted_by == "this machine"


def test_pages_of_the_list_follow_each_other(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    with database.write() as session:
        for number in range(JOBS_A_PAGE):
            session.add(_copy(session.get_one(Job, job_id), f"j{number:012x}-0000000000"))
    with database.read() as session:
        first = job_list(session, Wanted(status="queued"), "newest", None, JOBS_A_PAGE, counted=False)
        second = job_list(session, Wanted(status="queued"), "newest", first.next_cursor, JOBS_A_PAGE, counted=False)
    assert len(first.items) == JOBS_A_PAGE
    assert [job.id for job in second.items] == ["j000000000000-0000000000"]
    assert second.next_cursor is None


def _copy(job: Job, job_id: str) -> Job:
    values = {column.name: getattr(job, column.name) for column in Job.__table__.columns} | {"id": job_id}
    copy = Job(**values)
    copy.arms = [
        type(arm)(id=f"{job_id}{arm.position}", position=arm.position, name=arm.name, role=arm.role, recipe=arm.recipe) for arm in job.arms
    ]
    return copy


def test_filter_and_side_by_side_on_the_page(page: Page, database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    _conclude(database, job_id)
    page.goto("/jobs")
    expect(page.locator("svg.forest")).to_have_count(1)
    expect(page.get_by_role("row", name="nvfp4 1 fail, 1 pass")).to_be_visible()
    page.get_by_label("state").select_option("running")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No jobs match.")).to_be_visible()
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("link", name="Compare the candidates").click()
    table = page.get_by_role("region", name="Candidates", exact=True)
    expect(table.get_by_role("row", name="mxfp8 ")).to_contain_text("PASS")
    expect(table.get_by_role("row", name="nvfp4 ")).to_contain_text("3.")
    expect(page.get_by_role("row", name="mxfp8 against nvfp4")).to_contain_text("\N{MINUS SIGN}0.05")


def test_a_token_is_made_shown_once_and_revoked(page: Page, database):
    page.goto("/tokens")
    page.get_by_label("Owner or purpose").fill("nightly")
    page.get_by_label("submit").check()
    page.get_by_role("button", name="Create token").click()
    text = page.locator(".secret").text_content()
    with database.read() as session:
        token = auth.authenticate(session, text)
        assert (token.name, token.scopes) == ("nightly", ["submit", "view"])
    page.goto("/tokens")
    assert text.split("_", 2)[2] not in page.content()
    page.get_by_text("Revoke nightly").click()
    page.locator("details input").fill("nightly")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="nightly")).to_contain_text("revoked")
    with database.read() as session:
        assert auth.authenticate(session, text) is None


@pytest.fixture
def asks(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_tokens": True})


def test_tokens_are_for_admins_and_for_this_sites_own_forms(asks, database, application):
    with database.write() as session:
        _, viewer = auth.create_token(session, "viewer", ["view"], None)
        _, admin = auth.create_token(session, "admin", ["admin"], None)
    with TestClient(application(asks), base_url="http://127.0.0.1", follow_redirects=False) as client:
        assert client.get("/tokens").headers["Location"] == "/login?next=/tokens"
        client.post("/login", data={"token": viewer})
        refused = client.post("/tokens", data={"name": "mine", "scopes": "admin"})
        assert refused.status_code == 403
        assert "scope admin" in refused.text
        assert "/tokens" not in client.get("/workers").text
        client.post("/login", data={"token": admin})
        foreign = client.post("/tokens", data={"name": "x", "scopes": "admin"}, headers={"Origin": "https://elsewhere.example"})
        assert foreign.status_code == 403
        assert client.post("/tokens", data={"name": "x"}).status_code == 422
        assert "expected a number" in client.post("/tokens", data={"name": "x", "scopes": "view", "days": "soon"}).text
        made = client.post("/tokens", data={"name": "x", "scopes": ["view", "worker"], "days": "", "max_running": "2"})
        assert made.status_code == 201
        assert made.headers["Cache-Control"] == "no-store"
        with database.read() as session:
            token = session.query(Token).filter(Token.name == "x").one()
        wrong = client.post(f"/tokens/{token.id}/revoke", data={"confirm": "y"})
        assert wrong.status_code == 422
        assert 'role="alert"' in wrong.text
    with database.read() as session:
        assert session.get_one(Token, token.id).revoked_at is None


def test_the_tag_filter_offers_the_tags_of_all_jobs(api, recorded):
    first, second = recorded({"nvfp4": 0.0}, done=0, state="queued"), recorded({"nvfp4": 0.0}, done=0, state="queued")
    for job_id, tags in ((first, ["nightly", "release"]), (second, ["nightly"])):
        assert api.put(f"/api/v1/jobs/{job_id}/tags", json={"tags": tags}).status_code == 200
    page = api.get("/jobs?tag=release").text
    assert re.findall(r'<option value="(nightly|release)">', page) == ["nightly", "release"]
    assert 'list="tags"' in page
