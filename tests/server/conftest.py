"""A client of the whole application, with its lifespan."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi.testclient import TestClient

from server.app import create_app


@pytest.fixture
def api(settings, database) -> Iterator[TestClient]:
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def served(settings, database) -> Iterator[str]:
    """The address of the application in a real uvicorn."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=port, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def request_body() -> dict:
    """A job that the schema accepts."""
    return {
        "job": {"name": "mine", "baseline": {"recipe": "fp8_current"}, "candidates": [{"recipe": "nvfp4", "replicates": 2}]},
        "criteria": {"margin": "1.0%"},
    }
