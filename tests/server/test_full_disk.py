"""A full disk is called a full disk, by the database, the API, readiness, commands and workers; and
nothing else is.
"""

import errno
import sqlite3
import subprocess
from contextlib import contextmanager, suppress

import pytest
from alembic import command as alembic
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from server import full_disk, outages
from server.database.sessions import Database, cannot_be_used
from server.readiness import alembic_config
from tests.faults.matrix import Postgres

WORDS = "the disk of the database is full"


@contextmanager
def full_postgresql(database):
    """PostgreSQL reports 53100 for each write of these tables, as where it cannot extend a file."""
    tables = ("jobs", "duties", "runs")
    with database.write() as session:
        session.execute(
            text(
                "create function no_room() returns trigger language plpgsql as $$ begin raise "
                "exception 'could not extend file: No space left on device' using errcode = "
                "'53100'; end $$"
            )
        )
        for table in tables:
            session.execute(
                text(
                    f"create trigger no_room before insert or update on {table} for each statement "
                    "execute function no_room()"
                )
            )
    yield
    with database.write() as session:
        session.execute(text("drop function no_room cascade"))


@contextmanager
def mounted(folder, size):
    """A folder on a disk of its own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "4m") as folder:
        yield folder


@contextmanager
def full_file_system(folder):
    """The rest of a disk is filled by another file."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def _submitted_until_full(client, body):
    """The first answer that is no new job; in PostgreSQL's files a full disk still has room."""
    for number in range(1000):
        named = {**body, "policy": {**body["policy"], "question": f"number {number}"}}
        answer = client.post("/api/v1/jobs", json=named)
        if answer.status_code != 202:
            return answer
    raise AssertionError("the disk is not full")


def _check(app, body, full):
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        assert client.get("/readyz").status_code == 200
        with full:
            answer = _submitted_until_full(client, body)
            assert (answer.status_code, answer.json()["type"], answer.headers["Retry-After"]) == (
                503,
                "urn:parity:problem:disk-full",
                "30",
            )
            assert answer.json()["detail"].startswith(f"{WORDS}, and nothing of this request")
            page = client.get("/jobs", headers={"Accept": "text/html"})
            assert page.status_code == 200
            app.state.context.readiness._begun.clear()  # which counts for a second
            ready = client.get("/readyz")
            assert ready.status_code == 503
            assert f"can be read, and writes fail: {WORDS}; free space" in ready.json()["detail"]
        app.state.context.readiness._begun.clear()
        assert client.get("/readyz").status_code == 200
        assert client.post("/api/v1/jobs", json=body).status_code == 202


@pytest.mark.postgresql
def test_the_service_says_that_the_disk_of_postgresql_is_full(
    settings, database, request_body, application
):
    _check(application(settings), request_body, full_postgresql(database))


def test_the_service_says_that_the_disk_of_sqlite_is_full(
    settings, request_body, application, small_disk
):
    changed = settings.model_copy(update={"state_dir": small_disk})
    alembic.upgrade(alembic_config(changed.database), "head")
    _check(application(changed), request_body, full_file_system(small_disk))


def test_the_service_says_that_the_real_disk_of_postgresql_is_full(
    settings, request_body, application, tmp_path, monkeypatch
):
    """A row can still be updated there, and no file can grow."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with mounted(tmp_path / "disk", "160m") as folder:
        server = Postgres(folder)
        try:
            changed = settings.model_copy(update={"database_url": server.url})
            alembic.upgrade(alembic_config(changed.database), "head")
            _check(application(changed), request_body, full_file_system(folder))
        finally:
            server.stop()


def test_a_file_that_sqlite_cannot_make_on_a_full_disk_is_a_full_disk(small_disk):
    """It calls that an I/O error, or a file that cannot be opened."""
    database = Database(f"sqlite:///{small_disk}/parity.db")
    with database.write() as session:
        session.execute(text("create table t (n)"))
    database.close()
    with (
        full_file_system(small_disk),
        pytest.raises(outages.DatabaseFullError),
        database.write() as session,
    ):
        session.execute(text("insert into t values (zeroblob(100000))"))
    with database.write() as session:
        session.execute(text("insert into t values (zeroblob(100000))"))


def test_a_size_that_sqlite_may_not_exceed_is_a_full_disk(database):
    with database.write() as session:
        session.execute(text("create table t (n)"))
        session.execute(text("pragma max_page_count = 1"))
        with pytest.raises(outages.DatabaseFullError) as raised:
            session.execute(text("insert into t values (zeroblob(1000000))"))
    assert outages.reason(raised.value) == f"{WORDS} (database or disk is full)"
    assert cannot_be_used(raised.value) == (
        f"{WORDS} (database or disk is full); free space on it, and retry"
    )


@pytest.mark.both_databases
def test_other_errors_are_no_full_disk(database):
    again = text("insert into duties (name, expires_at) select name, expires_at from duties")
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(again)
    away = Database("sqlite:////no/such/folder/parity.db")
    with pytest.raises(OperationalError) as raised, away.read() as session:
        session.execute(text("select 1"))
    assert not isinstance(raised.value, outages.DatabaseFullError)
    assert outages.cause(raised.value) == "the file of the database cannot be used"
    assert not full_disk.is_full(OSError(errno.EACCES, "Permission denied"))
    assert not full_disk.is_full(sqlite3.OperationalError("disk I/O error"))


def test_a_lock_and_a_wrong_statement_are_called_so(database, monkeypatch):
    monkeypatch.setattr("server.database.sessions._BUSY_TIMEOUT_MS", 10)
    impatient = Database(database.url)
    with database.write() as session:
        session.execute(text("select 1"))
        with pytest.raises(OperationalError) as raised, impatient.write() as other:
            other.execute(text("select 1"))
    assert outages.cause(raised.value) == "another process holds the lock of the database"
    assert outages.passes(raised.value)
    with pytest.raises(OperationalError) as raised, impatient.read() as other:
        other.execute(text("select nothing from nowhere"))
    assert not outages.passes(raised.value)
    impatient.close()
