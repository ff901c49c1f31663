"""The registered workers, over REST and on their page."""

import pytest

from server.database.tables import Worker

pytestmark = pytest.mark.both_databases


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
