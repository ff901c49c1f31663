"""Keys of a query: a misspelt one is refused with those that are known, instead of answering
another question.
"""

import pytest
from fastapi.testclient import TestClient

pytestmark = pytest.mark.both_databases


def test_an_unknown_key_is_refused_with_the_known_ones(api):
    answer = api.get("/api/v1/jobs", params={"stat": "pass"})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["pointer"] == "/query/stat"
    assert "'stat'" in problem["detail"]
    assert " status," in problem["detail"]
    assert " limit" in problem["detail"]


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/api/v1/workers", "/api/v1/schemas/parity.json"]
)
def test_a_route_without_a_query_says_so(api, path):
    answer = api.get(path, params={"token": "x"})
    assert (answer.status_code, "expected no query at all" in answer.json()["detail"]) == (
        422,
        True,
    )
    assert api.get(path).status_code == 200


def test_a_write_with_an_unknown_key_writes_nothing(api, request_body):
    assert api.post("/api/v1/jobs?dry_run=1", json=request_body).status_code == 422
    assert api.get("/api/v1/jobs").json()["items"] == []


def test_every_known_key_of_every_route_is_known(api):
    """Also those of dependencies and of models, and by the name that is sent."""
    paths = api.get("/api/v1/openapi.json").json()["paths"]
    tried = 0
    for path, methods in paths.items():
        known = {
            each["name"]
            for each in methods.get("get", {}).get("parameters", ())
            if each["in"] == "query"
        }
        for key in known:
            answer = api.get(path.replace("{", "").replace("}", ""), params={key: "1"})
            assert "is not known here" not in answer.text, (path, key)
            tried += 1
    assert tried > 50


def test_an_unauthorized_sender_learns_no_keys(api_settings, database, application):
    with TestClient(
        application(api_settings.model_copy(update={"require_tokens": True})),
        base_url="http://127.0.0.1",
    ) as client:
        assert client.get("/api/v1/jobs", params={"stat": "1"}).status_code == 401
