"""The page of tokens: for admins, and the text of a token is shown once."""

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

from server.database.tables import Token
from server.settings import Settings
from server.web.access import api_tokens


def test_a_token_is_made_shown_once_and_revoked(page: Page, database):
    page.goto("/tokens")
    page.get_by_label("Owner or purpose").fill("nightly")
    page.get_by_label("submit").check()
    page.get_by_role("button", name="Create token").click()
    text = page.locator(".secret").text_content()
    with database.read() as session:
        token = api_tokens.authenticate(session, text)
        assert (token.name, token.scopes) == ("nightly", ["submit", "view"])
    page.goto("/tokens")
    assert text.split("_", 2)[2] not in page.content()
    page.get_by_text("Revoke nightly").click()
    page.locator("details input").fill("nightly")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="nightly")).to_contain_text("revoked")
    with database.read() as session:
        assert api_tokens.authenticate(session, text) is None


@pytest.fixture
def asks(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_tokens": True})


def test_tokens_are_for_admins_and_for_this_sites_own_forms(asks, database, application):
    with database.write() as session:
        _, viewer = api_tokens.create_token(session, "viewer", ["view"], None)
        _, admin = api_tokens.create_token(session, "admin", ["admin"], None)
    with TestClient(
        application(asks), base_url="http://127.0.0.1", follow_redirects=False
    ) as client:
        assert client.get("/tokens").headers["Location"] == "/login?next=/tokens"
        client.post("/login", data={"token": viewer})
        refused = client.post("/tokens", data={"name": "mine", "scopes": "admin"})
        assert refused.status_code == 403
        assert "scope admin" in refused.text
        assert "/tokens" not in client.get("/workers").text
        client.post("/login", data={"token": admin})
        foreign = client.post(
            "/tokens",
            data={"name": "x", "scopes": "admin"},
            headers={"Origin": "https://elsewhere.example"},
        )
        assert foreign.status_code == 403
        assert client.post("/tokens", data={"name": "x"}).status_code == 422
        assert (
            "expected a number"
            in client.post("/tokens", data={"name": "x", "scopes": "view", "days": "soon"}).text
        )
        made = client.post(
            "/tokens",
            data={"name": "x", "scopes": ["view", "worker"], "days": "", "max_running": "2"},
        )
        assert made.status_code == 201
        assert made.headers["Cache-Control"] == "no-store"
        with database.read() as session:
            token = session.query(Token).filter(Token.name == "x").one()
        wrong = client.post(f"/tokens/{token.id}/revoke", data={"confirm": "y"})
        assert wrong.status_code == 422
        assert 'role="alert"' in wrong.text
    with database.read() as session:
        assert session.get_one(Token, token.id).revoked_at is None
