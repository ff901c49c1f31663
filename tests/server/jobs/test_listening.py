"""Silence counts only while the service listened, and a trainer that comes back goes on while its
job is open.
"""

import time

import numpy as np
import pytest

from parity.judging.policy import policy_from_mapping
from server.database import clock, events
from server.database.tables import LISTENING, Attempt, Duty, Job, Run
from server.errors import StaleAttemptError
from server.jobs import conclude as concluding
from server.jobs import external, lifecycle
from server.jobs.conclude import conclude
from server.jobs.external import AttachRequest, Batch
from server.jobs.listening import Listener, listens, renew
from server.jobs.stale_runs import mark_or_fail_stale
from server.jobs.submit import submit_job
from training.spec import ArmSpec

pytestmark = pytest.mark.both_databases
DAY = 86_400.0


@pytest.fixture
def job(database, make_job):
    """A job of two runs of engine external; its id."""
    spec = make_job(
        100,
        engine="external",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(ArmSpec(recipe="nvfp4"),),
    )
    with database.write() as session:
        renew(session, 3600.0)
        return submit_job(session, spec, policy_from_mapping({"margin": "1%"})).id


@pytest.fixture
def run(database, job):
    with database.read() as session:
        return session.get_one(Job, job).runs[0].id


@pytest.fixture
def attach(database, settings, run):
    """A function that attaches a trainer to the run; the attempt's number."""

    def attached(key="a", **more):
        with database.write() as session:
            request = AttachRequest(manifest={"version.torch": "2.9"}, **more)
            return external.attach(session, settings, run, request, key).attempt_number

    return attached


@pytest.fixture
def append(database, settings, run):
    """A function that records a step of an attempt."""

    def appended(attempt_number, step):
        with database.write() as session:
            batch = Batch(steps=np.array([step]), columns={"loss": np.array([1.0])})
            return external.append(session, settings, run, attempt_number, "train", batch)[0]

    return appended


@pytest.fixture
def silent(database, settings, run, attach):
    """The attempt of a run that failed for its silence."""
    attempt_number = attach()
    _pass(database, run, settings.external_silence_seconds)
    assert mark_or_fail_stale(settings, database) == [run]
    return attempt_number


def _pass(database, run, seconds, *, listened=True):
    """Let time pass for a run, and for the service if it did not listen."""
    with database.write() as session:
        session.get_one(Run, run).lease_expires_at -= seconds
        if not listened:
            session.get_one(Duty, LISTENING).expires_at -= seconds


def _state(database, run):
    with database.read() as session:
        row = session.get_one(Run, run)
        return row.state, row.code, row.attempt_number


def test_an_outage_of_the_service_is_no_silence_of_a_trainer(
    database, settings, run, attach, append
):
    attempt_number = attach()
    _pass(database, run, 2 * DAY, listened=False)
    assert mark_or_fail_stale(settings, database) == [], "nobody listens"
    assert _state(database, run) == ("running", None, attempt_number)
    with database.write() as session:
        assert renew(session, settings.external_stale_seconds) == pytest.approx(2 * DAY, rel=0.01)
    assert mark_or_fail_stale(settings, database) == []
    assert _state(database, run) == ("running", None, attempt_number)
    assert append(attempt_number, 0) == 1


def test_silence_while_the_service_listened_counts_on_both_sides_of_an_outage(
    database, settings, run, attach
):
    attach()
    _pass(database, run, 0.75 * settings.external_silence_seconds)
    _pass(database, run, 2 * DAY, listened=False)
    with database.write() as session:
        renew(session, settings.external_stale_seconds)
    assert mark_or_fail_stale(settings, database) == []
    _pass(database, run, 0.5 * settings.external_silence_seconds)
    assert mark_or_fail_stale(settings, database) == [run]


def test_what_came_after_the_outage_has_its_lease_already(database, settings, run, attach, append):
    attempt_number = attach()
    _pass(database, run, 2 * DAY, listened=False)
    append(attempt_number, 0)
    with database.write() as session:
        before = session.get_one(Run, run).lease_expires_at
        assert renew(session, settings.external_stale_seconds) > DAY
    with database.read() as session:
        assert session.get_one(Run, run).lease_expires_at == before


def test_renewing_in_time_moves_nothing(database, settings, run, attach):
    attach()
    with database.read() as session:
        before = session.get_one(Run, run).lease_expires_at
    for _ in range(3):
        with database.write() as session:
            assert renew(session, settings.external_stale_seconds) == 0.0
    with database.read() as session:
        assert (session.get_one(Run, run).lease_expires_at, listens(session)) == (before, True)


def test_a_process_listens_until_it_stops(database, settings, run, attach):
    attach()
    _pass(database, run, 2 * DAY, listened=False)
    listener = Listener(database, settings.external_stale_seconds)
    listener.start()
    while True:
        with database.read() as session:
            if listens(session):
                break
        time.sleep(0.01)
    listener.close()
    assert mark_or_fail_stale(settings, database) == []


@pytest.mark.parametrize("way", ["append", "attach", "attach again", "finish"])
def test_a_trainer_that_comes_back_goes_on_while_its_job_is_open(
    database, settings, run, job, silent, attach, append, way
):
    if way == "append":
        assert append(silent, 0) == 1
    elif way == "attach":
        assert attach("another", after=silent) == silent + 1
    elif way == "attach again":
        assert attach() == silent
    else:
        with database.write() as session:
            external.finish(session, settings, run, silent, "broke_off", "killed")
    expected = ("awaiting_data", "TRAINER_BROKE_OFF") if way == "finish" else ("running", None)
    assert _state(database, run)[:2] == expected
    with database.read() as session:
        row = session.get_one(Run, run)
        newest = session.get_one(Attempt, (run, row.attempt_number))
        assert (row.finished_at, newest.state, newest.ended_at is None) == (
            None,
            "crashed" if way == "finish" else "running",
            way != "finish",
        )
        states = [
            event.payload["state"] for event in events.after(session, job, 0) if event.kind == "run"
        ]
        assert states[: states.index("failed") + 2][-2:] == ["failed", "running"]
        assert clock.now(session) < row.lease_expires_at


def test_a_run_that_failed_otherwise_stays_so(database, settings, run, attach, append):
    attempt_number = attach()
    with database.write() as session:
        external.finish(session, settings, run, attempt_number, "failed", "out of memory")
    for late in (lambda: append(attempt_number, 0), attach, lambda: attach("another")):
        with pytest.raises(StaleAttemptError, match="out of memory"):
            late()
    assert _state(database, run) == ("failed", "TRAINER_FAILED", attempt_number)


def test_an_older_attempt_does_not_come_back(database, settings, run, attach, append):
    first, second = attach("a"), attach("b")
    _pass(database, run, settings.external_silence_seconds)
    assert mark_or_fail_stale(settings, database) == [run]
    with pytest.raises(StaleAttemptError):
        append(first, 0)
    assert append(second, 0) == 1


def test_once_the_job_has_ended_a_late_trainer_is_told_so(
    database, job, run, silent, attach, append
):
    with database.write() as session:
        for row in session.get_one(Job, job).runs[1:]:
            lifecycle.cancel(session, row)
    conclude(database, job)
    for late in (lambda: append(silent, 0), attach, lambda: attach("another")):
        with pytest.raises(StaleAttemptError, match=f"job {job} is failed already"):
            late()
    assert _state(database, run)[:2] == ("failed", "SILENT")


def test_a_job_is_not_ended_under_a_trainer_that_came_back_while_it_was_judged(
    database, job, run, silent, append, monkeypatch
):
    with database.write() as session:
        for row in session.get_one(Job, job).runs[1:]:
            lifecycle.cancel(session, row)
    decide = concluding.decide

    def slowly(session, job_id):
        outcome = decide(session, job_id)
        append(silent, 0)
        return outcome

    monkeypatch.setattr(concluding, "decide", slowly)
    conclude(database, job)
    assert _state(database, run)[0] == "running"
    with database.read() as session:
        assert session.get_one(Job, job).status == "running"
