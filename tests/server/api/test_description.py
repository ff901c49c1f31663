"""The description of the API has every route."""

import json

import pytest

pytestmark = pytest.mark.both_databases


def test_openapi_describes_every_route(api):
    document = api.get("/api/v1/openapi.json").json()
    assert {"/api/v1/jobs", "/api/v1/jobs/{job_id}/events", "/api/v1/runs/{run_id}/metrics"} <= set(
        document["paths"]
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path} has no description"
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (
                        f"{method} {path} {status}"
                    )
    assert "HTTPValidationError" not in json.dumps(document)
    assert {"type", "title", "status", "detail"} <= set(
        document["components"]["schemas"]["Problem"]["required"]
    )
