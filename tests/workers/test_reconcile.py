"""What a crash leaves behind is put right from the database alone."""

import time

import pytest

from server.database import clock
from server.database.tables import HOUSEKEEPING, Job, Run
from server.jobs import conclude as conclude_module
from server.jobs.conclude import conclude
from workers import duty, lease, reconcile

pytestmark = pytest.mark.both_databases


@pytest.fixture
def database(worker_database):
    """These tests do what a worker does, with its rights."""
    return worker_database


def _claim(database, worker, seconds):
    with database.write() as session:
        return lease.claim(session, worker, seconds)


def test_a_silent_workers_run_is_queued_again(settings, database, submit, make_worker):
    submit()
    worker = make_worker()
    claim = _claim(database, worker, 0.01)
    time.sleep(0.05)
    assert reconcile.give_back_expired(settings, database) == [claim.run_id]
    assert reconcile.give_back_expired(settings, database) == []
    assert _claim(database, worker, 5.0).attempt_number == 2


def test_a_live_lease_is_left_alone(settings, database, submit, make_worker):
    submit()
    _claim(database, make_worker(), 60.0)
    assert reconcile.give_back_expired(settings, database) == []


@pytest.mark.parametrize(("ahead", "is_lost"), [(500.0, False), (700.0, True), (86_400.0, True)])
def test_a_lease_of_a_clock_that_was_a_day_ahead_does_not_hold_a_dead_workers_run_for_a_day(
    settings, database, submit, make_worker, ahead, is_lost
):
    """Found by the fault matrix: such a run stayed in training until the next day."""
    submit()
    claim = _claim(database, make_worker(), 60.0)
    with database.write() as session:
        lease.renew(session, claim, ahead)
    assert reconcile.give_back_expired(settings, database) == [claim.run_id] * is_lost


def test_an_unjudged_job_is_concluded_once(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, state="finished")
    ended = reconcile.EndedJobs()
    for _ in range(2):
        ended.conclude(database)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.status == "concluded"
        assert len(job.verdicts) == 1


def test_a_job_with_a_run_under_way_is_not_concluded(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, state="running")
    conclude(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).status == "running"


def test_one_job_that_can_not_be_concluded_holds_up_no_other(database, recorded, monkeypatch):
    first, second = recorded({"nvfp4": 0.0}), recorded({"nvfp4": 0.0})
    write_outcome = conclude_module.write_outcome

    def broken(session, job_id, outcome):
        if job_id == first:
            raise ZeroDivisionError
        return write_outcome(session, job_id, outcome)

    monkeypatch.setattr(conclude_module, "write_outcome", broken)
    ended = reconcile.EndedJobs()
    ended.conclude(database)
    with database.read() as session:
        assert session.get_one(Job, second).status == "concluded"
        assert session.get_one(Job, first).status != "concluded"
    monkeypatch.undo()
    ended.conclude(database)
    with database.read() as session:
        assert session.get_one(Job, first).status == "concluded"


def test_a_judge_that_breaks_ends_the_job_with_the_reason(database, owner_database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with owner_database.write() as session:
        session.get_one(Job, job_id).policy = {"margin": "nonsense"}
    conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.code) == ("failed", "JUDGE_FAILED")
        assert "nonsense" in job.message
        assert session.query(Run).filter_by(job_id=job_id, state="finished").count() == 4


def test_a_later_look_finds_jobs_whose_runs_ended_since(database, recorded):
    ended = reconcile.EndedJobs()
    ended.conclude(database)
    job_id = recorded({"nvfp4": 0.0}, state="finished")
    with database.write() as session:
        for run in session.get_one(Job, job_id).runs:
            run.finished_at = clock.now(session)
    ended.conclude(database)
    with database.read() as session:
        assert session.get_one(Job, job_id).status == "concluded"


def test_only_jobs_with_new_steps_are_watched(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, state="running")
    watch = reconcile.LiveWatch()
    assert watch.look(database) == [job_id]
    assert watch.look(database) == []
    with database.write() as session:
        session.get_one(Job, job_id).runs[0].steps_done += 1
    assert watch.look(database) == [job_id]


def test_one_worker_at_a_time_has_the_duty(database):
    def take(holder, seconds):
        with database.write() as session:
            return duty.take(session, HOUSEKEEPING, holder, seconds)

    assert take("a", 60.0)
    assert not take("b", 60.0)
    assert take("a", 0.0)
    time.sleep(0.05)
    assert take("b", 60.0)
    with database.write() as session:
        duty.give_up(session, HOUSEKEEPING, "a")
    assert not take("a", 60.0)
    with database.write() as session:
        duty.give_up(session, HOUSEKEEPING, "b")
    time.sleep(0.05)
    assert take("a", 60.0)


@pytest.mark.parametrize("lives", [True, False])
def test_a_lost_lease_counts_as_a_crash_only_if_the_trainer_died_with_it(
    settings, database, submit, make_worker, monkeypatch, lives
):
    """As when the machine sleeps: the lease ends, the housekeeper gives the run back, and then the
    trainer's own worker wakes up.
    """
    monkeypatch.setattr(lease, "_FORGIVEN", 4)
    submit()
    worker, states = make_worker(), []
    while "failed" not in states:
        claim = _claim(database, worker, 60.0)
        with database.write() as session:
            session.get_one(Run, claim.run_id).lease_expires_at = clock.now(session) - 1.0
        assert reconcile.give_back_expired(settings, database) == [claim.run_id]
        with database.write() as session:
            if lives:
                lease.forgive(session, claim)
            states.append(session.get_one(Run, claim.run_id).state)
    lost = (4 if lives else 0) + settings.max_attempts
    assert states == ["queued"] * (lost - 1) + ["failed"]


def test_an_attempt_that_crashed_is_not_forgiven(settings, database, submit, make_worker):
    submit()
    claim = _claim(database, make_worker(), 60.0)
    with database.write() as session:
        run = session.get_one(Run, claim.run_id)
        lease.give_back(
            session, run, "it fell", attempt="crashed", max_attempts=settings.max_attempts
        )
        lease.forgive(session, claim)
        assert run.crashes == 1
