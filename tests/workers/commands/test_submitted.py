"""Runs that a scheduler trains: submitted once, found again, started anew, cancelled, lost; with a
stand-in for Slurm's programs.
"""

import logging
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select, update

from parity.canonical_json import json_value
from parity.cli.jobs import status
from server.database.tables import Attempt, Job, Run, Submission
from server.documents.jobs import job_document
from server.jobs import lifecycle, submissions
from server.jobs.lifecycle import cancel_job
from tests.workers.commands.conftest import LOOP, STEPS, head_of
from tests.workers.commands.schedulers import PlaySlurm, Stepping
from workers import lease, reconcile, submitted
from workers.commands import follow
from workers.listings import Schedulers
from workers.recorder import StepRecorder, write_all

pytestmark = pytest.mark.both_databases
ON_SLURM = {"scheduler": '"slurm"', "device_class": '"2 x H100"'}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    made = PlaySlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", made.path)
    yield made
    made.cancel_all()


@pytest.fixture
def on_slurm(stack, slurm):
    def make(**changes):
        return stack(**(ON_SLURM | changes))

    return make


def _states(service):
    with service.database.read() as session:
        return sorted((run.arm.name, run.state, run.code) for run in session.scalars(select(Run)))


def _all_ended(service):
    return lambda: all(
        state in ("finished", "failed", "cancelled") for _, state, _ in _states(service)
    )


def _rows(service):
    with service.database.read() as session:
        return session.scalars(
            select(Submission).order_by(Submission.run_id, Submission.number)
        ).all()


def _waits_at_the_gate(service):
    return lambda: [service.run(row.run_id).steps_done for row in _rows(service)] == [10]


def _row(service):
    (row,) = _rows(service)
    return row


def _attempts(service, run_id):
    with service.database.read() as session:
        return session.scalars(
            select(Attempt.state).where(Attempt.run_id == run_id).order_by(Attempt.attempt_number)
        ).all()


def _expire(service):
    """Let all leases end, as if their worker had been killed a while ago, and give the runs
    back.
    """
    with service.database.write() as session:
        session.execute(update(Run).where(Run.state == "running").values(lease_expires_at=1.0))
    reconcile.give_back_expired(service.settings, service.database)


def _only_one(service, base, **more):
    """A job whose second run is of no use here: it is cancelled."""
    service.submit(base, head_of(base, "quantized", "nvfp4"), **more)
    with service.owner_database.write() as session:
        run = next(run for run in session.scalars(select(Run)) if run.arm.name == "quantized")
        lifecycle.cancel(session, run)


def _run_of(service, arm):
    with service.database.read() as session:
        return next(run.id for run in session.scalars(select(Run)) if run.arm.name == arm)


def _whole(service, run_id):
    steps, columns = service.steps(run_id)
    assert steps.tolist() == list(range(STEPS))
    return columns["lm_loss"].tobytes()


def test_runs_train_on_the_cluster_and_are_judged(on_slurm, slurm, base, repository):
    service = on_slurm(slurm='{options = ["--partition=low"]}')
    head = repository.commit({"train/loop.py": LOOP.replace("SKIPPED = 1", "SKIPPED = 4")})
    job = service.submit(base, head_of(head))
    assert service.claim() is None  # no slot takes them
    worker = Stepping(service)
    worker.until(_all_ended(service))
    assert _states(service) == [("base", "finished", None), ("head", "finished", None)]
    assert len({_whole(service, run.id) for run in service.job().runs}) == 2
    rows = _rows(service)
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
    worker.until(_all_ended(service))
    readme = repository.commit({"README.md": "changed"})
    service.submit(base, head_of(readme))
    worker.until(_all_ended(service))
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
    Stepping(service).until(_all_ended(service))
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
    Stepping(service).until(_all_ended(service))
    assert _states(service) == [("base", "finished", None), ("head", state, code)]
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
    _only_one(service, base)
    worker = Stepping(service)
    worker.until(_all_ended(service))
    assert ("base", "failed", "LAUNCHER_REFUSED") in _states(service)
    service.submit(base, head_of(repository.commit({"train/more.py": ""})))
    worker.until(_all_ended(service))
    assert len(slurm.jobs()) == 1  # it is remembered, and no more is submitted


def test_losses_that_are_printed_are_followed(on_slurm, base, repository):
    service = on_slurm(reports='{path = "stdout"}')
    head = repository.commit({"train/loop.py": LOOP.replace("log.write(", "print(end=")})
    service.submit(head, head_of(head, "quantized", "nvfp4"))
    Stepping(service).until(_all_ended(service))
    assert {(state, code) for _, state, code in _states(service)} == {("finished", None)}


def test_a_worker_that_is_killed_loses_nothing_and_the_next_one_goes_on(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    _only_one(service, gated)
    first = Stepping(service)
    first.until(_waits_at_the_gate(service))
    first.forget()
    _expire(service)
    run = service.run(_row(service).run_id)
    assert (run.state, run.crashes) == ("queued", 0)
    assert service.claim() is None  # its job trains on: no slot may begin it again
    gate.touch()
    Stepping(service).until(_all_ended(service))
    run = service.run(run.id)
    assert (run.state, run.crashes) == ("finished", 0)
    assert _attempts(service, run.id) == ["lost", "finished"]
    _whole(service, run.id)
    assert len(slurm.jobs()) == 1
    with service.database.read() as session:
        # from the first step that was not recorded
        assert session.get_one(Attempt, (run.id, 2)).first_step == 10


def test_a_worker_that_stops_leaves_the_job(on_slurm, slurm, gated, gate):
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    for run in worker.submitter._runs.values():
        run.leave()
    assert service.run(_row(service).run_id).state == "queued"
    gate.touch()
    Stepping(service).until(_all_ended(service))
    assert _attempts(service, _row(service).run_id) == ["released", "finished"]
    assert len(slurm.jobs()) == 1


def test_a_job_that_is_taken_from_its_node_starts_again_and_its_steps_replace_the_earlier_ones(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    slurm.call("scontrol", "requeue", _row(service).scheduler_id)
    gate.touch()
    worker.until(_all_ended(service))
    run = service.run(_row(service).run_id)
    assert (run.state, run.crashes) == ("finished", 0)
    assert _attempts(service, run.id) == ["released", "finished"]
    _whole(service, run.id)
    with service.database.read() as session:
        assert session.get_one(Attempt, (run.id, 2)).first_step == 0
    row = _row(service)
    assert (row.start, row.attempt_number, row.number) == (1, 2, 1)


def test_a_start_that_nobody_saw_is_seen_by_the_next_worker(on_slurm, slurm, gated, gate):
    service = on_slurm()
    _only_one(service, gated)
    first = Stepping(service)
    first.until(_waits_at_the_gate(service))
    first.forget()
    slurm.call("scontrol", "requeue", _row(service).scheduler_id)
    gate.touch()
    _expire(service)
    Stepping(service).until(_all_ended(service))
    run = service.run(_row(service).run_id)
    assert _attempts(service, run.id) == ["lost", "finished"]
    _whole(service, run.id)
    with service.database.read() as session:
        assert session.get_one(Attempt, (run.id, 2)).first_step == 0


def test_cancel_ends_the_run_at_once_and_its_job_soon(on_slurm, slurm, gated):
    service = on_slurm()
    job = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(lambda: len([row for row in _rows(service) if row.start is not None]) == 2)
    with service.owner_database.write() as session:
        cancel_job(session, job)
    assert {state for _, state, _ in _states(service)} == {"cancelled"}
    worker.forget()  # whoever submitted it is gone: any worker sweeps
    other = Stepping(service)
    other.until(lambda: all(row.state == "ended" for row in _rows(service)))
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
    worker.until(_all_ended(service))
    worker.round()
    held = {job["name"] for job in slurm.jobs().values() if job["reason"] == "JobHeldUser"}
    assert held == {"parity-00000000-r0123456789ab-0123456789-1", "theirs"}


def test_a_scheduler_that_is_away_fails_nothing_and_is_told_once(on_slurm, slurm, base, caplog):
    service = on_slurm()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    slurm.is_down(True)
    worker = Stepping(service)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            worker.round()
            time.sleep(0.02)
        assert {state for _, state, _ in _states(service)} == {"running"}
        assert all(
            submissions.why_not_training(row).startswith(
                "to be submitted to Slurm: SCHEDULER_UNREACHABLE"
            )
            for row in _rows(service)
        )
        slurm.is_down(False)
        worker.until(_all_ended(service))
    lines = [record.getMessage() for record in caplog.records]
    told = [line for line in lines if "SCHEDULER_UNREACHABLE" in line or "answers again" in line]
    assert len(told) == 2
    assert {(state, code) for _, state, code in _states(service)} == {("finished", None)}
    assert {run.crashes for run in service.job().runs} == {0}


def test_a_job_that_the_scheduler_will_not_take_fails_its_run(on_slurm, base):
    service = on_slurm(slurm='{options = ["--partition=nowhere"]}')
    _only_one(service, base)
    Stepping(service).until(_all_ended(service))
    assert ("base", "failed", "SCHEDULER_REFUSED") in _states(service)
    assert [row.state for row in _rows(service)] == ["ended"]


def test_where_a_run_waits_is_told_in_the_schedulers_words(on_slurm, slurm, base):
    service = on_slurm()
    _only_one(service, base)
    slurm.is_full(True)
    worker = Stepping(service)
    worker.until(lambda: _rows(service) and (_row(service).reason or "").startswith("PENDING"))
    row = _row(service)
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
    told = status._queue_words(json_value(document))
    assert told == [f"base replicate 0 is {run.waiting}"]
    slurm.is_full(False)
    slurm.call("scontrol", "release", row.scheduler_id)
    worker.until(_all_ended(service))
    assert submissions.why_not_training(_row(service)) is None


def test_a_controller_that_comes_back_with_an_older_state_leaves_no_job_held(
    on_slurm, slurm, gated, gate
):
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    slurm.call("scancel", _row(service).scheduler_id)
    slurm.forget(_row(service).scheduler_id, state="PENDING", reason="JobHeldUser")
    gate.touch()
    worker.until(_all_ended(service))
    assert ("base", "finished", None) in _states(service)
    assert _row(service).start == 1
    _whole(service, _row(service).run_id)


def test_a_job_of_ours_with_the_id_of_one_that_was_forgotten_is_another_job(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    slurm.call("scancel", _row(service).scheduler_id)
    slurm.forget(_row(service).scheduler_id, state="RUNNING", name="another")
    gate.touch()
    worker.until(_all_ended(service))
    assert [row.number for row in _rows(service)] == [1, 2]
    assert slurm.jobs()["1"]["state"] != "CANCELLED"


def test_a_job_that_is_over_without_its_end_is_lost_and_tried_again(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    slurm.call("scancel", _row(service).scheduler_id)
    gate.touch()
    worker.until(_all_ended(service))
    first, second = _rows(service)
    run = service.run(first.run_id)
    assert (run.state, run.crashes) == ("finished", 1)
    assert _attempts(service, run.id) == ["crashed", "finished"]
    with service.database.read() as session:
        assert "JOB_LOST" in session.get_one(Attempt, (run.id, 1)).message
    assert (first.state, second.number, second.exit_status) == ("ended", 2, 0)
    assert first.key != second.key
    _whole(service, run.id)


def test_what_the_job_says_outranks_the_scheduler(on_slurm, slurm, base, monkeypatch):
    """Slurm once called a job running for 18 minutes after its end."""
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.0)
    service = on_slurm()
    _only_one(service, base)
    slurm.is_full(True)
    worker = Stepping(service)
    worker.until(lambda: _rows(service) and _row(service).state == "released")
    subprocess.run(
        ["sh", f"{_row(service).folder}/job.sh"],
        env={"PATH": slurm.path, "SLURM_JOB_ID": _row(service).scheduler_id},
        check=True,
    )
    assert slurm.jobs()[_row(service).scheduler_id]["state"] == "PENDING"
    worker.until(_all_ended(service))
    assert ("base", "finished", None) in _states(service)


def test_a_launcher_that_changed_lets_its_jobs_go_on_and_begins_no_other_attempt(
    on_slurm, slurm, gated, gate, monkeypatch
):
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    worker = Stepping(service)
    worker.until(lambda: [service.run(row.run_id).steps_done for row in _rows(service)] == [10, 10])
    worker.forget()
    file = service.settings.launchers
    file.write_text(
        file.read_text()
        .replace("libraries of the tests", "other libraries")
        .replace('"metrics.jsonl"', '"elsewhere.jsonl"')
    )
    _expire(service)
    again = Stepping(service)
    again.until(lambda: {state for _, state, _ in _states(service)} == {"running"})
    lost = next(row for row in _rows(service) if service.run(row.run_id).arm.name == "base")
    slurm.call("scancel", lost.scheduler_id)
    gate.touch()
    again.until(_all_ended(service))
    assert _states(service) == [
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
    _only_one(service, gated)
    Stepping(service).until(_all_ended(service))
    assert ("base", "failed", code) in _states(service)
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


# What a node, an operator or another worker may do to us.


def _clock_is_wrong(slurm, seconds):
    """Let the clock of the nodes be wrong by these seconds."""
    date = slurm.programs / "date"
    date.write_text(f"#!/bin/sh\necho $(($(/bin/date +%s) + {seconds}))\n")
    date.chmod(0o755)


@pytest.mark.parametrize("wrong", [-36_000, 36_000])
def test_a_node_whose_clock_is_wrong_costs_no_device_hours_and_no_run(on_slurm, slurm, base, wrong):
    _clock_is_wrong(slurm, wrong)
    service = on_slurm()
    _only_one(service, base)
    Stepping(service, max_run_seconds=3600.0).until(_all_ended(service))
    assert ("base", "finished", None) in _states(service)
    row, now = _row(service), time.time()
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
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    (Path(_row(service).folder) / name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    for _ in range(2):
        worker.round()
    assert (service.run(_row(service).run_id).state, _row(service).start) == ("running", 0)
    gate.touch()
    worker.until(_all_ended(service))
    assert (_row(service).number, _row(service).exit_status) == (1, 0)
    _whole(service, _row(service).run_id)


def test_starts_that_a_trainer_invents_are_believed_up_to_a_number(
    on_slurm, slurm, gated, monkeypatch
):
    monkeypatch.setattr(submitted, "_MOST_STARTS", 5)
    monkeypatch.setattr(submitted, "LOST_SECONDS", 0.1)
    service = on_slurm()
    _only_one(service, gated)
    worker = Stepping(service)
    worker.until(_waits_at_the_gate(service))
    for number in range(1, 100):
        (Path(_row(service).folder) / f"started.{number}").write_text("1 1700000000 node 1\n")
    worker.round()
    assert _row(service).start == 5
    assert len(_attempts(service, _row(service).run_id)) == 2
    assert (
        submissions.device_seconds(_row(service), time.time())
        < time.time() - _row(service).created_at + 1
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
    Stepping(service).until(_all_ended(service))
    assert _states(service) == [("base", "finished", None), ("head", "failed", "LOG_REFUSED")]
    _whole(service, _run_of(service, "base"))


def test_steps_that_cannot_be_written_end_their_own_run_alone(on_slurm, base, monkeypatch):
    flush = StepRecorder.flush
    service = on_slurm()
    service.submit(base, head_of(base, "quantized", "nvfp4"))
    bad = _run_of(service, "base")

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
    Stepping(service).until(_all_ended(service))
    assert _states(service) == [
        ("base", "failed", "WORKER_CRASHED"),
        ("quantized", "finished", None),
    ]
    assert service.run(bad).crashes == service.settings.max_attempts


def test_a_scheduler_whose_programs_are_not_installed_is_told_and_nothing_fails(
    on_slurm, slurm, base, monkeypatch, tmp_path
):
    service = on_slurm()
    _only_one(service, base)
    path = slurm.path
    worker = Stepping(service)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    worker.until(lambda: _rows(service) and _row(service).reason)
    worker.round()
    assert "squeue cannot be started" in submissions.why_not_training(_row(service))
    assert "PATH" in submissions.why_not_training(_row(service))
    monkeypatch.setenv("PATH", path)
    worker.until(_all_ended(service))
    assert ("base", "finished", None) in _states(service)


def test_a_scheduler_that_takes_no_more_jobs_for_now_is_not_away(on_slurm, slurm, base, caplog):
    service = on_slurm(slurm='{options = ["--partition=limited"]}')
    _only_one(service, base)
    worker = Stepping(service)
    with caplog.at_level(logging.WARNING):
        worker.until(lambda: _rows(service) and _row(service).reason)
        for _ in range(5):
            worker.round()
    assert "MaxSubmitJobLimit" in submissions.why_not_training(_row(service))
    assert not [record for record in caplog.records if "answer" in record.getMessage()]
    (slurm.folder / "unlimited").touch()
    worker.until(_all_ended(service))
    assert ("base", "finished", None) in _states(service)


def test_workers_that_sweep_at_once_end_each_job_once(on_slurm, slurm, gated):
    service = on_slurm()
    job = service.submit(gated, head_of(gated, "quantized", "nvfp4"))
    first = Stepping(service)
    first.until(lambda: len([row for row in _rows(service) if row.start is not None]) == 2)
    with service.owner_database.write() as session:
        cancel_job(session, job)
    workers = [Schedulers(service.settings, service.database, service.worker) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            for done in [pool.submit(each.sweep, {}) for each in workers]:
                done.result()
    first.forget()
    assert [(row.number, row.state) for row in _rows(service)] == [(1, "ended"), (1, "ended")]
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
    _only_one(service, slow)
    worker = Stepping(service)
    worker.until(lambda: _rows(service) and service.run(_row(service).run_id).steps_done > 1)
    slurm.forget(_row(service).scheduler_id, state="CANCELLED")
    worker.until(_all_ended(service))
    assert [(row.number, row.exit_status) for row in _rows(service)] == [(1, 0)]
    assert ("base", "finished", None) in _states(service)
