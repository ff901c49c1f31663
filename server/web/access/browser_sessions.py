"""Cookie sessions of browsers, which a token opens."""

import time

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.database import hashed_secrets
from server.database.tables import BrowserSession, Token
from server.web.access.api_tokens import is_live

COOKIE = "parity_session"
SESSION_SECONDS = 12 * 3600.0


def open_session(session: Session, token: Token) -> str:
    """Log a browser in; returns the value of its cookie."""
    now, cookie = time.time(), hashed_secrets.new_secret()
    session.execute(delete(BrowserSession).where(BrowserSession.expires_at < now))
    session.add(
        BrowserSession(
            digest=hashed_secrets.digest(cookie),
            token_id=token.id,
            expires_at=now + SESSION_SECONDS,
        )
    )
    return cookie


def close_session(session: Session, cookie: str) -> None:
    """Log a browser out."""
    session.execute(
        delete(BrowserSession).where(BrowserSession.digest == hashed_secrets.digest(cookie))
    )


def token_of_cookie(session: Session, cookie: str) -> Token | None:
    """The valid token that opened the session of a cookie, or None."""
    token = session.scalars(
        select(Token)
        .join(BrowserSession, BrowserSession.token_id == Token.id)
        .where(
            BrowserSession.digest == hashed_secrets.digest(cookie),
            BrowserSession.expires_at > time.time(),
        )
    ).first()
    if token is not None and is_live(token):
        return token
    return None
