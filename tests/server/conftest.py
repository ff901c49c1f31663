"""A client of the whole application, with its lifespan."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from server.app import create_app


@pytest.fixture
def api(settings, database) -> Iterator[TestClient]:
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def request_body() -> dict:
    """A job that the schema accepts."""
    return {
        "job": {"name": "mine", "baseline": {"recipe": "fp8_current"}, "candidates": [{"recipe": "nvfp4", "replicates": 2}]},
        "criteria": {"margin": "1.0%"},
    }
