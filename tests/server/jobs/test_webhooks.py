"""Who is told of what: addresses that are refused, and deliveries that are as true as their events."""

from ipaddress import ip_address

import pytest

from server.database.sealed import Box
from server.database.tables import WebhookDelivery
from server.errors import NotFoundError
from server.jobs import webhooks
from server.jobs.cancel import cancel_job
from server.jobs.conclude import conclude

BOX = Box(["MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="])
both_databases = pytest.mark.both_databases


@pytest.fixture
def register(database):
    def add(*events, url="https://hooks.example/x"):
        with database.write() as session:
            return webhooks.register(session, url, events, BOX, to_private=False)[0].id

    return add


def _deliveries(database):
    with database.read() as session:
        return [(row.webhook_id, row.kind, row.job_id) for row in session.query(WebhookDelivery).order_by(WebhookDelivery.kind)]


@both_databases
def test_each_webhook_receives_its_events(database, recorded, register):
    both, verdicts = register("job.ended", "verdict.given", "job.ended"), register("verdict.given")
    job = recorded({"nvfp4": 0.0}, steps=60)
    for _ in range(2):
        conclude(database, job)
    assert sorted(_deliveries(database)) == sorted(
        [(both, "job.ended", job), (both, "verdict.given", job), (verdicts, "verdict.given", job)]
    )


@both_databases
def test_a_job_without_verdicts_has_ended_and_no_more(database, recorded, register):
    hook = register("job.ended", "verdict.given")
    failed, cancelled = recorded({"nvfp4": 0.0}, steps=60, state="failed"), recorded({"nvfp4": 0.0}, steps=60, state="running")
    conclude(database, failed)
    with database.write() as session:
        assert cancel_job(session, cancelled)
    with database.write() as session:
        assert not cancel_job(session, cancelled)
    assert sorted(_deliveries(database)) == sorted((hook, "job.ended", job) for job in (failed, cancelled))


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


@both_databases
def test_a_deleted_webhook_takes_its_deliveries_along(database, register):
    kept, gone = register("job.ended"), register("job.ended")
    with database.write() as session:
        for hook in (kept, gone):
            webhooks.announce_test(session, hook)
    with database.write() as session:
        webhooks.remove(session, gone)
    assert _deliveries(database) == [(kept, "test", None)]
    for again in (webhooks.remove, webhooks.announce_test):
        with pytest.raises(NotFoundError, match=gone), database.write() as session:
            again(session, gone)


def _make_due(database, age=0.0):
    """Let the pause of every delivery be over, and make it older."""
    with database.write() as session:
        for row in session.query(WebhookDelivery):
            row.created_at, row.next_attempt_at = row.created_at - age, 0.0


@both_databases
def test_one_sender_at_a_time_and_growing_pauses_when_it_dies(database, register):
    hook, pauses = register("job.ended"), []
    with database.write() as session:
        delivery = webhooks.announce_test(session, hook).id
    for attempt in range(1, 11):
        with database.write() as session:
            assert webhooks.due(session) == [(delivery, hook)]
            assert webhooks.begin_attempt(session, delivery) == attempt
        with database.write() as session:
            assert webhooks.due(session) == []
            assert webhooks.begin_attempt(session, delivery) is None
            row = session.get_one(WebhookDelivery, delivery)
            pauses.append(round(row.next_attempt_at - row.attempted_at))
        _make_due(database)
    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


@both_databases
@pytest.mark.parametrize(("age", "state"), [(82_000.0, "pending"), (87_000.0, "failed")])
def test_after_a_day_a_delivery_has_failed(database, register, age, state):
    hook = register("job.ended")
    with database.write() as session:
        delivery = webhooks.announce_test(session, hook).id
    _make_due(database, age)
    with database.write() as session:
        webhooks.begin_attempt(session, delivery)
    with database.write() as session:
        webhooks.end_attempt(session, delivery, 1, 500, "answered 500")
    with database.read() as session:
        row = webhooks.newest(session)[hook]
        assert (row.state, row.status, row.message) == (state, 500, "answered 500")


@both_databases
def test_a_sender_that_was_overtaken_says_nothing(database, register):
    hook = register("job.ended")
    with database.write() as session:
        delivery = webhooks.announce_test(session, hook).id
    for _ in range(2):
        _make_due(database)
        with database.write() as session:
            webhooks.begin_attempt(session, delivery)
    for attempt, status, then in ((1, 500, ("pending", None)), (2, 200, ("delivered", 200)), (1, 500, ("delivered", 200))):
        with database.write() as session:
            webhooks.end_attempt(session, delivery, attempt, status, None if status == 200 else "no")
        with database.read() as session:
            row = session.get_one(WebhookDelivery, delivery)
            assert ((row.state, row.status), row.message) == (then, None)


@pytest.mark.parametrize(
    ("url", "to_private", "problem"),
    [
        ("https://hooks.example/a?b=c", False, None),
        ("https://192.0.43.8:8443/", False, None),
        ("http://hooks.example/", True, "expected https://"),
        ("ftp://hooks.example/", True, "expected https://"),
        ("hooks.example", True, "no scheme"),
        ("https://", True, "expected https://HOST"),
        ("https://me:pw@hooks.example/", True, "a user"),
        ("https://hooks.example/#x", True, "fragment"),
        ("https://hooks.example/\n", True, "not allowed"),
        ("https://bücher.example/", True, "not allowed"),
        ("https://[::1/", True, "not valid"),
        ("http://localhost:9/", False, "PARITY_WEBHOOKS_TO_PRIVATE_ADDRESSES"),
        ("http://localhost:9/", True, None),
        ("http://[::1]:9/", True, None),
        ("https://10.0.0.1/", False, "10.0.0.1 is not a public address"),
        ("https://10.0.0.1/", True, None),
        ("http://10.0.0.1/", True, "must begin with https://"),
        ("https://169.254.169.254/latest", True, "link-local"),
    ],
)
def test_what_a_url_may_be(url, to_private, problem):
    refusal = webhooks.url_problem(url, to_private=to_private)
    assert refusal is None if problem is None else problem in refusal


PUBLIC = ("93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::5db8:d70e")
PRIVATE = (
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:a00:1::",
    "64:ff9b:1::a00:1",
    "fec0::1",
    "::10.0.0.1",
)
NEVER = (
    *("169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:169.254.169.254"),  # noqa: S104
    *("100.100.100.200", "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"),
    *("fd00:ec2::254", "fd00:ec2::254%eth0", "fd20:ce::254"),
)


def test_addresses():
    def allowed(addresses, to_private):
        return [webhooks.address_problem(ip_address(address), "https", to_private=to_private) is None for address in addresses]

    for addresses, public_only, with_private in ((PUBLIC, True, True), (PRIVATE, False, True), (NEVER, False, False)):
        assert allowed(addresses, False) == [public_only] * len(addresses)
        assert allowed(addresses, True) == [with_private] * len(addresses)
