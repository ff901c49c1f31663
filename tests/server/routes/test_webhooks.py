"""Webhooks over the whole application, for admins alone; the secret is told once."""

import json
from typing import Any

import pytest

from server.database.tables import Webhook, WebhookDelivery
from server.jobs import webhooks
from server.web import auth

ASKED: dict[str, Any] = {"url": "https://hooks.example/in/T0K3N", "events": ["verdict.given", "job.ended"]}


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


@pytest.fixture
def headers(database):
    """The headers of a token by its scope."""
    with database.write() as session:
        return {scope: {"Authorization": f"Bearer {auth.create_token(session, 'mine', [scope], 1)[1]}"} for scope in auth.SCOPES}


@pytest.mark.both_databases
def test_the_life_of_a_webhook(api, headers, database, caplog):
    admin = headers["admin"]
    made = api.post("/api/v1/webhooks", json=ASKED, headers=admin)
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    secret, about = made.json()["secret"], made.json()["about"]
    with database.read() as session:
        assert session.query(Webhook).one().secret == secret
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
        known = webhooks.register(session, ASKED["url"], ["job.ended"], to_private=False).id
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
