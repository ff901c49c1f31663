"""A MaxText run (a recorded one, played as a process) through child and supervisor: recorded,
judged by its gaps, and killed whole.
"""

import os
import signal
import stat
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from server.curves import layer_table
from server.database.metrics import store
from server.database.tables import Job, Run
from server.jobs.conclude import decide
from server.jobs.lifecycle import cancel_job
from training.environment.maxtext_options import MaxTextOptions
from training.spec import ArmSpec, Data, Model, Schedule, ShortReruns
from workers import lease, supervisor, training_process
from workers.protocol import TrainRequest
from workers.slots import Slot, environment

PLAYER = Path(__file__).parents[1] / "training" / "engines" / "play_maxtext.py"


@pytest.fixture
def playing(tmp_path, monkeypatch, submit):
    """A function that queues a job for a worker whose MaxText plays the recorded session with a
    fault.
    """

    def queue(
        fault: str = "",
        validation_every: int = 0,
        short_reruns: ShortReruns | None = None,
        **options,
    ) -> str:
        python = tmp_path / "python-with-maxtext"
        python.write_text(f'#!/bin/sh\nPLAY_FAULT={fault} exec {sys.executable} {PLAYER} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PARITY_MAXTEXT_PYTHON", str(python))
        (tmp_path / "train.parquet").write_bytes(b"tokens")
        return submit(
            engine="maxtext",
            layer_policy="all_linears",
            model=Model(vocab_size=512),
            data=Data(source="grain", path=str(tmp_path / "train.parquet")),
            schedule=Schedule(steps=85, warmup_steps=5, validation_every=validation_every),
            baseline=ArmSpec(recipe="fp8_delayed"),
            candidates=(ArmSpec(recipe="bf16"),),
            short_reruns=short_reruns,
            maxtext=MaxTextOptions(
                hardware="cpu",
                implementation="xla",
                grain_file_type="parquet",
                eval_path=str(tmp_path / "train.parquet"),
                **options,
            ),
        )

    return queue


@pytest.fixture
def train(settings, database, make_worker):
    worker = make_worker()

    def train_one(started=None, **changes):
        with database.write() as session:
            claim = lease.claim(session, worker, settings.lease_seconds)
        if started:
            started(claim)
        supervisor.train(
            settings.model_copy(update=changes), database, claim, Slot(), threading.Event()
        )
        with database.read() as session:
            return session.get_one(Run, claim.run_id)

    return train_one


@pytest.fixture
def players(tmp_path):
    """A function that finds the played MaxText processes of this test."""

    def find():
        alive = [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE
        ]
        commands = {process: " ".join(process.info["cmdline"] or []) for process in alive}
        return [
            process
            for process, command in commands.items()
            if str(PLAYER) in command and str(tmp_path) in command
        ]

    return find


def _wait(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_maxtext_run_is_recorded_like_our_own(playing, train, database):
    playing()
    run = train()
    assert (run.state, run.code, run.steps_done) == ("finished", None, 85)
    assert run.manifest["maxtext.version.maxtext"] == "0.2.5"
    with database.read() as session:
        steps, columns = store.read(session, run.id, "train")
        assert steps.tolist() == list(range(85))
        profiled, memory = store.read(session, run.id, "profile")
    assert columns["lm_loss"][0] == 6.781802177429199
    assert (columns["tflops_per_device"] > 0).all()
    assert profiled.tolist() == [84]
    assert memory["host_peak_memory_bytes"][0] > 1 << 20


def test_a_short_rerun_of_maxtext_stops_early_in_full(playing, train, database):
    playing(short_reruns=ShortReruns(runs=1, stop_at=0.4), validation_every=20)
    train(), train()
    run = train()
    assert (run.kind, run.state, run.code, run.steps_done, run.planned_steps) == (
        "short",
        "finished",
        None,
        34,
        34,
    )
    with database.read() as session:
        assert store.read(session, run.id, "train", [])[0].tolist() == list(range(34))
        assert len(store.read(session, run.id, "validation", [])[0]) == 0
        full = session.get_one(Job, run.job_id).runs[0]
        assert full.manifest["maxtext.command"] == run.manifest["maxtext.command"]


def test_a_run_with_a_gap_is_finished_and_says_so(playing, train, database):
    playing("loses:40")
    run = train()
    assert (run.state, run.code) == ("finished", "METRICS_GAP")
    assert "40-42" in run.message
    with database.read() as session:
        steps, _ = store.read(session, run.id, "train", [])
    assert steps.tolist() == [*range(40), *range(43, 85)]


def test_a_run_whose_data_end_is_finished_and_judged_as_of_its_last_step(playing, train, database):
    """72 of 85 steps of each arm; the played arms have equal losses, so nothing else speaks."""
    job_id = playing("exhausts:72")
    runs = [train(), train()]
    assert {(run.state, run.code, run.steps_done) for run in runs} == {
        ("finished", "MAXTEXT_ENDED_EARLY", 72)
    }
    sentence = "MaxText ended with status 0 after step 71 of 85: You may have run out of training"
    assert all(run.message.startswith(sentence) for run in runs)
    with database.read() as session:
        ((document, _),) = decide(session, job_id).verdicts
    assert document["verdict"] == "inconclusive"
    assert "AS_OF" in document["codes"]
    assert document["window"]["rule"] == "last 20 % of 72 steps (of 85, declared)"
    assert [
        note.startswith(sentence) and "lines of its log" not in note
        for arm in ("baseline", "candidate")
        for run in document["inputs"][arm]
        for note in run["notes"]
    ] == [True, True]


def test_a_run_whose_data_end_before_its_first_step_fails(playing, train):
    playing("exhausts:0")
    run = train()
    assert (run.state, run.code, run.steps_done) == ("failed", "MAXTEXT_CRASHED", 0)


def test_a_run_that_was_told_to_stop_is_tried_again_and_not_judged_short(playing, train):
    playing("terminates:72")
    run = train()
    assert (run.state, run.steps_done) == ("queued", 72)
    assert run.message.startswith("MaxText was told to stop after step 71 of 85: Job received")


def test_a_crash_that_may_pass_is_tried_again_with_the_end_of_the_log(playing, train):
    playing("crashes:40")
    run = train()
    assert (run.state, run.crashes) == ("queued", 1)
    reason = (
        "MaxText ended with status 1 after step 39 of 85: ValueError: the recipe asks for what is "
        "not there"
    )
    assert run.message.startswith(f"{reason}; the last 50 lines of its log:\n")
    assert "Traceback" not in run.message


def test_a_maxtext_that_prepares_for_long_is_not_taken_for_hung(playing, train):
    playing("'is slow'")
    run = train(silence_seconds=6.0)
    assert (run.state, run.message) == ("finished", None)


def test_cancel_ends_maxtext_too(playing, train, database, players):
    job_id = playing("hangs:10")

    def cancel_when_it_hangs():
        _wait(players)
        with database.write() as session:
            cancel_job(session, job_id)

    canceller = threading.Thread(target=cancel_when_it_hangs)
    run = train(started=lambda _: canceller.start())
    canceller.join()
    assert run.state == "cancelled"
    assert players() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death")
def test_maxtext_does_not_outlive_its_training_process(
    playing, settings, database, make_worker, tmp_path, players
):
    playing("hangs:10")
    with database.write() as session:
        claim = lease.claim(session, make_worker(), settings.lease_seconds)
    request: TrainRequest = {
        "core": None,
        "spec": asdict(claim.spec),
        "steps": claim.steps,
        "checkpoints": {
            "folder": str(tmp_path / "run"),
            "seconds": 60.0,
            "keep": [],
            "resume_at_most": 0,
        },
        "measure": None,
        "fork": None,
        "silence_seconds": 60.0,
        "artifacts": str(tmp_path),
        "profile_steps": 0,
        "slices": [1],
    }
    with training_process.started(
        settings, request, environment(settings, Slot()), tmp_path / "log"
    ) as process:
        _wait(players)
        os.kill(players()[0].ppid(), signal.SIGKILL)
        _wait(lambda: players() == [], 10.0)
        assert "status -9" in process.how_it_ended()


def test_checkpoints_are_evaluated_after_the_training_and_recorded(
    playing, train, database, settings
):
    playing(validation_every=40)
    run = train()
    assert (run.state, run.code, run.steps_done) == ("finished", None, 85)
    with database.read() as session:
        steps, columns = store.read(session, run.id, "validation")
    assert steps.tolist() == [40, 80]
    assert columns["loss"].tolist() == [4.2783562726950075] * 2
    assert not (settings.checkpoints / run.id).exists()


def test_what_maxtext_tells_of_its_layers_is_recorded_by_layer(playing, train, database):
    playing(record_internal_nn_metrics=True)
    run = train()
    assert (run.state, run.steps_done) == ("finished", 85)
    with database.read() as session:
        there = layer_table.recorded(session, run.id)
        steps, columns = store.read(session, run.id, "layers")
    assert (there.layers, there.operands, there.has_norms) == (["0", "1"], ["output"], False)
    assert there.statistics == ["fraction_zero", "mean", "stdev"]
    assert len(steps) == 85
    assert set(columns["1/output/stdev"]) == {3.0}


def test_an_evaluation_without_a_loss_fails_the_run_and_keeps_its_curve(playing, train, database):
    playing("'evaluates nothing'", validation_every=40)
    run = train()
    assert (run.state, run.code, run.steps_done) == ("failed", "MAXTEXT_EVALUATION", 85)
    assert "no summary of an evaluation" in run.message
