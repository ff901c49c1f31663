"""A database that the real code of an earlier commit filled is migrated and opened: every route and
page answers, nothing is lost, and the job that was in training ends.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, inspect, text

from server.app import create_app
from server.check.__main__ import main
from server.readiness import alembic_config
from server.settings import CHECKOUT, Settings
from tests.faults.matrix import git, unpack
from tests.upgrade.commits import COMMITS
from tests.upgrade.fill import Filler, fill
from tests.upgrade.walk import walk

WALKS = [
    pytest.param(commit, kind, id=f"{day} on {kind}")
    for day, commit in COMMITS.items()
    for kind in ("sqlite", "postgresql")
]
STARTS, ENDS = 300.0, 600.0  # seconds


@contextlib.contextmanager
def serving(checkout: Path, state: Path, database_url: str) -> Iterator[str]:
    """The address of the whole service of a checkout on one machine, killed at the end; without a
    URL its database is SQLite, in the state folder.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if "PARITY" not in name}
    environment |= {
        "PYTHONPATH": str(checkout),
        "PARITY_STATE_DIR": str(state),
        "PARITY_PORT": str(port),
        "PARITY_DATABASE_URL": database_url,
    }
    log = state.with_suffix(f".{port}.log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers.standalone", "serve"],
            cwd=checkout,
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + STARTS
    try:
        while not _is_ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield url
    except Exception as error:
        error.add_note(f"the last lines of {log.name}:\n{log.read_text()[-4_000:]}")
        raise
    finally:
        # Its workers outlive it, and would take the runs of the version that comes next.
        lives = process.poll() is None
        parts = psutil.Process(process.pid).children(recursive=True) if lives else []
        process.send_signal(signal.SIGKILL)
        for part in parts:
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        psutil.wait_procs(parts)
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz", timeout=5.0).is_success
    except httpx2.HTTPError:
        return False


def rows_of(engine: Engine) -> dict[str, int]:
    """How many rows each table has."""
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names()) - {"alembic_version", "duties"}
        return {
            name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in sorted(names)
        }


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: a socket's name has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="parity-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize(("commit", "kind"), WALKS)
def test_a_record_of_an_earlier_commit_is_migrated_and_opened(
    commit: str,
    kind: str,
    folder: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    usual_settings: Settings,
) -> None:
    if git("cat-file", "-e", commit).returncode:
        pytest.skip(f"this checkout has no history with {commit}")
    state = folder / "state"
    database_url = request.getfixturevalue("postgresql")() if kind == "postgresql" else ""
    older = unpack(commit, folder / "older")
    with serving(older, state, database_url) as url, Filler(url) as filled:
        fill(filled)
    assert filled.refused == {}
    settings = Settings(state_dir=state, database_url=database_url, redis_url=usual_settings.redis)
    engine = create_engine(settings.database)
    before = rows_of(engine)
    command.upgrade(alembic_config(settings.database), "head")
    after = rows_of(engine)
    assert {name: after.get(name) for name in before} == before
    opened = walk(create_app(settings), engine)
    assert len(opened) > 100
    assert [page for page in opened if page.status >= 500] == []

    with serving(CHECKOUT, state, database_url) as url, Filler(url) as upgraded:
        document = upgraded.wait(
            filled.made["running emulated job"],
            lambda job: job["status"] not in ("queued", "running", "judging"),
            ENDS,
        )
    assert document["status"] == "concluded"
    assert [page for page in walk(create_app(settings), engine) if page.status >= 500] == []
    engine.dispose()
    monkeypatch.setenv("PARITY_STATE_DIR", str(state))
    monkeypatch.setenv("PARITY_DATABASE_URL", database_url)
    assert main([]) == 0
    assert " 0 damaged" in capsys.readouterr().err
