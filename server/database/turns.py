"""Two who are about to write the same thing take turns: the second one finds what the first has written."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def take_turn(session: Session, what: str) -> None:
    """Wait until no other transaction has this turn, and hold it to the end of this one. Call it in a writing transaction.

    SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(what))))
