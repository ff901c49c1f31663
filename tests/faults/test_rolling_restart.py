"""Two API servers behind one address, restarted in turn while trainers write and pages follow: no
step and no event is lost.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx2
import pytest

import parity
from parity.client.rest import Client, ClientError, UnreachableError
from server.database.metrics import store
from server.database.tables import Event, Job
from server.jobs.submit import submit_job
from server.settings import CHECKOUT
from tests.conftest import THOROUGH
from training.spec import ArmSpec

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.skipif(not THOROUGH, reason="a minute: make test-faults runs it"),
]

ROUNDS = 2
SECONDS = 60.0  # for a server to end or to start on a busy machine


class OneAddress:
    """A proxy of connections: each goes to the next server that accepts it."""

    def __init__(self, ports):
        self._turns, self._tries = itertools.cycle(ports), len(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self):
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self):
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=SECONDS) if tasks else None

    async def _serve(self, reader, writer):
        with contextlib.closing(writer):
            for port in itertools.islice(self._turns, self._tries):
                with contextlib.suppress(OSError):
                    from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
                    break
            else:
                return
            with contextlib.closing(to_server):
                ways = [
                    asyncio.ensure_future(way)
                    for way in (_copy(reader, to_server), _copy(from_server, writer))
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)


async def _copy(reader, writer):
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()


class Server:
    """An API server in a process of its own, as the compose file starts it."""

    def __init__(self, settings, database_url):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = (
            "-m uvicorn --factory server.app:from_environment "
            "--http server.web.connection:Connection --timeout-graceful-shutdown 5"
        )
        self._command = [sys.executable, *words.split(), "--port", str(self.port)]
        values = {
            "database_url": database_url,
            "redis_url": settings.redis_url,
            "state_dir": settings.state_dir,
        }
        self._environment = os.environ | {
            f"PARITY_{name.upper()}": str(value) for name, value in values.items()
        }
        self._environment["PARITY_REQUESTS_PER_MINUTE"] = "1000000"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self._command,
            cwd=CHECKOUT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + SECONDS
        with Client(f"http://127.0.0.1:{self.port}") as client:
            while True:
                with contextlib.suppress(UnreachableError):
                    if client.ready():
                        return
                assert time.monotonic() < deadline, "it did not start"
                time.sleep(0.1)

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(SECONDS) in (0, -signal.SIGTERM)
        self.start()


@pytest.fixture
def way(request, database, settings, database_kind):
    """The URL by which the servers reach the database: as it is, or through PgBouncer."""
    if request.param == "direct":
        return settings.database
    return request.getfixturevalue("bouncer")(settings.database)


class Load:
    """Trainers that log, pages that follow, and somebody who asks, all through one address, each in
    a thread.
    """

    def __init__(self, url, job_id, runs, spool):
        self._url, self._job_id, self._spool, self._over = url, job_id, spool, threading.Event()
        self.logged, self.answers, self.seen = {}, [], [[], []]
        work = (
            [(self._train, run) for run in runs]
            + [(self._follow, numbers) for numbers in self.seen]
            + [(self._ask, 0.02)]
        )
        self._threads = [
            threading.Thread(target=target, args=(argument,), daemon=True)
            for target, argument in work
        ]
        for thread in self._threads:
            thread.start()

    def end(self, seconds):
        """Let the trainers finish their runs, and wait for all; whether they ended in time."""
        self._over.set()
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def _train(self, run):
        patience = {"flush_seconds": 0.05, "finish_seconds": SECONDS}
        with parity.Run(
            run, server=self._url, folder=self._spool, strict=True, **patience
        ) as logger:
            step = 0
            while not self._over.is_set():
                logger.log(step=step, loss=1.0 / (step + 1), grad_norm=0.5)
                step += 1
                time.sleep(0.002)
            self.logged[run] = step

    def _ask(self, pause):
        while not self._over.is_set():
            try:
                with Client(self._url) as client:
                    self.answers.append((200, client.job(self._job_id)["id"]))
            except ClientError as error:
                self.answers.append((error.status, error.retry_after))
            except UnreachableError as error:
                self.answers.append((0, str(error)))
            time.sleep(pause)

    def _follow(self, numbers):
        ended = False
        while not ended:
            last = {"Last-Event-ID": str(numbers[-1])} if numbers else {}
            stream = httpx2.stream(
                "GET",
                f"{self._url}/api/v1/jobs/{self._job_id}/events",
                headers=last,
                timeout=SECONDS,
            )
            with contextlib.suppress(httpx2.HTTPError), stream as following:
                for line in following.iter_lines():
                    numbers += [int(line[4:])] if line.startswith("id: ") else []
                    ended = ended or '"status": "concluded"' in line
            time.sleep(0.05)


@pytest.mark.parametrize("way", ["direct", "pooled"], indirect=True)
def test_servers_are_restarted_in_turn_under_load(settings, database, make_job, tmp_path, way):
    arms = {
        "baseline": ArmSpec(recipe="fp8_current", replicates=2),
        "candidates": (ArmSpec(recipe="nvfp4", replicates=2),),
    }
    with database.write() as session:
        job = submit_job(
            session,
            make_job(100_000, engine="external", **arms),
            parity.policy_from_mapping({"margin": "1%"}),
        )
        job_id, runs = job.id, [run.id for run in job.runs]
    servers = [Server(settings, way) for _ in range(2)]
    address = OneAddress([server.port for server in servers])
    try:
        for server in servers:
            server.start()
        load = Load(address.url, job_id, runs, tmp_path / "spool")
        for server in servers * ROUNDS:
            time.sleep(1.0)
            server.restart()
        time.sleep(1.0)
        assert load.end(2 * SECONDS)
    finally:
        address.close()
        for server in servers:
            server.end()
    with database.read() as session:
        for run in runs:
            steps, columns = store.read(session, run, "train", ["lm_loss"])
            assert steps.tolist() == list(range(load.logged[run]))
            assert columns["lm_loss"].tolist() == [
                1.0 / (step + 1) for step in range(load.logged[run])
            ]
        assert session.get_one(Job, job_id).status == "concluded"
        numbers = [
            event.sequence
            for event in session.query(Event).where(Event.job_id == job_id).order_by(Event.sequence)
        ]
    assert numbers == list(range(1, len(numbers) + 1))
    assert load.seen == [numbers, numbers]
    # A server that ends closes its connections, and answers whom it still hears.
    assert {status for status, _ in load.answers} <= {0, 200, 503}
    assert all(retry_after is not None for status, retry_after in load.answers if status == 503)
    assert sum(status == 200 for status, _ in load.answers) > 10
