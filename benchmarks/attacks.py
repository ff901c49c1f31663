"""How long everybody waits while somebody sends requests that once stopped the server.

    python benchmarks/attacks.py [--only columns] [--checkout ANOTHER]

Starts a server that requires tokens, and asks /healthz 20 times without an attack and 20 times
while each of these runs, all of them by processes of their own, which begin again as soon as they
are answered but for the last:

- paths: three clients without a token ask for a path of 60,000 characters that a pattern of the
  log's redaction read again and again.
- columns: one client with a token of scope view asks for the same column of 50,000 steps 150 times.
- findings: one such client sends a job of 700,000 wrong candidates, 11 MiB.
- figures: eighteen such clients ask once for the figures of a job of 200 runs, which nobody has
  drawn yet.

Mark: a median of 100 ms. `--checkout` measures the server of another checkout, with this one's
database. Exit code 1 where the mark is missed. Each attack takes seconds; those that succeed,
minutes. The job of `figures` takes one to make.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from alembic import command

from parity.frozen import frozen

# benchmarks run without installing this repository
sys.path.insert(0, str(Path(__file__).parent.parent))

from housekeeping import large_job

from parity.judging.policy import policy_from_mapping
from server.database.metrics import chunk_tables, store
from server.database.sessions import Database
from server.database.tables import Job
from server.jobs.conclude import conclude
from server.jobs.submit import Order, submit_job
from server.readiness import alembic_config
from server.settings import Settings
from server.web.access import api_tokens
from training.spec import ArmSpec, JobSpec

_ASKED, _MARK_MS, _PATIENCE_SECONDS, _WARM_SECONDS = 20, 100.0, 300.0, 1.0
_STEPS, _COLUMNS, _CANDIDATES, _FIGURES = 50_000, 150, 700_000, 18


@frozen
class Request:
    """What an attacker sends, again and again or `once`."""

    path: str
    method: str = "GET"
    body: str | None = None
    token: str | None = None
    once: bool = False


def paths(_database: Database, _token: str) -> list[Request]:
    """One client each; the old pattern took quadratic time on this path, because it started again
    at each `-`.
    """
    return [Request(path="/" + "eyJ-" * 15_000)] * 3


def columns(database: Database, token: str) -> list[Request]:
    """One column, many times."""
    with database.write() as session:
        spec = JobSpec(
            name="long", baseline=ArmSpec(recipe="bf16"), candidates=(ArmSpec(recipe="nvfp4"),)
        )
        run = submit_job(
            session, spec, policy_from_mapping({"margin": "1%"}), order=Order(reuse=False)
        ).runs[0]
        loss = 2.0 + np.random.default_rng(0).normal(0, 0.1, _STEPS)
        for first in range(0, _STEPS, chunk_tables.SEALED_STEPS):
            part = loss[first : first + chunk_tables.SEALED_STEPS]
            store.append(
                session, run.id, "train", 1, np.arange(first, first + len(part)), {"lm_loss": part}
            )
        names = ",".join(["lm_loss"] * _COLUMNS)
        return [
            Request(path=f"/api/v1/runs/{run.id}/metrics?points=100000&names={names}", token=token)
        ]


def findings(_database: Database, token: str) -> list[Request]:
    """A list whose every item is wrong."""
    job = {
        "name": "x",
        "baseline": {"recipe": "bf16"},
        "candidates": [{"recipe": "q"}] * _CANDIDATES,
    }
    return [
        Request(
            path="/api/v1/jobs:plan",
            method="POST",
            body=json.dumps({"job": job, "policy": {"margin": "1%"}}),
            token=token,
        )
    ]


def figures(database: Database, token: str) -> list[Request]:
    """Figures that nobody has drawn yet, by many clients; the service draws one at a time, and
    stores what it drew.
    """
    job_id = large_job(database)
    conclude(database, job_id)
    with database.read() as session:
        names = [verdict.candidate for verdict in session.get_one(Job, job_id).verdicts]
    return [
        Request(
            path=f"/api/v1/jobs/{job_id}/verdict.svg?candidate={names[number % len(names)]}",
            token=token,
            once=True,
        )
        for number in range(_FIGURES)
    ]


_ATTACKS: dict[str, Callable[[Database, str], list[Request]]] = {
    "paths": paths,
    "columns": columns,
    "findings": findings,
    "figures": figures,
}


@contextlib.contextmanager
def serving(checkout: Path, settings: Settings) -> Iterator[tuple[int, int]]:
    """A server of this checkout that requires tokens; its port and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        "PYTHONPATH": str(checkout),
        "PARITY_STATE_DIR": str(settings.state_dir),
        "PARITY_REDIS_URL": settings.redis_url,
    }
    serve = (sys.executable, "-m", "uvicorn", "--factory", "server.app:from_environment")
    options = (
        "--http",
        "server.web.connection:Connection",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    )
    with (settings.state_dir / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*serve, *options],
            cwd=checkout,
            env={**os.environ, **variables, "PARITY_REQUIRE_TOKENS": "true", "PARITY_LOG": "text"},
            stderr=log,
        )
        try:
            _wait_until_it_answers(port)
            yield port, server.pid
        finally:
            server.kill()
            server.wait()


def _wait_until_it_answers(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            healthy(port)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def healthy(port: int) -> float:
    """The milliseconds that one answer of /healthz takes, on a connection of its own."""
    began = time.perf_counter()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    client.request("GET", "/healthz")
    status = client.getresponse().status
    client.close()
    if status != 200:
        raise RuntimeError(f"/healthz answered {status}, expected 200")
    return 1000 * (time.perf_counter() - began)


def peak_megabytes(process: int) -> float:
    """The most memory that a process has had."""
    line = next(
        line
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) / 1000


def attack(port: int, request: Request) -> None:
    """Send a request, and again if it is not sent once, whatever the answer is, until this process
    is ended.
    """
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {request.token}"} if request.token else {}
    )
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
            client.request(request.method, request.path, request.body, headers)
            client.getresponse().read()
            client.close()
        if request.once:
            return


def waits(port: int, requests: list[Request]) -> list[float]:
    """The milliseconds of 20 answers of /healthz while all of these requests are sent."""
    attackers = [
        multiprocessing.Process(target=attack, args=(port, request), daemon=True)
        for request in requests
    ]
    for attacker in attackers:
        attacker.start()
    if any(not request.once for request in requests):
        time.sleep(_WARM_SECONDS)
    try:
        answers = [healthy(port) for _ in range(_ASKED)]
        if requests and not any(attacker.is_alive() for attacker in attackers):
            raise RuntimeError(
                "the attack was over before /healthz was asked; expected one that takes longer"
            )
        return answers
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.join()


def measure(name: str, checkout: Path) -> bool:
    """Print the figures of one attack on a server of its own; whether its mark is met."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        settings = Settings(state_dir=Path(folder), redis_url="redis://127.0.0.1:1")
        command.upgrade(alembic_config(settings.database), "head")
        database = Database(settings.database)
        with database.write() as session:
            _, token = api_tokens.create_token(session, secrets.token_hex(4), ["view"], None)
        requests = _ATTACKS[name](database, token)
        database.close()
        with serving(checkout, settings) as (port, process):
            without, during = waits(port, []), waits(port, requests)
            peak = peak_megabytes(process)
    median = statistics.median(during)
    sys.stdout.write(
        f"{name:10}{median:10.1f} ms (largest {max(during):,.1f}), without the attack "
        f"{statistics.median(without):.1f} ms, "
        f"mark {_MARK_MS:g} ms; the server took up to {peak:,.0f} "
        f"MB{'' if median <= _MARK_MS else ': MISSED'}\n"
    )
    sys.stdout.flush()
    return median <= _MARK_MS


def main() -> int:
    """Measure and return 1 where a mark was missed."""
    parser = argparse.ArgumentParser(description="How long everybody waits while somebody attacks.")
    parser.add_argument(
        "--only",
        choices=tuple(_ATTACKS),
        action="append",
        help="an attack; repeat it for several [all]",
    )
    parser.add_argument(
        "--checkout",
        type=Path,
        default=Path(__file__).parent.parent,
        help="whose server is measured [this one's]",
    )
    options = parser.parse_args()
    sys.stdout.write(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before this began\n"
    )
    # all of them, whatever the first ones gave
    met = [measure(name, options.checkout.resolve()) for name in options.only or _ATTACKS]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
