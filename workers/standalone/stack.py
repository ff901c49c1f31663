"""The whole service on one machine, without root or Docker: Redis, migrations, API with dashboard,
one worker.

`python -m workers.standalone serve` keeps it up until Ctrl-C; `demo` also submits
examples/demo.yaml over REST, follows it, prints the verdicts, and continues serving (with CI=true
it stops). A part that dies is started again. Exit status: 0 done, 2 it cannot start (another
stack uses the state folder, the port is taken), 4 a part did not start or died again and again,
or the job failed, 130 Ctrl-C in a demo.
"""

import argparse
import errno
import fcntl
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from alembic import command
from alembic.util import CommandError
from redis import RedisError
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from parity.client.rest import Client, ClientError, UnreachableError
from parity.judging.document_types import VerdictDocument
from server.database.sessions import Database
from server.jobs.conclude import settled
from server.jobs.pinned_gates import RulesError, read_rules
from server.jobs.workers import live_workers
from server.process_settings import SettingsError, misspelt_variables, read_settings
from server.queue import redis_client
from server.readiness import alembic_config
from server.settings import Settings
from training.command import ENGINE as COMMAND
from workers.standalone.broker import executable
from workers.standalone.demo import JOB_FILE, QUICK_JOB_FILE, run
from workers.standalone.keeping import PartKeeper
from workers.standalone.processes import GPUS, StackPart, StartError, start
from workers.standalone.starting import (
    GPU_STILL_SECONDS,
    STILL_SECONDS,
    Missing,
    StartStep,
    step,
    wait_until_ready,
)

_FREE_BYTES = 200 * 2**20
# What PostgreSQL answers until it can be used: starting up, recovering, shutting down.
_NOT_YET = "the database system is "
INFRASTRUCTURE = 4
USAGE = 2


class StackRefusedError(Exception):
    """The stack cannot start here; the message has the remedy."""


def main() -> int:
    """Run the stack with the command line's options; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.standalone", description="The whole service on one machine."
    )
    parser.add_argument(
        "what",
        choices=("serve", "demo"),
        help="serve: until Ctrl-C; demo: train the example job first",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="with demo: examples/demo-quick.yaml, one pair for fewer steps",
    )
    arguments = parser.parse_args()
    console = Console(stderr=True)
    try:
        settings = read_settings()
        if settings.gate_rules is not None:
            read_rules(settings.gate_rules)
        for warning in misspelt_variables(os.environ):
            console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
        with running(settings, console) as keeper:
            if arguments.what == "demo":
                job_file = QUICK_JOB_FILE if arguments.quick else JOB_FILE
                with closing(Database(settings.database)) as database:
                    answered = run(
                        _url(settings), console, keeper.check, partial(_settled, database), job_file
                    )
                if os.environ.get("CI", "").lower() == "true":
                    return 0 if answered else INFRASTRUCTURE
            _serve(settings, keeper, console)
            return 0
    except (StackRefusedError, SettingsError, RulesError) as error:
        console.print(f"[red]refused:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return USAGE
    except (
        StartError,
        UnreachableError,
        ClientError,
        SQLAlchemyError,
        CommandError,
        OSError,
    ) as error:
        console.print(f"[red]failed:[/] {escape(str(error))}", highlight=False)
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


@contextmanager
def running(settings: Settings, console: Console) -> Iterator[PartKeeper]:
    """The stack, up and ready, and its keeper; stopped in reverse order at the end."""
    with ExitStack() as stack:
        _prepare(settings)
        stack.enter_context(_only_one(settings))
        _check_port(settings)
        began = time.monotonic()
        commands = _commands(settings)

        def begin(name: str) -> StackPart:
            variables = {"PARITY_CAPABILITY": COMMAND} if name == "launchers" else {}
            return start(
                name,
                commands[name],
                settings.state_dir / "logs" / f"{name}.log",
                _environment(settings) | variables,
            )

        keeper = PartKeeper(begin, lambda line: console.print(line, markup=False, highlight=False))
        stack.callback(_stop, keeper)
        console.print(
            f"starting parity in {settings.state_dir.resolve()}; logs are in its folder logs",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        with step(console, "broker", "it answers") as shown:
            wait_until_ready(keeper.add("redis"), partial(_broker_lacks, settings), shown)
        _start_database(settings, console)
        since = time.monotonic()
        api = keeper.add("api")
        workers = [
            keeper.add(name)
            for name in ("worker", *(["launchers"] if "launchers" in commands else []))
        ]
        with (
            Client(_url(settings)) as client,
            step(console, "server", f"it answers at {_url(settings)}", since) as shown,
        ):
            wait_until_ready(api, partial(_server_lacks, client), shown, keeper.parts())
        # From the database, because the API may require a token.
        with closing(Database(settings.database)) as database:
            seconds = STILL_SECONDS if settings.capability == "cpu" else GPU_STILL_SECONDS
            for worker in workers:
                with step(console, worker.name, "it has registered", since) as shown:
                    lacks = partial(_worker_lacks, settings, database, worker)
                    wait_until_ready(worker, lacks, shown, keeper.parts(), seconds)
        console.print(
            f"parity is up at {_url(settings)} (started in {time.monotonic() - began:.1f} s)",
            highlight=False,
        )
        if unused := unused_gpu(settings):
            console.print(unused, highlight=False)
        yield keeper
        console.print("stopping", highlight=False)


@contextmanager
def defer_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block, not inside it.

    Python ignores an exception that is raised in a weakref callback, and SQLAlchemy runs many of
    those during migrations: one Ctrl-C in thirty was lost there.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, as in the background of a shell
        signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def unused_gpu(settings: Settings, driver: Path = GPUS) -> str | None:
    """A sentence where this machine has an NVIDIA GPU and the worker was not told to train on it;
    None elsewhere.
    """
    if settings.capability != "cpu" or not driver.is_dir() or not any(driver.iterdir()):
        return None
    return (
        "this machine has an NVIDIA GPU, but PARITY_CAPABILITY is cpu, so runs train on the "
        "processor; for the GPU set PARITY_SLOTS=1 and PARITY_CAPABILITY=gpu (engine emulated), or "
        "sm90 or sm100 (other engines), and install jax[cuda13] (docs/hardware.md)"
    )


def _prepare(settings: Settings) -> None:
    problem = settings.socket_problem()
    if problem:
        raise StackRefusedError(problem)
    try:
        (settings.state_dir / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackRefusedError(
            f"PARITY_STATE_DIR is {str(settings.state_dir)!r}; expected a folder that can be "
            f"written ({error.strerror}: {error.filename})"
        ) from error
    free = shutil.disk_usage(settings.state_dir).free
    if free < _FREE_BYTES:
        raise StackRefusedError(
            f"{settings.state_dir.resolve()} has {free / 2**20:.0f} MiB free, expected at least "
            f"{_FREE_BYTES / 2**20:.0f} MiB; "
            "free some space, or set PARITY_STATE_DIR to a folder on another disk"
        )


@contextmanager
def _only_one(settings: Settings) -> Iterator[None]:
    """Lock the state folder; StackRefusedError while another stack holds the lock."""
    with (settings.state_dir / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read() or "just starting"
            raise StackRefusedError(
                f"a parity stack already uses {settings.state_dir.resolve()} ({holder}); use that "
                "one, or stop it first"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, {_url(settings)}")
        lock.flush()
        yield


def _check_port(settings: Settings) -> None:
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            remedy = f"choose another with PARITY_PORT={settings.port % 65535 + 1}"
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                remedy = "set PARITY_HOST to an address of this machine, such as 127.0.0.1"
            raise StackRefusedError(
                f"port {settings.port} of {settings.host} cannot be used ({error.strerror}); "
                f"{remedy}"
            ) from error


def _serve(settings: Settings, keeper: PartKeeper, console: Console) -> None:
    """Keep the parts running until Ctrl-C; StartError if one dies again and again."""
    console.print(f"serving {_url(settings)} until Ctrl-C", highlight=False)
    try:
        while True:
            keeper.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return


def _stop(keeper: PartKeeper) -> None:
    # the last started first, and all of them whatever goes wrong with one
    with ExitStack() as stops:
        for part in keeper.parts():
            stops.callback(part.stop)


def _settled(
    database: Database, job_id: str, printed: Collection[str]
) -> Sequence[VerdictDocument]:
    with database.read() as session:
        return settled(session, job_id, printed)


def _start_database(settings: Settings, console: Console) -> None:
    """Wait for a database that is still starting, and migrate it."""
    if settings.database_url:
        with (
            step(console, "database", "it answers") as shown,
            closing(Database(settings.database)) as database,
        ):
            wait_for_database(database, shown)
    config = alembic_config(settings.database)
    with step(console, "migrations", "they are applied") as shown, defer_ctrl_c():

        def applied(*, step: Any, **_: object) -> None:
            shown.what = f"they are applied, now at {step.up_revision_id}"

        config.attributes["on_version_apply"] = applied
        command.upgrade(config, "head")


def wait_for_database(database: Database, shown: StartStep) -> None:
    """Wait while the database says that it is not ready yet; any other error is raised."""
    while True:
        try:
            with database.engine.connect():
                return
        except OperationalError as error:
            _, says, state = str(error.orig).partition(_NOT_YET)
            if not says:
                raise
            shown.what = f"it answers ({says}{state.splitlines()[0]})"
        time.sleep(0.5)


def _broker_lacks(settings: Settings) -> Missing | None:
    return None if _answers(settings) else Missing(what="it answers")


def _server_lacks(client: Client) -> Missing | None:
    try:
        client.check_ready()
    except UnreachableError:
        return Missing(what=f"it answers at {client.url}")
    except ClientError as error:
        return Missing(what=f"it is ready: {error}", answers=True)
    return None


def _worker_lacks(settings: Settings, database: Database, worker: StackPart) -> Missing | None:
    with database.read() as session:
        live = live_workers(session, settings.lease_seconds)
        if any(registered.name.endswith(f":{worker.process.pid}") for registered in live):
            return None
    return Missing(what="it has registered")


def _answers(settings: Settings) -> bool:
    try:
        return bool(redis_client(settings.redis, seconds=3.0).ping())
    except RedisError:
        return False


def _commands(settings: Settings) -> Mapping[str, Sequence[str]]:
    """The commands that start the parts, by name."""
    python = (sys.executable, "-m")
    # A single worker needs no mingle and gossip; without them it starts a second faster.
    worker = [
        *python,
        "celery",
        "-A",
        "workers.app",
        "worker",
        "--loglevel",
        "INFO",
        "--without-mingle",
        "--without-gossip",
    ]
    with_launchers = settings.launchers is not None and settings.capability != COMMAND
    return {
        # A unix socket only, no port; nothing is saved, because all state is in the database.
        "redis": [
            executable(),
            *("--port", "0", "--unixsocket", str(settings.redis_socket), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--dir", str(settings.state_dir.resolve())),
        ],
        "api": [
            *(
                *python,
                "uvicorn",
                "--factory",
                "server.app:from_environment",
                "--http",
                "server.web.connection:Connection",
            ),
            *(
                "--host",
                settings.host,
                "--port",
                str(settings.port),
                "--timeout-graceful-shutdown",
                "2",
            ),
        ],
        "worker": worker,
        **({"launchers": [*worker, "--hostname", "launchers@%h"]} if with_launchers else {}),
    }


def _environment(settings: Settings) -> dict[str, str]:
    """The environment of the parts: all settings, also those with default values, must be the same
    in all of them.
    """
    if settings.launchers is None:
        launchers = {}
    else:
        launchers = {"PARITY_LAUNCHERS": str(settings.launchers.resolve())}
    return {
        **launchers,
        "PARITY_STATE_DIR": str(settings.state_dir.resolve()),
        "PARITY_HOST": settings.host,
        "PARITY_PORT": str(settings.port),
        # On one machine, people read the logs.
        "PARITY_LOG": "text" if settings.log == "auto" else settings.log,
    }


def _url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"
