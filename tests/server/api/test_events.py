"""Events over a real server: order, replay after a number, live delivery, the end; and the progress
of runs in between.
"""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest

from server.database import events, run_progress
from server.database.run_progress import RunProgress
from server.database.states import begin_attempt, move_job
from server.database.tables import Event, Job, Run
from server.jobs import external
from server.jobs.external import Batch
from server.retention.keeper import delete_batch, plan
from server.web.broadcast import Broadcast

pytestmark = pytest.mark.both_databases


def _emit(database, job_id, kind="metric", **payload):
    with database.write() as session:
        events.emit(session, job_id, kind, payload)


def _end(database, job_id):
    with database.write() as session:
        move_job(session, job_id, ("queued", "running"), "cancelled")
        events.emit(session, job_id, "status", {"status": "cancelled"})


def _run(followed):
    """In a thread of its own: a test before may have left an event loop in this one (a
    browser's).
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, followed).result()


def _ids(served, job_id, last=None, on_first=lambda: None):
    headers = {"Last-Event-ID": str(last)} if last is not None else {}
    numbers = []
    with httpx2.stream(
        "GET", f"{served}/api/v1/jobs/{job_id}/events", headers=headers, timeout=20
    ) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("id:"):
                numbers.append(int(line[3:]))
                if len(numbers) == 1:
                    on_first()
    return numbers


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


def test_who_resumes_from_a_deleted_event_is_told_to_reload(served, database, recorded, settings):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    for _ in range(5):
        _emit(database, job)
    with database.write() as session:
        session.query(Event).update({Event.created_at: 0.0})
    _emit(database, job)
    _end(database, job)
    for batch in plan(settings, database):
        delete_batch(database, batch)
    url = f"{served}/api/v1/jobs/{job}/events"
    for after, expected in ((0, [6, 7, 8]), (4, [6, 7, 8]), (6, [7, 8]), (8, [])):
        lines = httpx2.get(url, params={"after": after}, timeout=20).text.splitlines()
        assert [int(line[4:]) for line in lines if line.startswith("id: ")] == expected, after
        reloads = [lines[at + 1] for at, line in enumerate(lines) if line == "event: reload"]
        assert reloads == (
            ['data: {"detail": "events up to 6 are no longer kept; read the job again"}']
            if after < 6
            else []
        )


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


@pytest.mark.parametrize("where", ["params", "headers"])
def test_a_number_that_no_event_can_have_is_refused_before_the_first_byte(api, recorded, where):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    options = (
        {"params": {"after": 10**30}}
        if where == "params"
        else {"headers": {"Last-Event-ID": str(10**30)}}
    )
    assert api.get(f"/api/v1/jobs/{job}/events", **options).status_code == 422


def test_the_events_go_on_after_whatever_broke_one_look(database, recorded, monkeypatch):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    after, broken = events.after, threading.Event()

    def breaks_once(session, job_id, sequence, *more):
        if threading.current_thread().name == "events" and not broken.is_set():
            broken.set()
            raise UnicodeDecodeError("utf-8", b"", 0, 1, "a row that can't be read")
        return after(session, job_id, sequence, *more)

    async def followed():
        numbers = []
        async with asyncio.timeout(10):
            async for event in broadcast.follow(job, 0, 0.05):
                if event is None:
                    _emit(database, job)
                elif isinstance(event, Event):
                    numbers.append(event.sequence)
                if broken.is_set() and len(numbers) > 2:
                    break
        return numbers

    monkeypatch.setattr("server.web.broadcast.after", breaks_once)
    broadcast = Broadcast(database, 0.02)
    broadcast.start()
    try:
        numbers = _run(followed())
        assert numbers == [*range(1, len(numbers) + 1)]
    finally:
        broadcast.close()


def test_nothing_is_missed_however_much_was_written_before_the_first_look(database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    _emit(database, job)
    written = 2 * events.EVENTS_AT_ONCE + 1

    async def followed():
        numbers = []
        async with asyncio.timeout(60):
            async for event in broadcast.follow(job, 0):
                assert isinstance(event, Event)
                if not numbers:
                    with database.write() as session:
                        for _ in range(written):
                            events.emit(session, job, "metric", {})
                    broadcast.start()
                numbers.append(event.sequence)
                if len(numbers) == 2 + written:
                    break
        return numbers

    broadcast = Broadcast(database, 0.02)
    try:
        assert _run(followed()) == [*range(1, 3 + written)]
    finally:
        broadcast.close()


STEPS = 30


def _training(database, job_id):
    """The runs of a job, with an attempt each of a trainer of its own."""
    with database.write() as session:
        runs = session.get_one(Job, job_id).runs
        for run in runs:
            run.attempt_number, run.lease_expires_at, run.capability = (
                1,
                time.time() + 60,
                "external",
            )
            begin_attempt(session, run.id, 1, None)
        return [run.id for run in runs]


def _append(database, settings, run_id, step):
    batch = Batch(steps=np.array([step]), columns={"loss": np.ones(1)})
    with database.write() as session:
        assert external.append(session, settings, run_id, 1, "train", batch) == (1, 0)


def _frames(served, job_id):
    """The events of a stream until its end: (number or None, kind, document)."""
    with httpx2.stream("GET", f"{served}/api/v1/jobs/{job_id}/events", timeout=30) as stream:
        frame: dict[str, str] = {}
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                frame[name] = value
            else:
                yield frame.get("id"), frame["event"], json.loads(frame["data"])
                frame = {}


def _write_at_once(database, settings, job_id, runs):
    """Steps of each run and events of their job, from a thread each; at the end of all, the end of
    the job.
    """

    def steps(run_id):
        for step in range(STEPS):
            _append(database, settings, run_id, step)

    def states():
        for _ in range(STEPS):
            _emit(database, job_id, "run")

    writers = [threading.Thread(target=steps, args=(run_id,)) for run_id in runs] + [
        threading.Thread(target=states) for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def test_no_event_is_lost_and_progress_ends_at_the_last_step_however_many_write_at_once(
    served, database, settings, recorded
):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    runs = _training(database, job)
    writers = threading.Thread(target=_write_at_once, args=(database, settings, job, runs))
    numbers, newest, is_over = [], {}, False
    for number, kind, document in _frames(served, job):
        if kind == "metric":
            assert number is None  # so that Last-Event-ID stays that of the last event
            assert newest.get(document["run"], -1) <= document["step"]
            newest[document["run"]] = document["step"]
        elif number is not None:
            numbers.append(int(number))
        if numbers == [1] and writers.ident is None:
            writers.start()
        if (
            not is_over
            and newest == dict.fromkeys(runs, STEPS - 1)
            and len(numbers) == 2 * STEPS + 1
        ):
            is_over = True
            _end(database, job)
    assert is_over
    assert numbers == [*range(1, 2 * STEPS + 3)]


def test_who_connects_gets_the_newest_progress_of_each_run(database, settings, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    runs = _training(database, job)
    for step in (0, 1):
        for run_id in runs[:2]:
            _append(database, settings, run_id, step)

    async def followed():
        async with asyncio.timeout(20):
            async for event in broadcast.follow(job, 0):
                if isinstance(event, RunProgress):
                    seen[-1][event.run_id] = event.step
                    if len(seen[-1]) == 2:
                        return

    async def both():
        first = asyncio.create_task(hold())
        for _ in range(2):
            seen.append({})
            await followed()
        first.cancel()

    async def hold():
        async for _ in broadcast.follow(job, 0):
            pass

    seen: list[dict[str, int]] = []
    broadcast = Broadcast(database, 0.02)
    broadcast.start()
    try:
        _run(both())
    finally:
        broadcast.close()
    assert seen == [dict.fromkeys(runs[:2], 1)] * 2


def test_a_run_that_has_ended_has_no_progress(database, settings, recorded):
    job = recorded({"nvfp4": 0.0}, done=0, state="running")
    run_id, *_ = _training(database, job)
    _append(database, settings, run_id, 0)
    with database.write() as session:
        session.get_one(Run, run_id).state = "finished"
    with database.read() as session:
        assert run_progress.progress(session, [job]) == []
