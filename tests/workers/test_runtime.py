"""A worker's life without any broker: it finds work by itself, looks at once when rung, and leaves
nothing behind.
"""

import time

import psutil
import pytest
from sqlalchemy import select

from server import full_disk
from server.database.tables import HOUSEKEEPING, Attempt, Job, Run
from server.jobs.workers import live_workers
from training.spec import Data
from workers import runtime as runtime_module
from workers.duty import take
from workers.runtime import Runtime
from workers.slots import Slot

pytestmark = pytest.mark.both_databases


@pytest.fixture
def database(worker_database):
    """These tests do what a worker does, with its rights."""
    return worker_database


@pytest.fixture(scope="module")
def devices():
    """The device of all of these workers, once one has asked for it, which takes seconds."""
    return []


@pytest.fixture(autouse=True)
def asked_once(devices, monkeypatch):
    ask = runtime_module._asked_device

    def asked(settings):
        if not devices:
            devices.append(ask(settings))
        return devices[0]

    monkeypatch.setattr(runtime_module, "_asked_device", asked)


@pytest.fixture
def runtime(worker_settings):
    """A started worker with one slot, whose Redis does not exist."""
    changes = {
        "redis_url": "redis+socket:///no/such/redis.sock",
        "slots": 1,
        "reconcile_seconds": 0.5,
    }
    made = Runtime(worker_settings.model_copy(update=changes))
    made.start()
    yield made
    made.stop()
    made.sign_off()


LONG_AGO = 600.0  # seconds; a busy machine may be late with a heartbeat


def _wait(database, seconds, true_of):
    """The job, as soon as something is true of it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with database.read() as session:
            job = session.scalars(select(Job)).one()
            if true_of(job):
                return [job.status, *(run.state for run in job.runs)]
        time.sleep(0.05)
    raise AssertionError("it did not come true in time")


@pytest.mark.postgresql  # long, and its code is the same for both
def test_a_job_is_trained_and_judged_without_a_message(database, submit, runtime):
    submit(steps=30)
    assert _wait(database, 120, lambda job: job.status not in ("queued", "running")) == [
        "concluded",
        "finished",
        "finished",
    ]
    with database.read() as session:
        (worker,) = live_workers(session, LONG_AGO)
        assert worker.device["can_run"]["emulated/nvfp4"]["ok"]
        # What the worker says of its trainer is what its runs say of theirs: a cached verdict rests
        # on it.
        for run in session.scalars(select(Run)):
            assert run.manifest.items() >= worker.device["trainer"].items()
            assert len(worker.device["trainer"]) >= 8


@pytest.mark.postgresql  # long, and its code is the same for both
def test_a_job_that_reads_outside_the_declared_folders_fails_with_the_reason(
    worker_settings, database, submit
):
    changes = {
        "redis_url": "redis+socket:///no/such/redis.sock",
        "slots": 1,
        "data_roots": ("/data",),
    }
    submit(data=Data(source="text", path="/etc/passwd", sequence_length=32, batch_size=2))
    made = Runtime(worker_settings.model_copy(update=changes))
    made.start()
    try:
        assert _wait(database, 60, lambda job: job.status not in ("queued", "running")) == [
            "failed",
            "failed",
            "failed",
        ]
    finally:
        made.stop()
        made.sign_off()
    with database.read() as session:
        job = session.scalars(select(Job)).one()
        assert job.code == "PATH_NOT_ALLOWED"
        assert "data.path is '/etc/passwd', expected a path inside /data" in job.message
        assert {run.steps_done for run in job.runs} == {0}


def test_a_slot_rests_longer_after_each_crash_and_not_after_a_run_that_ended(
    worker_settings, monkeypatch
):
    """A full disk of a second cost a run thirteen attempts."""
    made, rests = Runtime(worker_settings), []
    crashes = [True, True, False, *[True] * 8]

    def claim():
        if not crashes:
            made.stop()
        return crashes or None

    monkeypatch.setattr(made, "_claim", claim)
    monkeypatch.setattr(made, "_train", lambda claimed, _slot: claimed.pop(0))
    monkeypatch.setattr(made._stopping, "wait", rests.append)
    made._keep_training(Slot())
    assert rests == [1, 2, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_worker_whose_disk_is_full_claims_nothing(worker_settings, database, submit, monkeypatch):
    submit()
    made = Runtime(worker_settings)
    made._patience.written(made._register)
    with monkeypatch.context() as full:
        full.setattr(full_disk, "has_no_room", lambda folder: folder == worker_settings.state_dir)
        with pytest.raises(OSError, match="No space left"):
            made._claim()
        with database.read() as session:
            assert session.query(Attempt).count() == 0
    assert made._claim().attempt_number == 1
    made._database.close()


def test_a_worker_that_cannot_keep_house_leaves_it_to_another(database, runtime, monkeypatch):
    """One of an older version, once the database has a newer schema; here each of its reads of runs
    fails.
    """

    def fails(*_):
        raise RuntimeError("no such column")

    monkeypatch.setattr("workers.runtime.give_back_expired", fails)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with database.write() as session:
            if take(session, HOUSEKEEPING, "another", 600.0):
                return
        time.sleep(0.02)
    raise AssertionError("the duty was not given up")


@pytest.mark.postgresql  # long, and its code is the same for both
def test_a_trainer_that_changes_under_a_worker_is_registered(database, runtime, monkeypatch):
    monkeypatch.setattr("training.provenance.source_digest", lambda: "changed")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with database.read() as session:
            (worker,) = live_workers(session, LONG_AGO)
        if worker.device["trainer"]["code_sha256"] == "changed":
            return
        time.sleep(0.05)
    raise AssertionError("the change was not registered")


def test_a_worker_that_is_stopped_gives_its_run_back_and_signs_off(database, submit, runtime):
    submit(steps=100_000)
    runtime.wake()
    _wait(database, 120, lambda job: any(run.steps_done for run in job.runs))
    runtime.stop()
    runtime.sign_off()
    with database.read() as session:
        assert {run.state for run in session.scalars(select(Run))} == {"queued"}
        assert [attempt.state for attempt in session.scalars(select(Attempt))] == ["released"]
        assert live_workers(session, LONG_AGO) == []
    assert not [
        child
        for child in psutil.Process().children(recursive=True)
        if "workers.child" in " ".join(child.cmdline())
    ]
