"""Around every request: headers, ids, one line in the log, and no writes of other sites' pages."""

import contextlib
import logging
import re
import threading

import httpx2
import pytest
from fastapi.testclient import TestClient

from server.web import limits
from server.web.access import authorization, principals
from server.web.access.principals import LOCAL
from tests.server.conftest import people_of

HEADERS = (
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "Referrer-Policy",
    "X-Request-ID",
)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/jobs", 200),
        ("GET", "/static/base.css", None),
        ("GET", "/static/../settings.py", 404),
        ("GET", "/static/%2e%2e/%2e%2e/settings.py", 404),
        ("GET", "/static/..%2f..%2fsettings.py", 404),
        ("GET", "/static//etc/passwd", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/jobs/../../etc", 404),
        ("PATCH", "/api/v1/jobs", 405),
        ("POST", "/api/v1/jobs", 422),
        ("GET", "/metrics", 200),
    ],
)
def test_every_answer_has_the_headers(api, method, path, status):
    answer = api.request(method, path)
    assert status is None or answer.status_code == status
    assert all(answer.headers.get(name) for name in HEADERS)


def test_an_error_of_ours_is_a_problem_with_its_id_and_without_its_inside(
    api, request_body, monkeypatch, caplog
):
    def broken(*_args, **_options):
        raise RuntimeError("the secret inside")

    monkeypatch.setattr("server.api.jobs.job_list", broken)
    api.post(
        "/api/v1/jobs",
        json={
            "job": {
                "name": "x",
                "baseline": {"recipe": "bf16"},
                "candidates": [{"recipe": "nvfp4"}],
            },
            "policy": {"margin": "1%"},
        },
    )
    answer = api.get("/api/v1/jobs", headers={"X-Request-ID": "mine-1"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["X-Request-ID"] == "mine-1"
    assert "secret inside" not in answer.text
    assert "secret inside" in caplog.text
    assert all(answer.headers.get(name) for name in HEADERS)


@pytest.mark.parametrize("given", ["", "a b", "x" * 101, 'evil" level="error', "ä"])
def test_an_id_that_could_forge_a_line_is_replaced(api, given):
    made = api.get("/healthz", headers={"X-Request-ID": given.encode()}).headers["X-Request-ID"]
    assert len(made) == 16
    assert made != given


def test_a_request_is_one_line_without_its_query_and_headers(api, caplog):
    with caplog.at_level(logging.INFO, logger="server.web.middleware"):
        api.get(
            "/api/v1/jobs?cursor=secret-in-query",
            headers={"Authorization": "Bearer secret-in-header"},
        )
        api.get("/healthz")
    (line,) = [record for record in caplog.records if record.name == "server.web.middleware"]
    assert (line.method, line.path, line.status) == ("GET", "/api/v1/jobs", 422)
    assert "secret" not in str(vars(line))


@pytest.mark.parametrize(
    "name_and_value",
    [
        "Origin: https://elsewhere.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/login", "/logout"])
def test_another_sites_page_changes_nothing(api, path, name_and_value):
    headers = dict([name_and_value.split(": ")])
    assert api.post(path, headers=headers).status_code == 403
    assert api.get("/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("reached", "status"),
    [("10.0.0.7", 403), ("::", 403), ("127.0.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200)],
)
def test_without_tokens_only_loopback_is_answered_whatever_the_server_listens_on(
    settings, database, reached, status, application
):
    """`uvicorn --host 0.0.0.0` without PARITY_HOST; the Host header is the caller's to choose."""
    app = application(settings)

    async def reached_at(scope, receive, send):
        await app(
            scope | ({"server": (reached, 8321)} if scope["type"] == "http" else {}), receive, send
        )

    with TestClient(reached_at, base_url="http://localhost") as client:
        answer = client.get("/api/v1/jobs")
    assert answer.status_code == status
    if status == 403:
        assert f"arrived at {reached}, expected a loopback address" in answer.json()["detail"]


def test_405_names_the_methods_of_the_address(api):
    assert api.patch("/api/v1/jobs").headers["Allow"] == "GET, POST"
    assert api.get("/api/v1/evaluations").headers["Allow"] == "POST"


def test_a_log_line_names_the_principal_and_no_token(api_settings, database, application, caplog):
    caplog.set_level("INFO", "server.web.middleware")
    people = people_of(database, {"ann": ["view"]})
    guarded = api_settings.model_copy(update={"require_tokens": True})
    with TestClient(application(guarded), base_url="http://127.0.0.1") as client:
        client.get("/api/v1/jobs", headers=people["ann"])
        client.get("/api/v1/jobs")
        client.post("/api/v1/jobs", headers=people["ann"], json={})
        client.get("/jobs", headers=people["ann"])
    known, unknown, refused, page = [
        record for record in caplog.records if record.getMessage() == "request"
    ]
    assert (refused.status, page.status) == (403, 200)
    assert known.principal == refused.principal == page.principal == people["ann id"]
    assert not hasattr(unknown, "principal")
    assert people["ann"]["Authorization"].split()[1] not in str(known.__dict__)


def test_when_too_many_wait_a_request_is_refused_before_it_is_looked_at(server, monkeypatch):
    """All threads are busy for as long as the test wants, and one request waits for them."""
    goes_on = threading.Event()
    monkeypatch.setattr(
        "server.web.access.authorization.principal", lambda *_: goes_on.wait(60) and LOCAL
    )
    monkeypatch.setattr(limits, "MOST_WAITING", 1)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(httpx2.get(f"{server.address}/api/v1/jobs", timeout=90).status_code)

    waiting = [threading.Thread(target=ask) for _ in range(limits.THREADS + 1)]
    for each in waiting:
        each.start()
    refused = None
    while refused is None:
        with contextlib.suppress(httpx2.TimeoutException):  # it waits too, and is soon too many
            refused = httpx2.post(f"{server.address}/api/v1/jobs", content=b"{" * 2000, timeout=1)
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:parity:problem:busy")
    assert int(refused.headers["Retry-After"]) > 0
    assert [
        httpx2.get(server.address + path, timeout=30).status_code
        for path in ("/healthz", "/readyz")
    ] == [200, 200]
    goes_on.set()
    for each in waiting:
        each.join()
    assert statuses.count(200) >= limits.THREADS
    assert set(statuses) <= {200, 503}
    metrics = httpx2.get(f"{server.address}/metrics").text
    assert float(re.search(r"^parity_shed_requests_total (\S+)", metrics, re.MULTILINE)[1]) >= 1


def test_a_request_waits_for_a_thread_for_a_limited_time_and_is_then_left_alone(api, monkeypatch):
    monkeypatch.setattr(limits, "THREAD_SECONDS", 0.1)
    began, goes_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> principals.Principal:
        began.release()
        assert goes_on.wait(60)
        return LOCAL

    monkeypatch.setattr(authorization, "principal", slow)
    statuses: list[int] = []
    asked = [
        threading.Thread(target=lambda: statuses.append(api.get("/api/v1/jobs").status_code))
        for _ in range(limits.THREADS)
    ]
    for each in asked:
        each.start()
    for _ in asked:
        assert began.acquire(timeout=60)
    for path in ("/api/v1/jobs", "/jobs"):
        refused = api.get(path)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:parity:problem:busy")
    goes_on.set()
    for each in asked:
        each.join()
    assert statuses == [200] * limits.THREADS
