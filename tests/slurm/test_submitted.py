"""Runs of launchers that are submitted to a real Slurm, which preempts, cancels and loses their
jobs, and whose daemons are killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Attempt, Run, Submission
from server.jobs import submissions
from server.jobs.lifecycle import cancel_job
from server.jobs.submit import JobSubmission as Wanted
from server.jobs.submit import submit_registered
from server.settings import CHECKOUT
from tests.slurm.conftest import Cluster, wait_until
from tests.workers.commands.conftest import LOOP, Repository, Stack, head_of
from training.command import Command
from training.spec import ArmSpec, JobSpec, Schedule

STEPS = 250
# No run ends while the file is there, so that something trains when each fault comes, however slow
# the machine is.
SLOW = """\
            __import__('time').sleep(0.1)
            while step == steps - 1 and Path({hold!r}).exists():
                __import__('time').sleep(0.1)
            log.write("""
# Two seconds instead of a minute until a job that is over without its end counts as lost.
WORKER = """
import logging, signal, threading
from server.settings import Settings
from workers import submitted
from workers.runtime import Runtime
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
submitted.LOST_SECONDS = 2.0
runtime, over = Runtime(Settings()), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
runtime.start()
over.wait()
runtime.stop()
runtime.sign_off()
"""


class Worker:
    """A worker in a process of its own; it is killed and started again."""

    def __init__(self, settings, cluster: Cluster, launchers) -> None:
        variables = {
            "PARITY_STATE_DIR": settings.state_dir,
            "PARITY_DATABASE_URL": settings.database,
            "PARITY_CAPABILITY": "command",
            "PARITY_LAUNCHERS": launchers,
            "PARITY_SLOTS": 1,
            "PARITY_LEASE_SECONDS": 4,
            "PARITY_HEARTBEAT_SECONDS": 0.5,
            "PARITY_RECONCILE_SECONDS": 0.5,
            "PARITY_FLUSH_SECONDS": 0.2,
        }
        self._environment = cluster.environment | {
            name: str(value) for name, value in variables.items()
        }
        self.log = settings.state_dir / "worker.log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WORKER],
                cwd=CHECKOUT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


@pytest.fixture
def hold(tmp_path):
    path = tmp_path / "hold"
    path.touch()
    return path


@pytest.fixture
def service(cluster, settings, database, owner_database, tmp_path, hold):
    """A record with a launcher for the cluster, and what it submits."""
    repository = Repository(tmp_path / "model")
    service = Stack(settings, database, owner_database, _launchers(tmp_path, repository))
    slow = LOOP.replace("            log.write(", SLOW.format(hold=str(hold)))
    service.base = repository.commit({"train/loop.py": slow})
    service.head = repository.commit({"train/loop.py": slow.replace("SKIPPED = 1", "SKIPPED = 4")})
    return service


def _launchers(folder, repository):
    path = folder / "launchers.toml"
    command = [
        sys.executable,
        "train/loop.py",
        "--steps={steps}",
        "--seed={seed}",
        "--out={output}",
    ]
    path.write_text(
        f'[launcher.loop]\nrepository = "{repository.path}"\npaths = ["train"]\ncommand = '
        f"{command}\nrecipes = {{bf16 = []}}\n"
        'reports = {path = "metrics.jsonl"}\nscheduler = "slurm"\ndevice_class = "a CPU"\n'
        'slurm = {options = ["--partition=low", "--requeue", "--ntasks=1", "--mem=500"]}\n'
    )
    return path


@pytest.fixture
def worker(service, cluster):
    made = Worker(service.settings, cluster, service.settings.launchers)
    yield made
    made.kill()


@pytest.fixture
def until(service, cluster, worker):
    """A function that waits until something is true; the failure has all logs."""

    def describe():
        with service.database.read() as session:
            runs = [
                f"{run.id} {run.arm.name} {run.state} {run.attempt_number} {run.steps_done} "
                f"{run.code} {run.message}"
                for run in _runs(session)
            ]
            rows = [
                f"{row.key} {row.state} {row.scheduler_id} {row.start} {row.reason}"
                for row in session.scalars(select(Submission))
            ]
        return "\n".join(
            [
                *runs,
                *rows,
                worker.log.read_text()[-5000:],
                cluster.call("squeue", "--states=all", check=False),
                cluster.logs()[-6000:],
            ]
        )

    return lambda ready, seconds=240: wait_until(ready, seconds, describe)


def _runs(session):
    return session.scalars(select(Run).order_by(Run.id)).all()


def _rows(service):
    with service.database.read() as session:
        return session.scalars(select(Submission).order_by(Submission.created_at)).all()


def _steps_done(service):
    with service.database.read() as session:
        return {run.id: run.steps_done for run in _runs(session)}


def _states(service):
    with service.database.read() as session:
        return [run.state for run in _runs(session)]


def _training(service):
    """The submissions whose trainers run and have recorded steps."""
    done = _steps_done(service)
    return [
        row
        for row in _rows(service)
        if row.state == "released"
        and row.start is not None
        and 20 <= done[row.run_id] < STEPS - 100
    ]


def test_each_step_is_recorded_once_whatever_happens_to_slurm_and_the_worker(
    service, cluster, worker, until, hold
):
    job = _submit(service)
    until(lambda: _training(service))
    # The controller is away: the runs train on, and nothing fails.
    cluster.kill("slurmctld")
    before = _steps_done(service)
    until(lambda: any(now > before[run_id] + 20 for run_id, now in _steps_done(service).items()))
    cluster.start("slurmctld", "-D")
    until(cluster.is_up)
    # The worker is killed: the next one goes on with the same jobs.
    until(lambda: _training(service))
    worker.kill()
    worker.start()
    # A job is preempted, and started again.
    until(lambda: _training(service))
    urgent = cluster.call(
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--ntasks=2",
        "--output=/dev/null",
        "--wrap=sleep 2",
    ).strip()
    wait_until(lambda: cluster.state(urgent) == "COMPLETED", 120, cluster.logs)
    for row in _rows(service):
        if row.state != "ended" and row.scheduler_id:
            # Slurm itself waits two minutes
            cluster.call(
                "scontrol", "update", f"JobId={row.scheduler_id}", "StartTime=now", check=False
            )
    until(lambda: any((row.start or 0) > 0 for row in _rows(service)))
    # A job is cancelled behind our back: its run is lost, and submitted again.
    until(lambda: _training(service))
    cancelled = _training(service)[0]
    cluster.call("scancel", cancelled.scheduler_id)
    # before the daemon that ends it is killed
    until(lambda: [row.state for row in _rows(service) if row.key == cancelled.key] == ["ended"])
    # The daemon of the node is killed with its steps: the script ends, and says so, while Slurm
    # calls the job running.
    until(lambda: _training(service))
    cluster.kill("slurmd")
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "slurmstepd":
            process.kill()
    cluster.start("slurmd", "-D", "-N", "localhost")
    until(cluster.is_up)

    hold.unlink()

    def all_finished():
        for row in _rows(service):
            if row.state == "released" and (row.reason or "").startswith("PENDING"):
                cluster.call(
                    "scontrol", "update", f"JobId={row.scheduler_id}", "StartTime=now", check=False
                )
        return set(_states(service)) == {"finished"}

    until(all_finished, 400)
    worker.stop()
    with service.database.read() as session:
        for run in _runs(session):
            steps, columns = store.read(session, run.id, "train")
            assert steps.tolist() == list(range(STEPS))
            finished = [
                state
                for state in session.scalars(select(Attempt.state).where(Attempt.run_id == run.id))
                if state == "finished"
            ]
            assert finished == ["finished"]
        by_arm = {}
        for run in _runs(session):
            _, columns = store.read(session, run.id, "train")
            by_arm.setdefault((run.arm.name, run.seed), columns["lm_loss"].tobytes())
        assert len(set(by_arm.values())) == 6
    rows = _rows(service)
    assert all(row.state == "ended" for row in rows)
    assert [row.number for row in rows if row.run_id == cancelled.run_id] == [1, 2]  # it was lost
    listed = [
        line.split("|")
        for line in cluster.call(
            "squeue", "--noheader", "--states=all", "--format=%i|%T|%j"
        ).splitlines()
    ]
    ours = [(job_id, state, name) for job_id, state, name in listed if name.startswith("parity-")]
    assert not [line for line in ours if line[1] in ("PENDING", "RUNNING")]
    assert len({name for _, _, name in ours}) == len(ours)  # none twice under one key
    assert service.job().id == job
    assert all(submissions.device_seconds(row, time.time()) >= 0 for row in rows)


def _submit(service) -> str:
    spec = JobSpec(
        name="a change",
        engine="command",
        command=Command(launcher="loop"),
        schedule=Schedule(steps=STEPS, warmup_steps=0),
        baseline=ArmSpec(recipe="bf16", revision=service.base, name="base", replicates=3),
        candidates=(head_of(service.head, replicates=3),),
    )
    with service.owner_database.write() as session:
        return submit_registered(
            session,
            Wanted(spec=spec, policy=policy_from_mapping({"margin": "1.0%"}), revision="r"),
            "someone",
        ).id


def test_cancel_ends_the_jobs_and_nothing_of_the_workers_reaches_the_node(
    service, cluster, worker, until
):
    job = _submit(service)
    until(lambda: _training(service))
    (trainer, *_) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "train/loop.py" in (process.info["cmdline"] or ())
    ]
    environment = trainer.environ()
    assert "SLURM_JOB_ID" in environment
    assert not [name for name in environment if name.startswith("PARITY")]
    with service.owner_database.write() as session:
        cancel_job(session, job)
    until(lambda: all(row.state == "ended" for row in _rows(service)), 60)
    names = [row.key for row in _rows(service)]
    until(lambda: not cluster.call("squeue", "--noheader", f"--name={','.join(names)}").strip(), 60)
    until(lambda: not any((service.settings.state_dir / "submitted").iterdir()), 60)
    assert any((service.settings.state_dir / "logs" / "runs").iterdir())
