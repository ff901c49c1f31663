"""Locks by name: of two transactions that are about to write the same thing, the second waits and then finds what the first wrote."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def hold_lock(session: Session, name: str) -> None:
    """Wait until no other transaction holds the lock of this name, and hold it to the end of this one. Call it in a writing transaction.

    SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))
