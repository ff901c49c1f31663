"""Duties that one worker does for all: it holds a duty in the database for a while, and another
worker takes over when it is silent.
"""

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from server.database import clock
from server.database.tables import Duty


def take(session: Session, name: str, holder: str, seconds: float) -> bool:
    """Take a duty, or keep it, for `seconds`; False while another holds it. Two who take it at once
    get different answers.
    """
    now = clock.now(session)
    free = or_(Duty.holder == holder, clock.is_over(Duty.expires_at, now, seconds))
    taken = (
        update(Duty).where(Duty.name == name, free).values(holder=holder, expires_at=now + seconds)
    )
    return bool(session.execute(taken.returning(Duty.name)).first())


def give_up(session: Session, name: str, holder: str) -> None:
    """Let another take the duty at once, if it is held."""
    session.execute(
        update(Duty).where(Duty.name == name, Duty.holder == holder).values(expires_at=0.0)
    )
