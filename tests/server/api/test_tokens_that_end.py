"""A token that is revoked ends what it began: sessions of browsers, and answers that go on for
hours.
"""

import hmac
import time

import httpx2
import pytest

from server.database import events
from server.database.tables import BrowserSession, Token
from server.web.access import api_tokens

pytestmark = pytest.mark.both_databases


@pytest.fixture
def settings(settings):
    return settings.model_copy(update={"require_tokens": True})


@pytest.fixture
def token(database):
    with database.write() as session:
        row, text = api_tokens.create_token(session, "mine", ["view"], 30)
        session.flush()
        return row.id, text


def _log_in(api, text):
    assert api.post("/login", data={"token": text}, follow_redirects=False).status_code == 303
    assert api.get("/api/v1/jobs").status_code == 200


def test_a_stream_ends_with_its_token(served, database, recorded, token, monkeypatch):
    monkeypatch.setattr("server.api.events._KNOWN_SECONDS", 0.0)
    job, (token_id, text) = recorded({"nvfp4": 0.0}, done=0, state="running"), token
    headers, ids = {"Authorization": f"Bearer {text}"}, []
    with httpx2.stream(
        "GET", f"{served}/api/v1/jobs/{job}/events", headers=headers, timeout=20
    ) as stream:
        for line in stream.iter_lines():
            if line.startswith("id:"):
                ids.append(int(line[3:]))
                with database.write() as session:
                    events.emit(session, job, "metric", {})
                    if len(ids) == 2:
                        api_tokens.revoke_token(session, token_id)
    assert ids == [1, 2]  # the third was written with the revocation, and the job goes on
    assert httpx2.get(f"{served}/api/v1/jobs/{job}/events", headers=headers).status_code == 401


def test_a_session_ends_with_its_token_and_by_itself(api, database, token):
    token_id, text = token
    _log_in(api, text)

    def status_after(change):
        with database.write() as session:
            change(session, session.query(BrowserSession).one(), session.get_one(Token, token_id))
        return api.get("/api/v1/jobs").status_code

    def revoked(session, *_):
        api_tokens.revoke_token(session, token_id)
        assert session.query(BrowserSession).count() == 0

    assert status_after(lambda _, row, __: setattr(row, "expires_at", time.time() - 1)) == 401
    assert status_after(lambda _, row, __: setattr(row, "expires_at", time.time() + 60)) == 200
    assert status_after(lambda _, __, owner: setattr(owner, "expires_at", time.time() - 1)) == 401
    assert status_after(lambda _, __, owner: setattr(owner, "expires_at", None)) == 200
    assert status_after(revoked) == 401
    assert api.post("/login", data={"token": text}).status_code == 401


def test_a_session_writes_from_our_own_pages_alone(api, database):
    """The cookie proves who it is; where the request comes from is proved by Origin or
    Sec-Fetch-Site.
    """
    with database.write() as session:
        _, text = api_tokens.create_token(session, "admin", ["admin"], None)
    _log_in(api, text)
    body = {"name": "x", "scopes": ["view"]}
    for header in (
        {"Origin": "https://elsewhere.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        for path, content in (
            ("/api/v1/tokens", {"json": body}),
            ("/tokens", {"data": body}),
            ("/logout", {}),
        ):
            assert api.post(path, headers=header, **content).status_code == 403
    assert (
        api.post(
            "/api/v1/tokens",
            headers={"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"},
            json=body,
        ).status_code
        == 201
    )


def test_a_secret_is_compared_in_constant_time_whether_or_not_there_is_such_a_token(
    api, token, monkeypatch
):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(
        hmac,
        "compare_digest",
        lambda one, other: compared.append((one, other)) or compare(one, other),
    )
    _, text = token
    stranger = f"parity_t{'0' * 12}-{'0' * 10}_secret"
    for sent, status in ((text, 200), (text[:-1], 401), (stranger, 401), ("nonsense", 401)):
        assert (
            api.get("/api/v1/jobs", headers={"Authorization": f"Bearer {sent}"}).status_code
            == status
        )
    # digests, of one length
    assert [len(one) == len(other) == 64 for one, other in compared] == [True] * 4
