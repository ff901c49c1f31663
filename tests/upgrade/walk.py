"""Open every route and page of the service on a record, with each id that the record has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

# The values of the parameters of a path, by their names.
IDS = {
    ("job_id",): "SELECT id FROM jobs",
    ("job_id", "part"): "SELECT id, part FROM jobs, (SELECT 'reasons' AS part UNION "
    "SELECT 'forecasts' UNION SELECT 'runs') AS parts",
    ("run_id",): "SELECT id FROM runs",
    ("run_id", "attempt", "name"): "SELECT run_id, attempt_number, 'log.txt' FROM attempts",
    ("name",): "SELECT DISTINCT name FROM baselines",
    ("name", "version"): "SELECT name, version FROM baselines",
    ("golden",): "SELECT DISTINCT name FROM goldens",
    ("golden", "version"): "SELECT name, version FROM goldens",
    ("named",): "SELECT DISTINCT name FROM jobs",
}
STREAMS = ("/api/v1/jobs/{job_id}/events",)


class Opened(NamedTuple):
    """An address that was opened, and what came."""

    address: str
    status: int
    body: str


def paths(app: FastAPI) -> list[str]:
    """Every path that answers GET with a document or a page."""
    found = {
        route.path_format
        for route in iter_route_contexts(app.routes)
        if "GET" in (getattr(route, "methods", None) or ())
    }
    return sorted(found.difference(STREAMS))


def addresses(app: FastAPI, engine: Engine) -> Iterator[str]:
    """Every address of every path."""
    for path in paths(app):
        names = tuple(re.findall(r"{(\w+)(?::\w+)?}", path))
        if not names:
            yield path
            continue
        with engine.connect() as connection:
            rows = connection.execute(text(IDS[names])).all()
        for row in rows:
            address = path
            for name, value in zip(names, row, strict=True):
                address = re.sub(rf"{{{name}(:\w+)?}}", str(value), address)
            yield address


def walk(app: FastAPI, engine: Engine) -> list[Opened]:
    """Open everything."""
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        replies = [(address, client.get(address)) for address in addresses(app, engine)]
    return [Opened(address, reply.status_code, reply.text) for address, reply in replies]
