"""The web application: routes, pages, one error shape, request ids and the headers that keep a browser safe."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.middleware.gzip import GZipMiddleware

from parity.version import ENGINE_VERSION
from server import pages, problems
from server.context import Context
from server.database.engine import Database
from server.errors import ForbiddenError
from server.live import Broadcast
from server.queue import Doorbell, broker
from server.routes import curves, events, health, jobs
from server.settings import Settings

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def create_app(settings: Settings) -> FastAPI:
    """The service over a database that is migrated already."""
    database = Database(settings.database)
    context = Context(settings=settings, database=database, doorbell=Doorbell(broker(settings)), broadcast=Broadcast(database))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        context.broadcast.start()
        yield
        context.broadcast.close()
        database.close()

    app = FastAPI(
        title="parity",
        summary="Convergence-parity validation for low-precision LLM training",
        version=ENGINE_VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.context = context
    problems.install(app)
    for module in (jobs, curves, events, health):
        app.include_router(module.router)
    pages.install(app, settings)
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.middleware("http")(_guard)
    return app


def from_environment() -> FastAPI:
    """The application with settings from the environment: what `uvicorn --factory server.app:from_environment` serves."""
    return create_app(Settings())


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """A request id on everything; no writes that another site's page makes in a visitor's name."""
    request.state.request_id = request.headers.get("X-Request-ID", "")[:100] or secrets.token_hex(8)
    origin = request.headers.get("Origin")
    if request.method not in ("GET", "HEAD", "OPTIONS") and origin and urlsplit(origin).netloc != request.headers.get("Host"):
        response: Response = problems.respond(
            request,
            ForbiddenError(f"a page of {origin} may not change anything here; use the API from a program, or this server's own pages"),
        )
    else:
        response = await call_next(request)
    response.headers["X-Request-ID"] = request.state.request_id
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response
