"""Tokens of runs: the text `parity_RUN-EPOCH_SECRET` lets its holder write one attempt of one run,
as long as that attempt holds the run.

Only the secret's digest is stored, in the attempt's row. It is made when the attempt begins and
never valid for another one.
"""

import re

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from parity.frozen import frozen
from server.database.hashed_secrets import digest, matches, new_secret
from server.database.tables import Attempt, Run

_TEXT = re.compile(
    r"parity_(r[0-9a-f]{12,}-[0-9a-f]{10})-([1-9][0-9]{0,15})_([A-Za-z0-9_-]{1,100})"
)


@frozen
class RunToken:
    """A run token whose secret is right. It is live while its attempt holds the run: not fenced,
    and not ended.
    """

    run_id: str
    attempt_number: int
    is_live: bool


def issue(session: Session, run_id: str, attempt_number: int) -> str:
    """A new token for an attempt; an earlier one of the same attempt is invalid from now on. Call
    it in the attempt's transaction.
    """
    secret = new_secret()
    text, token_digest = f"parity_{run_id}-{attempt_number}_{secret}", digest(secret)
    for pending in session.new:
        if isinstance(pending, Attempt) and (pending.run_id, pending.attempt_number) == (
            run_id,
            attempt_number,
        ):
            pending.token_digest = token_digest
            return text
    ours = (
        update(Attempt)
        .where(Attempt.run_id == run_id, Attempt.attempt_number == attempt_number)
        .values(token_digest=token_digest)
    )
    session.execute(ours.execution_options(synchronize_session=False))
    return text


def digest_of(text: str) -> str:
    """The digest that the database has for a run token."""
    parts = _TEXT.fullmatch(text)
    return digest(parts[3] if parts else "")


def authenticate(session: Session, text: str) -> RunToken | None:
    """The run token with this text; None if it has another form or a wrong secret."""
    parts = _TEXT.fullmatch(text)
    if parts is None:
        return None
    run_id, attempt_number, secret = parts[1], int(parts[2]), parts[3]
    stored = select(Attempt.token_digest, Attempt.state, Run.attempt_number, Run.state).join(
        Run, Run.id == Attempt.run_id
    )
    row = session.execute(
        stored.where(Attempt.run_id == run_id, Attempt.attempt_number == attempt_number)
    ).first()
    if not matches(secret, row[0] if row else None) or row is None:
        return None
    return RunToken(
        run_id=run_id,
        attempt_number=attempt_number,
        is_live=row[1] == "running" and row[2] == attempt_number and row[3] == "running",
    )
