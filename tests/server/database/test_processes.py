"""Several processes write one database at once, as the API and the workers of one machine do:
everybody's turn comes.
"""

import subprocess
import sys

import pytest

from server.database.tables import Event
from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases

PROCESSES, THREADS, WRITES = 3, 4, 30
_WRITER = f"""
import sys, threading
from server.database import events
from server.database.sessions import Database
from server.database.tables import Run

database = Database(sys.argv[1])

def write():
    for _ in range({WRITES}):
        with database.write() as session:
            session.query(Run).first()  # what reads first and then writes is what fails as busy in SQLite's own order
            events.emit(session, sys.argv[2], "metric", {{}})

threads = [threading.Thread(target=write) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""  # noqa: E501


def test_processes_write_and_nobody_finds_it_locked(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    command = [sys.executable, "-c", _WRITER, database.url, job_id]
    writers = [
        subprocess.Popen(
            command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    ended = [(writer.communicate(timeout=120)[1], writer.returncode) for writer in writers]
    assert ended == [("", 0)] * PROCESSES  # a thread that gave up would say so
    with database.read() as session:
        numbers = [
            event.sequence
            for event in session.query(Event).where(Event.job_id == job_id).order_by(Event.sequence)
        ]
    assert numbers == list(range(1, PROCESSES * THREADS * WRITES + 2))
