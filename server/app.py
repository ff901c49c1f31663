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
from server.auth import tokens_required
from server.context import Context
from server.database.engine import Database
from server.errors import ForbiddenError, TooLargeError
from server.limits import Limiter
from server.live import Broadcast
from server.queue import Doorbell, broker
from server.routes import curves, evaluations, events, health, jobs, metrics, tokens
from server.settings import Settings

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def create_app(settings: Settings) -> FastAPI:
    """The service over a database that is migrated already."""
    database = Database(settings.database)
    context = Context(
        settings=settings,
        database=database,
        doorbell=Doorbell(broker(settings)),
        broadcast=Broadcast(database),
        limiter=Limiter(settings.redis, settings.requests_per_minute),
    )

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
    for module in (jobs, curves, evaluations, events, health, metrics, tokens):
        app.include_router(
            module.router, max_body_size=settings.max_body_bytes, responses=problems.responses(401, 403, 404, 413, 422, 429, 503)
        )
    pages.install(app, settings)
    app.openapi_schema = problems.describe(app.openapi())
    app.add_middleware(GZipMiddleware, minimum_size=1024)
    app.middleware("http")(_guard)
    return app


def from_environment() -> FastAPI:
    """The application with settings from the environment: what `uvicorn --factory server.app:from_environment` serves."""
    return create_app(Settings())


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """A request id and safe headers on everything; no writes that another site's page makes in a visitor's name."""
    request.state.request_id = request.headers.get("X-Request-ID", "")[:100] or secrets.token_hex(8)
    refusal = _foreign(request)
    if refusal:
        response: Response = problems.respond(request, ForbiddenError(refusal))
    else:
        try:
            response = await call_next(request)
        except Exception as error:  # noqa: BLE001 (the last resort: an error of ours, with its request id and headers)
            response = problems.unexpected(request, error)
    if response.status_code == TooLargeError.status and response.headers.get("Content-Type") != problems.MEDIA_TYPE:
        limit = request.app.state.context.settings.max_body_bytes
        response = problems.respond(request, TooLargeError(f"the body is larger than {limit:,} bytes; send less at once"))
    response.headers["X-Request-ID"] = request.state.request_id
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _foreign(request: Request) -> str | None:
    """Why this request looks like one that another site's page makes, or None.

    Without tokens, being on this machine is all the proof there is, so the Host must be this machine's too: a name of the
    attacker's that he points at 127.0.0.1 is none of ours.
    """
    settings = request.app.state.context.settings
    host = request.headers.get("Host", "")
    if not tokens_required(settings) and _hostname(host) not in {*_LOOPBACK, settings.host}:
        return f"this server is asked for as {host!r:.100}, expected {settings.host} or localhost"
    origin = request.headers.get("Origin")
    if request.method not in ("GET", "HEAD", "OPTIONS") and origin and origin.partition("://")[2] != host:
        return f"a page of {origin:.100} may not change anything here; use the API from a program, or this server's own pages"
    return None


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
