"""What a node, an operator or another worker may do to a submitted run."""

import logging
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.jobs import submissions
from server.jobs.lifecycle import cancel_job
from tests.workers.commands.conftest import LOOP, head_of
from tests.workers.commands.schedulers import Stepping
from tests.workers.commands.submissions import (
    all_ended,
    attempt_states,
    only_row,
    run_of_arm,
    run_states,
    submissions_of,
    submit_one,
    waits_at_the_gate,
    whole_losses,
)
from workers import submitted
from workers.commands import follow
from workers.listings import Schedulers
from workers.recorder import StepRecorder, write_all

pytestmark = pytest.mark.both_databases


def _clock_is_wrong(slurm, seconds):
    """Let the clock of the nodes be wrong by these seconds."""
    date = slurm.programs / "date"
    date.write_text(f"#!/bin/sh\necho $(($(/bin/date +%s) + {seconds}))\n")
    date.chmod(0o755)


@pytest.mark.parametrize("wrong", [-36_000, 36_000])
def test_a_node_whose_clock_is_wrong_costs_no_device_hours_and_no_run(on_slurm, slurm, base, wrong):
    _clock_is_wrong(slurm, wrong)
    service = on_slurm()
    submit_one(service, base)
    Stepping(service, max_run_seconds=3600.0).until(all_ended(service))
    assert ("base", "finished", None) in run_states(service)
    row, now = only_row(service), time.time()
    assert row.created_at <= row.started_at <= row.ended_at <= now
    assert submissions.device_seconds(row, now) <= now - row.created_at


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ended.0", "nonsense\n"),
        ("ended.0", "0 when\n"),
        ("ended.0", f"{'9' * 80} {'9' * 80}\n"),
        ("ended.0", b"\x00\xff\n"),
        ("ended.0", "0 17"),  # torn
        ("ended.1", "0 1700000000\n"),  # of a start that there was not
        ("ended.7", "1 1700000000\n"),
        ("started.1", "nonsense\n"),
        ("started.1", f"1 {'9' * 80} node 1\n"),
    ],
)
def test_a_file_that_no_script_of_ours_wrote_is_none(on_slurm, slurm, gated, gate, name, content):
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    (Path(only_row(service).folder) / name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    for _ in range(2):
        worker.round()
    assert (service.run(only_row(service).run_id).state, only_row(service).start) == ("running", 0)
    gate.touch()
    worker.until(all_ended(service))
    assert (only_row(service).number, only_row(service).exit_status) == (1, 0)
    whole_losses(service, only_row(service).run_id)


def test_starts_that_a_trainer_invents_are_believed_up_to_a_number(
    on_slurm, slurm, gated, monkeypatch
):
    monkeypatch.setattr(submitted, "_MOST_STARTS", 5)
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    for number in range(1, 100):
        (Path(only_row(service).folder) / f"started.{number}").write_text("1 1700000000 node 1\n")
    worker.round()
    assert only_row(service).start == 5
    assert len(attempt_states(service, only_row(service).run_id)) == 2
    assert (
        submissions.device_seconds(only_row(service), time.time())
        < time.time() - only_row(service).created_at + 1
    )


def test_a_report_that_is_refused_or_huge_costs_the_other_runs_nothing(
    on_slurm, base, repository, monkeypatch
):
    monkeypatch.setattr(follow, "_MOST_AT_ONCE", 1 << 18)
    monkeypatch.setattr(follow, "_PIECE", 1 << 17)
    service = on_slurm()
    line = repository.commit(
        {
            "train/loop.py": 'import sys\nopen(sys.argv[3][6:] + "/metrics.jsonl", "w").write("x" '
            "* (3 << 20))"
        }
    )
    service.submit(base, head_of(line))
    Stepping(service).until(all_ended(service))
    assert run_states(service) == [("base", "finished", None), ("head", "failed", "LOG_REFUSED")]
    whole_losses(service, run_of_arm(service, "base"))


def test_steps_that_cannot_be_written_end_their_own_run_alone(on_slurm, base, monkeypatch):
    flush = StepRecorder.flush
    service = on_slurm()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    bad = run_of_arm(service, "base")

    def refused(session, recorders, lease_seconds):
        if any(recorder._claim.run_id == bad for recorder in recorders):
            raise ValueError("a value that the database does not take")
        return write_all(session, recorders, lease_seconds)

    def refused_alone(recorder):
        if recorder._claim.run_id == bad and recorder.waits:
            raise ValueError("a value that the database does not take")
        flush(recorder)

    monkeypatch.setattr(submitted, "write_all", refused)
    monkeypatch.setattr(StepRecorder, "flush", refused_alone)
    Stepping(service).until(all_ended(service))
    assert run_states(service) == [
        ("base", "failed", "WORKER_CRASHED"),
        ("quantized", "finished", None),
    ]
    assert service.run(bad).crashes == service.settings.max_attempts


def test_a_scheduler_whose_programs_are_not_installed_is_told_and_nothing_fails(
    on_slurm, slurm, base, monkeypatch, tmp_path
):
    service = on_slurm()
    submit_one(service, base)
    path = slurm.path
    worker = Stepping(service)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    worker.until(lambda: submissions_of(service) and only_row(service).reason)
    worker.round()
    assert "squeue cannot be started" in submissions.why_not_training(only_row(service))
    assert "PATH" in submissions.why_not_training(only_row(service))
    monkeypatch.setenv("PATH", path)
    worker.until(all_ended(service))
    assert ("base", "finished", None) in run_states(service)


def test_a_scheduler_that_takes_no_more_jobs_for_now_is_not_away(on_slurm, slurm, base, caplog):
    service = on_slurm(slurm='{options = ["--partition=limited"]}')
    submit_one(service, base)
    worker = Stepping(service)
    with caplog.at_level(logging.WARNING):
        worker.until(lambda: submissions_of(service) and only_row(service).reason)
        for _ in range(5):
            worker.round()
    assert "MaxSubmitJobLimit" in submissions.why_not_training(only_row(service))
    assert not [record for record in caplog.records if "answer" in record.getMessage()]
    (slurm.folder / "unlimited").touch()
    worker.until(all_ended(service))
    assert ("base", "finished", None) in run_states(service)


def test_workers_that_sweep_at_once_end_each_job_once(on_slurm, slurm, gated):
    service = on_slurm()
    job = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    first = Stepping(service)
    first.until(lambda: len([row for row in submissions_of(service) if row.start is not None]) == 2)
    with service.owner_database.write() as session:
        cancel_job(session, job)
    workers = [Schedulers(service.settings, service.database, service.worker) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            for done in [pool.submit(schedulers.sweep, {}) for schedulers in workers]:
                done.result()
    first.forget()
    assert [(row.number, row.state) for row in submissions_of(service)] == [
        (1, "ended"),
        (1, "ended"),
    ]
    assert {job["state"] for job in slurm.jobs().values()} == {"CANCELLED"}
    assert not any((service.settings.state_dir / "submitted").iterdir())


def test_a_job_that_reports_is_not_lost_whatever_the_scheduler_says(
    on_slurm, slurm, base, repository, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 3.0)
    service = on_slurm()
    slow = repository.commit(
        {
            "train/loop.py": LOOP.replace(
                "            log.write(",
                "            __import__('time').sleep(0.1)\n            log.write(",
            )
        }
    )
    submit_one(service, slow)
    worker = Stepping(service)
    worker.until(
        lambda: submissions_of(service) and service.run(only_row(service).run_id).steps_done > 1
    )
    slurm.forget(only_row(service).scheduler_id, state="CANCELLED")
    worker.until(all_ended(service))
    assert [(row.number, row.exit_status) for row in submissions_of(service)] == [(1, 0)]
    assert ("base", "finished", None) in run_states(service)
