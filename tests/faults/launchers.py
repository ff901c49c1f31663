"""Kills a worker with launchers, the process that follows a trainer, and trainers, at random
moments; the record must not notice.

It starts the whole service on one machine, keeps jobs of engine command coming, and kills. Then it
waits for quiet and checks each run: each step once, the curve bit for bit that of a trainer that
nobody disturbed, one finished attempt, no trainer left.

    python -m tests.faults.launchers --kills 40

Exit status 0 when nothing was lost, trained twice, stuck or different; 1 otherwise.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from sqlalchemy import func, select

from parity.client.rest import Client, UnreachableError
from server.database.metrics import store
from server.database.sessions import Database
from server.database.states import JOB_ENDED
from server.database.tables import Attempt, Job, Run
from server.settings import CHECKOUT, Settings
from tests.workers.commands.conftest import LOOP, Repository

STEPS, QUIET_SECONDS = 150, 180.0
SLOW = LOOP.replace(
    "            log.write(", "            __import__('time').sleep(0.02)\n            log.write("
)
VICTIMS = {
    "worker": "launchers@",
    "follower": "workers.commands.commit_trainer",
    "trainer": "train/loop.py",
}


def main() -> int:
    """Kill, wait, check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        commits, launchers = _repository(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        variables = {
            "PARITY_STATE_DIR": str(folder / "state"),
            "PARITY_PORT": str(port),
            "PARITY_LEASE_SECONDS": "3",
            "PARITY_HEARTBEAT_SECONDS": "0.5",
            "PARITY_RECONCILE_SECONDS": "1",
            "PARITY_FLUSH_SECONDS": "0.2",
            "PARITY_MAX_ATTEMPTS": "1000",
        }
        serving = subprocess.Popen(
            [sys.executable, "-m", "workers.standalone", "serve"],
            cwd=CHECKOUT,
            env=os.environ | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stack.callback(_end, serving)
        client = stack.enter_context(Client(f"http://127.0.0.1:{port}", None))
        _wait(lambda: _is_ready(client), 120.0, "the service did not start")
        database = Database(Settings(state_dir=folder / "state").database)
        stack.callback(database.close)
        worker = Worker(
            {
                **os.environ,
                **variables,
                "PARITY_CAPABILITY": "command",
                "PARITY_LAUNCHERS": str(launchers),
            }
        )
        stack.callback(worker.end)
        killed = _kill(
            client,
            database,
            worker,
            commits,
            random.Random(options.seed),  # noqa: S311
            options.kills,
        )
        _wait(lambda: worker.keep() or _is_quiet(database), QUIET_SECONDS, "runs are stuck")
        time.sleep(2.0)
        wrong = _wrong(database, folder)
        left = [
            process
            for process in _processes("trainer")
            if str(folder) in " ".join(process.cmdline())
        ]
    print(
        f"seed {options.seed}; killed: {killed}; wrong: {wrong or 'nothing'}; trainers left: "
        f"{len(left)}"
    )
    return 1 if wrong or left else 0


class Worker:
    """A worker with launchers, started again whenever it is found dead, as a service manager
    would.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.process = self._start()

    def keep(self) -> bool:
        """Start it again if it has died; always False, so that a wait can do it on the way."""
        if self.process.poll() is not None:
            self.process = self._start()
        return False

    def end(self) -> None:
        """Stop it, with its trainers."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [
            "-m",
            "celery",
            "-A",
            "workers.app",
            "worker",
            "--without-mingle",
            "--without-gossip",
            "--hostname",
            "launchers@%h",
        ]
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=CHECKOUT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _repository(folder: Path) -> tuple[list[str], Path]:
    repository = Repository(folder / "model")
    base = repository.commit({"train/loop.py": SLOW})
    head = repository.commit({"train/loop.py": SLOW.replace("SKIPPED = 1", "SKIPPED = 4")})
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
        'reports = {path = "metrics.jsonl"}\n',
        encoding="utf-8",
    )
    return [base, head], path


def _kill(
    client: Client,
    database: Database,
    worker: Worker,
    commits: list[str],
    chance: random.Random,
    kills: int,
) -> dict[str, int]:
    """Keep jobs coming and kill, each time another kind of process; how many of each."""
    killed = dict.fromkeys(VICTIMS, 0)
    submitted = 0
    while sum(killed.values()) < kills:
        if _open_jobs(database) < 2:
            submitted += 1
            _submit(client, commits, submitted)
        time.sleep(chance.uniform(0.2, 2.0))
        worker.keep()
        kind = [*VICTIMS][sum(killed.values()) % len(VICTIMS)]
        found = _processes(kind)
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                chance.choice(found).kill()
                killed[kind] += 1
    return killed


def _submit(client: Client, commits: list[str], number: int) -> None:
    job = {
        "name": f"job {number}",
        "engine": "command",
        "command": {"launcher": "loop"},
        "schedule": {"steps": STEPS, "warmup_steps": 0},
        "seed": number,
        "baseline": {"recipe": "bf16", "revision": commits[0], "name": "base"},
        "candidates": [{"recipe": "bf16", "revision": commits[1], "name": "head"}],
    }
    client.submit(job, {"margin": "1%", "question": f"job {number}"}, key=f"job-{number}")


def _wrong(database: Database, folder: Path) -> list[str]:
    """What the record has that it should not have."""
    wrong, expected = [], {}
    with database.read() as session:
        for run in session.scalars(select(Run)):
            key = run.arm.name, run.seed
            if key not in expected:
                expected[key] = _undisturbed(folder, *key)
            steps, columns = store.read(session, run.id, "train", ["lm_loss"])
            finished = session.scalar(
                select(func.count()).where(Attempt.run_id == run.id, Attempt.state == "finished")
            )
            if run.state != "finished" or finished != 1:
                wrong.append(
                    f"{run.id} is {run.state} with {finished} finished attempts ({run.code}: "
                    f"{run.message})"
                )
            elif (
                steps.tolist() != list(range(STEPS))
                or columns["lm_loss"].tobytes() != expected[key].tobytes()
            ):
                wrong.append(f"{run.id} has {len(steps)} steps, or another curve")
    return wrong


def _undisturbed(folder: Path, arm: str, seed: int) -> "np.ndarray":
    out, script = folder / f"{arm}-{seed}", folder / f"{arm}.py"
    out.mkdir()
    script.write_text(
        LOOP.replace("SKIPPED = 1", "SKIPPED = 4") if arm == "head" else LOOP, encoding="utf-8"
    )
    subprocess.run(
        [sys.executable, str(script), f"--steps={STEPS}", f"--seed={seed}", f"--out={out}"],
        check=True,
    )
    return np.array(
        [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    )


def _processes(kind: str) -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline"])
    return [
        process for process in every if VICTIMS[kind] in " ".join(process.info["cmdline"] or ())
    ]


def _open_jobs(database: Database) -> int:
    with database.read() as session:
        return (
            session.scalar(
                select(func.count()).select_from(Job).where(Job.status.not_in(JOB_ENDED))
            )
            or 0
        )


def _is_quiet(database: Database) -> bool:
    return _open_jobs(database) == 0


def _is_ready(client: Client) -> bool:
    try:
        return client.ready()
    except UnreachableError:
        return False


def _wait(until, seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit(why)
        time.sleep(0.2)


def _end(serving: "subprocess.Popen[bytes]") -> None:
    serving.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        serving.wait(20)
    serving.kill()


if __name__ == "__main__":
    sys.exit(main())
