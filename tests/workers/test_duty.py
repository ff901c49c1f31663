"""A duty is held by one worker, also where two take it at once."""

import pytest

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
