"""A worker of the version before and one of today on one record, with a job in training: real
checkouts, real processes.

The version before is the last commit whose specifications have another version. Its schema may be
another too, as in an upgrade.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from sqlalchemy import create_engine, text

from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job
from server.settings import CHECKOUT
from tests.conftest import THOROUGH
from tests.faults.matrix import git, unpack
from tests.workers.test_versions import SUBMIT
from training.spec import SPEC_VERSION

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.skipif(not THOROUGH, reason="two minutes: make test-faults runs it"),
]

STEPS, SECONDS = 4_000, 240.0
FIRST_MIGRATION = "0045_the_record.py"
QUICK = {
    "lease_seconds": 3,
    "heartbeat_seconds": 0.5,
    "reconcile_seconds": 1,
    "flush_seconds": 0.2,
    "database_patience_seconds": 3,
}


class Installation:
    """A checkout with what runs from it."""

    def __init__(self, folder, settings):
        self.folder = folder
        own = {
            "state_dir": settings.state_dir,
            "database_url": settings.database_url,
            "redis_url": settings.redis_url,
            "slots": 1,
            **QUICK,
        }
        self._environment = os.environ | {
            f"PARITY_{name.upper()}": str(value) for name, value in own.items()
        }
        self._environment |= {"PYTHONPATH": str(folder), "PARITY_MAX_ATTEMPTS": "1000"}

    def run(self, *words):
        """What a command prints."""
        line = [sys.executable, *words]
        return subprocess.run(
            line, cwd=self.folder, env=self._environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    def submit(self, database_url):
        head = (
            "from server.database.sessions import Database\ndatabase = "
            f"Database({database_url!r})\n"
        )
        # A recipe without random bits, which may be others in another version.
        return self.run(
            "-c", head + SUBMIT.replace("steps=100", f"steps={STEPS}").replace('"nvfp4"', '"mxfp8"')
        )

    @contextlib.contextmanager
    def worker(self, log):
        words = [
            "-m",
            "celery",
            "-A",
            "workers.app",
            "worker",
            "--without-mingle",
            "--without-gossip",
        ]
        with log.open("wb") as stream:
            started = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self._environment,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        try:
            yield started
            assert started.poll() is None, log.read_text()
        finally:
            started.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(60)
            started.kill()
            started.wait()


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The checkout of the version before."""
    since = (
        git(
            "log",
            "-1",
            f"-SSPEC_VERSION = {SPEC_VERSION}\n",
            "--format=%H",
            "--",
            "training/spec.py",
        )
        .stdout.decode()
        .strip()
    )
    before = git("rev-parse", "--verify", f"{since}^").stdout.decode().strip() if since else ""
    if not before:
        pytest.skip("this checkout has no history with the version before")
    return unpack(before, tmp_path_factory.mktemp("older") / "checkout")


def _wait(true, what):
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.1)


@pytest.fixture
def ask(settings):
    """A function that gives the first value of a statement, whatever version the schema has."""
    engine = create_engine(settings.database)

    def value(statement):
        with engine.connect() as connection:
            return connection.execute(text(statement)).scalar()

    yield value
    engine.dispose()


def _losses(database, job_id):
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.status, len(job.verdicts)) == ("concluded", 1), job.message
        curves = {run.arm.name: store.read(session, run.id, "train", ["loss"]) for run in job.runs}
    for steps, _ in curves.values():
        assert steps.tolist() == list(range(STEPS))
    return {name: columns["loss"].tobytes() for name, (_, columns) in curves.items()}


def test_an_upgrade_while_an_older_worker_trains_loses_nothing(settings, older, ask, tmp_path):
    if not (older / "migrations" / "versions" / FIRST_MIGRATION).exists():
        pytest.skip("the version before is of before the first release: nothing upgrades it")
    old, new = Installation(older, settings), Installation(CHECKOUT, settings)
    old.run("-m", "alembic", "upgrade", "head")
    job_id = old.submit(settings.database)
    with contextlib.ExitStack() as later:
        with old.worker(tmp_path / "old.log"):
            _wait(lambda: ask("select max(steps_done) from runs"), "a step of the older worker")
            new.run("-m", "alembic", "upgrade", "head")
            later.enter_context(new.worker(tmp_path / "new.log"))
            # beside each other, as long as somebody has not restarted every worker
            time.sleep(2 * QUICK["lease_seconds"])
        assert ask("select count(*) from runs where state = 'finished'") < 2
        _wait(lambda: ask("select count(*) from jobs where status = 'concluded'"), "the job's end")
        undisturbed = new.submit(settings.database)
        _wait(
            lambda: ask("select count(*) from jobs where status = 'concluded'") == 2,
            "the other job's end",
        )
    database = Database(settings.database)
    assert _losses(database, job_id) == _losses(database, undisturbed)
    database.close()


def test_a_newer_worker_harms_nothing_on_an_older_record(settings, older, ask, tmp_path):
    old, new = Installation(older, settings), Installation(CHECKOUT, settings)
    old.run("-m", "alembic", "upgrade", "head")
    with new.worker(tmp_path / "new.log"), old.worker(tmp_path / "old.log"):
        old.submit(settings.database)
        _wait(lambda: ask("select count(*) from jobs where status = 'concluded'"), "the job's end")
    assert ask("select count(*) from runs where state = 'finished'") == 2
    assert ask(f"select count(*) from runs where steps_done = {STEPS}") == 2
