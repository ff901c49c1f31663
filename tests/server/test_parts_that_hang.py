"""Parts that hang, are full or became a standby: a request ends with 503 and a reason, never with
500, and never waits for minutes.

The limits of time here are ten times what the service promises, so that a busy machine passes.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import event, make_url, text
from sqlalchemy.exc import OperationalError

from server.database import postgresql_connection, sessions
from server.database.sessions import Database
from server.web.access.api_tokens import create_token
from workers.standalone import broker


@contextmanager
def client_of(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def stopped_redis() -> Iterator[str]:
    """The URL of a Redis that accepts connections and never answers."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        path = Path(folder) / "redis.sock"
        command = [
            broker.executable(),
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--save",
            "",
            "--dir",
            folder,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not path.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        yield f"redis+socket://{path}"
        process.kill()
        process.wait()


def test_no_request_waits_for_a_redis_that_hangs(
    settings, database, request_body, stopped_redis, application
):
    update = {"redis_url": stopped_redis, "require_tokens": True}
    with database.write() as session:
        _, token = create_token(session, "me", ["submit"], None)
    with client_of(application(settings.model_copy(update=update))) as client:
        for method, path, body, status in (
            ("GET", "/api/v1/jobs", None, 200),
            ("POST", "/api/v1/jobs", request_body, 202),
            ("GET", "/readyz", None, 200),
        ):
            start = time.monotonic()
            answer = client.request(
                method, path, json=body, headers={"Authorization": f"Bearer {token}"}
            )
            assert answer.status_code == status, answer.text
            assert time.monotonic() - start < 10
        assert answer.json()["status"] == "degraded"
        assert "broker" in answer.json()["degraded"][0]


@contextmanager
def hanging(process: psutil.Process) -> Iterator[None]:
    """The process and its children do not run."""
    everyone = [process, *process.children(recursive=True)]
    for each in everyone:
        os.kill(each.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in everyone:
            os.kill(each.pid, signal.SIGCONT)


def test_a_postgresql_that_hangs_is_an_error_and_then_works_again(own_postgresql, monkeypatch):
    url, folder = own_postgresql
    monkeypatch.setattr(postgresql_connection, "_GRACE_SECONDS", -19.0)
    database = Database(url, statement_seconds=20)
    with database.read() as session:
        session.execute(text("select 1"))
    process = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
    with hanging(process), pytest.raises(OperationalError), database.read() as session:
        session.execute(text("select 1"))
    with database.read() as session:
        assert session.execute(text("select 1")).scalar_one() == 1
    database.close()


@pytest.mark.both_databases
def test_a_busy_database_is_503(settings, database, monkeypatch, application):
    monkeypatch.setattr(sessions, "POOL_SECONDS", 0.1)
    app = application(settings.model_copy(update={"database_connections": 2}))
    engine = app.state.context.database.engine
    with client_of(app) as client:
        with engine.connect(), engine.connect():
            answer = client.get("/api/v1/jobs")
            assert (answer.status_code, answer.json()["type"]) == (
                503,
                "urn:parity:problem:database-busy",
            )
            page = client.get("/", headers={"Accept": "text/html"})
            assert (page.status_code, "busy" in page.text) == (503, True)
        assert client.get("/api/v1/jobs").status_code == 200


@pytest.mark.both_databases
def test_a_standby_is_503_and_not_ready(
    settings, database, database_kind, request_body, application
):
    app = application(settings)
    with client_of(app) as client:
        if database_kind == "postgresql":
            name, server = (
                make_url(settings.database).database,
                make_url(settings.database).set(drivername="postgresql"),
            )
            with psycopg.connect(
                server.render_as_string(hide_password=False), autocommit=True
            ) as connection:
                connection.execute(f"alter database {name} set default_transaction_read_only = on")
                # As a failover does; the threads of the application have connections of their own.
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s "
                    "and pid <> pg_backend_pid()",
                    [name],
                )
        else:
            # Whichever connection of the pool a thread of the application gets.
            engine = app.state.context.database.engine
            event.listen(
                engine,
                "checkout",
                lambda connection, *_: connection.execute("pragma query_only = on"),
            )
        answer = client.post("/api/v1/jobs", json=request_body)
        assert (answer.status_code, answer.json()["type"]) == (
            503,
            "urn:parity:problem:database-away",
        )
        ready = client.get("/readyz")
        assert ready.status_code == 503
        read_only = "the database is read-only, as a standby is"
        assert f"writes fail: {read_only}" in ready.json()["detail"]
        assert read_only in answer.json()["detail"]
        assert client.get("/api/v1/jobs").status_code == 200
