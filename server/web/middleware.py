"""Wraps every request: request id, log line, security headers, one format for errors, no writes by
pages of other sites.
"""

import asyncio
import logging
import random
import re
import time
from http import HTTPStatus
from urllib.parse import urlsplit

from anyio.to_thread import current_default_thread_limiter
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import logs
from server.errors import (
    BadRequestError,
    BusyError,
    ForbiddenError,
    InvalidError,
    ServiceError,
    TooLargeError,
)
from server.logs import cut
from server.settings import Settings
from server.web import limits, problems, retry_times
from server.web.access.principals import is_loopback, tokens_required
from server.web.context import Context
from server.web.requests.texts import clean_address

BODY_SECONDS = 30.0
"""How long a client may pause while it sends a body."""
_log = logging.getLogger(__name__)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Monitoring polls these every few seconds: logging them would bury the other lines, and refusing
# them would look like an outage.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
REQUESTS = CollectorRegistry()
"""What this process has served since it began; all else in `/metrics` is counted from the
database.
"""
_SECONDS = Histogram(
    "parity_request_seconds",
    "Seconds from a request to the end of its response, of this process; event streams and "
    "exports last as long as their clients read",
    ["method", "route", "status"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
    registry=REQUESTS,
)
_SHED = Counter(
    "parity_shed_requests",
    "Requests that this process refused because too many waited",
    registry=REQUESTS,
)


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._retry_times = retry_times.RetryTimes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; an unexpected error becomes a problem document if no byte has been
        sent yet.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request.state.request_id = _request_id(request)
        answer = _Answer(request, send)
        began = time.perf_counter()
        with logs.bound(request_id=request.state.request_id):
            try:
                refusal = self._refusal(request)
                if refusal:
                    await problems.respond(request, refusal)(scope, receive, answer.send)
                else:
                    await self._app(scope, _with_body_timeout(receive), answer.send)
            except Exception as error:
                if answer.status is not None:
                    raise
                await problems.unexpected(request, error)(scope, receive, answer.send)
            finally:
                seconds = time.perf_counter() - began
                _count_request(request, answer.status, seconds)
                _log_request(request, answer.status, seconds)

    def _refusal(self, request: Request) -> ServiceError | None:
        # First, before the body is read and the sender known: a request that nobody has time for
        # must cost next to nothing.
        waiting, path = (
            current_default_thread_limiter().statistics().tasks_waiting,
            request.scope["path"],
        )
        # Pages that follow a job all come back at once when a server has restarted, and have a
        # limit of their own (`PAGES`).
        if waiting >= limits.MOST_WAITING and path not in _QUIET and not path.endswith("/events"):
            _SHED.inc()
            request.state.is_shed = True
            seconds = self._retry_times.seconds(time.monotonic())
            return BusyError(
                f"{limits.MOST_WAITING} requests wait for this server, the most that may; retry "
                f"in {seconds} s",
                seconds,
            )
        try:
            clean_address(request.scope)
        except InvalidError as error:
            return error
        if "Content-Length" in request.headers and "Transfer-Encoding" in request.headers:
            return BadRequestError(
                "the request has Content-Length and Transfer-Encoding, so that its end is "
                "ambiguous; send one of them"
            )
        foreign = self._foreign(request)
        if not foreign:
            return None
        return ForbiddenError(foreign)

    def _foreign(self, request: Request) -> str | None:
        """Why this request seems to come from a page of another site, or None.

        Without tokens, being on this machine is the only proof of identity. So the request must
        arrive on a loopback address, also if the server is set to listen elsewhere, and its Host
        must name this machine: an attacker can point a name at 127.0.0.1.
        """
        host, settings = request.headers.get("Host", ""), _settings_of(request)
        if not tokens_required(settings):
            # a unix socket has no address
            reached = (request.scope.get("server") or (settings.host,))[0]
            if not is_loopback(reached):
                remedy = (
                    "set PARITY_HOST to the address that the server listens on, which makes it "
                    "require tokens"
                )
                return (
                    f"the request arrived at {reached}, expected a loopback address, because this "
                    f"server requires no token; {remedy}"
                )
            if _hostname(host) not in {*_LOOPBACK, settings.host}:
                return f"the request's Host is {host!r:.100}, expected {settings.host} or localhost"
        if request.method in _SAFE_METHODS:
            return None
        origin = request.headers.get("Origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or request.headers.get("Sec-Fetch-Site", "none") in ("cross-site", "same-site"):
            who = f"a page of {origin:.100}" if origin else "another site's page"
            return (
                f"the request comes from {who}, which may not change anything here; use the API "
                "from a program, or this server's own pages"
            )
        return None


def _settings_of(request: Request) -> Settings:
    context: Context = request.app.state.context
    return context.settings


class _Answer:
    """The outgoing side: adds headers and replaces the framework's bare 413 by a problem
    document.
    """

    def __init__(self, request: Request, send: Send) -> None:
        self._request = request
        self._send = send
        self._replaced = False
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if self._replaced and message["type"] == "http.response.body":
            return
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if (
                message["status"] == TooLargeError.status
                and headers.get("Content-Type") != problems.MEDIA_TYPE
            ):
                await self._too_large()
                return
            self.status = message["status"]
            message["headers"] = self._with_safety(headers).raw
        await self._send(message)

    async def _too_large(self) -> None:
        limit = self._request.scope.get(
            MAX_BODY_SIZE_SCOPE_KEY, _settings_of(self._request).max_body_bytes
        )
        response = problems.respond(
            self._request,
            TooLargeError(
                f"the body is larger than {limit:,} bytes; split the data into smaller requests"
            ),
        )
        await response(self._request.scope, self._request.receive, self.send)
        self._replaced = True

    def _with_safety(self, headers: MutableHeaders) -> MutableHeaders:
        headers["X-Request-ID"] = self._request.state.request_id
        allowance = getattr(self._request.state, "allowance", None)
        if allowance is not None:
            headers.update(allowance.headers())
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if not self._request.url.path.startswith("/static/"):
            # Private to the token's bearer; the browser revalidates each time (and gets 304 if an
            # ETag allows it).
            headers.setdefault("Cache-Control", "private, no-cache")
        if self._request.url.scheme == "https":
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        return headers


def _with_body_timeout(receive: Receive) -> Receive:
    """Receive the parts of a request's body; 408 if the client stops sending in between."""
    whole = False

    async def receive_in_time() -> Message:
        nonlocal whole
        if whole:  # what comes next is that the client leaves, whenever that is
            return await receive()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise HTTPException(
                408, f"no byte of the body arrived for {BODY_SECONDS:g} s; send the request again"
            ) from None
        whole = not message.get("more_body", False)
        return message

    return receive_in_time


def _request_id(request: Request) -> str:
    """The caller's request id if it is short and plain, so that it cannot forge a log line; else a
    new one.
    """
    sent = request.headers.get("X-Request-ID", "")
    if re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", sent):
        return sent
    return f"{random.getrandbits(64):016x}"


def _count_request(request: Request, status: int | None, seconds: float) -> None:
    """Count a request by its route, not its path, so that there are no more series than routes."""
    route = getattr(request.scope.get("route"), "path_format", None) or "none"
    method = (
        "other" if route == "none" or status == HTTPStatus.METHOD_NOT_ALLOWED else request.method
    )
    _SECONDS.labels(method, route, "none" if status is None else f"{status // 100}xx").observe(
        seconds
    )


def _log_request(request: Request, status: int | None, seconds: float) -> None:
    """One log line per request with who sent it, without its query, headers or body."""
    parameters = request.scope.get("path_params", {})
    ids = {
        name.removesuffix("_id"): cut(value)
        for name, value in parameters.items()
        if name in ("job_id", "run_id")
    }
    sender = getattr(request.state, "sender", None)
    values = {
        "method": request.method,
        "path": cut(request.url.path),
        "status": status,
        "milliseconds": round(1000 * seconds, 1),
        **ids,
    }
    if sender:
        values["principal"] = sender
    # which are counted
    is_quiet = (request.url.path in _QUIET and status == 200) or getattr(
        request.state, "is_shed", False
    )
    level = logging.DEBUG if is_quiet else logging.INFO
    _log.log(level, "request", extra=values)


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
