"""Who is told of what: deliveries that are as true as their events."""

import time

import pytest

from server import deliveries
from server.database.tables import WebhookDelivery, new_id
from server.jobs.conclude import conclude
from server.jobs.lifecycle import cancel_job

both_databases = pytest.mark.both_databases


@pytest.fixture
def register(database):
    """A function that makes a webhook of these events, in addition to those that are there;
    its id.
    """
    known = {}

    def add(*events):
        known[f"h{len(known)}"] = events
        with database.write() as session:
            deliveries.register(session, known)
        return [*known][-1]

    return add


@pytest.fixture
def delivery(database, recorded):
    """A delivery that is due now, to `h0`."""
    job, now = recorded({"nvfp4": 0.0}, steps=60), time.time()
    with database.write() as session:
        made = WebhookDelivery(
            id=new_id("d"),
            webhook_id="h0",
            kind="job.ended",
            job_id=job,
            created_at=now,
            next_attempt_at=now,
        )
        session.add(made)
    return made.id


def _deliveries(database):
    with database.read() as session:
        return [
            (row.webhook_id, row.kind, row.job_id)
            for row in session.query(WebhookDelivery).order_by(WebhookDelivery.kind)
        ]


@both_databases
def test_each_webhook_receives_its_events(database, recorded, register):
    both, verdicts = register("job.ended", "verdict.given"), register("verdict.given")
    job = recorded({"nvfp4": 0.0}, steps=60)
    for _ in range(2):
        conclude(database, job)
    assert sorted(_deliveries(database)) == sorted(
        [(both, "job.ended", job), (both, "verdict.given", job), (verdicts, "verdict.given", job)]
    )


@both_databases
def test_a_job_without_verdicts_has_ended_and_no_more(database, recorded, register):
    hook = register("job.ended", "verdict.given")
    failed, cancelled = (
        recorded({"nvfp4": 0.0}, steps=60, state="failed"),
        recorded({"nvfp4": 0.0}, steps=60, state="running"),
    )
    conclude(database, failed)
    with database.write() as session:
        assert cancel_job(session, cancelled)
    with database.write() as session:
        assert not cancel_job(session, cancelled)
    assert sorted(_deliveries(database)) == sorted(
        (hook, "job.ended", job) for job in (failed, cancelled)
    )


@both_databases
def test_an_event_that_is_rolled_back_is_sent_to_nobody(database, recorded, register):
    register("job.ended")
    job = recorded({"nvfp4": 0.0}, steps=60, state="running")
    with database.read() as session:
        assert cancel_job(session, job)
        session.flush()
        assert session.query(WebhookDelivery).count() == 1
        session.rollback()
    assert _deliveries(database) == []


def _make_due(database, age=0.0):
    """Let the pause of every delivery be over, and make it older."""
    with database.write() as session:
        for row in session.query(WebhookDelivery):
            row.created_at, row.next_attempt_at = row.created_at - age, 0.0


@both_databases
def test_one_sender_at_a_time_and_growing_pauses_when_it_dies(database, delivery):
    pauses = []
    for attempt in range(1, 11):
        with database.write() as session:
            assert deliveries.due(session) == [(delivery, "h0")]
            assert deliveries.begin_attempt(session, delivery) == attempt
        with database.write() as session:
            assert deliveries.due(session) == []
            assert deliveries.begin_attempt(session, delivery) is None
            row = session.get_one(WebhookDelivery, delivery)
            pauses.append(round(row.next_attempt_at - row.attempted_at))
        _make_due(database)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@both_databases
@pytest.mark.parametrize(("age", "state"), [(82_000.0, "pending"), (87_000.0, "failed")])
def test_after_a_day_a_delivery_has_failed(database, delivery, age, state):
    _make_due(database, age)
    with database.write() as session:
        deliveries.begin_attempt(session, delivery)
    with database.write() as session:
        deliveries.end_attempt(session, delivery, 1, 500, "answered 500")
    with database.read() as session:
        row = session.get_one(WebhookDelivery, delivery)
        assert (row.state, row.status, row.message) == (state, 500, "answered 500")


@both_databases
def test_a_sender_that_was_overtaken_says_nothing(database, delivery):
    for _ in range(2):
        _make_due(database)
        with database.write() as session:
            deliveries.begin_attempt(session, delivery)
    for attempt, status, then in (
        (1, 500, ("pending", None)),
        (2, 200, ("delivered", 200)),
        (1, 500, ("delivered", 200)),
    ):
        with database.write() as session:
            deliveries.end_attempt(
                session, delivery, attempt, status, None if status == 200 else "no"
            )
        with database.read() as session:
            row = session.get_one(WebhookDelivery, delivery)
            assert ((row.state, row.status), row.message) == (then, None)
