"""Real training in a real child process: recorded, cancelled, killed, refused, diverged."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from sqlalchemy.exc import OperationalError

from server.check.steps import check_run
from server.database import clock
from server.database.metrics import store
from server.database.tables import Attempt, Chunk, Job, Run
from server.jobs.conclude import decide
from server.jobs.lifecycle import cancel_job
from tests.workers.conftest import claim_next
from training.spec import ArmSpec, Data, Model, Schedule, ShortReruns
from workers import child, lease, reconcile, supervisor
from workers.recorder import StepRecorder
from workers.slots import Slot


@pytest.fixture
def submit(submit):
    """A function that queues a small job of the recipes that start soonest."""
    return partial(
        submit, baseline=ArmSpec(recipe="bf16"), candidates=(ArmSpec(recipe="fp8_current"),)
    )


@pytest.fixture
def train(settings, database, make_worker):
    """A function that claims the next run and trains it, in this thread; returns the claim."""
    worker = make_worker()

    def train_one(stopping=None, started=None, **changes):
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        if started:
            started(claim)
        supervisor.train(
            settings.model_copy(update=changes),
            database,
            claim,
            Slot(),
            stopping or threading.Event(),
        )
        return claim

    return train_one


def _run(database, claim):
    with database.read() as session:
        return session.get_one(Run, claim.run_id)


def _children():
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "workers.child" in " ".join(child.cmdline())
    ]


def _when(happened, act):
    """Call `act` in a thread as soon as this has happened."""

    def watch():
        deadline = time.monotonic() + 600
        while not happened() and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    threading.Thread(target=watch).start()


def _when_it_starts(act):
    """Call `act` as soon as there is a training process: it has to import and to compile before its
    first step.
    """
    _when(_children, act)


def test_a_run_is_trained_and_recorded(database, submit, train):
    submit(
        baseline=ArmSpec(recipe="mxfp8"),
        schedule=Schedule(steps=40, warmup_steps=2, validation_every=20),
    )
    claim = train()
    run = _run(database, claim)
    assert (run.state, run.code, run.steps_done) == ("finished", None, 40)
    assert len(run.fingerprint) == 64
    assert run.manifest["engine"] == "emulated"
    with database.read() as session:
        steps, columns = store.read(session, claim.run_id, "train")
        validated, _ = store.read(session, claim.run_id, "validation")
        profiled, profile = store.read(session, claim.run_id, "profile")
    assert steps.tolist() == list(range(40))
    assert 3.0 < columns["lm_loss"][0] < 8.0
    assert columns["lm_loss"][-5:].mean() < columns["lm_loss"][:5].mean()
    assert 39 in validated
    assert profiled.tolist() == [39]
    assert np.isnan(profile["compute_share"]).all()  # nobody asked for a trace
    assert profile["peak_memory_bytes"][0] > 1 << 26
    assert _children() == []


def test_a_short_rerun_trains_the_full_schedule_and_stops_early(database, submit, train):
    job_id = submit(steps=40, short_reruns=ShortReruns(runs=1, stop_at=0.5))
    with database.write() as session:
        for run in session.get_one(Job, job_id).arms[1].runs:  # the candidate's
            run.state = "cancelled"
    full, noise = train(), train()
    with database.read() as session:
        rates = [
            store.read(session, claim.run_id, "train", ["learning_rate", "lm_loss"])
            for claim in (full, noise)
        ]
    assert (
        _run(database, noise).kind,
        _run(database, noise).state,
        _run(database, noise).steps_done,
    ) == ("short", "finished", 20)
    assert noise.steps == 20
    assert not noise.reuses
    assert rates[1][0].tolist() == list(range(20))
    assert rates[1][1]["learning_rate"].tobytes() == rates[0][1]["learning_rate"][:20].tobytes()
    assert rates[1][1]["lm_loss"].tobytes() != rates[0][1]["lm_loss"][:20].tobytes()
    with database.write() as session:  # as after a crash before its end was recorded
        run = session.get_one(Run, noise.run_id)
        run.state, run.finished_at = "queued", None
    again = train()
    assert again.run_id == noise.run_id
    with database.read() as session:
        steps, columns = store.read(session, again.run_id, "train", ["lm_loss"])
    assert (_run(database, again).state, steps.tolist()) == ("finished", list(range(20)))
    assert columns["lm_loss"].tobytes() == rates[1][1]["lm_loss"].tobytes()


def test_training_ends_at_the_step_that_is_stated_wherever_it_resumes():
    def trained(first):
        return (SimpleNamespace(step=step) for step in range(first, 100))

    assert [step.step for step in child._up_to(trained(0), 5)] == [0, 1, 2, 3, 4]
    assert [step.step for step in child._up_to(trained(3), 5)] == [3, 4]
    assert [step.step for step in child._up_to(trained(5), 5)] == []


def test_cancel_kills_the_training_process(database, submit, train):
    job_id = submit(steps=100_000)

    def cancel():
        with database.write() as session:
            cancel_job(session, job_id)

    claim = train(started=lambda _: _when_it_starts(cancel))
    assert _run(database, claim).state == "cancelled"
    assert _children() == []


def test_a_killed_training_process_is_a_crash_and_the_run_is_tried_again(database, submit, train):
    submit(steps=100_000)

    def kill():
        os.kill(_children()[0].pid, signal.SIGKILL)

    claim = train(started=lambda _: _when_it_starts(kill))
    run = _run(database, claim)
    assert (run.state, run.crashes, run.attempt_number) == ("queued", 1, 1)
    assert "status -9" in run.message


def test_an_ordinary_crash_tells_its_own_status_and_log(database, submit, train, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--no_such_flag=1")
    submit()
    run = _run(database, train())
    assert (run.state, run.crashes) == ("queued", 1)
    assert "status -9" not in run.message
    assert "no_such_flag" in run.message


def test_data_that_the_model_can_not_read_fails_at_once(database, submit, train):
    submit(model=Model(vocab_size=64, d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32))
    run = _run(database, train())
    assert (run.state, run.code) == ("failed", "VOCABULARY_TOO_SMALL")


def test_a_supervisor_that_breaks_gives_the_run_back_with_the_reason(
    database, submit, train, monkeypatch
):
    monkeypatch.setattr(StepRecorder, "flush", lambda _: 1 / 0)
    submit(steps=100_000)
    run = _run(database, train())
    assert (run.state, run.crashes) == ("queued", 1)
    assert "ZeroDivisionError" in run.message
    assert _children() == []


def test_the_operators_limit_counts_earlier_attempts_too(settings, database, submit, make_worker):
    submit()
    with database.write() as session:
        claim = lease.claim(session, make_worker(), 5.0)
    idle = SimpleNamespace(memory_bytes=lambda: 0)

    def broken(seconds_trained):
        again = replace(claim, seconds_trained=seconds_trained)
        limited = settings.model_copy(update={"max_run_seconds": 40.0})
        return next(
            supervisor.Supervisor(limited, database, again, threading.Event())._limits(idle)
        )

    assert broken(30.0) is None
    assert broken(50.0)[0] == "TIME_LIMIT"


def test_a_run_goes_on_from_its_checkpoint_with_the_same_bits(settings, database, submit, train):
    """All runs are far longer than the test: how fast the host is does not decide which steps they
    have in common.
    """

    def losses(claim):
        with database.read() as session:
            steps, columns = store.read(session, claim.run_id, "train", ["loss", "param_norm"])
        assert steps.tolist() == list(range(len(steps)))
        return np.stack([columns["loss"], columns["param_norm"]])

    def has_checkpoint(folder):
        """Whether the last file of a checkpoint is there: an incomplete one is not used, and the
        run would start from step 0.
        """
        for path in folder.glob("step-*/complete.json"):
            with suppress(FileNotFoundError):  # older ones are removed meanwhile
                if path.stat().st_size:
                    return True
        return False

    def kill_after_a_checkpoint(claim):
        folder = settings.checkpoints / claim.run_id
        deadline = time.monotonic() + 600
        while not has_checkpoint(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(_children()[0].pid, signal.SIGKILL)

    def until(least):
        """Cancel the job when its run has this many steps."""

        def cancel(claim):
            with database.write() as session:
                cancel_job(session, claim.job_id)

        return lambda claim: _when(
            lambda: _run(database, claim).steps_done >= least, lambda: cancel(claim)
        )

    def submit_one():
        submit(
            steps=100_000, baseline=ArmSpec(recipe="nvfp4"), candidates=(ArmSpec(recipe="mxfp8"),)
        )

    submit_one()
    first = train(
        started=lambda claim: threading.Thread(
            target=kill_after_a_checkpoint, args=(claim,)
        ).start(),
        checkpoint_seconds=0.05,
    )
    assert _run(database, first).state == "queued"
    target = _run(database, first).steps_done + 100
    again = train(started=until(target))
    assert (again.run_id, again.attempt_number) == (first.run_id, 2)
    with database.read() as session:
        resumed_at = session.get_one(Attempt, (again.run_id, 2)).first_step
    submit_one()
    undisturbed = train(started=until(target))
    assert 0 < resumed_at < target
    assert losses(again)[:, :target].tobytes() == losses(undisturbed)[:, :target].tobytes()
    assert losses(again).shape[1] >= target
    assert not (settings.checkpoints / again.run_id).exists()


def _recorded_in_two_chunks(database, claim):
    """Steps 0 to 5 of a run, of which its attempt is then released."""
    for first in (0, 3):
        with database.write() as session:
            values = {"loss": np.full(3, 9.0), "lm_loss": np.full(3, 9.0)}
            steps = np.arange(first, first + 3)
            store.append(session, claim.run_id, "train", claim.attempt_number, steps, values)
            lease.renew(session, claim, 60.0, steps_done=first + 3)


def _flip_a_bit(database, claim, first_step):
    with database.write() as session:
        chunk = session.get_one(Chunk, (claim.run_id, "train", claim.attempt_number, first_step))
        chunk.payload = bytes([chunk.payload[0] ^ 1]) + chunk.payload[1:]


@pytest.mark.parametrize(("damaged", "resumes_at_most"), [(None, 6), (3, 3), (0, 0)])
def test_a_run_resumes_before_the_first_step_that_is_damaged(
    settings, database, claim, damaged, resumes_at_most
):
    _recorded_in_two_chunks(database, claim)
    if damaged is not None:
        _flip_a_bit(database, claim, damaged)
    attempt = supervisor.Supervisor(settings, database, claim, threading.Event())
    assert attempt._checkpoint_request()["resume_at_most"] == resumes_at_most
    with database.read() as session:
        said = session.get_one(Attempt, (claim.run_id, claim.attempt_number)).message
    assert (said is not None) == (damaged is not None)
    assert damaged is None or f"the chunk from step {damaged}: its values changed" in said


def test_a_run_with_a_damaged_step_is_trained_to_its_end_and_no_attempt_crashes(
    database, submit, make_worker, settings
):
    """Each attempt crashed at its start: 696 attempts of 12 runs in the fault matrix."""
    submit(steps=10)
    worker = make_worker()
    claim = claim_next(database, worker)
    _recorded_in_two_chunks(database, claim)
    _flip_a_bit(database, claim, 3)
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, claim.run_id), "", attempt="released", max_attempts=3
        )
    again = claim_next(database, worker)
    assert (again.run_id, again.attempt_number) == (claim.run_id, 2)
    supervisor.train(settings, database, again, Slot(), threading.Event())
    run = _run(database, claim)
    assert (run.state, run.crashes, run.attempt_number) == ("finished", 0, 2)
    with database.read() as session:
        steps, columns = store.read(session, claim.run_id, "train", ["loss"])
        damage = check_run(session, claim.run_id).damage
    assert steps.tolist() == list(range(10))
    assert (columns["loss"] < 9.0).all()
    assert len(damage) == 1
    assert "nobody needs them" in damage[0].remedies[0]


def test_a_run_beyond_its_time_is_failed_and_not_tried_again(database, submit, train):
    job_id = submit(steps=100_000)
    with database.write() as session:
        session.get_one(Job, job_id).max_run_seconds = 1.0
    run = _run(database, train())
    assert (run.state, run.code, run.attempt_number) == ("failed", "TIME_LIMIT", 1)
    assert "max_run_seconds" in run.message
    assert _children() == []


def test_a_run_beyond_its_memory_is_failed_and_says_what_to_reduce(database, submit, train):
    submit(steps=100_000)
    run = _run(database, train(max_run_memory_bytes=50 * 2**20))
    assert (run.state, run.code) == ("failed", "MEMORY_LIMIT")
    assert "0.05 GiB" in run.message
    assert "batch_size" in run.message
    assert _children() == []


def test_a_training_process_that_hangs_is_killed_and_tried_again(database, submit, train):
    submit(steps=100_000)
    run = _run(
        database,
        train(
            started=lambda _: _when_it_starts(lambda: _children()[0].send_signal(signal.SIGSTOP)),
            silence_seconds=1.0,
        ),
    )
    assert (run.state, run.crashes) == ("queued", 1)
    assert "sent no message for 1 s" in run.message
    assert _children() == []


def test_a_stopping_worker_gives_its_run_back(database, submit, train):
    submit(steps=100_000)
    stopping = threading.Event()
    claim = train(stopping, started=lambda _: _when_it_starts(stopping.set))
    run = _run(database, claim)
    assert (run.state, run.crashes) == ("queued", 0)
    assert _children() == []


def test_a_missing_text_fails_the_run_by_name(database, submit, train):
    submit(data=Data(source="text", path="/no/such/corpus", sequence_length=32, batch_size=2))
    run = _run(database, train())
    assert (run.state, run.code) == ("failed", "DATA_NOT_FOUND")
    assert "/no/such/corpus" in run.message


def test_a_diverged_run_is_finished_data(database, submit, train):
    submit(schedule=Schedule(steps=40, warmup_steps=0, learning_rate=1e30))
    claim = train()
    run = _run(database, claim)
    assert (run.state, run.code) == ("finished", "DIVERGED")
    assert run.last_loss in ("nan", "inf")
    with database.read() as session:
        _, columns = store.read(session, claim.run_id, "train")
    assert not (abs(columns["lm_loss"][-1]) < float("inf"))


def test_arms_agree_in_everything_but_the_recipe_and_an_environment_that_differs_confounds_the_verdict(  # noqa: E501
    database, submit, train, monkeypatch
):
    job_id = submit(
        steps=10,
        candidates=(ArmSpec(recipe="fp8_current"), ArmSpec(recipe="fp8_current", name="elsewhere")),
    )
    one, other = _run(database, train()), _run(database, train())
    assert one.fingerprint != other.fingerprint
    assert one.manifest == other.manifest
    monkeypatch.setenv("NVTE_NVFP4_DISABLE_RHT", "1")
    assert _run(database, train()).manifest["env.NVTE_NVFP4_DISABLE_RHT"] == "1"
    with database.read() as session:
        ((like, _), (unlike, _)) = decide(session, job_id).verdicts
    assert "CONFOUNDED" not in like["codes"]
    assert unlike["verdict"] == "inconclusive"
    assert "CONFOUNDED" in unlike["codes"], unlike["codes"]
    assert "NVTE_NVFP4_DISABLE_RHT" in json.dumps(unlike)


@pytest.mark.parametrize(("stopped", "attempt"), [(True, "released"), (False, "crashed")])
def test_a_signal_for_all_processes_is_no_crash_if_it_stops_the_worker_too(
    settings, database, submit, make_worker, monkeypatch, stopped, attempt
):
    submit(steps=10)
    with database.write() as session:
        claim = lease.claim(session, make_worker(), settings.lease_seconds)
    monkeypatch.setattr(supervisor, "_SIGNAL_SECONDS", 5.0 if stopped else 0.01)
    stopping = threading.Event()
    process = SimpleNamespace(
        was_terminated=lambda: True, how_it_ended=lambda: "it ended with status -15"
    )
    if stopped:  # the signal reaches the worker a little later
        threading.Timer(0.05, stopping.set).start()
    assert (
        supervisor.Supervisor(settings, database, claim, stopping)._why_it_ended(process)[1]
        == attempt
    )


@pytest.mark.parametrize("what", ["slept", "away", "fell"])
def test_a_machine_that_slept_and_a_database_that_was_away_are_no_crash_of_the_run(
    settings, database, submit, train, monkeypatch, what
):
    submit()

    def stopped(self, _slot):
        if what == "away":
            raise OperationalError("COMMIT", {}, Exception("the connection was lost"))
        if what == "fell":
            raise OSError("the disk is full")
        with database.write() as session:
            session.get_one(Run, self._claim.run_id).lease_expires_at = clock.now(session) - 1.0
        assert reconcile.give_back_expired(settings, database) == [self._claim.run_id]
        raise lease.LeaseLostError("it woke up")

    monkeypatch.setattr(supervisor.Supervisor, "train", stopped)
    claim = train()
    run = _run(database, claim)
    assert (run.state, run.crashes) == ("queued", 1 if what == "fell" else 0)
    with database.read() as session:
        assert session.get_one(Attempt, (claim.run_id, claim.attempt_number)).state == (
            "crashed" if what == "fell" else "lost"
        )


def test_a_run_is_given_back_once_the_database_answers_again(database, submit, train, monkeypatch):
    submit()
    failures = []
    give_back = supervisor.Supervisor.give_back

    def away(self, *arguments):
        if len(failures) < 2:
            failures.append(arguments)
            raise OperationalError("BEGIN", {}, Exception("nobody answers"))
        give_back(self, *arguments)

    def stopped(self, slot):
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(supervisor, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(supervisor.Supervisor, "give_back", away)
    monkeypatch.setattr(supervisor.Supervisor, "train", stopped)
    run = _run(database, train())
    assert (run.state, run.crashes, len(failures)) == ("queued", 0, 2)


@pytest.mark.parametrize(
    ("kinds", "flush_seconds"),
    [(["report", "report", "report"], 3600.0), ([None, None, None], 0.0)],
    ids=["steps", "silence"],
)
def test_steps_are_written_once_a_flush_and_the_lease_renewed_once_a_heartbeat(
    settings, kinds, flush_seconds
):
    """Not with each message, nor at each look while nothing is to be written."""
    batches = [[] if kind is None else [{"kind": kind}] for kind in kinds] + [[None]]
    written = []
    stand_in = SimpleNamespace(
        _settings=settings.model_copy(
            update={"flush_seconds": flush_seconds, "heartbeat_seconds": 3600.0}
        ),
        _stopping=threading.Event(),
        _limits=lambda _: iter(lambda: None, 0),
        recorder=SimpleNamespace(add_report=lambda _: None),
        flush=lambda: written.append(time.monotonic()),
    )
    process = SimpleNamespace(messages=lambda _: batches.pop(0))
    assert not supervisor.Supervisor._follow(stand_in, process)
    assert len(written) == 1
