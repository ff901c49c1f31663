"""Named locks: of two transactions that want to write the same thing, the second waits and then
sees what the first wrote.
"""

from sqlalchemy import func, select
from sqlalchemy.orm import Session


def hold_lock(session: Session, name: str) -> None:
    """Acquire the lock of this name and hold it until the transaction ends. Call it in a writing
    transaction.

    Does nothing on SQLite, which has only one writer at a time.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(name))))
