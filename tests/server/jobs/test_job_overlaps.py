"""Two writers of one job whose transactions overlap: the second waits and then sees the first."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.curves import judged_curves
from server.database import clock, events, locks, states
from server.database.states import begin_attempt
from server.database.tables import (
    LISTENING,
    Attempt,
    Baseline,
    BaselineEvent,
    BaselineRun,
    DataRead,
    Duty,
    IdempotencyKey,
    Job,
    Run,
    Verdict,
    Worker,
    new_id,
)
from server.errors import ConflictError, InvalidError, LookError, SignOffError, StaleAttemptError
from server.jobs import (
    baselines,
    external,
    judge_claim,
    ledger,
    lifecycle,
    listening,
    projects,
    requesters,
    reuse,
    sign_offs,
    statements,
)
from server.jobs import conclude as concluding
from server.jobs import forecasts as forecast
from server.jobs.conclude import conclude, judge_again
from server.jobs.data_digests import place_of, record_data
from server.jobs.external import AttachRequest, Batch
from server.jobs.imported_noise import import_noise_table, imported_noise_tables
from server.jobs.lifecycle import cancel_job, end_job
from server.jobs.projects import RunRequest
from server.jobs.reuse import GateSubmission
from server.jobs.stale_runs import mark_or_fail_stale
from server.jobs.statements import StatementRequest
from server.jobs.submit import JobSubmission, submit_job, submit_job_once, submit_registered
from server.retention.curves import _drop, chunk_keys
from server.retention.jobs import _drop_jobs
from tests.conftest import small_job
from tests.overlap import locked_out_of_order, overlap, overlap_with
from training.spec import ArmSpec, Data

pytestmark = pytest.mark.postgresql
POLICY = policy_from_mapping({"margin": "1%"})
ARMS = {"baseline": ArmSpec(recipe="fp8_current"), "candidates": (ArmSpec(recipe="nvfp4"),)}


def _submitted(database, policy=POLICY, **changes):
    with database.write() as session:
        return submit_job(session, small_job(40, **ARMS | changes), policy, "local").id


@pytest.fixture
def job(database):
    """The id of a queued job with two runs."""
    return _submitted(database)


@pytest.fixture
def own(database):
    """The ids of the runs of a job of a user's own trainer."""
    job_id = _submitted(database, engine="external")
    with database.write() as session:
        listening.renew(session, 3600.0)
        return [run.id for run in session.get_one(Job, job_id).runs]


def _job(database, job_id):
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (
            job.runs,
            job.arms,
            job.verdicts,
            job.sign_offs,
            job.statements,
            job.tags,
        ) is not None
        return job


def _run(database, run_id):
    with database.read() as session:
        return session.get_one(Run, run_id)


def _run_of(session, run_id):
    return session.get_one(Run, run_id).job_id


def _events(database, job_id):
    with database.read() as session:
        return [(event.sequence, event.kind) for event in events.after(session, job_id, 0)]


def _judged(database, job_id, outcome="inconclusive", code="CI_STRADDLES_MARGIN"):
    """Write a verdict on each candidate of a job and end it."""
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.finished_at = "concluded", time.time()
        for arm in job.arms[1:]:
            document = f'{{"codes": ["{code}"], "verdict": "{outcome}"}}'
            about = {
                "candidate": arm.name,
                "outcome": outcome,
                "document": document,
                "created_at": time.time(),
            }
            session.add(Verdict(id=new_id("v"), job_id=job_id, **about))


def test_a_job_ends_once_and_its_events_are_numbered_without_gaps(database, job):
    both = overlap(
        database,
        lambda s: end_job(s, job, "cancelled"),
        lambda s: end_job(s, job, "failed", code="X"),
    )
    assert (both.first, both.waited, both.second) == (True, True, False)
    assert (_job(database, job).status, _job(database, job).code) == ("cancelled", None)
    assert _events(database, job) == [(1, "status"), (2, "status")]


def test_events_of_two_writers_have_numbers_of_their_own_and_those_of_two_jobs_do_not_meet(
    database, job
):
    other = _submitted(database)
    both = overlap(
        database,
        lambda s: events.emit_all(s, job, [("metric", {}), ("metric", {})]),
        lambda s: (events.emit(s, job, "metric", {}), events.emit(s, other, "metric", {})),
    )
    assert (both.first, both.waited, both.second) == (3, True, (4, 2))
    assert [number for number, _ in _events(database, job)] == [1, 2, 3, 4]
    assert [number for number, _ in _events(database, other)] == [1, 2]


@pytest.fixture
def training(database, job):
    """A run in its first attempt, as a writer has read it without a lock, with that transaction."""
    with database.write() as session:
        run = session.get_one(Job, job).runs[0]
        run.state, run.attempt_number = "running", 1
        begin_attempt(session, run.id, 1, None)
    with database.write() as session:
        yield session, session.get_one(Run, run.id)


def test_a_run_ends_once_even_for_who_read_it_without_a_lock(database, training):
    stale, run = training
    assert run.arm.name
    both = overlap_with(
        database, lambda s: cancel_job(s, run.job_id), lambda: lifecycle.finish(stale, run)
    )
    assert (both.first, both.waited, both.second) == (True, True, False)
    stale.commit()
    assert _run(database, run.id).state == "cancelled"
    assert [kind for _, kind in _events(database, run.job_id)].count("run") == 2


def test_who_read_an_attempt_without_a_lock_does_not_end_the_next(database, training):
    stale, run = training

    def begin_the_next(session):
        own = session.get_one(Run, run.id)
        lifecycle.requeue(session, own, attempt="lost", code=None, message="silent")
        return lifecycle.claim(session, own, _worker(), 60.0)

    assert run.arm.name
    both = overlap_with(database, begin_the_next, lambda: lifecycle.finish(stale, run))
    assert (both.first, both.waited, both.second) == (2, True, False)
    stale.commit()
    assert (_run(database, run.id).state, _run(database, run.id).attempt_number) == ("running", 2)
    with database.read() as session:
        assert [session.get_one(Attempt, (run.id, number)).state for number in (1, 2)] == [
            "lost",
            "running",
        ]


def _worker():
    return Worker(id=None, device={"device_class": "cpu:test", "threads_per_run": 1})


def test_an_attempt_ends_once(database, training):
    stale, run = training
    both = overlap_with(
        database,
        lambda s: states.end_attempt(s, run.id, 1, "lost"),
        lambda: states.end_attempt(stale, run.id, 1, "finished"),
    )
    assert (both.first, both.waited, both.second) == (True, True, False)


def test_a_lost_attempt_goes_on_once(database, training):
    stale, run = training
    with database.write() as session:
        session.get_one(Attempt, (run.id, 1)).state = "lost"
    both = overlap_with(
        database,
        lambda s: states.resume_attempt(s, run.id, 1),
        lambda: states.resume_attempt(stale, run.id, 1),
    )
    assert (both.first, both.waited, both.second) == (True, True, False)


def test_a_move_names_one_run_and_one_attempt(database, job):
    with database.write() as session:
        runs = session.get_one(Job, job).runs
        for run in runs:
            run.state, run.attempt_number = "running", 2
            for number in (1, 2):
                begin_attempt(session, run.id, number, None)
        one, other = (run.id for run in runs)
    with database.write() as session:
        assert lifecycle.finish(session, session.get_one(Run, one))
    with database.read() as session:
        state = {
            (run, number): session.get_one(Attempt, (run, number)).state
            for run in (one, other)
            for number in (1, 2)
        }
    assert state == {
        (one, 1): "running",
        (one, 2): "finished",
        (other, 1): "running",
        (other, 2): "running",
    }
    assert _run(database, other).state == "running"


def test_the_end_of_one_job_is_none_of_another(database, job):
    other = _submitted(database)
    with database.write() as session:
        assert cancel_job(session, job)
    assert (_job(database, other).status, {run.state for run in _job(database, other).runs}) == (
        "queued",
        {"queued"},
    )


def test_of_two_judges_that_claim_at_once_one_has_the_job_and_another_job_is_free(database, job):
    other = _submitted(database)
    both = overlap(
        database,
        lambda s: judge_claim.claim(s, job, "one"),
        lambda s: judge_claim.claim(s, job, "two"),
    )
    assert (both.first, both.waited, both.second) == (True, True, False)
    with database.write() as session:
        assert judge_claim.claim(session, job, "one")
        assert judge_claim.claim(session, other, "two")
    assert (_job(database, job).judging_by, _job(database, other).judging_by) == ("one", "two")


def test_a_judge_that_fails_while_its_job_is_cancelled_changes_nothing(database, job):
    with database.write() as session:
        assert judge_claim.claim(session, job, "one")
    both = overlap(
        database,
        lambda s: cancel_job(s, job),
        lambda s: judge_claim._give_back(s, job, "one", MemoryError()),
    )
    assert both.waited
    row = _job(database, job)
    assert (row.status, row.code, row.message, row.judge_tries) == (
        "cancelled",
        None,
        "cancelled by request",
        0,
    )


def test_a_judge_that_fails_after_another_took_over_leaves_that_claim(database, job):
    with database.write() as session:
        assert judge_claim.claim(session, job, "one")
        session.get_one(Job, job).judging_until = clock.now(session) - 1.0
    both = overlap(
        database,
        lambda s: judge_claim.claim(s, job, "two"),
        lambda s: judge_claim._give_back(s, job, "one", MemoryError()),
    )
    assert (both.first, both.waited) == (True, True)
    row = _job(database, job)
    assert (row.judging_by, row.judging_until is not None, row.judge_tries, row.code) == (
        "two",
        True,
        0,
        None,
    )


def test_a_job_is_opened_again_once(database, job):
    with database.write() as session:
        row = session.get_one(Job, job)
        row.status, row.code = "failed", states.JUDGE_FAILED
    both = overlap(database, lambda s: judge_again(s, job), lambda s: judge_again(s, job))
    assert (both.waited, type(both.second)) == (True, ConflictError)
    assert f"job {job} is running" in str(both.second), "as it is now, and not as it was"
    assert _job(database, job).status == "running"


def test_a_job_is_not_ended_under_a_trainer_that_comes_back_as_its_verdict_is_written(
    database, settings, own, monkeypatch
):
    """The judge has decided, and a silent run's trainer appends before the verdict is written."""
    job_id = _run(database, own[0]).job_id
    silent = {}
    for run_id in own:
        with database.write() as session:
            attached = external.attach(session, settings, run_id, AttachRequest(manifest={}))
            silent[run_id] = attached.attempt_number
        _append(database, settings, run_id, silent[run_id], [0, 1, 2])
    with database.write() as session:
        external.finish(session, settings, own[0], silent[own[0]], "finished")
        session.get_one(Run, own[1]).lease_expires_at -= 2 * settings.external_silence_seconds
    assert mark_or_fail_stale(settings, database) == [own[1]]

    def come_back(session):
        batch = Batch(steps=np.array([3]), columns={"loss": np.array([1.0])})
        return external.append(session, settings, own[1], silent[own[1]], "train", batch)[0]

    decided, go, decide = threading.Event(), threading.Event(), concluding.decide

    def slowly(session, of_job):
        outcome = decide(session, of_job)
        decided.set()
        assert go.wait(30)
        return outcome

    monkeypatch.setattr(concluding, "decide", slowly)
    with ThreadPoolExecutor(1) as pool:
        judging = pool.submit(conclude, database, job_id)
        assert decided.wait(30)
        both = overlap_with(database, come_back, lambda: (go.set(), judging.result(30)))
    assert (both.first, both.waited) == (1, True)
    assert (_job(database, job_id).status, _run(database, own[1]).state) == ("running", "running")


def test_a_trainer_does_not_come_back_into_a_job_that_is_just_ended(database, settings, own):
    run_id, job_id = own[0], _run(database, own[0]).job_id
    with database.write() as session:
        number = external.attach(
            session, settings, run_id, AttachRequest(manifest={})
        ).attempt_number
    with database.write() as session:
        session.get_one(Run, run_id).lease_expires_at -= 2 * settings.external_silence_seconds
    assert mark_or_fail_stale(settings, database) == [run_id]
    both = overlap_with(
        database,
        lambda s: end_job(s, job_id, "failed", code="X"),
        lambda: _append(database, settings, run_id, number, [0]),
    )
    assert (both.first, both.waited, type(both.second)) == (True, True, StaleAttemptError)
    assert _run(database, run_id).state == "failed"


def _cancel(database, job_id):
    with database.write() as session:
        cancel_job(session, job_id)


def _hold(database, job_id):
    with database.write() as session:
        statements.lock_job_with_runs(session, job_id)


def _delete(database, job_id):
    with database.write() as session:
        _drop_jobs(job_id, time.time(), session)


@pytest.mark.parametrize("work", [_cancel, _hold, _delete, forecast.watch])
def test_runs_are_locked_by_id_and_before_their_job(database, job, work):
    with database.write() as session:
        row = session.get_one(Job, job)
        row.status = "running"
        if work is _delete:
            row.status, row.finished_at = "cancelled", 1.0
    assert locked_out_of_order(database, job, lambda: work(database, job)) == []


@pytest.mark.parametrize("lock", ["runs", "job"])
def test_what_is_stated_of_a_job_waits_for_who_writes_it(database, own, lock):
    """A run records more steps than are stated, or a judge begins: who states it sees that."""
    job_id = _run(database, own[0]).job_id
    with database.write() as session:
        row = session.get_one(Job, job_id)
        row.spec = {name: value for name, value in row.spec.items() if name != "schedule"}
        for run in row.runs:
            run.planned_steps = None

    def write(session):
        if lock == "runs":
            session.get_one(Run, own[0], with_for_update=True).steps_done = 500
        else:
            session.get_one(Job, job_id, with_for_update=True).judging_until = (
                clock.now(session) + 60
            )

    both = overlap(
        database,
        write,
        lambda s: statements.record_statement(
            s, job_id, StatementRequest(planned_steps=100), "local"
        ),
    )
    refused = InvalidError if lock == "runs" else ConflictError
    assert (both.waited, type(both.second)) == (True, refused)
    assert _job(database, job_id).statements == []


def test_a_fact_is_stated_once(database):
    job_id = _submitted(
        database, engine="external", candidates=(ArmSpec(recipe="other:mine", name="mine"),)
    )

    def state(word):
        return lambda s: statements.record_statement(
            s, job_id, StatementRequest(rounding={"mine": word}), "local"
        )

    both = overlap(database, state("nearest"), state("stochastic"))
    assert (both.waited, type(both.second)) == (True, ConflictError)
    assert [each.value for each in _job(database, job_id).statements] == ["nearest"]


def _append(database, settings, run_id, number, steps, loss=1.0):
    with database.write() as session:
        batch = Batch(steps=np.array(steps), columns={"loss": np.full(len(steps), loss)})
        return external.append(session, settings, run_id, number, "train", batch)[0]


def test_of_two_trainers_that_attach_at_once_the_second_fences_the_first(database, settings, own):
    def attach(key):
        return lambda s: (
            external.attach(s, settings, own[0], AttachRequest(manifest={}), key).attempt_number
        )

    both = overlap(database, attach("one"), attach("two"))
    assert (both.first, both.waited, both.second) == (1, True, 2)
    with pytest.raises(StaleAttemptError):
        _append(database, settings, own[0], 1, [0])
    assert _append(database, settings, own[0], 2, [0]) == 1


def test_a_step_that_two_send_at_once_is_recorded_once(database, settings, own):
    with database.write() as session:
        external.attach(session, settings, own[0], AttachRequest(manifest={}))
    batch = Batch(steps=np.array([0]), columns={"loss": np.array([2.0])})
    both = overlap_with(
        database,
        lambda s: external.append(s, settings, own[0], 1, "train", batch)[0],
        lambda: _append(database, settings, own[0], 1, [0, 1], 2.0),
    )
    assert (both.first, both.waited, both.second) == (1, True, 1)
    both = overlap_with(
        database,
        lambda s: external.append(
            s, settings, own[0], 1, "train", Batch(steps=np.array([2]), columns=batch.columns)
        )[0],
        lambda: _append(database, settings, own[0], 1, [2], 3.0),
    )
    assert (both.waited, type(both.second)) == (True, ConflictError)


def test_the_attempt_and_the_silence_of_one_run_are_none_of_another(database, settings, own):
    one, other = own
    for run_id in (one, one, other):
        with database.write() as session:
            external.attach(session, settings, run_id, AttachRequest(manifest={}))
    assert (_run(database, one).attempt_number, _run(database, other).attempt_number) == (2, 1)
    assert _append(database, settings, other, 1, [0, 1]) == 2
    assert (_run(database, one).steps_done, _run(database, other).steps_done) == (0, 2)
    with database.write() as session:
        session.get_one(Run, one).lease_expires_at -= 2 * settings.external_silence_seconds
    assert mark_or_fail_stale(settings, database) == [one]
    assert _run(database, other).state == "running"


def test_a_trainer_that_comes_back_in_time_is_not_failed_and_holds_up_no_other(
    database, settings, own
):
    back, silent = own
    for run_id in own:
        with database.write() as session:
            external.attach(session, settings, run_id, AttachRequest(manifest={}))
            session.get_one(Run, run_id).lease_expires_at -= 2 * settings.external_silence_seconds
    batch = Batch(steps=np.array([0]), columns={"loss": np.array([2.0])})
    both = overlap_with(
        database,
        lambda s: external.append(s, settings, back, 1, "train", batch),
        lambda: mark_or_fail_stale(settings, database),
    )
    assert (both.waited, both.second) == (False, [silent])
    assert (_run(database, back).state, _run(database, silent).state) == ("running", "failed")


def test_an_outage_moves_the_leases_once_however_many_processes_end_it(database, settings, own):
    with database.write() as session:
        external.attach(session, settings, own[0], AttachRequest(manifest={}))
        session.get_one(Duty, LISTENING).expires_at -= 1000.0
    before = _run(database, own[0]).lease_expires_at
    both = overlap(
        database, lambda s: listening.renew(s, 3600.0), lambda s: listening.renew(s, 3600.0)
    )
    assert (round(both.first, -1), both.waited, both.second) == (1000.0, True, 0.0)
    assert _run(database, own[0]).lease_expires_at - before == pytest.approx(1090.0, abs=10.0)


def test_a_look_that_another_outran_writes_nothing(database, job):
    """Both looked at the same steps; the second waits, and finds that the first has looked."""
    with database.write() as session:
        row = session.get_one(Job, job)
        row.status, row.early_stop = "running", None
    with database.read() as session:
        row = session.get_one(Job, job)
        attempts = {run.id: run.attempt_number for run in row.runs}
    found = {
        "job_id": job,
        "status": "running",
        "before": None,
        "attempts": attempts,
        "changes": (),
    }
    look = forecast._Look(after={"arms": {}, "pairs": {}, "by": "second"}, **found)

    def write(session):
        session.get_one(Job, job, with_for_update=True).early_stop = {
            "arms": {},
            "pairs": {},
            "by": "first",
        }

    both = overlap(database, write, lambda s: forecast._unchanged(s, look))
    assert (both.waited, both.second) == (True, None)


def _ask(looks=1, **more):
    policy = policy_from_mapping({"margin": "1%", "looks": looks})
    return lambda s: (
        submit_registered(
            s, JobSubmission(spec=small_job(40, **ARMS), policy=policy, **more), "someone"
        ).look
    )


def test_two_looks_at_once_have_two_numbers_and_the_last_is_taken_once(database):
    """A lock with a name, because what nobody has written yet has no row to lock."""
    both = overlap(database, _ask(looks=2), _ask(looks=2))
    assert (both.first, both.waited, both.second) == (1, True, 2)
    assert isinstance(
        overlap(database, lambda s: s.get(Job, "none"), _ask(looks=2)).second, LookError
    )


def test_another_question_is_not_waited_for_and_its_looks_are_its_own(database):
    other = JobSubmission(spec=small_job(50, **ARMS), policy=POLICY)
    both = overlap(database, _ask(), lambda s: submit_registered(s, other, "someone").look)
    assert (both.first, both.waited, both.second) == (1, False, 1)


def test_a_look_that_runs_are_added_for_counts_with_one_that_is_submitted(database):
    with database.write() as session:
        policy = policy_from_mapping({"margin": "1%", "looks": 2})
        first = submit_registered(
            session, JobSubmission(spec=small_job(40, **ARMS), policy=policy), "someone"
        ).id

    def take_another(session):
        ledger.take_another(session, session.get_one(Job, first))

    both = overlap(database, _ask(looks=2), take_another)
    assert (both.first, both.waited, type(both.second)) == (2, True, LookError)


def _gate(group="", principal="me", **changes):
    question = GateSubmission(
        spec=small_job(40, **ARMS | changes),
        policy=POLICY,
        max_age_days=7,
        fresh=False,
        group=group,
        by_gate=True,
    )

    def ask(session):
        answer = reuse.answer(session, question, principal, None, 60.0)
        return answer.found, answer.job.id

    return ask


def test_two_gates_with_one_question_get_one_job(database):
    both = overlap(database, _gate(), _gate(principal="you"))
    assert (both.first[0], both.waited, both.second) == ("new", True, ("running", both.first[1]))
    assert requesters.requesters_of(_job(database, both.first[1])) == {"me", "you"}


def test_a_job_that_a_second_group_joins_is_not_superseded_by_the_first(database):
    """The first group asks something newer while the second joins its old job."""
    with database.write() as session:
        shared = _gate("one")(session)[1]
    both = overlap(
        database,
        _gate("two", "you"),
        _gate("one", engine="emulated", candidates=(ArmSpec(recipe="mxfp8"),)),
    )
    assert (both.first, both.waited, both.second[0]) == (("running", shared), True, "new")
    assert _job(database, shared).status == "queued"


@pytest.mark.parametrize("second", ["gate", "lookup"])
def test_nobody_who_was_given_a_verdict_is_forgotten(database, second):
    """Who asked is one list in the row: of two who write it at once, none writes the old list."""
    with database.write() as session:
        shared = _gate()(session)[1]
    _judged(database, shared, "pass")

    def looked_up(who):
        return lambda s: reuse.note_lookup(s, shared, who)

    first, last = {
        "gate": (looked_up("you"), _gate(principal="they")),
        "lookup": (_gate(principal="you"), looked_up("they")),
    }[second]
    both = overlap(database, first, last)
    assert both.waited
    assert {"me", "you", "they"} <= requesters.requesters_of(_job(database, shared))


def test_a_key_makes_one_job_and_one_of_another_principal_makes_another(database):
    def submit(who, key="k"):
        wanted = JobSubmission(spec=small_job(40, **ARMS | {"engine": "external"}), policy=POLICY)
        return lambda s: submit_job_once(s, wanted, who, key, 60.0)[0].id

    both = overlap(database, submit("me"), submit("me"))
    assert (both.waited, both.second) == (True, both.first)
    for other in (submit("you", "k2"), submit("me", "k3")):
        again = overlap(database, submit("me", "k2"), other)
        assert (again.waited, again.second == again.first) == (False, False)
    with database.read() as session:
        assert len(session.scalars(select(IdempotencyKey)).all()) == 4


def test_the_first_runs_of_two_arms_that_begin_at_once_are_one_project(database, settings):
    def begin(arm, who="me", project="p"):
        return lambda s: (
            projects.run_of(s, settings, RunRequest(project=project, arm=arm), who, None).run.job_id
        )

    both = overlap(database, begin("a"), begin("b"))
    assert (both.waited, both.second) == (True, both.first)
    assert [arm.name for arm in _job(database, both.first).arms] == ["a", "b"]
    for other in (begin("a", who="you"), begin("a", project="q")):
        again = overlap(database, begin("a"), other)
        assert (again.waited, again.second == again.first) == (False, False)


def test_a_project_that_is_concluded_takes_no_run_any_more(database, settings):
    def begin(arm):
        return lambda s: (
            projects.run_of(
                s, settings, RunRequest(project="p", arm=arm, planned_steps=100), "me", None
            ).run.id
        )

    ended = []
    for arm in ("a", "b"):
        with database.write() as session:
            ended.append(begin(arm)(session))
        with database.write() as session:
            external.attach(session, settings, ended[-1], AttachRequest(manifest={}))
        _append(database, settings, ended[-1], 1, [0, 1])
        with database.write() as session:
            external.finish(session, settings, ended[-1], 1, "finished")
    job_id = _run(database, ended[0]).job_id
    both = overlap(database, begin("b"), lambda s: projects.close(s, job_id))
    assert both.waited
    assert _run(database, both.first).state == "cancelled", (
        "the run that came first is seen and ended"
    )
    with database.write() as session:
        assert _run_of(session, begin("a")(session)) != job_id
    other = overlap(
        database,
        lambda s: locks.hold_lock(s, "project me p"),
        lambda s: projects.close(s, job_id),
    )
    assert (other.waited, type(other.second)) == (True, ConflictError)


@pytest.fixture
def concluded(database, recorded):
    """The ids of two jobs whose runs have ended with whole curves."""
    jobs = [recorded({"nvfp4": 0.0}, steps=40, rerun=rerun) for rerun in (1, 2)]
    with database.write() as session:
        for job_id in jobs:
            for run in session.get_one(Job, job_id).runs:
                run.steps_done = 40
    return jobs


def test_two_promotions_at_once_get_two_versions_and_another_name_waits_for_none(
    database, concluded
):
    def promote(name, job_id):
        return lambda s: baselines.promote(s, name, job_id, None, "a test", "me", None).version

    one, two = concluded
    both = overlap(database, promote("fp8", one), promote("fp8", two))
    assert (both.first, both.waited, both.second) == (1, True, 2)
    both = overlap(database, promote("x", one), promote("y", two))
    assert (both.first, both.waited, both.second) == (1, False, 1)


@pytest.fixture
def promoted(database, concluded):
    """The id of a version that the first of the jobs made."""
    with database.write() as session:
        return baselines.promote(session, "fp8", concluded[0], None, "a test", "me", None).id


def test_a_control_is_attached_once(database, concluded, promoted):
    def attach(session):
        row = session.get_one(Baseline, promoted)
        return baselines.attach_controls(session, row, concluded[1], "a rerun", "me")

    both = overlap(database, attach, attach)
    assert (len(both.first), both.waited, type(both.second)) == (2, True, ConflictError)


def test_a_version_that_two_expire_at_once_is_expired_by_one(database, promoted):
    def expire(session):
        baselines.expire(session, session.get_one(Baseline, promoted), "too old", "me")

    assert overlap(database, expire, expire).waited
    with database.read() as session:
        kinds = select(BaselineEvent.kind).where(BaselineEvent.baseline_id == promoted)
        assert sorted(session.scalars(kinds)) == ["expired", "promoted"]


def test_a_curve_is_not_deleted_while_it_is_promoted(database, concluded):
    job_id = concluded[0]
    with database.write() as session:
        row = session.get_one(Job, job_id)
        row.status, row.finished_at = "cancelled", 1.0
    both = overlap(
        database,
        lambda s: baselines.promote(s, "fp8", job_id, None, "a test", "me", None).id,
        lambda s: _drop_jobs(job_id, time.time(), s),
    )
    assert (both.waited, both.second) == (True, 0)
    with database.read() as session:
        for link in session.scalars(select(BaselineRun)):
            assert len(judged_curves.losses(session, session.get_one(Run, link.run_id)).loss) == 40


def test_a_curve_that_is_being_deleted_is_not_promoted(database, concluded):
    job_id = concluded[0]
    with database.write() as session:
        row = session.get_one(Job, job_id)
        row.status, row.finished_at = "cancelled", 1.0
        run_id = row.arms[1].runs[0].id
        (keys,) = chunk_keys(session, [run_id])
    both = overlap(
        database,
        lambda s: _drop("curve", run_id, time.time(), keys, s),
        lambda s: baselines.promote(s, "nvfp4", job_id, "nvfp4", "a test", "me", None).id,
    )
    assert (both.first, both.waited, type(both.second)) == (len(keys), True, ConflictError)
    with database.read() as session:
        assert session.scalars(select(Baseline)).all() == []


def test_a_candidate_is_signed_off_once(database, judged):
    job_id, _ = judged({"mxfp8": 0.013})

    def sign(who):
        return lambda s: sign_offs.sign_off(
            s, job_id, "mxfp8", who, "the release needs it; reruns are queued", 7.0
        )

    both = overlap(database, sign("one"), sign("two"))
    assert (both.waited, type(both.second)) == (True, SignOffError)
    (held,) = _job(database, job_id).sign_offs
    assert held.who == "one"

    def revoke(who):
        why = "it was a mistake of mine, sorry"
        return lambda s: sign_offs.revoke(s, job_id, held.id, who, why)

    assert overlap(database, revoke("one"), revoke("two")).waited
    assert _job(database, job_id).sign_offs[0].revoked_by == "one"


def test_two_tables_that_are_imported_at_once_have_no_group_twice(database):
    columns = "family,group,unit,runs,mean_loss,sd,rounding,varies,source,licence"
    table = "\n".join(
        [
            columns,
            *(
                f"mine,g{n},nats,5,1.4,{0.0008 + 0.0001 * n},nearest,seed,ours,internal"
                for n in range(5)
            ),
        ]
    )
    both = overlap(
        database,
        lambda s: import_noise_table(s, table, None, "one"),
        lambda s: import_noise_table(s, table, None, "two"),
    )
    assert both.waited
    assert [(each.new_groups, each.known_groups) for each in (both.first, both.second)] == [
        (5, 0),
        (0, 5),
    ]
    with database.read() as session:
        assert len(imported_noise_tables(session).rows) == 5


def test_two_workers_that_read_a_place_first_at_once_note_it_once(database, job):
    one, two = (run.id for run in _job(database, job).runs)
    data = Data(source="text", path="/a/corpus", sequence_length=32, batch_size=2)
    spec = next(run for _, run in small_job(40, **ARMS, data=data).runs())

    def note(run_id, digest):
        return lambda s: (record_data(s, spec, run_id, {"data_digest": digest}), s.flush())[1]

    both = overlap(database, note(one, "d1"), note(two, "d2"))
    assert (both.waited, both.second) == (True, None)
    with database.read() as session:
        (read,) = session.scalars(select(DataRead)).all()
        assert (read.place, read.run_id, read.digest) == (place_of(spec), two, "d2")
