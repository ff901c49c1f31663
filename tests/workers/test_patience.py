"""Reads and writes of a worker while its database is away, and after it."""

import errno
import logging
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.exc import OperationalError, ProgrammingError

import workers
from server.database import sessions
from server.database.sessions import Database
from server.database.tables import Attempt, Run
from tests.server.test_full_disk import full_postgresql
from workers import patience as patience_module
from workers import supervisor
from workers.patience import Patience
from workers.slots import Slot

# Files that begin transactions themselves, and who tries those again.
_ELSEWHERE = {
    "health.py": "a health check is one try",
    "lab_results.py": "Patience.retried",
    "listings.py": "the submitter's period",
    "patience.py": "itself",
    "reconcile.py": "the period of the housekeeping",
    "recorder.py": "Patience.retried",
    "runtime.py": "the periods of heartbeat, housekeeping and claim",
    "standalone/stack.py": "whoever starts the stack",
    "submitted.py": "its rounds, and Patience.retried",
}


@pytest.fixture
def outage(database, settings):
    """A function that takes the database away, until the first line of the log about it."""
    name = make_url(settings.database).database
    server = make_url(settings.database).set(drivername="postgresql", database="postgres")
    others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
    seen = []

    class Restore(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())
            allow("true")

    def allow(word):
        with psycopg.connect(
            server.render_as_string(hide_password=False), autocommit=True
        ) as connection:
            connection.execute(f"alter database {name} allow_connections {word}")
            if word == "false":
                connection.execute(others, [name])

    handler = Restore()

    def begin(*_):
        patience_module._log.addHandler(handler)
        allow("false")

    yield SimpleNamespace(begin=begin, seen=seen)
    patience_module._log.removeHandler(handler)
    allow("true")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(patience_module, "RETRY_SECONDS", 0.01)


@pytest.fixture
def attempt(settings, database, claim):
    return supervisor.Supervisor(settings, database, claim, threading.Event())


def _manifest(attempt):
    return attempt.record_manifest({"code_digest": "one"}, None)


_WORK = {
    "manifest": (_manifest, False),
    "checkpoints": (lambda attempt: attempt._checkpoint_request()["resume_at_most"], 0),
    "give back": (lambda attempt: attempt.give_back("it ended", "crashed"), None),
    "forgive": (lambda attempt: attempt.forgive(), None),
    "clear": (lambda attempt: attempt.clear(), None),
    "note": (lambda attempt: attempt.note("hello"), None),
    "sweep": (lambda attempt: supervisor.sweep(attempt._settings, attempt), None),
}


@pytest.mark.postgresql
@pytest.mark.parametrize("name", _WORK)
def test_a_read_or_write_waits_for_a_database_that_is_away(name, attempt, outage, tmp_path):
    (tmp_path / "commands" / f"{attempt._claim.run_id}-99").mkdir(parents=True)
    work, expected = _WORK[name]
    outage.begin()
    assert work(attempt) == expected
    assert "trying again for 600 more seconds" in outage.seen[0]
    assert outage.seen[1].startswith("the database works again, after ")
    assert len(outage.seen) == 2


@pytest.mark.postgresql
def test_the_manifest_is_read_and_written_over_an_outage_in_between(
    attempt, database, outage, claim
):
    """S12: three kills of PostgreSQL in 14 s cost a run its attempt."""
    event.listen(database.engine, "checkin", outage.begin, once=True)
    assert not _manifest(attempt)
    assert len(outage.seen) == 2
    with database.read() as session:
        run = session.get_one(Run, claim.run_id)
        assert (run.state, run.attempt_number, run.crashes) == ("running", 1, 0)
        assert run.manifest == {"code_digest": "one"}


@pytest.mark.postgresql
def test_a_run_whose_trainer_crashes_during_an_outage_says_so(attempt, database, outage, claim):
    """It was told as lost: "the database was away for too long"."""
    outage.begin()
    attempt.give_back("its process ended with status 7", "crashed")
    with database.read() as session:
        row = session.get_one(Attempt, (claim.run_id, claim.attempt_number))
        assert row.state == "crashed"
        assert "its process ended with status 7 (attempt 1, 1 of 3 crashes)" in row.message


@pytest.mark.parametrize("why", ["patience", "stopped", "statement"])
def test_it_ends_with_the_patience_the_worker_and_where_waiting_does_not_help(
    settings, database, why, caplog
):
    stopping, tries = threading.Event(), []
    seconds = 0.05 if why == "patience" else 600.0
    patience = Patience(
        settings.model_copy(update={"database_patience_seconds": seconds}), database, stopping
    )

    def work(session):
        tries.append(session)
        if why == "statement":
            session.execute(text("select nothing from nowhere"))
        if why == "stopped" and len(tries) == 2:
            stopping.set()
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    with pytest.raises((OperationalError, ProgrammingError)):
        patience.written(work)
    assert (len(tries) > 1) == (why != "statement")
    assert len(caplog.records) == (why != "statement")


def test_a_pool_without_a_free_connection_is_waited_for(settings, database, monkeypatch, caplog):
    monkeypatch.setattr(sessions, "POOL_SECONDS", 0.05)
    small = Database(settings.database, connections=1)
    held = small.engine.connect()
    patience = Patience(settings, small, threading.Event())

    class GivesBack(logging.Handler):
        def emit(self, _record):
            held.close()

    handler = GivesBack()
    patience_module._log.addHandler(handler)
    try:
        assert patience.read(lambda session: session.scalar(text("select 7"))) == 7
    finally:
        patience_module._log.removeHandler(handler)
        small.close()
    assert "all database connections of this process are in use" in caplog.text


def test_no_other_file_of_the_worker_begins_a_transaction():
    """A new one waits through `Patience`, or is named above with who tries it again."""
    folder = Path(workers.__file__).parent
    begins = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"database\.(read|write)\(\)", path.read_text(encoding="utf-8"))
    }
    assert begins == set(_ELSEWHERE)


@pytest.mark.postgresql
def test_a_full_disk_is_called_so_and_the_worker_goes_on_once_it_is_not(
    settings, database, claim, monkeypatch, caplog
):
    full = full_postgresql(database)
    full.__enter__()
    monkeypatch.setattr("workers.patience.time.sleep", lambda _: full.__exit__(None, None, None))
    patience = Patience(settings, database, threading.Event())
    patience.written(lambda session: session.execute(text("update runs set crashes = 0")))
    first, last = (record.getMessage() for record in caplog.records)
    words = "the disk of the database is full (could not extend file: No space left on device)"
    assert first.startswith(words)
    assert last.startswith("the database works again")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_full_disk_of_the_worker_is_named_in_the_attempt(
    settings, database, claim, monkeypatch, is_full
):
    number = errno.ENOSPC if is_full else errno.EACCES

    def stopped(self, _slot):
        raise OSError(number, os.strerror(number), "/state/logs/runs/r1-1.log")

    monkeypatch.setattr(supervisor.Supervisor, "train", stopped)
    supervisor.train(settings, database, claim, Slot(), threading.Event())
    with database.read() as session:
        message = session.get_one(Attempt, (claim.run_id, 1)).message
    words = "on this worker the disk is full (No space left on device, writing /state/logs/runs/"
    assert message.startswith(words) == is_full
