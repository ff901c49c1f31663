"""Rows that matter for a while go, and what is in use stays."""

import time

import pytest
from sqlalchemy import select

from server.database import events
from server.database.tables import (
    Attempt,
    BrowserSession,
    Event,
    IdempotencyKey,
    Job,
    Token,
    WebhookDelivery,
    Worker,
)
from server.jobs.conclude import conclude
from server.retention import rows

pytestmark = pytest.mark.both_databases

OLD = 40 * 86_400


def _numbers(database, job_id):
    with database.read() as session:
        return [event.sequence for event in events.after(session, job_id, 0)]


def _emit(database, job_id, count):
    with database.write() as session:
        for _ in range(count):
            events.emit(session, job_id, "run", {})


def test_all_but_the_last_event_of_an_old_job_go(
    database, kept, recorded, age, deleted, monkeypatch
):
    monkeypatch.setattr(rows, "ROWS_AT_ONCE", 4)
    old, young = recorded({"nvfp4": 0.0}), recorded({"nvfp4": 0.001})
    for job_id in (old, young):
        _emit(database, job_id, 10)
        conclude(database, job_id)
    age(old)
    last, kept_numbers = _numbers(database, old)[-1], _numbers(database, young)
    batches = [rows_ for what, _, rows_ in deleted(kept) if what == "events"]
    assert sum(batches) == last - 1
    assert max(batches) <= 4
    assert _numbers(database, old) == [last]
    assert _numbers(database, young) == kept_numbers
    assert deleted(kept) == []


def test_an_open_job_loses_old_events_only(database, kept, recorded, age, deleted):
    job_id = recorded({"nvfp4": 0.0}, done=10, state="running")
    _emit(database, job_id, 4)
    age(job_id)
    _emit(database, job_id, 3)
    numbers = _numbers(database, job_id)
    deleted(kept)
    assert _numbers(database, job_id) == numbers[-3:]


def test_keys_and_logins_end(database, settings, recorded, deleted):
    job_id, now = recorded({"nvfp4": 0.0}), time.time()
    with database.write() as session:
        for key, created_at in (("old", now - OLD), ("new", now)):
            session.add(
                IdempotencyKey(
                    principal="me", key=key, body_digest="", job_id=job_id, created_at=created_at
                )
            )
        token = Token(id="t1", principal="t1", name="me", digest="", scopes=[], created_at=now)
        session.add(token)
        session.flush()
        for digest, expires_at in (("over", now - 1), ("valid", now + 60)):
            session.add(BrowserSession(digest=digest, token_id=token.id, expires_at=expires_at))
    assert deleted(settings) == [("keys", "", 1), ("sessions", "", 1)]
    with database.read() as session:
        assert [
            *session.scalars(select(IdempotencyKey.key)),
            *session.scalars(select(BrowserSession.digest)),
        ] == ["new", "valid"]


def test_ended_deliveries_go(database, settings, recorded, deleted):
    job, now = recorded({"nvfp4": 0.0}), time.time()
    with database.write() as session:
        for delivery, state, age in (
            ("d1", "delivered", OLD),
            ("d2", "failed", OLD),
            ("d3", "pending", OLD),
            ("d4", "delivered", 0.0),
        ):
            about = {"webhook_id": "h1", "kind": "job.ended", "job_id": job, "state": state}
            session.add(
                WebhookDelivery(id=delivery, created_at=now - age, next_attempt_at=now, **about)
            )
    assert deleted(settings) == [("deliveries", "", 2)]
    with database.read() as session:
        assert [*session.scalars(select(WebhookDelivery.id).order_by(WebhookDelivery.id))] == [
            "d3",
            "d4",
        ]


def test_workers_that_are_gone_go_unless_something_names_them(
    database, settings, recorded, deleted
):
    job_id, now = recorded({"nvfp4": 0.0}), time.time()
    with database.write() as session:
        for number, (started, beat) in enumerate(
            [(OLD, OLD), (OLD, OLD), (OLD, 0), (0, now), (OLD, now)]
        ):
            device = {"device_class": "cpu:test", "threads_per_run": 1}
            row = Worker(
                id=f"w{number}",
                name="a",
                capability="cpu",
                slots=1,
                device=device,
                started_at=now - started,
                heartbeat_at=now - beat,
            )
            session.add(row)
        run = session.get_one(Job, job_id).runs[0]
        session.add(
            Attempt(
                run_id=run.id,
                attempt_number=1,
                state="finished",
                worker_id="w1",
                started_at=now - OLD,
            )
        )
    # w1 trained a run, w2 still beats, w3 has just begun; w4 signed off long ago, but is the newest
    # of its kind.
    assert deleted(settings) == [("workers", "", 1)]
    with database.read() as session:
        assert [*session.scalars(select(Worker.id).order_by(Worker.id))] == ["w1", "w2", "w3", "w4"]
        assert session.scalar(select(Event.sequence).limit(1)) == 1
