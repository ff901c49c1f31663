"""Health and readiness."""

import pytest
from alembic import command
from fastapi.testclient import TestClient

from server.readiness import alembic_config

pytestmark = pytest.mark.both_databases


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
