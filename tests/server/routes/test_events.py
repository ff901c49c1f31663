"""Events over a real server: order, replay after a number, live delivery, the end."""

import threading
import time

import httpx2
import pytest

from server.database import events
from server.database.states import move_job

pytestmark = pytest.mark.both_databases


def _emit(database, job_id, kind="metric", **payload):
    with database.write() as session:
        events.emit(session, job_id, kind, payload)


def _end(database, job_id):
    with database.write() as session:
        move_job(session, job_id, ("queued", "running"), "cancelled")
        events.emit(session, job_id, "status", {"status": "cancelled"})


def _ids(served, job_id, last=None, on_first=lambda: None):
    headers = {"Last-Event-ID": str(last)} if last is not None else {}
    found = []
    with httpx2.stream("GET", f"{served}/api/v1/jobs/{job_id}/events", headers=headers, timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("id:"):
                found.append(int(line[3:]))
                if len(found) == 1:
                    on_first()
    return found


def test_replay_then_live_then_the_end(served, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    for _ in range(3):
        _emit(database, job)

    def later():
        def write():
            for _ in range(5):
                time.sleep(0.1)
                _emit(database, job)
            _end(database, job)

        threading.Thread(target=write).start()

    assert _ids(served, job, on_first=later) == list(range(1, 11))


def test_replay_begins_after_the_last_event_id(served, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    for _ in range(5):
        _emit(database, job)
    _end(database, job)
    assert _ids(served, job, last=4) == [5, 6, 7]
    assert _ids(served, job, last=7) == []


def test_a_page_begins_where_it_was_rendered(served, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    _emit(database, job)
    _end(database, job)
    with httpx2.stream("GET", f"{served}/api/v1/jobs/{job}/events", params={"after": 2}) as stream:
        assert [int(line[3:]) for line in stream.iter_lines() if line.startswith("id:")] == [3]


def test_an_unknown_job_is_a_404_and_not_a_stream(served):
    answer = httpx2.get(f"{served}/api/v1/jobs/j-none/events")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_two_subscribers_get_everything(served, database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    results = []
    readers = [threading.Thread(target=lambda: results.append(_ids(served, job))) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(20):
        _emit(database, job)
        time.sleep(0.02)
    _end(database, job)
    for reader in readers:
        reader.join(20)
    assert results == [list(range(1, 23))] * 2
