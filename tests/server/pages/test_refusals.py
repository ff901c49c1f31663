"""What is refused is a page for a browser and JSON for a program, with the same sentence."""

import html

import pytest
from fastapi.testclient import TestClient

from server.settings import Settings
from server.web.access import api_tokens

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/jobs/j-none", 404, "Job 'j-none' does not exist; parity status lists the jobs."),
        ("/jobs/j-none/compare", 404, "Job 'j-none'"),
        ("/baselines/fp8/3", 404, "fp8"),
        ("/nowhere", 404, "<code>/nowhere</code>"),
        ("/baselines/fp8/last", 422, "is 'last'; expected a whole number"),
    ],
)
def test_a_browser_reads_the_sentence_of_the_api(api, address, status, words):
    answer = api.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    page = api.get(address, headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    text = html.unescape(page.text)
    assert words in text
    assert f"<h1>{answer.json()['title']}</h1>" in text
    assert page.headers["X-Request-ID"] in text
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_the_api_answers_json_whoever_asks(api):
    assert (
        api.get("/api/v1/jobs/j-none", headers=BROWSER).headers["content-type"]
        == "application/problem+json"
    )


def test_a_viewer_is_told_who_may_manage_tokens(settings: Settings, database, application):
    with database.write() as session:
        _, viewer = api_tokens.create_token(session, "viewer", ["view"], None)
    app = application(settings.model_copy(update={"require_tokens": True}))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        client.post("/login", data={"token": viewer})
        refused = client.get("/tokens", headers=BROWSER)
    assert refused.status_code == 403
    assert "scope admin; ask an admin." in refused.text
