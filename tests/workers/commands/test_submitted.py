"""Runs that a scheduler trains: submitted once, found again, started anew, cancelled, lost; with a
stand-in for Slurm's programs.
"""

import logging
import subprocess
import sys
import time

import pytest
from sqlalchemy import select

from parity.canonical_json import json_value
from parity.cli.jobs import status
from server.database.tables import Attempt, Job, Run
from server.documents.jobs import job_document
from server.jobs import lifecycle, submissions
from server.jobs.lifecycle import cancel_job
from tests.workers.commands.conftest import LOOP, head_of
from tests.workers.commands.schedulers import Stepping
from tests.workers.commands.submissions import (
    all_ended,
    attempt_states,
    expire_leases,
    only_row,
    run_states,
    submissions_of,
    submit_one,
    waits_at_the_gate,
    whole_losses,
)
from workers import lease, submitted

pytestmark = pytest.mark.both_databases


def test_runs_train_on_the_cluster_and_are_judged(on_slurm, slurm, base, repository):
    service = on_slurm(slurm='{options = ["--partition=low"]}')
    head = repository.commit({"train/loop.py": LOOP.replace("SKIPPED = 1", "SKIPPED = 4")})
    job = service.submit(base, head_of(head))
    assert service.claim() is None  # no slot takes them
    worker = Stepping(service)
    worker.until(all_ended(service))
    assert run_states(service) == [("base", "finished", None), ("head", "finished", None)]
    assert len({whole_losses(service, run.id) for run in service.job().runs}) == 2
    rows = submissions_of(service)
    assert {(row.state, row.exit_status, row.start, row.number) for row in rows} == {
        ("ended", 0, 0, 1)
    }
    assert {row.key for row in rows} == {job["name"] for job in slurm.jobs().values()}
    assert all("--partition=low" in call for call in slurm.calls("sbatch"))
    assert not any((service.settings.state_dir / "submitted").iterdir())
    for row in rows:
        now = time.time()
        assert 0 <= submissions.device_seconds(row, now) <= now - row.created_at + 1
    assert service.judged(job)["head"]["baseline"]["name"] == "base"


def test_a_commit_of_the_readme_submits_nothing(on_slurm, slurm, base, repository):
    service, worker = on_slurm(), None
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(all_ended(service))
    readme = repository.commit({"README.md": "changed"})
    service.submit(base, head_of(readme))
    worker.until(all_ended(service))
    assert len(slurm.jobs()) == 2
    with service.database.read() as session:
        reused = [
            run.reused_from
            for run in session.scalars(select(Run).where(Run.reused_from.is_not(None)))
        ]
    assert len(reused) == 2


def test_nothing_of_the_workers_environment_reaches_slurm_or_the_node(
    on_slurm, slurm, base, repository, monkeypatch
):
    for name in (
        "PARITY_DATABASE_URL",
        "SBATCH_EXPORT",
        "SLURM_JOB_ID",
        "GIT_SSH_COMMAND",
        "KUBECONFIG",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.setenv(name, "planted")
    service = on_slurm()
    service.submit(
        base,
        head_of(
            repository.commit(
                {"train/loop.py": "import os\nraise SystemExit(repr(sorted(os.environ.items())))"}
            )
        ),
    )
    Stepping(service).until(all_ended(service))
    assert "planted" not in (slurm.folder / "environment").read_text()
    with service.database.read() as session:
        message = session.scalars(select(Run.message).where(Run.code == "TRAINER_FAILED")).one()
    assert "SLURM_JOB_ID" in message
    assert "planted" not in message


@pytest.mark.parametrize(
    ("script", "state", "code"),
    [
        ('raise SystemExit("broken trainer")', "failed", "TRAINER_FAILED"),
        ('print("hello")', "failed", "NO_LOSS"),
        (LOOP.replace("range(steps)", "range(20)"), "finished", "ENDED_EARLY"),
        (
            (
                'import os, sys; os.symlink("/etc/hostname", sys.argv[3][6:] + '
                '"/metrics.jsonl")\nimport time; time.sleep(600)'
            ),
            "failed",
            "LOG_REFUSED",
        ),
    ],
)
def test_how_a_trainer_ends_is_told(on_slurm, slurm, base, repository, script, state, code):
    service = on_slurm()
    service.submit(base, head_of(repository.commit({"train/loop.py": script})))
    Stepping(service).until(all_ended(service))
    assert run_states(service) == [("base", "finished", None), ("head", state, code)]
    assert {job["state"] for job in slurm.jobs().values()} <= {"COMPLETED", "FAILED", "CANCELLED"}


def test_a_launcher_that_does_not_run_the_commit_is_refused(
    on_slurm, slurm, base, repository, tmp_path
):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(LOOP)
    service = on_slurm(
        command=f'["{sys.executable}", "{elsewhere}", "--steps={{steps}}", "--seed={{seed}}", '
        '"--out={output}"]'
    )
    submit_one(service, base)
    worker = Stepping(service)
    worker.until(all_ended(service))
    assert ("base", "failed", "LAUNCHER_REFUSED") in run_states(service)
    service.submit(base, head_of(repository.commit({"train/more.py": ""})))
    worker.until(all_ended(service))
    assert len(slurm.jobs()) == 1  # it is remembered, and no more is submitted


def test_losses_that_are_printed_are_followed(on_slurm, base, repository):
    service = on_slurm(reports='{path = "stdout"}')
    head = repository.commit({"train/loop.py": LOOP.replace("log.write(", "print(end=")})
    service.submit(head, head_of(head, "quantized", "nvfp4"))
    Stepping(service).until(all_ended(service))
    assert {(state, code) for _, state, code in run_states(service)} == {("finished", None)}


def test_a_worker_that_is_killed_loses_nothing_and_the_next_one_goes_on(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    submit_one(service, gated)
    first = Stepping(service)
    first.until(waits_at_the_gate(service))
    first.forget()
    expire_leases(service)
    run = service.run(only_row(service).run_id)
    assert (run.state, run.crashes) == ("queued", 0)
    assert service.claim() is None  # its job trains on: no slot may begin it again
    gate.touch()
    Stepping(service).until(all_ended(service))
    run = service.run(run.id)
    assert (run.state, run.crashes) == ("finished", 0)
    assert attempt_states(service, run.id) == ["lost", "finished"]
    whole_losses(service, run.id)
    assert len(slurm.jobs()) == 1
    with service.database.read() as session:
        # from the first step that was not recorded
        assert session.get_one(Attempt, (run.id, 2)).first_step == 10


def test_a_worker_that_stops_leaves_the_job(on_slurm, slurm, gated, gate):
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    for run in worker.submitter._runs.values():
        run.leave()
    assert service.run(only_row(service).run_id).state == "queued"
    gate.touch()
    Stepping(service).until(all_ended(service))
    assert attempt_states(service, only_row(service).run_id) == ["released", "finished"]
    assert len(slurm.jobs()) == 1


def test_a_job_that_is_taken_from_its_node_starts_again_and_its_steps_replace_the_earlier_ones(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    slurm.call("scontrol", "requeue", only_row(service).scheduler_id)
    gate.touch()
    worker.until(all_ended(service))
    run = service.run(only_row(service).run_id)
    assert (run.state, run.crashes) == ("finished", 0)
    assert attempt_states(service, run.id) == ["released", "finished"]
    whole_losses(service, run.id)
    with service.database.read() as session:
        assert session.get_one(Attempt, (run.id, 2)).first_step == 0
    row = only_row(service)
    assert (row.start, row.attempt_number, row.number) == (1, 2, 1)


def test_a_start_that_nobody_saw_is_seen_by_the_next_worker(on_slurm, slurm, gated, gate):
    service = on_slurm()
    submit_one(service, gated)
    first = Stepping(service)
    first.until(waits_at_the_gate(service))
    first.forget()
    slurm.call("scontrol", "requeue", only_row(service).scheduler_id)
    gate.touch()
    expire_leases(service)
    Stepping(service).until(all_ended(service))
    run = service.run(only_row(service).run_id)
    assert attempt_states(service, run.id) == ["lost", "finished"]
    whole_losses(service, run.id)
    with service.database.read() as session:
        assert session.get_one(Attempt, (run.id, 2)).first_step == 0


def test_cancel_ends_the_run_at_once_and_its_job_soon(on_slurm, slurm, gated):
    service = on_slurm()
    job = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(
        lambda: len([row for row in submissions_of(service) if row.start is not None]) == 2
    )
    with service.owner_database.write() as session:
        cancel_job(session, job)
    assert {state for _, state, _ in run_states(service)} == {"cancelled"}
    worker.forget()  # whoever submitted it is gone: any worker sweeps
    other = Stepping(service)
    other.until(lambda: all(row.state == "ended" for row in submissions_of(service)))
    assert not {job["state"] for job in slurm.jobs().values()} & {"RUNNING", "PENDING"}
    other.until(lambda: not any((service.settings.state_dir / "submitted").iterdir()))


def test_a_held_job_on_no_record_is_cancelled_and_that_of_somebody_else_is_left(
    on_slurm, slurm, base
):
    service = on_slurm()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    with service.database.read() as session:
        prefix = submissions.deployment(session)
    for name in (
        f"{prefix}-r0123456789ab-0123456789-1",
        "parity-00000000-r0123456789ab-0123456789-1",
        "theirs",
    ):
        slurm.call(
            "sbatch",
            "--hold",
            "--export=NIL",
            f"--job-name={name}",
            "--output=/dev/null",
            "/bin/true",
        )
    worker = Stepping(service)
    worker.until(all_ended(service))
    worker.round()
    waiting = {job["name"] for job in slurm.jobs().values() if job["reason"] == "JobHeldUser"}
    assert waiting == {"parity-00000000-r0123456789ab-0123456789-1", "theirs"}


def test_a_scheduler_that_is_away_fails_nothing_and_is_told_once(on_slurm, slurm, base, caplog):
    service = on_slurm()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    slurm.is_down(True)
    worker = Stepping(service)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            worker.round()
            time.sleep(0.02)
        assert {state for _, state, _ in run_states(service)} == {"running"}
        assert all(
            submissions.why_not_training(row).startswith(
                "to be submitted to Slurm: SCHEDULER_UNREACHABLE"
            )
            for row in submissions_of(service)
        )
        slurm.is_down(False)
        worker.until(all_ended(service))
    lines = [record.getMessage() for record in caplog.records]
    reported = [
        line for line in lines if "SCHEDULER_UNREACHABLE" in line or "answers again" in line
    ]
    assert len(reported) == 2
    assert {(state, code) for _, state, code in run_states(service)} == {("finished", None)}
    assert {run.crashes for run in service.job().runs} == {0}


def test_a_job_that_the_scheduler_will_not_take_fails_its_run(on_slurm, base):
    service = on_slurm(slurm='{options = ["--partition=nowhere"]}')
    submit_one(service, base)
    Stepping(service).until(all_ended(service))
    assert ("base", "failed", "SCHEDULER_REFUSED") in run_states(service)
    assert [row.state for row in submissions_of(service)] == ["ended"]


def test_where_a_run_waits_is_told_in_the_schedulers_words(on_slurm, slurm, base):
    service = on_slurm()
    submit_one(service, base)
    slurm.is_full(True)
    worker = Stepping(service)
    worker.until(
        lambda: submissions_of(service) and (only_row(service).reason or "").startswith("PENDING")
    )
    row = only_row(service)
    assert (
        submissions.why_not_training(row)
        == f"in Slurm's queue as job {row.scheduler_id}: PENDING (Resources)"
    )
    assert submissions.device_seconds(row, time.time() + 60) == 0
    assert submissions.queued_seconds(row, row.created_at + 60) == 60
    with service.database.read() as session:
        document = job_document(session, session.get_one(Job, service.job().id), 30.0, None)
    (run,) = document.arms[0].runs
    assert run.waiting == submissions.why_not_training(row)
    assert document.waiting == f"1 of 2 runs wait; the first is {run.waiting}."
    assert (
        run.submissions[0].id,
        run.submissions[0].reason,
        run.submissions[0].device_seconds,
    ) == (row.scheduler_id, row.reason, 0)
    assert document.cost.device_seconds == 0
    words = status._queue_words(json_value(document))
    assert words == [f"base replicate 0 is {run.waiting}"]
    slurm.is_full(False)
    slurm.call("scontrol", "release", row.scheduler_id)
    worker.until(all_ended(service))
    assert submissions.why_not_training(only_row(service)) is None


def test_a_controller_that_comes_back_with_an_older_state_leaves_no_job_held(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    slurm.call("scancel", only_row(service).scheduler_id)
    slurm.forget(only_row(service).scheduler_id, state="PENDING", reason="JobHeldUser")
    gate.touch()
    worker.until(all_ended(service))
    assert ("base", "finished", None) in run_states(service)
    assert only_row(service).start == 1
    whole_losses(service, only_row(service).run_id)


def test_a_job_of_ours_with_the_id_of_one_that_was_forgotten_is_another_job(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    slurm.call("scancel", only_row(service).scheduler_id)
    slurm.forget(only_row(service).scheduler_id, state="RUNNING", name="another")
    gate.touch()
    worker.until(all_ended(service))
    assert [row.number for row in submissions_of(service)] == [1, 2]
    assert slurm.jobs()["1"]["state"] != "CANCELLED"


def test_a_job_that_is_over_without_its_end_is_lost_and_tried_again(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    submit_one(service, gated)
    worker = Stepping(service)
    worker.until(waits_at_the_gate(service))
    slurm.call("scancel", only_row(service).scheduler_id)
    gate.touch()
    worker.until(all_ended(service))
    first, second = submissions_of(service)
    run = service.run(first.run_id)
    assert (run.state, run.crashes) == ("finished", 1)
    assert attempt_states(service, run.id) == ["crashed", "finished"]
    with service.database.read() as session:
        assert "JOB_LOST" in session.get_one(Attempt, (run.id, 1)).message
    assert (first.state, second.number, second.exit_status) == ("ended", 2, 0)
    assert first.key != second.key
    whole_losses(service, run.id)


def test_what_the_job_says_outranks_the_scheduler(on_slurm, slurm, base, monkeypatch):
    """Slurm once called a job running for 18 minutes after its end."""
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.0)
    service = on_slurm()
    submit_one(service, base)
    slurm.is_full(True)
    worker = Stepping(service)
    worker.until(lambda: submissions_of(service) and only_row(service).state == "released")
    subprocess.run(
        ["sh", f"{only_row(service).folder}/job.sh"],
        env={"PATH": slurm.path, "SLURM_JOB_ID": only_row(service).scheduler_id},
        check=True,
    )
    assert slurm.jobs()[only_row(service).scheduler_id]["state"] == "PENDING"
    worker.until(all_ended(service))
    assert ("base", "finished", None) in run_states(service)


def test_a_launcher_that_changed_lets_its_jobs_go_on_and_begins_no_other_attempt(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(
        lambda: [service.run(row.run_id).steps_done for row in submissions_of(service)] == [10, 10]
    )
    worker.forget()
    file = service.settings.launchers
    file.write_text(
        file.read_text()
        .replace("libraries of the tests", "other libraries")
        .replace('"metrics.jsonl"', '"elsewhere.jsonl"')
    )
    expire_leases(service)
    again = Stepping(service)
    again.until(lambda: {state for _, state, _ in run_states(service)} == {"running"})
    lost = next(
        row for row in submissions_of(service) if service.run(row.run_id).arm.name == "base"
    )
    slurm.call("scancel", lost.scheduler_id)
    gate.touch()
    again.until(all_ended(service))
    assert run_states(service) == [
        ("base", "failed", "LAUNCHER_CHANGED"),
        ("quantized", "finished", None),
    ]
    assert len(slurm.jobs()) == 2


@pytest.mark.parametrize(
    ("limits", "code"), [("{seconds = 0.5}", "TIME_LIMIT"), ("{output_bytes = 10}", "OUTPUT_LIMIT")]
)
def test_the_launchers_limits_hold_on_the_node(on_slurm, slurm, gated, monkeypatch, limits, code):
    monkeypatch.setattr(submitted, "_SIZES", (0.1, 0.05))
    service = on_slurm(limits=limits)
    submit_one(service, gated)
    Stepping(service).until(all_ended(service))
    assert ("base", "failed", code) in run_states(service)
    assert {job["state"] for job in slurm.jobs().values()} == {"CANCELLED"}


def test_all_leases_are_renewed_at_once_and_lost_ones_are_named(on_slurm, base):
    service = on_slurm(scheduler='"slurm"')
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    with service.database.write() as session:
        claims = [lease.claim(session, service.worker, 5.0, submitted=True) for _ in range(2)]
    with service.owner_database.write() as session:
        lifecycle.cancel(session, session.get_one(Run, claims[1].run_id))
    with service.database.write() as session:
        assert lease.renew_all(session, claims, 1000.0) == {claims[1].run_id}
        assert lease.renew_all(session, [], 5.0) == set()
    assert service.run(claims[0].run_id).lease_expires_at > time.time() + 500
