"""Runs that take the curve of an equal earlier run, and runs that differ from the baseline which
their job names: in real processes.
"""

import threading
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import delete, select

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Attempt, Chunk, DataRead, Event, Job, Run
from server.jobs import baselines
from server.jobs.baselines import BaselineChoice
from server.jobs.conclude import conclude
from server.jobs.data_digests import place_of
from server.jobs.fingerprint import equal_run
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import Order, submit_job
from training.spec import ArmSpec, Data
from workers import lease, supervisor
from workers.slots import Slot


@pytest.fixture
def make_job(make_job):
    """A function that makes a small job of the recipes that start soonest."""
    return partial(
        make_job, baseline=ArmSpec(recipe="bf16"), candidates=(ArmSpec(recipe="fp8_current"),)
    )


@pytest.fixture
def train(settings, database, make_worker):
    """A function that claims the next run and trains it, in this thread; returns the run."""
    worker = make_worker()

    def train_one():
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        supervisor.train(settings, database, claim, Slot(), threading.Event())
        return _run(database, claim.run_id)

    return train_one


def _run(database, run_id):
    with database.read() as session:
        run = session.get_one(Run, run_id)
        assert run.arm.role in ("baseline", "candidate")
        assert run.source is None or run.source.id
        return run


def _curve(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train")
    return steps.tolist(), {
        name: values.tobytes() for name, values in columns.items() if not name.endswith("seconds")
    }


def _submit(database, spec, order=None, named=None):
    with database.write() as session:
        choice = BaselineChoice(name=named) if named else None
        baseline = baselines.resolve(session, choice, spec, 5.0)
        return submit_job(
            session, spec, policy_from_mapping({"margin": "1.0%"}), "local", order, named=baseline
        ).id


def test_an_equal_baseline_is_trained_once_and_an_unlike_candidate_not_at_all(
    settings, database, make_job, make_worker, train, monkeypatch
):
    spec = make_job(steps=20)
    first_job = _submit(database, spec)
    first = train()
    assert (first.reused_from, first.steps_done) == (None, 20)
    with database.write() as session:
        baselines.promote(session, "fp8", first_job, None, "a test", "local", None)
        cancel_job(session, first_job)

    second_job = _submit(database, spec)
    second = train()
    assert (second.job_id, second.arm.role, second.state, second.code) == (
        second_job,
        "baseline",
        "finished",
        None,
    )
    assert (second.reused_from, second.fingerprint, second.manifest) == (
        first.id,
        first.fingerprint,
        first.manifest,
    )
    assert (second.steps_done, second.last_loss, second.message) == (20, first.last_loss, None)
    assert _curve(database, second.id) == _curve(database, first.id)
    with database.read() as session:
        attempt = session.get_one(Attempt, (second.id, 1))
        assert attempt.state == "finished"
        assert f"run {first.id} of job {first_job} has the same fingerprint" in attempt.message
        payloads = [
            event.payload
            for event in session.scalars(
                select(Event).where(Event.job_id == second_job, Event.kind == "run")
            )
        ]
        assert f"run {first.id}" in payloads[-1]["message"]
    candidate = train()
    # a candidate is always trained
    assert (candidate.reused_from, candidate.steps_done) == (None, 20)
    conclude(database, second_job)
    with database.read() as session:
        assert session.get_one(Job, second_job).status == "concluded"

    third_job = _submit(database, spec, named="fp8")
    monkeypatch.setenv("NVTE_NVFP4_DISABLE_RHT", "1")
    refused = train()
    assert (refused.state, refused.code, refused.steps_done) == ("failed", "BASELINE_DIFFERS", 0)
    assert "env.NVTE_NVFP4_DISABLE_RHT is 1 here, not stated there" in refused.message
    conclude(database, third_job)
    with database.read() as session:
        job = session.get_one(Job, third_job)
        assert (job.status, job.code) == ("failed", "BASELINE_DIFFERS")
        assert [run.state for run in job.runs] == ["finished", "failed"]

    _submit(database, spec, Order(reuse=False))
    with database.write() as session:
        assert not lease.claim(session, make_worker("other"), settings.lease_seconds).reuses


@pytest.mark.both_databases
def test_equal_runs_that_end_at_once_all_get_the_curve(settings, database, recorded, make_worker):
    """Eight attempts record the same fingerprint at the same moment, one of them has lost its
    lease.
    """
    source_job = recorded({"nvfp4": 0.0}, steps=40)
    with database.write() as session:
        source = session.get_one(Job, source_job).runs[0]
        source.fingerprint = "f"
        source_id = source.id
    waiting = [recorded({"nvfp4": 0.0}, steps=40, done=0, state="queued") for _ in range(4)]
    workers, claims = [make_worker(str(number)) for number in range(8)], []
    for worker in workers:
        with database.write() as session:
            claims.append(lease.claim(session, worker, settings.lease_seconds))
    baseline_claims = [claim for claim in claims if claim.reuses]
    with database.write() as session:
        lost = session.get_one(Run, baseline_claims[0].run_id)
        lost.attempt_number += 1
    results = []

    def finish_one(one):
        try:
            with database.write() as session:
                lease.renew(session, one, settings.lease_seconds)
                results.append(lease.finish_with_equal_run(session, one, "f"))
        except lease.LeaseLostError:
            results.append("lost")

    threads = [threading.Thread(target=finish_one, args=(one,)) for one in baseline_claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, results)) == ["True"] * (len(threads) - 1) + ["lost"]
    with database.read() as session:
        for one in baseline_claims[1:]:
            run = session.get_one(Run, one.run_id)
            assert (run.state, run.reused_from, run.job_id in waiting) == (
                "finished",
                source_id,
                True,
            )
            assert session.get_one(Attempt, (run.id, one.attempt_number)).state == "finished"
        assert session.get_one(Run, baseline_claims[0].run_id).state == "running"


def test_a_run_that_must_keep_a_checkpoint_has_only_the_curve_of_one_that_kept_it(
    database, make_job, train
):
    spec = make_job(steps=20)
    keeping = replace(spec, keep_checkpoints=(10,))

    def baseline_of(asked):
        job_id = _submit(database, asked)
        run = train()
        with database.write() as session:
            cancel_job(session, job_id)
        return run

    plain, keeper = baseline_of(spec), baseline_of(keeping)
    assert plain.fingerprint == keeper.fingerprint
    assert (keeper.reused_from, keeper.kept_checkpoints, keeper.steps_done) == (None, [10], 20)
    assert baseline_of(keeping).reused_from == keeper.id
    assert baseline_of(spec).reused_from == keeper.id, "one run serves both"
    assert baseline_of(replace(spec, keep_checkpoints=(10, 15))).reused_from is None


@pytest.mark.both_databases
def test_what_a_worker_reads_is_recorded_before_it_trains_or_reuses(
    database, make_job, train, tmp_path
):
    corpus = tmp_path / "corpus.txt"
    spec = make_job(
        steps=10, data=Data(source="text", path=str(corpus), sequence_length=32, batch_size=2)
    )
    digests = []
    for text in ("a small text " * 200, "another text " * 200, "a small text " * 200):
        corpus.write_text(text)
        job_id = _submit(database, spec)
        run = train()
        with database.write() as session:
            read = session.get_one(DataRead, place_of(spec))
            assert (read.run_id, read.digest) == (run.id, run.manifest["data_digest"])
            cancel_job(session, job_id)
        digests.append(read.digest)
    assert run.reused_from is not None
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.postgresql
@pytest.mark.parametrize("gone", [True, False])
def test_a_curve_that_retention_deletes_meanwhile_is_not_reused(
    settings, database, recorded, make_worker, monkeypatch, gone
):
    """SQLite has one writer at a time: nobody deletes anything between the read and the end of the
    run.
    """
    source_job = recorded({"nvfp4": 0.0}, steps=40)
    with database.write() as session:
        source = session.get_one(Job, source_job).runs[0]
        source.fingerprint, source_id = "f", source.id
    recorded({"nvfp4": 0.0}, steps=40, done=0, state="queued")
    with database.write() as session:
        claim = lease.claim(session, make_worker(), settings.lease_seconds)

    def found(session, *arguments, **options):
        run = equal_run(session, *arguments, **options)
        if gone:
            with database.write() as other:
                other.execute(delete(Chunk).where(Chunk.run_id == source_id))
        return run

    monkeypatch.setattr(lease, "equal_run", found)
    with database.write() as session:
        lease.renew(session, claim, settings.lease_seconds)
        assert lease.finish_with_equal_run(session, claim, "f") is not gone
    with database.read() as session:
        run = session.get_one(Run, claim.run_id)
        assert (run.state, run.reused_from) == (
            ("running", None) if gone else ("finished", source_id)
        )
