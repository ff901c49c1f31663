"""Deliveries: two processes at once, and two instances of each."""

import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server import deliveries
from server.database.tables import Webhook, WebhookDelivery
from server.jobs.submit import submit_job
from tests.overlap import overlap

pytestmark = pytest.mark.postgresql


@pytest.fixture
def waiting(database, make_job):
    """The ids of two deliveries of one job, which are due."""
    with database.write() as session:
        deliveries.register(session, {"hook": ("job.ended",)})
        job_id = submit_job(session, make_job(), policy_from_mapping({"margin": "1%"})).id
        about = {"webhook_id": "hook", "kind": "job.ended", "job_id": job_id, "created_at": 1.0}
        for name in ("d1", "d2"):
            session.add(WebhookDelivery(id=name, next_attempt_at=1.0, **about))
    return "d1", "d2"


def _delivery(database, name):
    with database.read() as session:
        return session.get_one(WebhookDelivery, name)


def test_a_delivery_is_taken_by_one_process_and_holds_up_no_other(database, waiting):
    one, other = waiting
    both = overlap(
        database,
        lambda s: deliveries.begin_attempt(s, one),
        lambda s: (deliveries.begin_attempt(s, one), deliveries.begin_attempt(s, other)),
    )
    assert (both.first, both.waited, both.second) == (1, False, (None, 1))
    assert (_delivery(database, one).attempts, _delivery(database, other).attempts) == (1, 1)


def test_how_an_attempt_ended_says_nothing_of_a_later_one_or_of_another_delivery(database, waiting):
    one, _ = waiting
    with database.write() as session:
        for name in waiting:
            deliveries.begin_attempt(session, name)
        session.get_one(WebhookDelivery, one).next_attempt_at = 1.0

    both = overlap(
        database,
        lambda s: deliveries.begin_attempt(s, one),
        lambda s: deliveries.end_attempt(s, one, 1, 500, "refused"),
    )
    assert (both.first, both.waited) == (2, True)
    assert (_delivery(database, one).state, _delivery(database, one).message) == ("pending", None)
    with database.write() as session:
        deliveries.end_attempt(session, one, 2, 200, None)
    states = [_delivery(database, name).state for name in waiting]
    assert states == ["delivered", "pending"]


def test_a_delivery_that_was_delivered_stays_so(database, waiting):
    with database.write() as session:
        deliveries.begin_attempt(session, "d1")
    both = overlap(
        database,
        lambda s: deliveries.end_attempt(s, "d1", 1, 200, None),
        lambda s: deliveries.end_attempt(s, "d1", 1, 500, "late"),
    )
    row = _delivery(database, "d1")
    assert (both.waited, row.state, row.status, row.message) == (True, "delivered", 200, None)


def test_processes_that_start_at_once_register_each_webhook_once(database):
    def register(session):
        deliveries.register(session, {"one": ("job.ended",), "two": ("verdict.given",)})

    both = overlap(database, register, register)
    assert (both.waited, both.second) == (True, None)
    with database.read() as session:
        assert sorted(session.scalars(select(Webhook.id))) == ["one", "two"]
