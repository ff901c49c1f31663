"""Authentication and scopes: bearer tokens for programs, cookie sessions for browsers.

A token has the form `parity_<id>_<secret>`. The secret has 256 random bits, so storing its plain SHA-256 is enough. Without
tokens the server accepts requests on loopback only, where everyone who can connect is trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import delete, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from server.database import tables
from server.database.tables import BrowserSession, Token
from server.errors import ForbiddenError, InvalidError, NotFoundError, TooManyError, UnauthorizedError
from server.settings import Settings
from server.web.context import Context, InContext

Scope = Literal["view", "submit", "worker", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
COOKIE = "parity_session"
SESSION_SECONDS = 12 * 3600.0
# Only for OpenAPI, to mark the routes that need a token; `principal` reads the header itself.
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False, description="`parity_<id>_<secret>`"))]
# Writing the time of the last use on every request would make each read a write.
_LAST_USE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A sender with scopes; `admin` includes all others, `submit` includes `view`."""

    id: str
    name: str
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Whether this principal has the scope, directly or through a wider one."""
        return scope in self.scopes or "admin" in self.scopes or (scope == "view" and "submit" in self.scopes)


LOCAL = Principal(id=tables.LOCAL_ID, name=tables.LOCAL_NAME, scopes=frozenset(SCOPES))


def tokens_required(settings: Settings) -> bool:
    """Whether a request needs a token: always, except on a loopback address without `require_tokens`."""
    return settings.require_tokens or not is_loopback(settings.host)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    inside = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None  # a dual-stack socket reports ::ffff:127.0.0.1
    return (inside or address).is_loopback


def create_token(
    session: Session, name: str, scopes: Iterable[str], days: float | None, max_running: int | None = None
) -> tuple[Token, str]:
    """A new token and its text, which cannot be retrieved again. `max_running` limits how many of its runs train at once."""
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise InvalidError(f"scopes are {wanted}, expected some of {', '.join(SCOPES)}")
    if not 1 <= len(name) <= 100:
        raise InvalidError(f"name is {name!r:.40}, expected 1 to 100 characters")
    if days is not None and not 0 < days <= 3650:
        raise InvalidError(f"days is {days:g}, expected more than 0 and at most 3650")
    if max_running is not None and not 1 <= max_running <= 10_000:
        raise InvalidError(f"max_running is {max_running}, expected a whole number from 1 to 10000; leave it out for no limit")
    now, secret = time.time(), secrets.token_urlsafe(32)
    token = Token(
        id=tables.new_id("t"),
        name=name,
        digest=_digest(secret),
        scopes=wanted,
        max_running=max_running,
        created_at=now,
        expires_at=None if days is None else now + 86_400 * days,
    )
    session.add(token)
    return token, f"parity_{token.id}_{secret}"


def revoke_token(session: Session, token_id: str) -> Token:
    """Revoke a token and end the browser sessions that it opened; revoking twice changes nothing."""
    token = session.get(Token, token_id) if tables.is_id("t", token_id) else None
    if token is None:
        raise NotFoundError(f"token {token_id!r} does not exist; the tokens page lists all tokens")
    token.revoked_at = token.revoked_at or time.time()
    session.execute(delete(BrowserSession).where(BrowserSession.token_id == token_id))
    return token


def authenticate(session: Session, text: str) -> Token | None:
    """The valid token with this text, or None."""
    kind, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    token = session.get(Token, token_id) if kind == "parity" and tables.is_id("t", token_id) else None
    # Compared even if no such token exists, so that the response time reveals nothing about ids.
    right = hmac.compare_digest(_digest(secret), token.digest if token else _digest(""))
    return token if token is not None and right and _is_live(token) else None


def open_session(session: Session, token: Token) -> str:
    """Log a browser in; returns the value of its cookie."""
    now, cookie = time.time(), secrets.token_urlsafe(32)
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now))
    session.add(BrowserSession(digest=_digest(cookie), token_id=token.id, expires_at=now + SESSION_SECONDS))
    return cookie


def close_session(session: Session, cookie: str) -> None:
    """Log a browser out."""
    session.execute(delete(BrowserSession).where(BrowserSession.digest == _digest(cookie)))


def principal(request: Request, context: InContext) -> Principal:
    """The sender of this request; UnauthorizedError if a token is required and the request has no valid one."""
    if not tokens_required(context.settings):
        return LOCAL
    token = _token_of(request, context)
    if token is None:
        raise UnauthorizedError(
            "no valid token was sent; send `Authorization: Bearer <token>` (the command line reads PARITY_TOKEN). An admin creates tokens"
        )
    if time.time() - (token.last_used_at or 0.0) > _LAST_USE_SECONDS:
        # A full disk or a slow writer must not block readers.
        with suppress(OperationalError), context.database.write() as session:
            session.get_one(Token, token.id).last_used_at = time.time()
    allowance = request.state.allowance = context.limiter.count(token.id)
    if allowance is not None and allowance.left < 0:
        raise TooManyError(
            f"token {token.name!r} has made its {context.settings.requests_per_minute} requests of this minute; retry in the next minute"
        )
    return Principal(id=token.id, name=token.name, scopes=frozenset(token.scopes))


def is_still_known(request: Request, context: Context) -> bool:
    """Whether the sender's token is still valid; checked during long responses, which may outlive a token."""
    return not tokens_required(context.settings) or _token_of(request, context) is not None


def _token_of(request: Request, context: Context) -> Token | None:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    cookie = request.cookies.get(COOKIE)
    with context.database.read() as session:
        return authenticate(session, text.strip()) if scheme.lower() == "bearer" else _of_cookie(session, cookie) if cookie else None


def requires(scope: Scope, *others: Scope) -> Callable[[Request, InContext, Bearer], Principal]:
    """A dependency that accepts only principals with this scope or one of the others."""

    def check(request: Request, context: InContext, _bearer: Bearer) -> Principal:
        sender = principal(request, context)
        if not any(sender.may(one) for one in (scope, *others)):
            has, needed = ", ".join(sorted(sender.scopes)), " or ".join((scope, *others))
            raise ForbiddenError(f"token {sender.name!r} has scope {has}, expected {needed}; ask an admin for a token with that scope")
        request.state.sender = sender.id
        return sender

    return check


def _of_cookie(session: Session, cookie: str) -> Token | None:
    token = session.scalars(
        select(Token)
        .join(BrowserSession, BrowserSession.token_id == Token.id)
        .where(BrowserSession.digest == _digest(cookie), BrowserSession.expires_at > time.time())
    ).first()
    return token if token is not None and _is_live(token) else None


def _is_live(token: Token) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > time.time())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
