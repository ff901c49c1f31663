"""A duty is held by one worker, also where two take it at once."""

import pytest
from sqlalchemy.exc import IntegrityError

from server.database.tables import Duty, Run, Submission, Worker
from tests.overlap import overlap
from workers.duty import give_up, take
from workers.runtime import Runtime

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


def test_the_heartbeat_and_the_end_of_one_worker_are_none_of_another(
    settings, database, make_worker, monkeypatch
):
    monkeypatch.setattr(
        "workers.runtime._device",
        lambda _settings: {"device_class": "cpu:test", "threads_per_run": 1},
    )
    make_worker("other")
    with database.write() as session:
        session.get_one(Worker, "w-other").heartbeat_at = 7.0
    runtime = Runtime(settings)
    with database.write() as session:
        session.add(runtime._worker)
        session.flush()
        session.expunge(runtime._worker)
    runtime._beat()
    with database.read() as session:
        assert session.get_one(Worker, "w-other").heartbeat_at == 7.0
        assert session.get_one(Worker, runtime._worker.id).heartbeat_at > 7.0
    runtime._database.close()


def test_a_run_has_one_open_submission_however_two_workers_meet(database, both):
    def intend(claim, number):
        about = {
            "scheduler": "slurm",
            "launcher": "l",
            "launcher_digest": "d",
            "plan": {},
            "folder": "/f",
            "state": "intended",
        }
        row = Submission(
            run_id=claim.run_id,
            number=number,
            attempt_number=1,
            key=f"{claim.run_id}-{number}",
            created_at=1.0,
            **about,
        )
        return lambda session: (session.add(row), session.flush())[1]

    one, other = both
    at_once = overlap(database, intend(one, 1), intend(one, 2))
    assert (at_once.waited, type(at_once.second)) == (True, IntegrityError)
    at_once = overlap(database, lambda s: s.get_one(Run, one.run_id), intend(other, 1))
    assert (at_once.waited, at_once.second) == (False, None)
