"""Leases hang on the database's clock: on PostgreSQL the clock of a worker or an API may say what
it likes.
"""

import time

import pytest

from server.database import clock

pytestmark = pytest.mark.both_databases


def test_the_database_says_what_time_it_is(database):
    with database.read() as session:
        assert clock.now(session) == pytest.approx(time.time(), abs=5.0)


def test_a_wrong_clock_of_this_machine_does_not_move_a_remote_database_s(
    database, monkeypatch, database_kind
):
    truth = time.time()
    monkeypatch.setattr(time, "time", lambda: truth + 3600.0)
    with database.read() as session:
        moved = clock.now(session) - truth
    assert moved == pytest.approx(3600.0 if database_kind == "sqlite" else 0.0, abs=5.0)
