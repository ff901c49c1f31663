"""Write transactions take their lock at the start, so a reader-turned-writer never fails as
busy.
"""

import sqlite3
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import text

from server.database import events, sessions
from server.database.sessions import Database
from server.database.tables import Event

pytestmark = pytest.mark.both_databases


def test_concurrent_read_then_write_loses_nothing(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")

    def emit_many():
        for _ in range(25):
            with database.write() as session:
                session.execute(text("select count(*) from jobs")).scalar_one()
                events.emit(session, job_id, "metric", {})

    threads = [threading.Thread(target=emit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as session:
        numbers = [
            event.sequence
            for event in session.query(Event).where(Event.job_id == job_id).order_by(Event.sequence)
        ]
    assert numbers == list(range(1, 102))


def test_a_failed_write_leaves_nothing(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    try:
        with database.write() as session:
            events.emit(session, job_id, "metric", {})
            raise KeyError
    except KeyError:
        pass
    with database.read() as session:
        assert session.query(Event).where(Event.job_id == job_id).count() == 1


def test_readers_go_on_while_a_writer_holds_the_lock(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    with database.write() as session:
        events.emit(session, job_id, "metric", {})
        with database.read() as reader:
            assert reader.query(Event).where(Event.job_id == job_id).count() == 1


def test_a_new_file_that_another_connection_is_writing_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "new.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("begin immediate")
    waits = []

    def wait(seconds):
        waits.append(seconds)
        writer.execute("commit")

    monkeypatch.setattr(sessions, "time", SimpleNamespace(sleep=wait, monotonic=time.monotonic))
    with closing(Database(f"sqlite:///{path}")) as database, database.read() as session:
        assert session.execute(text("pragma journal_mode")).scalar_one() == "wal"
    assert len(waits) == 1
    writer.close()


def test_a_connection_that_the_server_has_closed_is_replaced_even_if_it_has_just_answered(database):
    if database.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has no server")
    with database.read() as other, database.read() as session:
        other.execute(text("select 1"))
        ended = session.scalar(text("select pg_backend_pid()"))
        assert session.connection().connection.dbapi_connection.is_fresh
        # returns the connection to the pool, from which the next statement takes one
        session.rollback()
        assert other.scalar(text("select pg_terminate_backend(:pid, 10000)"), {"pid": ended})
        assert session.scalar(text("select pg_backend_pid()")) != ended


def test_a_connection_that_is_in_use_while_the_database_is_closed_is_closed_after_use(
    settings, database
):
    own = Database(settings.database)
    with own.read() as session:
        used = session.connection().connection.dbapi_connection
        own.close()
        assert session.scalar(text("select 1")) == 1
    with pytest.raises((psycopg.OperationalError, sqlite3.ProgrammingError), match="closed"):
        used.cursor().execute("select 1")
