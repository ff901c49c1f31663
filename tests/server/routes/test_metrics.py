"""What Prometheus scrapes."""

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.database.models import Run

pytestmark = pytest.mark.both_databases


def _values(answer):
    assert answer.status_code == 200
    lines = [line.rsplit(" ", 1) for line in answer.text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_an_idle_service_has_every_series(api):
    values = _values(api.get("/metrics"))
    assert values['parity_jobs{state="queued"}'] == 0
    assert values['parity_verdicts{state="inconclusive"}'] == 0
    assert values["parity_recorder_lag_seconds"] == 0
    assert values["parity_broker_up"] == 1


def test_states_crashes_and_lag_are_counted(api, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=10, state="running")
    with database.write() as session:
        session.query(Run).where(Run.job_id == job).first().crashes = 2
    values = _values(api.get("/metrics"))
    assert values['parity_jobs{state="running"}'] == 1
    assert values['parity_runs{state="running"}'] == 4
    assert values["parity_run_crashes"] == 2
    assert 0 < values["parity_recorder_lag_seconds"] < 60


def test_a_broker_that_is_away_is_a_value_and_no_error(settings, database):
    away = settings.model_copy(update={"redis_url": "redis+socket:///nowhere/redis.sock"})
    with TestClient(create_app(away), base_url="http://127.0.0.1") as client:
        assert _values(client.get("/metrics"))["parity_broker_up"] == 0
