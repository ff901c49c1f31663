"""What Prometheus scrapes."""

import re
import time

import pytest
from fastapi.testclient import TestClient

from server.database.states import begin_attempt, end_attempt
from server.database.tables import HOUSEKEEPING, Duty, Job, Run, Worker
from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases


def _values(answer):
    assert answer.status_code == 200
    lines = [
        line.rsplit(" ", 1)
        for line in answer.text.splitlines()
        if line and not line.startswith("#")
    ]
    return {name: float(value) for name, value in lines}


def test_an_idle_service_has_every_series(api):
    values = _values(api.get("/metrics"))
    assert values['parity_jobs{state="queued"}'] == 0
    assert values['parity_verdicts{outcome="inconclusive"}'] == 0
    assert values['parity_attempts{state="lost"}'] == 0
    assert values["parity_recorder_lag_seconds"] == 0
    assert values["parity_broker_up"] == 1
    assert values["parity_housekeeper_up"] == 0
    assert values["parity_database_bytes"] > 100_000


def test_a_worker_that_does_the_housekeeping_is_seen(api, database):
    with database.write() as session:
        session.get_one(Duty, HOUSEKEEPING).expires_at = time.time() + 60
    assert _values(api.get("/metrics"))["parity_housekeeper_up"] == 1


def test_states_losses_and_lag_are_counted(api, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=10, state="running")
    with database.write() as session:
        run_id = session.query(Run).where(Run.job_id == job).first().id
        for attempt_number, end in ((1, "lost"), (2, "crashed"), (3, "lost")):
            begin_attempt(session, run_id, attempt_number, None)
            session.flush()
            end_attempt(session, run_id, attempt_number, end)
    values = _values(api.get("/metrics"))
    assert values['parity_jobs{state="running"}'] == 1
    assert values['parity_runs{state="running"}'] == 4
    assert values['parity_attempts{state="lost"}'] == 2
    assert values['parity_attempts{state="crashed"}'] == 1
    assert 0 < values["parity_recorder_lag_seconds"] < 60


def test_a_job_that_gets_no_verdict_is_seen(api, database, recorded):
    values = _values(api.get("/metrics"))
    names = ("parity_unjudged_jobs", "parity_judged_again_jobs", "parity_oldest_unjudged_seconds")
    assert [values[name] for name in names] == [0, 0, 0]
    for tries, age in ((0, 30.0), (2, 900.0)):
        job_id = recorded({"nvfp4": 0.0})
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.judge_tries = tries
            for run in job.runs:
                run.finished_at = time.time() - age
    values = _values(api.get("/metrics"))
    assert (values[names[0]], values[names[1]]) == (2, 1)
    assert 900 <= values[names[2]] < 1000


def test_what_waits_and_who_could_train_it(api, database, recorded):
    waiting = recorded({"nvfp4": 0.0}, done=0, state="queued")
    now = time.time()
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == waiting):
            run.capability, run.created_at = "sm100", now - 100
        for worker_id, capability, beat in (
            ("w1", "cpu", now),
            ("w2", "cpu", now),
            ("w3", "sm90", 1.0),
        ):
            session.add(
                Worker(
                    id=worker_id,
                    name="h:1",
                    capability=capability,
                    slots=2,
                    device={},
                    started_at=1.0,
                    heartbeat_at=beat,
                )
            )
    values = _values(api.get("/metrics"))
    assert values['parity_queued_runs{capability="sm100"}'] == 4
    assert 99 < values['parity_oldest_queued_seconds{capability="sm100"}'] < 200
    assert values['parity_workers_alive{capability="cpu"}'] == 2
    assert values['parity_worker_slots{capability="cpu"}'] == 4
    assert values['parity_workers_alive{capability="sm90"}'] == 0
    # nobody was ever seen, and somebody waits: the alert's case
    assert values['parity_workers_alive{capability="sm100"}'] == 0
    assert values['parity_worker_slots{capability="sm100"}'] == 0
    assert values['parity_queued_runs{capability="cpu"}'] == 0


def test_every_series_that_an_alert_names_is_there(api):
    page = (CHECKOUT / "docs" / "operate.md").read_text()
    named = set(re.findall(r"parity_[a-z_]+", page.split("## What to watch")[1].split("\n## ")[0]))
    assert len(named) >= 8
    api.get("/healthz")
    text = api.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert not [
        name
        for name in named
        if kinds.get(re.sub("_(count|bucket)$", "", name)) not in ("counter", "gauge", "histogram")
    ]


def test_requests_are_counted_by_route_and_status(api, database, recorded):
    job_id = recorded({"nvfp4": 0.0}, steps=60)
    route = 'method="GET",route="/api/v1/jobs/{job_id}"'
    before = _values(api.get("/metrics"))
    assert [api.get(f"/api/v1/jobs/{name}").status_code for name in (job_id, job_id, "j-none")] == [
        200,
        200,
        404,
    ]
    assert [api.request("FORGED", path).status_code for path in ("/nowhere", "/api/v1/jobs")] == [
        404,
        405,
    ]
    values = _values(api.get("/metrics"))

    def more(labels):
        name = f"parity_request_seconds_count{{{labels}}}"
        return values[name] - before.get(name, 0)

    assert more(f'{route},status="2xx"') == 2
    assert more(f'{route},status="4xx"') == 1
    text = api.get("/metrics").text
    assert job_id not in text
    assert "FORGED" not in text


def test_a_broker_that_is_away_is_a_value_and_no_error(settings, database, application):
    away = settings.model_copy(update={"redis_url": "redis+socket:///nowhere/redis.sock"})
    with TestClient(application(away), base_url="http://127.0.0.1") as client:
        assert _values(client.get("/metrics"))["parity_broker_up"] == 0
