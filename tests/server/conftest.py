"""A client of the whole application, with its lifespan."""

from __future__ import annotations

import copy
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.app import context_of, create_app
from server.database.tables import Job, Worker, new_id
from server.jobs.conclude import conclude
from server.settings import Settings
from server.web.connection import Connection

TRAINER = {"code_sha256": "a" * 64, "trainer_version": "0.1.0", "version.jax": "0.10.2", "env.JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="session")
def built() -> dict[Settings, FastAPI]:
    """Applications by their settings without folder and database, which only the context holds: building one takes 0.4 s of CPU."""
    return {}


def _application(settings: Settings, built: dict[Settings, FastAPI]) -> FastAPI:
    """The application with these settings; one that was built before gets a context of its own."""
    key = settings.model_copy(update={"state_dir": Path(), "database_url": ""})
    app = built.get(key) or create_app(settings)
    built[key] = app
    app.state.context = context_of(settings)
    return app


@pytest.fixture
def api(api_settings, database, built) -> Iterator[TestClient]:
    app = _application(api_settings, built)
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


class Served:
    """The application in a real uvicorn, on one port however often it is stopped and started."""

    def __init__(self, settings: Settings, built: dict[Settings, FastAPI]) -> None:
        self._settings, self._built = settings, built
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        config = uvicorn.Config(
            _application(self._settings, self._built),
            http=Connection,
            port=self._port,
            log_level="warning",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture(scope="session")
def built_to_serve() -> dict[Settings, FastAPI]:
    """As `built`, for tests that use a client and a server at once: each has a context of its own."""
    return {}


@pytest.fixture
def server(api_settings, database, built_to_serve) -> Iterator[Served]:
    made = Served(api_settings, built_to_serve)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def served(server) -> str:
    """The address of the application in a real uvicorn."""
    return server.address


@pytest.fixture
def request_body() -> dict:
    """A job that the schema accepts."""
    return {
        "job": {"name": "mine", "baseline": {"recipe": "fp8_current"}, "candidates": [{"recipe": "nvfp4", "replicates": 2}]},
        "criteria": {"margin": "1.0%"},
    }


@pytest.fixture
def register(database) -> Callable[..., None]:
    """A function that registers a worker with this trainer, heard of `age` seconds ago; a value None removes that fact."""

    def add(age: float = 0.0, **changes: str | None) -> None:
        trainer = {name: value for name, value in (TRAINER | changes).items() if value is not None}
        device = {"device_class": "cpu", "threads_per_run": 1} | ({"trainer": trainer} if trainer else {})
        now = time.time()
        with database.write() as session:
            row = Worker(id=new_id("w"), name="w", capability="cpu", slots=1, device=device, started_at=now, heartbeat_at=now - age)
            session.add(row)

    return add


@pytest.fixture
def ended() -> Callable[..., dict[str, Any]]:
    """A function that follows the events of a job until it has ended; the job's document. `headers` are those of its owner."""

    def follow(client: Any, job_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        client.get(f"/api/v1/jobs/{job_id}/events", headers=headers)
        return client.get(f"/api/v1/jobs/{job_id}", headers=headers).json()

    return follow


@pytest.fixture
def judged(database, recorded) -> Callable[[dict[str, float]], tuple[str, dict[str, Any]]]:
    """A function that makes a concluded job of that trainer, with gaps of known size; its id and the request that asks the same.

    Without `verdict` its runs have ended and nobody has judged them.
    """

    def make(gaps: dict[str, float], *, verdict: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
        job_id = recorded(gaps, **more)
        with database.write() as session:
            for run in session.get_one(Job, job_id).runs:
                run.manifest, run.finished_at = {**(run.manifest or {}), **TRAINER}, time.time()
        if verdict:
            conclude(database, job_id)
        with database.read() as session:
            job = session.get_one(Job, job_id)
            return job_id, {"job": copy.deepcopy(job.spec), "criteria": job.criteria}

    return make
