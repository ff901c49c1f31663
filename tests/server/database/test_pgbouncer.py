"""Behind PgBouncer in transaction mode each transaction may have another process of the server:
nothing may rest on a session.
"""

import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from server.database import events, locks, sessions
from server.database.sessions import Database
from server.database.tables import Event

pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize(
    "options", ["", "ignore_startup_parameters = options\n"], ids=["refused", "ignored"]
)
def test_a_statement_has_its_limit_and_a_direct_connection_keeps_its_own(
    database, settings, bouncer, options
):
    pooled = Database(bouncer(settings.database, options), statement_seconds=0.5)
    for _ in range(2):
        with pytest.raises(OperationalError, match="statement timeout"), pooled.read() as session:
            session.execute(text("select pg_sleep(20)"))
    with pooled.read() as session:
        driver = session.connection().connection.driver_connection
        assert (driver.is_pooled, driver.prepare_threshold) == (True, None)
        assert session.scalar(text("show statement_timeout")) == "500ms"
    pooled.close()
    with database.read() as session:
        driver = session.connection().connection.driver_connection
        assert (driver.is_pooled, driver.prepare_threshold) == (False, 5)
        assert session.scalar(text("show statement_timeout")) == f"{sessions.STATEMENT_SECONDS:g}s"


def test_many_transactions_on_few_connections_lose_nothing(database, settings, recorded, bouncer):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    pooled = [Database(bouncer(settings.database)) for _ in range(2)]
    processes, failures = set(), []

    def write(own):
        try:
            for _ in range(30):
                with own.write() as session:
                    locks.hold_lock(session, "all of them")
                    processes.add(session.scalar(text("select pg_backend_pid()")))
                    events.emit(session, job_id, "metric", {})
                    assert session.scalar(text("select count(*) from pg_prepared_statements")) == 0
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=write, args=(own,)) for own in pooled for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(processes) > 1
    with database.read() as session:
        numbers = [
            event.sequence
            for event in session.query(Event).where(Event.job_id == job_id).order_by(Event.sequence)
        ]
        assert numbers == list(range(1, 12 * 30 + 2))
    for own in pooled:
        own.close()
