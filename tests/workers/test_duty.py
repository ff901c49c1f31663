"""A duty is held by one worker, also where two take it at once."""

import pytest

from server.database import clock
from server.database.tables import Duty
from tests.overlap import overlap
from workers.duty import give_up, take

pytestmark = pytest.mark.postgresql


def test_of_two_workers_that_take_a_duty_at_once_one_has_it(database):
    with database.write() as session:
        session.add(Duty(name="sweeping", holder="", expires_at=0.0))
    both = overlap(
        database,
        lambda s: take(s, "sweeping", "one", 60.0),
        lambda s: take(s, "sweeping", "two", 60.0),
    )
    assert (both.first, both.waited, both.second) == (True, True, False)


@pytest.mark.parametrize(
    ("ahead", "is_free"), [(-1.0, True), (1.0, False), (500.0, False), (700.0, True)]
)
def test_a_duty_ends_with_its_time_or_where_a_wrong_clock_put_its_end(database, ahead, is_free):
    with database.write() as session:
        ends = clock.now(session) + ahead
        session.add(Duty(name="sweeping", holder="dead", expires_at=ends))
        session.flush()
        assert take(session, "sweeping", "live", 60.0) == is_free


def test_a_duty_of_a_long_period_is_not_taken_from_a_holder_that_renews_it(database):
    with database.write() as session:
        session.add(Duty(name="sweeping", holder="", expires_at=0.0))
        session.flush()
        assert take(session, "sweeping", "one", 5000.0)
        assert not take(session, "sweeping", "two", 5000.0)


def test_a_duty_is_given_up_by_its_holder_alone_and_no_other_duty_with_it(database):
    with database.write() as session:
        for name in ("sweeping", "sorting"):
            session.add(Duty(name=name, holder="", expires_at=0.0))
            session.flush()
            assert take(session, name, "one", 60.0)
        give_up(session, "sweeping", "two")
        assert not take(session, "sweeping", "two", 60.0)
        give_up(session, "sweeping", "one")
        assert take(session, "sweeping", "two", 60.0)
        assert not take(session, "sorting", "two", 60.0)
