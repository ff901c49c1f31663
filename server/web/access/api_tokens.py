"""Bearer tokens of programs and people: made, rotated, revoked and recognised.

A token has the form `parity_<id>_<secret>` and belongs to a principal, which keeps its jobs when
the token is rotated.
"""

import math
import time
from collections.abc import Iterable

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.database import hashed_secrets, tables
from server.database.tables import BrowserSession, Token
from server.errors import ConflictError, InvalidError, NotFoundError
from server.web.access.rules import SCOPES

# For how long a rotated token stays valid next to the new one.
OVERLAP_HOURS, LONGEST_OVERLAP_HOURS = 24.0, 24.0 * 90
_MOST_DAYS = 3650.0


def create_token(
    session: Session,
    name: str,
    scopes: Iterable[str],
    days: float | None,
    max_running: int | None = None,
    principal_id: str | None = None,
    repository: str | None = None,
) -> tuple[Token, str]:
    """A new token and its text, which cannot be retrieved again.

    `max_running` limits how many runs of its jobs train at once. `principal_id`: a further token of
    that principal, for its jobs; by default the token is a principal of its own. `repository`: its
    gates have the rules that the operator pinned for this one.
    """
    scope_names = sorted(set(scopes))
    unknown = [scope for scope in scope_names if scope not in SCOPES]
    if unknown or not scope_names:
        raise InvalidError(f"scopes are {scope_names}, expected some of {', '.join(SCOPES)}")
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise InvalidError(f"name is {name!r:.40}, expected 1 to 100 printable characters")
    if repository is not None and not (1 <= len(repository) <= 200 and repository.isprintable()):
        raise InvalidError(
            f"repository is {repository!r:.40}, expected 1 to 200 printable characters, such as "
            "team/model"
        )
    if days is not None and not 0 < days <= _MOST_DAYS:
        raise InvalidError(f"days is {days:g}, expected more than 0 and at most {_MOST_DAYS:g}")
    if max_running is not None and not 1 <= max_running <= 10_000:
        raise InvalidError(
            f"max_running is {max_running}, expected a whole number from 1 to 10000; leave it out "
            "for no limit"
        )
    principal_token = select(Token.id).where(
        Token.id == principal_id, Token.principal == principal_id
    )
    if principal_id is not None and session.scalar(principal_token) is None:
        raise InvalidError(
            f"principal is {principal_id!r:.80}; expected an id that `python -m server.tokens "
            "list` prints"
        )
    if principal_id is not None and max_running is not None:
        raise InvalidError(
            f"max_running is {max_running}, but it counts for all tokens of principal "
            f"{principal_id}; leave it out here"
        )
    now, secret, token_id = time.time(), hashed_secrets.new_secret(), tables.new_id("t")
    token = Token(
        id=token_id,
        principal=principal_id or token_id,
        name=name,
        digest=hashed_secrets.digest(secret),
        scopes=scope_names,
        max_running=max_running,
        repository=repository,
        created_at=now,
        expires_at=None if days is None else now + 86_400 * days,
    )
    session.add(token)
    return token, f"parity_{token.id}_{secret}"


def rotate_token(
    session: Session, token_id: str, overlap_hours: float, days: float | None = None
) -> tuple[Token, str]:
    """A new token with another secret for the same principal, and its text; the old one is valid
    for the overlap, 0: it ends at once.

    The new one lives as long as the old one was made for, or `days`.
    """
    if not 0 <= overlap_hours <= LONGEST_OVERLAP_HOURS:
        raise InvalidError(
            f"overlap_hours is {overlap_hours:g}, expected 0 to {LONGEST_OVERLAP_HOURS:g}"
        )
    old, now = _find(session, token_id, lock=True), time.time()
    if not is_live(old):
        raise ConflictError(
            f"token {token_id} is revoked or has expired, so it cannot be rotated; create one with "
            f"principal {old.principal}"
        )
    same = (
        Token.principal == old.principal,
        Token.name == old.name,
        Token.created_at > old.created_at,
        Token.revoked_at.is_(None),
    )
    if newer := session.scalar(select(Token.id).where(*same).order_by(Token.created_at.desc())):
        raise ConflictError(
            f"token {token_id} was rotated to {newer} already; rotate that one, or revoke it first"
        )
    lifetime = None
    if old.expires_at is not None:  # as a difference of times, 3650 days may be a hair more
        lifetime = min((old.expires_at - old.created_at) / 86_400, _MOST_DAYS)
    new, text = create_token(
        session,
        old.name,
        old.scopes,
        days or lifetime,
        principal_id=old.principal,
        repository=old.repository,
    )
    new.max_running = old.max_running
    if overlap_hours:
        old.expires_at = min(old.expires_at or math.inf, now + 3600 * overlap_hours)
    else:
        revoke_token(session, token_id)
    return new, text


def revoke_token(session: Session, token_id: str) -> Token:
    """Revoke a token and end the browser sessions that it opened; revoking twice changes
    nothing.
    """
    token = _find(session, token_id)
    token.revoked_at = token.revoked_at or time.time()
    session.execute(delete(BrowserSession).where(BrowserSession.token_id == token_id))
    return token


def authenticate(session: Session, text: str) -> Token | None:
    """The valid token with this text, or None."""
    kind, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    token = (
        session.get(Token, token_id) if kind == "parity" and tables.is_id("t", token_id) else None
    )
    right = hashed_secrets.matches(secret, token.digest if token else None)
    if token is not None and right and is_live(token):
        return token
    return None


def is_live(token: Token) -> bool:
    """Whether a token is neither revoked nor expired."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > time.time())


def _find(session: Session, token_id: str, *, lock: bool = False) -> Token:
    if tables.is_id("t", token_id):
        token = session.get(Token, token_id, with_for_update=lock or None)
    else:
        token = None
    if token is None:
        raise NotFoundError(
            f"token {token_id!r} does not exist; `python -m server.tokens list` prints all"
        )
    return token
