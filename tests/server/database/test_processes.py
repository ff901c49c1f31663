"""Several processes write one database at once, as the API and the workers of one machine do: everybody's turn comes."""

import subprocess
import sys

import pytest

from server.database.tables import Event
from server.settings import CHECKOUT

pytestmark = pytest.mark.both_databases

PROCESSES, THREADS, WRITES = 4, 3, 30
_WRITER = f"""
import sys, threading, time
from server.database import events
from server.database.sessions import Database
from server.database.tables import Run

database, longest = Database(sys.argv[1]), [0.0] * {THREADS}

def write(number):
    for _ in range({WRITES}):
        began = time.perf_counter()
        with database.write() as session:
            session.query(Run).first()  # what reads first and then writes is what fails as busy in SQLite's own order
            events.emit(session, sys.argv[2], "metric", {{}})
        longest[number] = max(longest[number], time.perf_counter() - began)

threads = [threading.Thread(target=write, args=(number,)) for number in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(max(longest))
"""


def test_four_processes_write_and_nobody_finds_it_locked(database, recorded):
    job_id = recorded({"nvfp4": 0.0}, done=0, state="queued")
    command = [sys.executable, "-c", _WRITER, database.url, job_id]
    writers = [subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    for writer in writers:
        seconds, problems = writer.communicate(timeout=120)
        assert (writer.returncode, problems) == (0, ""), problems
        assert float(seconds) < 10.0  # far from the 15 seconds after which a writer gives up
    with database.read() as session:
        numbers = [event.sequence for event in session.query(Event).where(Event.job_id == job_id).order_by(Event.sequence)]
    assert numbers == list(range(1, PROCESSES * THREADS * WRITES + 2))
