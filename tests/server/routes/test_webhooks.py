"""Webhooks over the whole application, for admins alone; the secret is told once."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.database.sealed import Box
from server.database.tables import Webhook, WebhookDelivery
from server.jobs import webhooks
from server.web import auth
from server.web.rules import SCOPES

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
ASKED: dict[str, Any] = {"url": "https://hooks.example/in/T0K3N", "events": ["verdict.given", "job.ended"]}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True, "webhook_keys": KEY})


@pytest.fixture
def headers(database):
    """The headers of a token by its scope."""
    with database.write() as session:
        return {scope: {"Authorization": f"Bearer {auth.create_token(session, 'mine', [scope], 1)[1]}"} for scope in SCOPES}


@pytest.mark.both_databases
def test_the_life_of_a_webhook(api, headers, database, caplog):
    admin = headers["admin"]
    made = api.post("/api/v1/webhooks", json=ASKED, headers=admin)
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    secret, about = made.json()["secret"], made.json()["about"]
    with database.read() as session:
        stored = session.query(Webhook).one().secret
        assert Box([KEY]).open(stored) == secret
        assert secret not in stored
    assert about == {"id": about["id"], "url": ASKED["url"], "events": ["job.ended", "verdict.given"], "last_delivery": None} | {
        "created_at": about["created_at"]
    }
    path = f"/api/v1/webhooks/{about['id']}"
    tested = api.post(f"{path}:test", headers=admin)
    assert tested.status_code == 202
    assert tested.json().items() >= {"type": "test", "job": None, "state": "pending", "attempts": 0, "message": None}.items()
    listed = api.get("/api/v1/webhooks", headers=admin)
    assert listed.json() == [about | {"last_delivery": tested.json()}]
    assert api.delete(path, headers=admin).status_code == 204
    assert api.get("/api/v1/webhooks", headers=admin).json() == []
    for answer in (
        api.delete(path, headers=admin),
        api.post(f"{path}:test", headers=admin),
        api.delete("/api/v1/webhooks/x", headers=admin),
    ):
        assert answer.status_code == 404
    for text in (tested.text, listed.text, caplog.text, json.dumps(about)):
        assert secret not in text
    assert "T0K3N" not in caplog.text


@pytest.mark.both_databases
def test_the_list_shows_the_newest_delivery(api, headers, database):
    ids = [api.post("/api/v1/webhooks", json=ASKED, headers=headers["admin"]).json()["about"]["id"] for _ in range(2)]
    with database.write() as session:
        for number, hook in enumerate([ids[0], ids[0], ids[1]]):
            row = WebhookDelivery(id=f"d{number:012x}-{number:010x}", webhook_id=hook, kind="test", created_at=1.0, next_attempt_at=1.0)
            row.state, row.status, row.attempts, row.message = "failed", 500 + number, 3, "answered"
            session.add(row)
    listed = {each["id"]: each["last_delivery"] for each in api.get("/api/v1/webhooks", headers=headers["admin"]).json()}
    assert {hook: (last["status"], last["next_attempt_at"]) for hook, last in listed.items()} == {ids[0]: (501, None), ids[1]: (502, None)}


def test_only_an_admin_may(api, headers, database):
    with database.write() as session:
        known = webhooks.register(session, ASKED["url"], ["job.ended"], Box([KEY]), to_private=False)[0].id
    for scope in ("view", "submit", "worker"):
        for method, path in (("POST", ""), ("GET", ""), ("POST", f"/{known}:test"), ("DELETE", f"/{known}")):
            answer = api.request(
                method, f"/api/v1/webhooks{path}", headers=headers[scope], json=ASKED if method == "POST" and not path else None
            )
            assert answer.status_code == 403
    assert api.get("/api/v1/webhooks").status_code == 401


def test_what_is_refused(api, headers, database):
    changes: list[dict[str, Any]] = [
        {"events": []},
        {"events": ["job.started"]},
        {"url": "http://hooks.example"},
        {"url": 7},
        {"secret": "mine"},
    ]
    for change in (*changes, {"url": "https://127.0.0.1/"}):
        answer = api.post("/api/v1/webhooks", json=ASKED | change, headers=headers["admin"])
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].startswith(f"/{next(iter(change))}")
    with database.read() as session:
        assert session.query(Webhook).count() == 0


def test_without_a_key_nothing_is_registered(settings, database, headers):
    with TestClient(create_app(settings.model_copy(update={"webhook_keys": ""})), base_url="http://127.0.0.1") as api:
        answer = api.post("/api/v1/webhooks", json=ASKED, headers=headers["admin"])
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:parity:problem:conflict")
    assert "PARITY_WEBHOOK_KEYS" in answer.json()["detail"]
    with database.read() as session:
        assert session.query(Webhook).count() == 0
