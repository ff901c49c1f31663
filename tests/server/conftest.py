"""A client of the whole application, with its lifespan."""

from __future__ import annotations

import copy
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.datastructures import State

from parity.judging.live.rules import FORECAST_EVERY
from server.app import context_of, create_app
from server.database.sessions import Database
from server.database.tables import Job, Worker, new_id
from server.jobs.conclude import conclude
from server.jobs.noise_tables import family_of, keep_reruns, reruns_of
from server.settings import Settings
from server.web.access import api_tokens
from server.web.access.rules import Scope
from server.web.connection import Connection
from training.spec import SPEC_VERSION

TRAINER = {
    "code_sha256": "a" * 64,
    "trainer_version": "0.1.0",
    "version.jax": "0.10.2",
    "env.JAX_PLATFORMS": "cpu",
}
Built = dict[tuple[object, ...], FastAPI]


@pytest.fixture(scope="session")
def built() -> Built:
    """Applications by the settings that they are built from; the context has all others. Building
    one takes half a second of CPU.
    """
    return {}


def _application(settings: Settings, built: Built) -> FastAPI:
    """The application with these settings: a copy of one that was built before, with the same
    routes and a context of its own.
    """
    key = (settings.max_body_bytes, settings.assets_dir, settings.docs_dir)
    if key not in built:
        built[key] = create_app(settings)
        built[key].state.context.database.close()
    app = copy.copy(built[key])
    app.state, app.middleware_stack = State(), None
    app.state.context = context_of(settings)
    return app


@pytest.fixture
def application(built) -> Callable[[Settings], FastAPI]:
    """A function that gives the application with these settings."""
    return functools.partial(_application, built=built)


@pytest.fixture
def api(api_settings, database, application) -> Iterator[TestClient]:
    with TestClient(
        application(api_settings), base_url="http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        yield client


class Served:
    """The application in a real uvicorn, on one port however often it is stopped and started."""

    def __init__(self, settings: Settings, built: Built) -> None:
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


@pytest.fixture
def server(api_settings, database, built) -> Iterator[Served]:
    made = Served(api_settings, built)
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
        "job": {
            "name": "mine",
            "baseline": {"recipe": "fp8_current"},
            "candidates": [{"recipe": "nvfp4", "replicates": 2}],
        },
        "policy": {"margin": "1.0%"},
    }


@pytest.fixture
def register(database) -> Callable[..., None]:
    """A function that registers a worker with this trainer, heard of `age` seconds ago; a value
    None removes that fact.
    """

    def add(age: float = 0.0, **changes: str | None) -> None:
        trainer = {name: value for name, value in (TRAINER | changes).items() if value is not None}
        device = {"device_class": "cpu", "threads_per_run": 1, "spec_version": SPEC_VERSION} | (
            {"trainer": trainer} if trainer else {}
        )
        now = time.time()
        with database.write() as session:
            row = Worker(
                id=new_id("w"),
                name="w",
                capability="cpu",
                slots=1,
                device=device,
                started_at=now,
                heartbeat_at=now - age,
            )
            session.add(row)

    return add


@pytest.fixture
def ended() -> Callable[..., dict[str, Any]]:
    """A function that follows the events of a job until it has ended; the job's document. `headers`
    are those of its owner.
    """

    def follow(client: Any, job_id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        client.get(f"/api/v1/jobs/{job_id}/events", headers=headers)
        return client.get(f"/api/v1/jobs/{job_id}", headers=headers).json()

    return follow


def people_of(database: Database, scopes: Mapping[str, Sequence[Scope]]) -> dict[str, Any]:
    """Headers with a token of these scopes, by name, and the principal of each under `NAME id`."""
    with database.write() as session:
        made = {
            name: api_tokens.create_token(session, name, list(each), None)
            for name, each in scopes.items()
        }
        headers = {name: {"Authorization": f"Bearer {text}"} for name, (_, text) in made.items()}
        return headers | {f"{name} id": token.id for name, (token, _) in made.items()}


@pytest.fixture(autouse=True)
def nothing_ships(monkeypatch, request):
    """Jobs of these tests are small models of engine emulated; they borrow only from what a test
    records (but see jobs/test_noise_tables.py).

    Their verdicts have short paths, which take three quarters of the time of a verdict;
    tests/parity/judging/verdict/test_path.py has whole ones. Of their forecasts every eighth is
    made: all would take half of the time of concluding. Modules that say `ALL_FORECASTS` have all.
    """
    if not getattr(request.module, "ALL_FORECASTS", False):
        monkeypatch.setattr("parity.judging.live.rules.FORECAST_EVERY", 8 * FORECAST_EVERY)
    monkeypatch.setattr("parity.judging.verdict.path.POINTS", 8)
    monkeypatch.setattr("parity.judging.verdict.path.FEWEST", 5)
    monkeypatch.setattr("server.jobs.noise_tables.emulated_family", lambda _spec: None)


@pytest.fixture
def record_reruns(database, recorded) -> Callable[..., str]:
    """A function that records a concluded job with reruns; the name of its family. Another
    `rerun` has the same batches.
    """

    def record(rerun: int, **more: Any) -> str:
        job_id = recorded({"nvfp4": 0.0, "mxfp8": 0.0}, rerun=rerun, **more)
        with database.write() as session:
            job = session.get_one(Job, job_id)
            for run in job.runs:
                run.rounding = "stochastic" if run.arm.name == "nvfp4" else "nearest"
            job.status = "concluded"
            keep_reruns(job, reruns_of(session, job))
            return family_of(job)

    return record


@pytest.fixture
def judged(database, recorded) -> Callable[[dict[str, float]], tuple[str, dict[str, Any]]]:
    """A function that makes a concluded job of that trainer, with gaps of known size; its id and
    the request that asks the same.

    Without `verdict` its runs have ended and nobody has judged them.
    """

    def make(
        gaps: dict[str, float], *, verdict: bool = True, **more: Any
    ) -> tuple[str, dict[str, Any]]:
        job_id = recorded(gaps, **more)
        with database.write() as session:
            for run in session.get_one(Job, job_id).runs:
                run.manifest, run.finished_at = {**(run.manifest or {}), **TRAINER}, time.time()
        if verdict:
            conclude(database, job_id)
        with database.read() as session:
            job = session.get_one(Job, job_id)
            return job_id, {"job": copy.deepcopy(job.spec), "policy": job.policy}

    return make
