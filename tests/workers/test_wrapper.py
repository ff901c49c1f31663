"""Runs that start under a wrapper: a fake srun with two processes, in which real jax.distributed
trains on two CPU devices.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from server.database.metrics import store
from server.database.tables import Attempt, Run
from server.jobs.lifecycle import cancel_job
from server.settings import CHECKOUT
from training.spec import ArmSpec, Data, Model, Schedule
from workers import lease, runtime, supervisor, training_process
from workers.slots import Slot, environment, slots
from workers.training_process import command

SRUN = (sys.executable, str(Path(__file__).with_name("play_srun.py")), "2")
SMALL = {
    "model": Model(vocab_size=256, d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=64),
    "data": Data(sequence_length=32, batch_size=4),
    "baseline": ArmSpec(recipe="bf16"),  # soon compiled
}


@pytest.fixture
def train(settings, database, make_worker, monkeypatch):
    """A function that claims the next run and trains it under the fake srun; returns the
    run's id.
    """
    worker = make_worker()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PARITY_COORDINATOR", f"127.0.0.1:{free.getsockname()[1]}")
    # JAX keeps no program of the second process, which compiles each time.
    monkeypatch.setenv(
        "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )

    def train_one(wrapper=SRUN, started=None):
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        if started:
            started(claim)
        launching = settings.model_copy(update={"wrapper": wrapper})
        supervisor.train(launching, database, claim, Slot(), threading.Event())
        return claim.run_id

    return train_one


def _run(database, run_id):
    with database.read() as session:
        return session.get_one(Run, run_id)


def _processes():
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if "workers.child" in " ".join(child.cmdline())
    ]


def test_two_processes_train_one_run_and_the_first_tells_it(
    settings, database, submit, train, monkeypatch
):
    """Their request is too long for an argument (Linux accepts 128 KiB), as that of an analysis,
    which has all of its results in it.
    """
    started, seen = training_process.started, []

    def longer_request(settings, request, *others):
        seen.append(settings.state_dir)
        return started(settings, request | {"results": "x" * 300_000}, *others)

    monkeypatch.setattr(training_process, "started", longer_request)
    submit(devices=2, schedule=Schedule(steps=12, warmup_steps=2), **SMALL)
    run = _run(database, train())
    assert (run.state, run.code, run.steps_done) == ("finished", None, 12)
    assert run.manifest["processes"] == "2"
    with database.read() as session:
        steps, columns = store.read(session, run.id, "train")
    assert steps.tolist() == list(range(12))
    assert columns["lm_loss"][-3:].mean() < columns["lm_loss"][:3].mean()
    assert not _processes()
    assert seen == [settings.state_dir]
    (log,) = (settings.state_dir / "logs" / "runs").iterdir()  # the request is gone
    assert log.name.startswith(f"{run.id}-")
    assert log.suffix == ".log"
    assert log.read_text().splitlines()[-1] == "srun: step COMPLETED"


def test_a_request_that_a_machine_cannot_see_says_so(settings, tmp_path):
    asked = [sys.executable, "-m", "workers.child", f"@{tmp_path}/none.request.json"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 1
    assert (
        "none.request.json: No such file or directory; every machine of the wrapper must see"
        in done.stderr
    )


def test_a_cancelled_run_takes_all_of_its_processes_with_it(database, submit, train):
    job_id = submit(devices=2, steps=3000, **SMALL)

    seen = []

    def cancel_when_they_run(_claim):
        def watch():
            deadline = time.monotonic() + 60
            while len(_processes()) < 3 and time.monotonic() < deadline:
                time.sleep(0.05)
            seen.extend(_processes())
            with database.write() as session:
                cancel_job(session, job_id)

        threading.Thread(target=watch).start()

    assert _run(database, train(started=cancel_when_they_run)).state == "cancelled"
    assert len(seen) == 3  # the wrapper and its two
    assert not _processes()


def test_a_run_for_one_device_is_refused_where_the_wrapper_starts_two(database, submit, train):
    submit(steps=12, **SMALL)
    run = _run(database, train())
    assert (run.state, run.code) == ("failed", "WRAPPER")
    assert run.message.startswith("devices is 1, expected 2")


def test_a_wrapper_that_is_not_there_gives_the_run_back_with_its_words(database, submit, train):
    submit(steps=12, **SMALL)
    run = _run(
        database, train(wrapper=("sh", "-c", "echo 'srun: error: no such partition' >&2; exit 3"))
    )
    assert run.state == "queued"
    assert "ended with status 3" in run.message
    assert "srun: error: no such partition" in run.message


@pytest.mark.parametrize("ended", ["exit 143", "kill -TERM $$"])
def test_a_preempted_run_is_returned_and_not_counted_as_a_crash(
    database, submit, train, monkeypatch, ended
):
    monkeypatch.setattr(supervisor, "_SIGNAL_SECONDS", 0.01)
    submit(steps=12, **SMALL)
    run_id = train(wrapper=("sh", "-c", f"echo 'srun: error: STEP 1.1 CANCELLED' >&2; {ended}"))
    run = _run(database, run_id)
    assert (run.state, run.code, run.crashes) == ("queued", None, 0)
    assert "STEP 1.1 CANCELLED" in run.message
    with database.read() as session:
        assert session.get_one(Attempt, (run_id, 1)).state == "released"


def test_the_command_is_a_list_from_the_workers_environment(settings, monkeypatch):
    monkeypatch.setenv("PARITY_WRAPPER", json.dumps(["srun", "--ntasks=8"]))
    monkeypatch.setenv("PARITY_WRAPPER_PYTHON", "/opt/python")
    launching = type(settings)(state_dir=settings.state_dir, capability="sm100", slots=1)
    assert command(launching, "workers.child", "{}") == [
        "srun",
        "--ntasks=8",
        "/opt/python",
        "-m",
        "workers.child",
        "{}",
    ]
    assert slots(launching) == [Slot()]  # which GPUs a process gets is the wrapper's affair
    inherited = {
        "SLURM_JOB_ID": "7",
        "PMIX_RANK": "0",
        "PARITY_COORDINATOR": "a:1",
        "PARITY_DATABASE_URL": "secret",
    }
    assert environment(launching, Slot(), inherited).items() >= {
        ("SLURM_JOB_ID", "7"),
        ("PMIX_RANK", "0"),
        ("PARITY_COORDINATOR", "a:1"),
    }
    assert "PARITY_DATABASE_URL" not in environment(launching, Slot(), inherited)
    assert "SLURM_JOB_ID" not in environment(settings, Slot(), inherited)


def test_what_a_worker_registers_is_what_the_wrapper_starts(settings):
    device = {"device_class": "gpu:sm100"}
    says = (sys.executable, "-c", f"print('''{json.dumps(device)}'''); print('again')")
    assert runtime._asked_device(settings.model_copy(update={"wrapper": says})) == device


def test_a_worker_that_emulates_on_a_gpu_offers_no_other_engine(settings, monkeypatch):
    yes = {"ok": True, "reason": "exact codes"}
    asked = {"device_class": "gpu:sm90", "can_run": {"emulated/nvfp4": yes, "maxtext/bf16": yes}}
    monkeypatch.setattr(runtime, "_asked_device", lambda _: dict(asked))
    offered = runtime._device(settings.model_copy(update={"capability": "gpu"}))["can_run"]
    assert offered["emulated/nvfp4"] == yes
    # a job with maxtext.hardware: cpu has the same capability
    assert not offered["maxtext/bf16"]["ok"]
    assert "PARITY_CAPABILITY is gpu" in offered["maxtext/bf16"]["reason"]
    assert (
        runtime._device(settings.model_copy(update={"capability": "sm90"}))["can_run"]
        == asked["can_run"]
    )


def test_the_devices_of_all_of_the_wrappers_processes_are_registered(settings, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PARITY_COORDINATOR", f"127.0.0.1:{free.getsockname()[1]}")
    device = runtime._device(settings.model_copy(update={"wrapper": SRUN}))
    assert (device["devices"], device["processes"]) == (2, 2)
