"""Slow readers of an export hold no connection, and are limited and cut."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import numpy as np
import pytest
from sqlalchemy import select

from server.api import events
from server.api.curves import run_curves
from server.database.metrics import store
from server.database.tables import Run
from server.errors import TooManyError, UnavailableError
from server.settings import Settings
from server.web import streams as streams_module
from server.web.streams import OpenStreams, Share

pytestmark = pytest.mark.both_databases

STEPS = 100_000
EXPORTS, PAGES = (
    Share(what="exports", per_sender=4, in_total=6),
    Share(what="event streams", per_sender=2, in_total=3),
)


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    for module in (run_curves, streams_module):
        monkeypatch.setattr(module, "EXPORTS", EXPORTS)
    monkeypatch.setattr(events, "PAGES", PAGES)


@pytest.fixture
def settings(settings) -> Settings:
    return settings.model_copy(update={"database_connections": 2})


@pytest.fixture
def run_id(database, recorded):
    job = recorded({"nvfp4": 0.0}, done=0)
    with database.write() as session:
        run = session.scalars(select(Run).where(Run.job_id == job).order_by(Run.position)).first()
        run.attempt_number, run.finished_at = 1, 1.0
        steps = np.arange(STEPS)
        store.append(session, run.id, "train", 1, steps[:10], {"lm_loss": np.ones(10)})
        table = {
            "step": steps.astype(float),
            "lm_loss": np.linspace(3, 2, STEPS),
            "grad_norm": np.random.default_rng(0).random(STEPS),
        }
        store.replace(
            session,
            run.id,
            "train",
            [store.Piece(attempt_number=1, first_step=0, last_step=9, count=10)],
            table,
        )
        return run.id


def begin(address: str, run_id: str) -> socket.socket:
    """Ask for an export and read its first bytes only."""
    host, port = address.removeprefix("http://").split(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((host, int(port)))
    reader.sendall(
        (
            f"GET /api/v1/runs/{run_id}/steps?format=csv HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        ).encode()
    )
    assert reader.recv(12) == b"HTTP/1.1 200"
    return reader


@pytest.fixture
def full(served, run_id) -> Iterator[list[socket.socket]]:
    """As many slow readers as one sender may have."""
    with ExitStack() as stack:
        yield [stack.enter_context(begin(served, run_id)) for _ in range(EXPORTS.per_sender)]


def wait_for_room(client: httpx2.Client, run_id: str) -> None:
    deadline = time.monotonic() + 60
    while client.get(f"/api/v1/runs/{run_id}/steps?format=csv&to=3").status_code != 200:
        assert time.monotonic() < deadline, "a reader that has left or was cut still counts"
        time.sleep(0.05)


def test_slow_readers_take_nothing_from_others(served, full, run_id, settings):
    trace = settings.state_dir / "artifacts" / f"{run_id}-1" / "trace"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(b"0123456789")
    of_trace = f"/api/v1/runs/{run_id}/artifacts/1/trace"
    with httpx2.Client(base_url=served) as client:
        assert client.get("/api/v1/jobs").status_code == 200
        refused = client.get(f"/api/v1/runs/{run_id}/steps?format=csv")
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:parity:problem:too-many")
        assert int(refused.headers["Retry-After"]) > 0
        assert client.get(of_trace).status_code == 429
        for reader in full:
            reader.close()
        wait_for_room(client, run_id)
        part = client.get(of_trace, headers={"Range": "bytes=2-4"})
        assert (part.status_code, part.content) == (206, b"234")


def test_readers_that_stop_are_cut(served, run_id, monkeypatch):
    monkeypatch.setattr(streams_module, "IDLE_SECONDS", 0.2)
    with ExitStack() as stack, httpx2.Client(base_url=served) as client:
        for _ in range(EXPORTS.per_sender):
            stack.enter_context(begin(served, run_id))
        wait_for_room(client, run_id)


def test_a_whole_export_is_read_in_parts(served, run_id):
    lines = httpx2.get(f"{served}/api/v1/runs/{run_id}/steps?format=csv").text.splitlines()
    assert [int(line.split(",")[0]) for line in lines[1:]] == list(range(STEPS))


def test_pages_that_follow_a_job_have_a_share_of_their_own(served, full, run_id):
    with httpx2.Client(base_url=served) as client, ExitStack() as stack:
        job = client.get(f"/api/v1/runs/{run_id}").json()["job"]
        path = f"/api/v1/jobs/{job}/events"
        for _ in range(PAGES.per_sender):
            assert stack.enter_context(client.stream("GET", path)).status_code == 200
        refused = client.get(path)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:parity:problem:too-many")
        assert "event streams" in refused.json()["detail"]
        assert int(refused.headers["Retry-After"]) > 0


def test_each_sender_has_a_share_and_all_together_have_one():
    streams = OpenStreams()
    for _ in range(PAGES.per_sender):
        streams.enter(PAGES, "a")
    with pytest.raises(TooManyError):
        streams.enter(PAGES, "a")
    streams.enter(EXPORTS, "a")  # of another kind
    streams.enter(PAGES, "b")
    with pytest.raises(UnavailableError):
        streams.enter(PAGES, "c")
    streams.leave(PAGES, "a")
    streams.enter(PAGES, "c")
