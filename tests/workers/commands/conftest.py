"""A git repository with a trainer, a file of launchers that starts it, and a worker that has these
launchers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.database.metrics import store
from server.database.tables import Job, Run, Worker
from server.jobs import conclude, verdict_rows
from server.jobs.submit import JobSubmission, submit_registered
from tests.workers.commands.schedulers import PlaySlurm
from training.command import Command
from training.spec import SPEC_VERSION, ArmSpec, JobSpec, Schedule
from workers import lease, supervisor
from workers.commands.launchers import read_launchers
from workers.slots import Slot

ON_SLURM = {"scheduler": '"slurm"', "device_class": '"2 x H100"'}
STEPS = 60
LOOP = (Path(__file__).parent / "loop.py").read_text(encoding="utf-8")
_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_AUTHOR = {
    f"GIT_{who}_{what}": "someone@example.org"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


class Repository:
    """A repository of the tests; `commit` writes files on a branch and gives the id."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        environment = {**os.environ, **_ENVIRONMENT, **_AUTHOR}
        return subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def commit(self, files: dict[str, str], branch: str = "main", start: str | None = None) -> str:
        """Commit files on a branch, which begins at `start` where it is new."""
        if start is not None:
            self.git("checkout", "--quiet", "-b", branch, start)
        elif self.git("branch", "--list", branch):
            self.git("checkout", "--quiet", branch)
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "model")


@pytest.fixture
def base(repository):
    """The first commit, with the trainer in it."""
    return repository.commit({"train/loop.py": LOOP, "README.md": "a model"})


@pytest.fixture
def gate(tmp_path):
    """The file that trainers of the commit `gated` wait for."""
    return tmp_path / "gate"


@pytest.fixture
def gated(repository, base, gate):
    """A commit whose trainer stops after ten steps until the file `gate` exists, so that it cannot
    finish first on a slow machine.
    """
    waits = (
        f"            while step == 10 and not Path({str(gate)!r}).exists():\n                "
        "__import__('time').sleep(0.02)\n"
    )
    return repository.commit(
        {"train/loop.py": LOOP.replace("            log.write(", waits + "            log.write(")}
    )


@pytest.fixture
def write_launchers(tmp_path, repository):
    """A function that writes the file of launchers; `changes` replaces keys of the launcher (values
    in TOML), `more` adds tables.
    """

    def write(more: str = "", **changes: str) -> Path:
        command = [
            "train/loop.py",
            "--steps={steps}",
            "--seed={seed}",
            "--out={output}",
            "--width={width}",
        ]
        keys = {
            "repository": f'"{repository.path}"',
            "paths": '["train"]',
            "command": str([sys.executable, *command]),
            "recipes": '{bf16 = [], nvfp4 = ["--recipe=nvfp4"]}',
            "parameters": '{width = {type = "int", min = 2, max = 64, default = 16}}',
            "reports": '{path = "metrics.jsonl"}',
            "pinned": '"libraries of the tests"',
        } | changes
        path = tmp_path / "launchers.toml"
        path.write_text(
            "[launcher.loop]\n"
            + "".join(f"{key} = {value}\n" for key, value in keys.items())
            + more,
            encoding="utf-8",
        )
        return path

    return write


class Stack:
    """A worker with launchers on a record, without its threads."""

    base: str
    head: str

    def __init__(self, settings, database, owner_database, launchers):
        self.settings = settings.model_copy(
            update={"launchers": launchers, "capability": "command"}
        )
        self.database, self.owner_database = database, owner_database
        documents = {
            name: launcher.document() for name, launcher in read_launchers(launchers).items()
        }
        device = {
            "device_class": "command",
            "threads_per_run": 1,
            "spec_version": SPEC_VERSION,
            "devices": 1,
            "launchers": documents,
        }
        self.worker = Worker(
            id="w-launchers",
            name="launchers",
            capability="command",
            slots=1,
            device=device,
            started_at=time.time(),
            heartbeat_at=time.time(),
        )
        with database.write() as session:
            session.add(self.worker)
            session.flush()
            session.expunge(self.worker)

    def submit(
        self, base, *candidates, parameters=None, steps=STEPS, launcher="loop", sent=None, **policy
    ):
        command = Command(launcher=launcher, parameters=parameters or {})
        spec = JobSpec(
            name="a change",
            engine="command",
            command=command,
            schedule=Schedule(steps=steps, warmup_steps=0),
            baseline=ArmSpec(recipe="bf16", revision=base, name="base"),
            candidates=tuple(candidates),
        )
        with self.owner_database.write() as session:
            submission = JobSubmission(
                spec=spec,
                policy=policy_from_mapping({"margin": "1.0%", **policy}),
                revision="r",
                sent=sent,
            )
            return submit_registered(session, submission, "someone").id

    def claim(self):
        with self.database.write() as session:
            return lease.claim(session, self.worker, self.settings.lease_seconds)

    def train(self, stopping=None, claim=None, **changes):
        """Claim the next run and train it; returns the run."""
        claim = claim or self.claim()
        supervisor.train(
            self.settings.model_copy(update=changes),
            self.database,
            claim,
            Slot(),
            stopping or threading.Event(),
        )
        return self.run(claim.run_id)

    def claim_and_train(self):
        claim = self.claim()
        return None if claim is None else self.train(claim=claim)

    def verdicts(self, base, *candidates, steps=400, **more):
        """Train a job and judge it; the verdicts by candidate."""
        job = self.submit(base, *candidates, steps=steps, **more)
        while self.claim_and_train():
            pass
        return self.judged(job)

    def judged(self, job):
        """The verdicts of a job whose runs have ended, by candidate."""
        conclude.conclude(self.database, job)
        with self.database.read() as session:
            return {
                document["candidate"]["name"]: document
                for document in verdict_rows.verdict_documents(session.get_one(Job, job))
            }

    def run(self, run_id):
        with self.database.read() as session:
            run = session.get_one(Run, run_id)
            assert run.arm.name
            return run

    def job(self):
        """The newest job, with its runs."""
        with self.database.read() as session:
            job = session.scalars(select(Job).order_by(Job.id.desc())).first()
            assert job.runs
            return job

    def steps(self, run_id):
        with self.database.read() as session:
            return store.read(session, run_id, "train")


@pytest.fixture
def stack(settings, database, owner_database, write_launchers):
    def make(**changes):
        return Stack(settings, database, owner_database, write_launchers(**changes))

    return make


def head_of(revision, name="head", recipe="bf16", **more):
    """An arm at a commit."""
    return ArmSpec(recipe=recipe, revision=revision, name=name, **more)


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
