"""Idempotency keys of submissions: the same key and body of one principal mean the same job."""

import time

from sqlalchemy.orm import Session

from server.database.locks import hold_lock
from server.database.lookups import find_job
from server.database.tables import IdempotencyKey, Job
from server.errors import InvalidError


def job_of_key(session: Session, principal: str, key: str | None, body: str) -> Job | None:
    """The job for which this principal used this key before; None for a new key, which nobody else
    takes until the transaction ends. InvalidError if it was used for another body (a digest).
    """
    if key is None:
        return None
    hold_lock(session, f"key {principal} {key}")
    used = session.get(IdempotencyKey, (principal, key))
    if used is None:
        return None
    if used.body_digest != body:
        raise InvalidError(
            f"Idempotency-Key {key!r} was already used for another job ({used.job_id}); use a "
            "new key for a new job"
        )
    return find_job(session, used.job_id)


def keep_key(session: Session, principal: str, key: str | None, body: str, job_id: str) -> None:
    """Note that this principal used this key, if there is one, for a job."""
    if key is not None:
        session.add(
            IdempotencyKey(
                principal=principal,
                key=key,
                body_digest=body,
                job_id=job_id,
                created_at=time.time(),
            )
        )
