"""Health, readiness, the schema of job files and the examples that it must accept."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from alembic import command
from fastapi.testclient import TestClient

from server.database.tables import Worker
from server.readiness import alembic_config
from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases

EXAMPLES = sorted((CHECKOUT / "examples").glob("*.yaml"))


def test_healthy_and_ready(api):
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"status": "ok", "degraded": []}


def test_without_its_broker_the_service_is_ready_and_says_what_it_lacks(
    settings, database, application
):
    away = settings.model_copy(update={"redis_url": "redis+socket:///nowhere/redis.sock"})
    with TestClient(application(away), base_url="http://127.0.0.1") as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        (sentence,) = answer.json()["degraded"]
        assert "broker" in sentence
        assert "/nowhere" not in sentence
        assert "parity_degraded 1.0" in client.get("/metrics").text


def test_not_ready_without_migrations(api, settings):
    command.downgrade(alembic_config(settings.database), "base")
    answer = api.get("/readyz")
    assert answer.status_code == 503
    assert "alembic upgrade head" in answer.json()["detail"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_fits_the_schema_and_is_accepted(api, path: Path):
    content = yaml.safe_load(path.read_text())
    jsonschema.validate(content, api.get("/api/v1/schemas/parity.json").json())
    answer = api.post("/api/v1/jobs", json={key: content[key] for key in ("job", "policy")})
    assert answer.status_code == 202, answer.text


def test_the_schema_refuses_what_the_server_refuses(api):
    schema = api.get("/api/v1/schemas/parity.json").json()
    content = yaml.safe_load(EXAMPLES[0].read_text())
    for change in (
        {"jobs": {}},
        {"job": content["job"] | {"typo": 1}},
        {"policy": {"margn": "1%"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(content | change, schema)


def test_workers_are_listed(api, database):
    with database.write() as session:
        session.add(
            Worker(
                id="w1",
                name="host:1",
                capability="cpu",
                slots=2,
                device={"device_class": "cpu"},
                started_at=1.0,
                heartbeat_at=1.0,
            )
        )
    (worker,) = api.get("/api/v1/workers").json()
    assert (worker["live"], worker["stopped"]) == (False, False)
    assert worker["started_at"] == "1970-01-01T00:00:01.000Z"
    assert "silent for" in api.get("/workers").text
    with database.write() as session:
        session.get_one(Worker, "w1").heartbeat_at = 0.0  # it has signed off
    (worker,) = api.get("/api/v1/workers").json()
    assert (worker["live"], worker["stopped"]) == (False, True)
    assert "silent for" not in api.get("/workers").text


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
