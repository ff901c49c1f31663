"""What happens around every request: an id, a line in the log, safe headers, one shape for refusals, no foreign pages' writes."""

from __future__ import annotations

import logging
import re
import secrets
import time
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import logs
from server.errors import ForbiddenError, TooLargeError
from server.settings import Settings
from server.web import problems
from server.web.auth import is_loopback, tokens_required

_log = logging.getLogger(__name__)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Machines poll these every few seconds; a line for each would bury the others.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; errors that nobody foresaw become a problem document while no byte has been sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request.state.request_id = _request_id(request)
        answer = _Answer(request, send, self._settings)
        began = time.perf_counter()
        with logs.bound(request_id=request.state.request_id):
            try:
                refusal = self._foreign(request)
                if refusal:
                    await problems.respond(request, ForbiddenError(refusal))(scope, receive, answer.send)
                else:
                    await self._app(scope, receive, answer.send)
            except Exception as error:
                if answer.status is not None:
                    raise
                await problems.unexpected(request, error)(scope, receive, answer.send)
            finally:
                _log_request(request, answer.status, time.perf_counter() - began)

    def _foreign(self, request: Request) -> str | None:
        """Why this request looks like one that another site's page makes, or None.

        Without tokens, being on this machine is all the proof there is: so the address that was reached must be loopback, whatever
        the server is set to listen on, and the Host this machine's: a name of the attacker's that he points at 127.0.0.1 is none of ours.
        """
        host = request.headers.get("Host", "")
        if not tokens_required(self._settings):
            reached = (request.scope.get("server") or (self._settings.host,))[0]  # a unix socket has no address
            if not is_loopback(reached):
                remedy = "set PARITY_HOST to the address that it listens on, and it asks for tokens"
                return f"this server asks for no token, so it answers on loopback only, and it was reached at {reached}: {remedy}"
            if _hostname(host) not in {*_LOOPBACK, self._settings.host}:
                return f"the request's Host is {host!r:.100}, expected {self._settings.host} or localhost"
        if request.method in _SAFE_METHODS:
            return None
        origin = request.headers.get("Origin")
        foreign = origin is not None and origin.partition("://")[2] != host
        if foreign or request.headers.get("Sec-Fetch-Site", "none") in ("cross-site", "same-site"):
            who = f"a page of {origin:.100}" if origin else "another site's page"
            return f"{who} may not change anything here; use the API from a program, or this server's own pages"
        return None


class _Answer:
    """The way out: adds the headers, and replaces the framework's bare 413 by a problem document."""

    def __init__(self, request: Request, send: Send, settings: Settings) -> None:
        self._request = request
        self._send = send
        self._settings = settings
        self._replaced = False
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if self._replaced and message["type"] == "http.response.body":
            return
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            if message["status"] == TooLargeError.status and headers.get("Content-Type") != problems.MEDIA_TYPE:
                await self._too_large()
                return
            self.status = message["status"]
            message["headers"] = self._with_safety(headers).raw
        await self._send(message)

    async def _too_large(self) -> None:
        limit = self._settings.max_body_bytes
        response = problems.respond(self._request, TooLargeError(f"the body is larger than {limit:,} bytes; send less at once"))
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
            # What a token may see is for its bearer; the browser asks again each time (and gets 304 where an ETag allows it).
            headers.setdefault("Cache-Control", "private, no-cache")
        if self._request.url.scheme == "https":
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        return headers


def _request_id(request: Request) -> str:
    """The caller's id where it is short and plain, so that it can't forge a line of the log; else a new one."""
    given = request.headers.get("X-Request-ID", "")
    return given if re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", given) else secrets.token_hex(8)


def _log_request(request: Request, status: int | None, seconds: float) -> None:
    """One line a request: never its query, its headers or its body."""
    ids = {name.removesuffix("_id"): value for name, value in request.scope.get("path_params", {}).items() if name in ("job_id", "run_id")}
    values = {"method": request.method, "path": request.url.path, "status": status, "milliseconds": round(1000 * seconds, 1), **ids}
    level = logging.DEBUG if request.url.path in _QUIET and status == 200 else logging.INFO
    _log.log(level, "request", extra=values)


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
