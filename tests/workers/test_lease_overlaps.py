"""Two workers, attempts or tokens whose transactions overlap: claims, the fence, the order in which
a job's runs are locked, heartbeats, and submissions.
"""

import dataclasses
import time

import pytest
from sqlalchemy.exc import IntegrityError

from server.database import run_tokens
from server.database.tables import Attempt, Job, Run, Submission, Token, Worker
from server.jobs.lifecycle import cancel_job
from tests.overlap import locked_out_of_order, overlap, overlap_with
from workers import lease
from workers.attempt_record import AttemptRecord
from workers.lease import LeaseLostError, ProgressWrite
from workers.recorder import StepRecorder
from workers.runtime import Runtime

pytestmark = pytest.mark.postgresql


def _claim(database, worker, seconds=60.0):
    with database.write() as session:
        return lease.claim(session, worker, seconds)


def _run(database, run_id):
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert run.job.runs  # read while it can be
        return run


def _attempt(database, claim, number=None):
    with database.read() as session:
        return session.get_one(Attempt, (claim.run_id, number or claim.attempt_number))


@pytest.fixture
def next_claim(database, claim, make_worker):
    """A function that gives the run to another worker in a transaction; that worker's claim."""
    worker = make_worker("next")
    return lambda session: lease.next_attempt(session, claim, worker, 60.0, "taken over")


@pytest.fixture
def record(settings, database):
    """A function that gives the record of a claim."""
    return lambda claim: AttemptRecord(settings, database, claim, None)


def test_two_workers_that_claim_at_once_get_two_runs(database, submit, make_worker):
    submit()
    one, two = make_worker("one"), make_worker("two")
    both = overlap(
        database, lambda s: lease.claim(s, one, 60.0), lambda s: lease.claim(s, two, 60.0)
    )
    assert [both.first.arm, both.second.arm] == ["fp8_current", "nvfp4"]
    assert {_run(database, claim.run_id).worker_id for claim in (both.first, both.second)} == {
        one.id,
        two.id,
    }


def test_a_claim_waits_for_no_run_that_another_writer_holds(database, submit, make_worker):
    cancelled, other = submit(), submit()
    worker = make_worker()
    both = overlap(
        database, lambda s: cancel_job(s, cancelled), lambda s: lease.claim(s, worker, 60.0)
    )
    assert (both.waited, both.second.job_id) == (False, other)


def test_a_job_is_bound_to_one_device_class_however_two_workers_meet(database, submit, make_worker):
    submit()
    one, two = make_worker("one"), make_worker("two", device_class="cpu:other")
    both = overlap(
        database, lambda s: lease.claim(s, one, 60.0), lambda s: lease.claim(s, two, 60.0)
    )
    assert (both.first.arm, both.second, both.waited) == ("fp8_current", None, True)


def test_the_last_place_of_a_token_is_taken_once(database, submit, make_worker, limit):
    limit("t-limited", 2, submit(), submit())
    one, two = make_worker("one"), make_worker("two")
    assert _claim(
        database, one
    )  # of the first job, whose other run is claimed below, and a run of the second job beside it
    both = overlap(
        database, lambda s: lease.claim(s, one, 60.0), lambda s: lease.claim(s, two, 60.0)
    )
    assert (both.first is None, both.second, both.waited) == (False, None, True)


@pytest.fixture
def limit(database):
    """A function that limits a token of these jobs to so many runs at once."""

    def make(token_id, most, *job_ids):
        about = {"principal": token_id, "name": token_id, "digest": "", "scopes": ["submit"]}
        with database.write() as session:
            session.add(Token(id=token_id, max_running=most, created_at=time.time(), **about))
            for job_id in job_ids:
                session.get_one(Job, job_id).submitted_by = token_id

    return make


def test_the_runs_of_one_token_take_no_place_of_another(database, submit, make_worker, limit):
    one, two = submit(), submit()
    limit("t-one", 1, one)
    limit("t-two", 1, two)
    worker = make_worker()
    assert [_claim(database, worker).job_id for _ in range(2)] == [one, two]
    assert _claim(database, worker) is None


@pytest.mark.parametrize("narrow_first", [True, False])
def test_the_limit_of_one_token_is_none_of_another(
    database, submit, make_worker, limit, narrow_first
):
    first, second = submit(), submit()
    limit("t-one", 1 if narrow_first else 2, first)
    limit("t-two", 2 if narrow_first else 1, second)
    worker = make_worker()
    claimed = [_claim(database, worker) for _ in range(4)]
    of = [claim.job_id for claim in claimed if claim]
    assert (of.count(first), of.count(second)) == ((1, 2) if narrow_first else (2, 1))


def test_a_token_without_a_limit_has_none_beside_one_that_is_full(
    database, submit, make_worker, limit
):
    one, free = submit(), submit()
    limit("t-one", 1, one)
    limit("t-free", None, free)
    worker = make_worker()
    assert [_claim(database, worker).job_id for _ in range(3)] == [one, free, free]


def test_the_time_of_one_run_is_none_of_another(settings, database, submit, make_worker):
    job_id, worker, seconds = submit(), make_worker(), (60, 10)
    with database.write() as session:
        session.get_one(Job, job_id).max_run_seconds = 100.0
    fallen = [_claim(database, worker) for _ in seconds]
    crashed = {"attempt": "crashed", "max_attempts": settings.max_attempts}
    with database.write() as session:
        for each, took in zip(fallen, seconds, strict=True):
            lease.give_back(session, session.get_one(Run, each.run_id), "it fell", **crashed)
            session.get_one(Attempt, (each.run_id, 1)).started_at -= took
    claims = [_claim(database, worker) for _ in seconds]
    again = {claim.run_id: claim.max_seconds for claim in claims}
    assert [again[claim.run_id] for claim in fallen] == pytest.approx([40.0, 90.0], abs=2.0)


def test_the_heartbeat_of_one_run_is_none_of_another(database, both):
    one, other = both
    before = _run(database, other.run_id).lease_expires_at
    with database.write() as session:
        lease.renew(session, one, 1000.0, steps_done=7)
    assert _run(database, one.run_id).lease_expires_at > time.time() + 900
    assert (
        _run(database, other.run_id).lease_expires_at,
        _run(database, other.run_id).steps_done,
    ) == (before, 0)
    with database.write() as session:
        assert lease.renew_all(session, [one], 2000.0) == set()
    assert _run(database, other.run_id).lease_expires_at == before


def test_an_earlier_attempt_neither_renews_nor_writes_nor_ends_the_next(
    database, claim, next_claim, record
):
    with database.write() as session:
        newer = next_claim(session)
        before = session.get_one(Run, claim.run_id).lease_expires_at
    for late in (
        lambda session: lease.renew(session, claim, 1000.0, steps_done=7),
        lambda session: lease.finish(session, claim),
        lambda session: lease.fail(session, claim, code="TRAINER_FAILED", message="no"),
        lambda session: lease.next_attempt(session, claim, None, 60.0, "no"),
        lambda session: lease.fail_with_job(session, claim, "no"),
    ):
        with pytest.raises(LeaseLostError), database.write() as session:
            late(session)
    with database.write() as session:
        assert lease.renew_all(session, [claim], 1000.0) == {claim.run_id}
        progress = ProgressWrite(
            claim=claim,
            expected=(0,),
            columns={"steps_done": 7, "last_loss": "1.0", "steps_per_second": 1.0},
        )
        assert lease.record_all(session, [progress], 1000.0) == {claim.run_id}
    for attempt in ("released", "crashed"):
        record(claim).give_back("it fell", attempt)
    run = _run(database, claim.run_id)
    assert (run.state, run.attempt_number, run.steps_done, run.lease_expires_at) == (
        "running",
        2,
        0,
        before,
    )
    assert {job_run.state for job_run in run.job.runs} == {"running"}
    with database.write() as session:
        lease.finish(session, newer)


def test_the_token_of_one_run_and_of_one_attempt_fits_no_other(database, both, next_claim):
    one, other = both
    with pytest.raises(LeaseLostError), database.write() as session:
        lease.renew(session, dataclasses.replace(one, token=other.token), 1000.0)
    with database.write() as session:
        newer = next_claim(session)
    for forged in (
        dataclasses.replace(newer, token=other.token),
        dataclasses.replace(newer, token=one.token),
    ):
        with pytest.raises(LeaseLostError), database.write() as session:
            lease.renew(session, forged, 1000.0)
        with pytest.raises(LeaseLostError), database.write() as session:
            lease.finish(session, forged)
    with database.write() as session:
        assert lease.renew_all(session, [dataclasses.replace(newer, token=one.token)], 1000.0) == {
            one.run_id
        }
        lease.renew(session, newer, 1000.0)


def test_a_new_token_of_one_attempt_leaves_those_of_others(database, both):
    one, other = both
    with database.write() as session:
        text = run_tokens.issue(session, one.run_id, one.attempt_number)
    with database.read() as session:
        assert run_tokens.authenticate(session, one.token) is None
        assert run_tokens.authenticate(session, text).is_live
        assert run_tokens.authenticate(session, other.token).is_live


def test_a_note_of_one_attempt_is_none_of_another(database, both, next_claim):
    one, other = both
    with database.write() as session:
        newer = next_claim(session)
        lease.note(session, newer, first_step=5)
        lease.note(session, other, first_step=7)
    assert [_attempt(database, claim).first_step for claim in (one, newer, other)] == [None, 5, 7]


def test_who_writes_while_the_run_is_given_away_writes_nothing(database, claim, next_claim):
    recorder = StepRecorder(database, claim, 60.0)
    both = overlap_with(database, next_claim, recorder.flush)
    assert (both.waited, type(both.second)) == (True, LeaseLostError)


@pytest.mark.parametrize("end", ["finish", "fail"])
def test_who_ends_a_run_while_it_is_cancelled_is_told_so(database, claim, end):
    how = {} if end == "finish" else {"code": "TRAINER_FAILED", "message": "no"}
    both = overlap(
        database,
        lambda s: cancel_job(s, claim.job_id),
        lambda s: getattr(lease, end)(s, claim, **how),
    )
    assert (both.first, both.waited, type(both.second)) == (True, True, LeaseLostError)
    assert _run(database, claim.run_id).state == "cancelled"


def test_progress_that_meets_the_next_attempt_is_not_written(database, claim, next_claim):
    progress = ProgressWrite(
        claim=claim,
        expected=(0,),
        columns={"steps_done": 7, "last_loss": "1.0", "steps_per_second": 1.0},
    )
    both = overlap(database, next_claim, lambda s: lease.record_all(s, [progress], 60.0))
    assert (both.waited, both.second) == (True, {claim.run_id})
    run = _run(database, claim.run_id)
    assert (run.attempt_number, run.steps_done, run.last_loss) == (2, 0, None)


def test_progress_that_meets_other_steps_of_the_run_is_not_written(database, claim):
    columns = {"steps_done": 7, "last_loss": "1.0", "steps_per_second": 1.0}
    both = overlap(
        database,
        lambda s: lease.renew(s, claim, 60.0, steps_done=3),
        lambda s: lease.record_all(
            s, [ProgressWrite(claim=claim, expected=(0, 7), columns=columns)], 60.0
        ),
    )
    assert (both.waited, both.second, _run(database, claim.run_id).steps_done) == (
        True,
        {claim.run_id},
        3,
    )


def test_a_run_that_another_took_over_meanwhile_is_not_given_back(
    database, claim, next_claim, record
):
    both = overlap(
        database, next_claim, lambda s: record(claim).give_back_in(s, "it fell", "crashed")
    )
    assert (both.waited, both.second) == (True, False)
    run = _run(database, claim.run_id)
    assert (run.state, run.attempt_number, run.crashes) == ("running", 2, 0)


def test_two_crashes_that_are_forgiven_at_once_are_two(database, claim, next_claim):
    with database.write() as session:
        newer = next_claim(session)
        session.get_one(Run, claim.run_id).crashes = 2
        for number in (1, 2):
            session.get_one(Attempt, (claim.run_id, number)).state = "lost"
    both = overlap(database, lambda s: lease.forgive(s, claim), lambda s: lease.forgive(s, newer))
    assert both.waited
    assert _run(database, claim.run_id).crashes == 0
    assert all("not counted" in _attempt(database, claim, number).message for number in (1, 2))


@pytest.mark.parametrize("write", ["renew_all", "record_all", "fail_with_job"])
def test_a_worker_locks_runs_by_id_and_before_their_job(database, both, write):
    columns = {"steps_done": 7, "last_loss": "1.0", "steps_per_second": 1.0}
    does = {
        "renew_all": lambda s: lease.renew_all(s, both, 60.0),
        "record_all": lambda s: lease.record_all(
            s, [ProgressWrite(claim=claim, expected=(0,), columns=columns) for claim in both], 60.0
        ),
        "fail_with_job": lambda s: lease.fail_with_job(s, both[1], "another trainer"),
    }

    def work():
        with database.write() as session:
            does[write](session)

    assert locked_out_of_order(database, both[0].job_id, work) == []


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
