"""How a job ends, and that it ends once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.exc import DBAPIError, OperationalError, PendingRollbackError
from sqlalchemy.orm import selectinload

from parity.judging.policy import Policy
from parity.judging.verdict.path import path_of
from parity.judging.verdict.sign_offs import sha256_of
from server.database import clock, events
from server.database.tables import Job, Run
from server.errors import ConflictError
from server.jobs import conclude as conclude_module
from server.jobs import judge_claim, verdict_rows
from server.jobs.conclude import (
    conclude,
    conclude_each,
    decide,
    judge_again,
    settled,
    write_outcome,
)
from server.jobs.judge_claim import claim
from server.jobs.judge_input import case_of, noise_table_of
from server.jobs.submit import submit_job
from server.jobs.verdict_rows import shown_documents, verdict_documents, verdict_summary
from training.spec import ArmSpec, JobSpec
from training.switches import Switches

pytestmark = pytest.mark.both_databases


def _conclude(database, job_id):
    with database.read() as session:
        outcome = decide(session, job_id)
    with database.write() as session:
        return write_outcome(session, job_id, outcome)


def test_a_pass_beside_a_fail(database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    assert _conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.status == "concluded"
        assert {verdict.candidate: verdict.outcome for verdict in job.verdicts} == {
            "nvfp4": "fail",
            "mxfp8": "pass",
        }
        assert [event.kind for event in events.after(session, job_id, 0)] == [
            "status",
            "verdict",
            "status",
        ]


def test_a_second_conclusion_changes_nothing(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    assert _conclude(database, job_id)
    assert not _conclude(database, job_id)
    with database.read() as session:
        assert len(session.get_one(Job, job_id).verdicts) == 1


def test_runs_that_stopped_early_never_pass(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=900)
    _conclude(database, job_id)
    with database.read() as session:
        (verdict,) = session.get_one(Job, job_id).verdicts
        assert verdict.outcome == "inconclusive"
        assert "AS_OF" in verdict.document


def test_an_arm_that_failed_ends_the_job_with_its_reason(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            if run.arm.name == "nvfp4":
                run.state, run.code, run.message = "failed", "DATA_NOT_FOUND", "there is no /corpus"
    _conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, job.code) == ("failed", "DATA_NOT_FOUND")
        assert "there is no /corpus" in job.message


def test_one_failed_replicate_of_two_leaves_a_verdict(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        run = session.query(Run).where(Run.job_id == job_id).first()
        run.state, run.code, run.message = "failed", "WORKER_CRASHED", "out of memory"
    _conclude(database, job_id)
    with database.read() as session:
        assert session.get_one(Job, job_id).status == "concluded"


def test_arms_that_differ_in_more_than_the_recipe_are_confounded(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            if run.arm.name == "nvfp4":
                run.manifest = {**run.manifest, "device_class": "gpu"}
    _conclude(database, job_id)
    with database.read() as session:
        (verdict,) = session.get_one(Job, job_id).verdicts
        assert verdict.outcome == "inconclusive"
        assert "CONFOUNDED" in verdict.document


def test_the_judge_reads_the_switches_in_the_recipe(database):
    stochastic = ArmSpec(recipe="mxfp4", switches=Switches(stochastic_rounding=True))
    spec = JobSpec(
        name="job",
        baseline=ArmSpec(recipe="fp8_current"),
        candidates=(stochastic, ArmSpec(recipe="nvfp4")),
    )
    with database.write() as session:
        job_id = submit_job(session, spec, Policy(margin="1%")).id
    with database.read() as session:
        arms = session.get_one(Job, job_id).arms
        assert {arm.name: arm.stated_recipe for arm in arms} == {
            "fp8_current": "fp8_current",
            "mxfp4.stochastic_rounding": "mxfp4+stochastic_rounding",
            "nvfp4": "nvfp4",
        }


def _end_runs(database, job_id, arms, state="finished"):
    with database.write() as session:
        for run in session.query(Run).where(Run.job_id == job_id):
            if run.arm.name in arms:
                run.state = state


def _settled(database, job_id, judged=()):
    with database.read() as session:
        return settled(session, job_id, judged)


def test_a_candidate_is_settled_once_its_runs_and_the_baselines_have_ended(database, recorded):
    job_id = recorded({"mxfp8": 0.0, "nvfp4": 0.05})
    arms = ("fp8_current", "mxfp8", "nvfp4")
    _end_runs(database, job_id, arms, "running")
    assert _settled(database, job_id) == []
    _end_runs(database, job_id, ["mxfp8"])
    assert _settled(database, job_id) == []
    _end_runs(database, job_id, ["fp8_current"])
    (early,) = _settled(database, job_id)
    assert (early["candidate"]["name"], early["verdict"]) == ("mxfp8", "pass")
    assert _settled(database, job_id, {"mxfp8"}) == []
    _end_runs(database, job_id, ["nvfp4"])
    assert _settled(database, job_id) == []
    with database.read() as session:
        at_the_end, _ = decide(session, job_id).verdicts
    assert early == at_the_end[0]


def test_a_candidate_without_a_finished_run_is_not_settled(database, recorded):
    job_id = recorded({"mxfp8": 0.0, "nvfp4": 0.05})
    _end_runs(database, job_id, ["nvfp4"], "running")
    _end_runs(database, job_id, ["mxfp8"], "failed")
    assert _settled(database, job_id) == []


class Held:
    """A judge that waits for `go` before it judges; `jobs` are those that it was given."""

    def __init__(self, monkeypatch):
        self.jobs, self.entered, self.go = [], threading.Event(), threading.Event()
        monkeypatch.setattr(conclude_module, "decide", self._decide)

    def _decide(self, session, job_id):
        self.jobs.append(job_id)
        self.entered.set()
        assert self.go.wait(60)
        return decide(session, job_id)


def _status(database, job_id):
    with database.read() as session:
        job = session.get_one(Job, job_id)
        return job.status, len(job.verdicts), job.judging_by


def test_while_a_job_is_judged_nobody_else_judges_it_and_everybody_else_may_write(
    database, recorded, monkeypatch
):
    job_id, judge = recorded({"nvfp4": 0.0}), Held(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(conclude, database, job_id)
        assert judge.entered.wait(60)
        try:
            others = [pool.submit(conclude, database, job_id) for _ in range(3)]
            assert [other.result(60) for other in others] == [False] * 3
            with database.write() as session:
                session.get_one(Job, job_id, with_for_update=True).branch = "written meanwhile"
        finally:
            judge.go.set()
        assert first.result(60)
    assert judge.jobs == [job_id]
    assert _status(database, job_id) == ("concluded", 1, None)
    assert conclude(database, job_id)
    assert judge.jobs == [job_id]


@pytest.mark.parametrize("processes", ["one", "several"])
def test_of_four_judges_that_begin_together_one_judges(database, recorded, monkeypatch, processes):
    if processes == "several":
        monkeypatch.setattr(conclude_module, "_one_at_a_time", nullcontext())
    job_id, judge, together = recorded({"nvfp4": 0.0}), Held(monkeypatch), threading.Barrier(4)
    judge.go.set()

    def begin():
        together.wait(60)
        conclude(database, job_id)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(begin) for _ in range(4)]:
            each.result(60)
    assert judge.jobs == [job_id]
    assert _status(database, job_id) == ("concluded", 1, None)


def test_a_judge_that_died_delays_a_verdict_until_its_claim_has_ended(
    database, recorded, monkeypatch
):
    job_id, judge = recorded({"nvfp4": 0.0}), Held(monkeypatch)
    judge.go.set()
    with database.write() as session:
        assert claim(session, job_id, "dead")
        assert not claim(session, job_id, "another")
        assert claim(session, job_id, "dead")  # renewed
    assert not conclude(database, job_id)
    assert judge.jobs == []
    with database.write() as session:
        session.get_one(Job, job_id).judging_until = clock.now(session) - 1.0
    assert conclude(database, job_id)
    assert _status(database, job_id) == ("concluded", 1, None)
    with database.write() as session:
        assert not claim(session, job_id, "late")


@pytest.mark.parametrize("column", ["judging_until", "judge_after"])
def test_a_job_that_a_wrong_clock_holds_until_tomorrow_is_judged(database, recorded, column):
    job_id = recorded({"nvfp4": 0.0}, state="finished")
    for ahead, is_judged in ((25.0, False), (86_400.0, True)):
        with database.write() as session:
            job = session.get_one(Job, job_id)
            job.judging_by = "dead"
            setattr(job, column, clock.now(session) + ahead)
        assert conclude(database, job_id) == is_judged
        assert _status(database, job_id)[0] == ("concluded" if is_judged else "queued")


def test_a_claim_is_renewed_while_the_judge_judges(database, recorded, monkeypatch):
    monkeypatch.setattr(judge_claim, "_CLAIM_SECONDS", 0.03)
    job_id, judge, renewed = recorded({"nvfp4": 0.0}), Held(monkeypatch), threading.Event()
    calls = []

    def counted(*arguments):
        calls.append(claim(*arguments))
        if len(calls) > 3:
            renewed.set()
        return calls[-1]

    monkeypatch.setattr(judge_claim, "claim", counted)
    with ThreadPoolExecutor(1) as pool:
        judging = pool.submit(conclude, database, job_id)
        assert renewed.wait(60)
        judge.go.set()
        assert judging.result(60)
    assert all(calls[:4])


def test_a_judge_that_can_not_write_gives_the_job_to_the_next(database, recorded, monkeypatch):
    job_id = recorded({"nvfp4": 0.0})
    monkeypatch.setattr(conclude_module, "write_outcome", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        conclude(database, job_id)
    monkeypatch.undo()
    assert conclude(database, job_id)
    assert _status(database, job_id)[:2] == ("concluded", 1)


def _documents(database, job_id):
    with database.read() as session:
        return shown_documents(session, session.get_one(Job, job_id))


def test_a_verdict_has_its_path_from_the_judges_own_numbers(database, recorded):
    job_id = recorded({"nvfp4": 0.05, "mxfp8": 0.0})
    assert _conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        stored = verdict_documents(job)
        paths = {
            verdict.candidate: path_of(verdict)
            for verdict in case_of(
                session, job, noise_table=noise_table_of(session, job)
            ).verdicts()
        }
    for document, plain in zip(_documents(database, job_id), stored, strict=True):
        gap, last = document["gap"], document["path"][-1]
        decided = gap["deciding"]
        assert (last["mean"], last["lo"], last["hi"]) == (gap["mean"], decided["lo"], decided["hi"])
        assert document["path"] == paths[document["candidate"]["name"]]
        assert set(document) - set(plain) == {"path", "chances", "gemm_time", "words"}
        assert sha256_of(document) == sha256_of(plain)
        assert document["chances"]["pairs"] == 1


def test_a_path_that_cannot_be_computed_keeps_no_job_from_its_verdict(
    database, recorded, monkeypatch, caplog
):
    def broken(_verdict):
        raise ArithmeticError("no path")

    monkeypatch.setattr(verdict_rows, "path_of", broken)
    job_id = recorded({"nvfp4": 0.0})
    assert conclude(database, job_id)
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert job.status == "concluded"
        assert [row.path for row in job.verdicts] == [None]
    assert "the path of the verdict on nvfp4 could not be computed" in caplog.text
    (document,) = _documents(database, job_id)
    assert "path" not in document


def test_no_list_reads_a_path(database, recorded):
    job_id = recorded({"nvfp4": 0.0})
    _conclude(database, job_id)
    statements = []
    event.listen(
        database.engine, "before_cursor_execute", lambda *called: statements.append(called[2])
    )
    with database.read() as session:
        (row,) = session.scalars(select(Job).options(selectinload(Job.verdicts))).one().verdicts
        assert verdict_summary(row).verdict == "pass"
        assert statements
        assert not any("path" in each for each in statements if "verdicts" in each)
        assert row.path.startswith("[")


def _cut_connection(session, owner_database):
    """Cut a session's connection to its database, as a restarted server or a failover does."""
    if owner_database.engine.dialect.name == "sqlite":
        session.connection().invalidate()
        return
    pid = session.scalar(select(func.pg_backend_pid()))
    with owner_database.read() as other:
        other.execute(select(func.pg_terminate_backend(pid)))


class Faulty:
    """A judge that a fault meets on its way, as often as `times` says."""

    def __init__(self, monkeypatch, fault, times):
        self._fault, self.left = fault, times
        monkeypatch.setattr(conclude_module, "case_of", self._case_of)

    def _case_of(self, session, *arguments, **more):
        if self.left > 0:
            self.left -= 1
            self._fault(session)
        return case_of(session, *arguments, **more)


def _raise(error):
    def fault(_session):
        raise error

    return fault


def _judging(database, job_id):
    with database.read() as session:
        job = session.get_one(Job, job_id)
        return job.status, job.code, job.judge_tries, job.judge_after, job.judging_until


@pytest.mark.parametrize("where", ["before", "between"])
def test_a_cut_connection_delays_a_verdict(database, owner_database, recorded, monkeypatch, where):
    def fault(session):
        _cut_connection(session, owner_database)
        if where == "between":  # what the judge reads next fails as well
            with pytest.raises((DBAPIError, PendingRollbackError)):
                session.execute(select(Run.id))

    job_id, _ = recorded({"nvfp4": 0.0}), Faulty(monkeypatch, fault, 1)
    assert conclude_each(database, [job_id]) == {job_id}
    status, code, tries, after, claimed_until = _judging(database, job_id)
    assert (status, code, tries, claimed_until) == ("queued", "JUDGING_AGAIN", 1, None)
    with database.read() as session:
        assert after <= clock.now(session)  # the second try follows at once
        assert [event.kind for event in events.after(session, job_id, 0)][-1] == "status"
    assert conclude_each(database, [job_id]) == set()
    assert _status(database, job_id)[:2] == ("concluded", 1)
    assert _judging(database, job_id)[1] is None


def test_whatever_the_database_refuses_is_tried_again_with_growing_pauses(
    database, recorded, monkeypatch, caplog
):
    job_id = recorded({"nvfp4": 0.0})
    Faulty(
        monkeypatch,
        _raise(OperationalError("SELECT secret", {}, Exception("the disk is full"))),
        100,
    )
    pauses = []
    for tries in range(1, 13):
        assert conclude_each(database, [job_id]) == {job_id}
        with database.read() as session:
            job = session.get_one(Job, job_id)
            assert (job.status, job.code, job.judge_tries) == ("queued", "JUDGING_AGAIN", tries)
            assert "the disk is full" in job.message
            assert "SELECT" not in job.message
            pauses.append(round(job.judge_after - clock.now(session)))
        assert pauses[-1] == 0 or not conclude(database, job_id)  # it rests
        with database.write() as session:
            session.get_one(Job, job_id).judge_after = 0.0
    assert pauses[:4] == [0, 10, 20, 40]
    assert pauses[-1] == 600
    assert "no verdict after 12 tries" in caplog.text


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(24, "Too many open files")], ids=["memory", "files"]
)
def test_a_lack_of_memory_or_files_is_tried_again_five_times(
    database, recorded, monkeypatch, error
):
    job_id, judge = recorded({"nvfp4": 0.0}), Faulty(monkeypatch, _raise(error), 100)
    for tries in range(1, 5):
        assert conclude_each(database, [job_id]) == {job_id}
        assert _judging(database, job_id)[:3] == ("queued", "JUDGING_AGAIN", tries)
        with database.write() as session:
            session.get_one(Job, job_id).judge_after = 0.0
    assert conclude_each(database, [job_id]) == set()
    assert _judging(database, job_id)[:2] == ("failed", "JUDGE_FAILED")
    assert judge.left == 95


def test_a_judge_that_fails_for_good_is_not_tried_again(database, recorded, monkeypatch):
    job_id, judge = (
        recorded({"nvfp4": 0.0}),
        Faulty(monkeypatch, _raise(ValueError("a bug of redis://:hunter2@queue")), 100),
    )
    assert conclude_each(database, [job_id]) == set()
    assert _judging(database, job_id)[:3] == ("failed", "JUDGE_FAILED", 0)
    assert judge.left == 99
    with database.read() as session:
        assert "redis://:***@queue" in session.get_one(Job, job_id).message


def test_a_job_that_only_the_judge_failed_on_is_judged_again(database, recorded, monkeypatch):
    job_id, _ = recorded({"nvfp4": 0.0}), Faulty(monkeypatch, _raise(ValueError("a bug")), 1)
    conclude(database, job_id)
    with database.write() as session:
        judge_again(session, job_id)
    assert _status(database, job_id)[:2] == ("running", 0)
    assert conclude(database, job_id)
    assert _status(database, job_id)[:2] == ("concluded", 1)
    with database.write() as session, pytest.raises(ConflictError, match="concluded"):
        judge_again(session, job_id)


def test_a_failure_that_cannot_be_noted_hides_no_other(database, recorded, monkeypatch):
    job_id, _ = recorded({"nvfp4": 0.0}), Faulty(monkeypatch, _raise(MemoryError()), 1)
    monkeypatch.setattr(judge_claim, "_give_back", lambda *_: 1 / 0)
    with pytest.raises(MemoryError):
        conclude(database, job_id)
    assert _judging(database, job_id)[:3] == ("queued", None, 0)


def test_the_time_of_gemms_is_modelled_for_runs_that_a_worker_trained_alone(database, recorded):
    job_id = recorded({"nvfp4": 0.0, "mxfp8": 0.0})
    _conclude(database, job_id)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        modelled = {
            each["candidate"]["name"]: each["gemm_time"] for each in shown_documents(session, job)
        }
        assert modelled.keys() == {"nvfp4", "mxfp8"}
        assert all(share > 0 for share in modelled.values())
        job.engine = "external"
        assert [each["gemm_time"] for each in shown_documents(session, job)] == [None, None]
