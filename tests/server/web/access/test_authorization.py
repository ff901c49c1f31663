"""Tokens, sessions and limits over the whole application."""

import threading
import time

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from server.database.sessions import Database
from server.database.tables import BrowserSession, Token, new_id
from server.web.access import api_tokens, browser_sessions, principals

pytestmark = pytest.mark.both_databases


@pytest.fixture
def closed(settings, database, application):
    """The application as it is on an address that others can reach."""
    strict = settings.model_copy(
        update={"require_tokens": True, "requests_per_minute": 30, "max_body_bytes": 20_000}
    )
    with TestClient(application(strict)) as client:
        yield client


@pytest.fixture
def make_token(database):
    def make(*scopes, days=None):
        with database.write() as session:
            row, text = api_tokens.create_token(session, "mine", scopes, days)
            session.flush()
            return row.id, {"Authorization": f"Bearer {text}"}

    return make


def test_without_a_token_nothing_but_health(closed, request_body):
    for answer in (
        closed.get("/api/v1/jobs"),
        closed.post("/api/v1/jobs", json=request_body),
        closed.get("/api/v1/workers"),
    ):
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
    assert closed.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("scope", "list_status", "submit_status", "admin_status"),
    [
        ("view", 200, 403, 403),
        ("submit", 200, 202, 403),
        ("admin", 200, 202, 200),
        ("worker", 403, 403, 403),
    ],
)
def test_scopes(closed, make_token, request_body, scope, list_status, submit_status, admin_status):
    _, headers = make_token(scope)
    assert closed.get("/api/v1/jobs", headers=headers).status_code == list_status
    assert (
        closed.post("/api/v1/jobs", json=request_body, headers=headers).status_code == submit_status
    )
    assert closed.get("/api/v1/tokens", headers=headers).status_code == admin_status
    imported = closed.post(
        "/api/v1/noise-tables", json={"table": "none"}, headers=headers
    ).status_code
    assert imported == (403 if submit_status == 403 else 422)


def test_a_secret_is_stored_nowhere(database, make_token, settings):
    _, headers = make_token("view")
    secret = headers["Authorization"].split("_", 2)[2]
    with database.read() as session:
        (row,) = session.query(Token).all()
        assert secret not in repr(vars(row))
        assert len(row.digest) == 64


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + "x",
        lambda text: text.replace("parity_", "other_"),
        lambda _: "Bearer ",
        lambda _: "Bearer parity_t_",
    ],
)
def test_a_wrong_token_is_nobody(closed, make_token, spoil):
    _, headers = make_token("view")
    assert (
        closed.get(
            "/api/v1/jobs", headers={"Authorization": spoil(headers["Authorization"])}
        ).status_code
        == 401
    )


def test_an_expired_and_a_revoked_token_are_nobody(closed, database, make_token):
    expired, old = make_token("view", days=1)
    with database.write() as session:
        session.get_one(Token, expired).expires_at = time.time() - 1
    assert closed.get("/api/v1/jobs", headers=old).status_code == 401
    _, admin = make_token("admin")
    victim, headers = make_token("view")
    assert closed.get("/api/v1/jobs", headers=headers).status_code == 200
    for _ in range(2):
        assert (
            closed.post(f"/api/v1/tokens/{victim}:revoke", headers=admin).json()["revoked_at"]
            is not None
        )
    assert closed.get("/api/v1/jobs", headers=headers).status_code == 401
    assert closed.post("/api/v1/tokens/t-none:revoke", headers=admin).status_code == 404


def test_a_token_made_over_rest_works_and_is_shown_once(closed, make_token):
    _, admin = make_token("admin")
    made = closed.post(
        "/api/v1/tokens", json={"name": "ci", "scopes": ["submit"], "days": 30}, headers=admin
    )
    assert made.status_code == 201
    assert (
        closed.get(
            "/api/v1/jobs", headers={"Authorization": f"Bearer {made.json()['token']}"}
        ).status_code
        == 200
    )
    assert (
        made.json()["token"].split("_", 2)[2]
        not in closed.get("/api/v1/tokens", headers=admin).text
    )
    for bad in (
        {"name": "", "scopes": ["view"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": ["view"], "days": -1},
    ):
        assert closed.post("/api/v1/tokens", json=bad, headers=admin).status_code == 422


def test_the_last_use_is_noted(closed, database, make_token):
    token_id, headers = make_token("view")
    closed.get("/api/v1/jobs", headers=headers)
    with database.read() as session:
        assert session.get_one(Token, token_id).last_used_at == pytest.approx(time.time(), abs=5)


def test_a_browser_logs_in_and_out(closed, database, make_token):
    _, headers = make_token("view")
    text = headers["Authorization"].removeprefix("Bearer ")
    assert closed.get("/jobs", follow_redirects=False).headers["location"] == "/login?next=/jobs"
    assert 'role="alert"' in closed.post("/login", data={"token": "parity_x_y"}).text
    answer = closed.post(
        "/login", data={"token": text, "following": "/workers"}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/workers")
    assert {"HttpOnly", "SameSite=strict"} <= {
        part.strip() for part in answer.headers["set-cookie"].split(";")
    }
    assert "Log out" in closed.get("/jobs").text
    cookie = closed.cookies[browser_sessions.COOKIE]
    with database.read() as session:
        assert cookie not in [row.digest for row in session.query(BrowserSession)]
    closed.post("/logout")
    closed.cookies.set(browser_sessions.COOKIE, cookie)
    assert closed.get("/jobs", follow_redirects=False).status_code == 303


@pytest.mark.parametrize(
    "elsewhere", ["https://elsewhere.example", "//elsewhere.example", "/\\\\elsewhere.example"]
)
def test_a_login_leads_nowhere_else(closed, make_token, elsewhere):
    _, headers = make_token("view")
    text = headers["Authorization"].removeprefix("Bearer ")
    assert (
        closed.post(
            "/login", data={"token": text, "following": elsewhere}, follow_redirects=False
        ).headers["location"]
        == "/jobs"
    )


def test_requests_are_limited_by_token(closed, make_token):
    _, busy = make_token("view")
    _, calm = make_token("view")
    # a new minute may begin meanwhile
    answers = [closed.get("/api/v1/jobs", headers=busy) for _ in range(61)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert 1 <= int(refused[0].headers["Retry-After"]) <= 60
    assert refused[0].headers["Retry-After"] == refused[0].headers["RateLimit-Reset"]
    left = closed.get("/api/v1/jobs", headers=calm)
    assert (
        left.status_code,
        left.headers["RateLimit-Limit"],
        left.headers["RateLimit-Remaining"],
    ) == (200, "30", "29")
    assert "RateLimit-Limit" not in closed.get("/healthz").headers


def test_a_large_body_is_refused_before_it_is_read(closed, make_token):
    _, headers = make_token("submit")

    def endless():
        for _ in range(100):
            yield b" " * 1000

    for body in (b" " * 30_000, endless()):
        answer = closed.post(
            "/api/v1/jobs", content=body, headers=headers | {"content-type": "application/json"}
        )
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_is_trusted(settings, host):
    assert not principals.tokens_required(settings.model_copy(update={"host": host}))


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "db"])  # noqa: S104
def test_every_other_address_asks_for_a_token(settings, host):
    assert principals.tokens_required(settings.model_copy(update={"host": host}))


def test_the_same_key_gives_the_same_job(closed, make_token, request_body):
    _, headers = make_token("submit")
    keyed = headers | {"Idempotency-Key": "abc"}
    one, again = (
        closed.post("/api/v1/jobs", json=request_body, headers=keyed).json() for _ in range(2)
    )
    assert one["id"] == again["id"]
    assert len(closed.get("/api/v1/jobs", headers=headers).json()["items"]) == 1
    other = closed.post(
        "/api/v1/jobs", json=request_body | {"policy": {"margin": "2%"}}, headers=keyed
    )
    assert other.status_code == 422
    assert one["id"] in other.json()["detail"]
    _, stranger = make_token("submit")
    mine = request_body | {"policy": {"margin": "3%", "question": "a stranger's"}}
    assert (
        closed.post(
            "/api/v1/jobs", json=mine, headers=stranger | {"Idempotency-Key": "abc"}
        ).json()["id"]
        != one["id"]
    )


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs:gate"])
def test_the_same_key_sent_at_once_gives_one_job(closed, make_token, request_body, path):
    _, headers = make_token("submit")
    body = request_body | ({"fresh": True} if "gate" in path else {})
    at_once, answers = threading.Barrier(4), []

    def submit():
        at_once.wait()
        answers.append(closed.post(path, json=body, headers=headers | {"Idempotency-Key": "abc"}))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {200, 202}, [
        answer.text for answer in answers
    ]
    assert len(closed.get("/api/v1/jobs", headers=headers).json()["items"]) == 1


def test_priority_above_0_takes_an_admin_and_reaches_the_runs(closed, make_token, request_body):
    _, submit = make_token("submit")
    _, admin = make_token("admin")
    refused = closed.post("/api/v1/jobs", json=request_body | {"priority": 1}, headers=submit)
    assert refused.status_code == 403
    assert "scope admin" in refused.json()["detail"]
    for headers, priority in ((submit, -5), (submit, 0), (admin, 7)):
        body = request_body | {
            "priority": priority,
            "policy": {"margin": "1%", "question": f"priority {priority}"},
        }
        made = closed.post("/api/v1/jobs", json=body, headers=headers).json()
        assert {run["priority"] for arm in made["arms"] for run in arm["runs"]} == {priority}
    assert (
        closed.post(
            "/api/v1/jobs", json=request_body | {"priority": 101}, headers=admin
        ).status_code
        == 422
    )


def test_a_full_disk_keeps_nobody_from_reading(closed, database, make_token, monkeypatch):
    _, headers = make_token("view")
    write = Database.write

    def full(self):
        raise OperationalError("update tokens", {}, Exception("database or disk is full"))

    monkeypatch.setattr(Database, "write", full)
    assert closed.get("/api/v1/jobs", headers=headers).status_code == 200
    monkeypatch.setattr(Database, "write", write)
    assert closed.get("/api/v1/jobs", headers=headers).status_code == 200
    with database.read() as session:
        assert session.scalars(select(Token.last_used_at)).one() is not None


def test_who_has_no_token_cannot_wait_for_the_database_to_write(closed, database, make_token):
    """On SQLite there is one writer at a time; strangers at the door must not queue for it."""
    with database.write() as session:
        api_tokens.create_token(session, "another", ["view"], None)
        session.flush()
        assert closed.post("/login", data={"token": f"parity_{new_id('t')}_x"}).status_code == 401
    _, headers = make_token("view")
    token = headers["Authorization"].partition(" ")[2]
    assert closed.post("/login", data={"token": token}, follow_redirects=False).status_code == 303
