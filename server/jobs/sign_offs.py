"""Sign-offs: a person accepts one inconclusive verdict of a job until a time, and it can be
revoked.

`parity.judging.verdict.sign_offs` says what can be accepted.

Who may: `server.web.access.rules`. Nobody signs off a job that their own principal submitted, or
asked for in a gate, not even an admin: a second person looks. On localhost without tokens there is
one principal, everyone who can connect is trusted, and the sign-off says "this machine".
"""

from sqlalchemy.orm import Session

from parity.judging.document_types import VerdictDocument
from parity.judging.verdict.sign_offs import (
    LEAST_REASON,
    MOST_DAYS,
    Validity,
    sha256_of,
    why_not_acceptable,
)
from server.database import clock
from server.database.locks import hold_lock
from server.database.lookups import find_job
from server.database.tables import EVALUATIONS, Job, SignOff, Verdict, is_id, new_id
from server.errors import InvalidError, NotFoundError, SignOffError
from server.jobs.notes import plain_text

MOST_REASON = 1000
_DAY = 86_400.0


def sign_off(
    session: Session, job_id: str, candidate: str, who: str, reason: str, days: float
) -> Job:
    """Accept the inconclusive verdict on a candidate for some days. SignOffError if it cannot be
    accepted, or is already.
    """
    hold_lock(session, f"sign-off {job_id}")
    job = find_job(session, job_id)
    if not 0 < days <= MOST_DAYS:
        raise InvalidError(f"days is {days:g}, expected more than 0 and at most {MOST_DAYS:g}")
    stated = plain_text("the reason", reason, MOST_REASON, LEAST_REASON)
    verdict = _verdict(job, candidate)
    document = verdict.read_document()
    if (why_not := why_not_signed(job.engine, document)) is not None:
        raise SignOffError(f"candidate {candidate} of job {job_id} cannot be signed off: {why_not}")
    now = clock.now(session)
    valid = next(
        (
            row
            for row in job.sign_offs
            if row.candidate == candidate and validity(row, job, now) == "valid"
        ),
        None,
    )
    if valid is not None:
        raise SignOffError(
            f"candidate {candidate} is signed off until {clock.time_text(valid.expires_at)} "
            f"({valid.id}); revoke that one before another"
        )
    job.sign_offs.append(
        SignOff(
            id=new_id("s"),
            job_id=job_id,
            candidate=candidate,
            verdict_sha256=sha256_of(document),
            policy_sha256=sha256_of(job.policy),
            who=who,
            reason=stated,
            created_at=now,
            expires_at=now + days * _DAY,
        )
    )
    session.flush()
    return job


def why_not_signed(engine: str, document: VerdictDocument) -> str | None:
    """Why nobody may sign off a verdict of a job of this engine, as the end of a sentence; None if
    one can.
    """
    if engine == EVALUATIONS:
        return "a sign-off lets a gate through, and no gate asks for held-out losses"
    return why_not_acceptable(document)


def revoke(session: Session, job_id: str, sign_off_id: str, who: str, reason: str) -> Job:
    """End a sign-off now; revoking twice changes nothing. NotFoundError if the job has no such
    sign-off.
    """
    hold_lock(session, f"sign-off {job_id}")
    job = find_job(session, job_id)
    sign_off = next(
        (row for row in job.sign_offs if is_id("s", sign_off_id) and row.id == sign_off_id), None
    )
    if sign_off is None:
        raise NotFoundError(
            f"job {job_id} has no sign-off {sign_off_id!r:.80}; its page and `parity status "
            f"{job_id}` list them"
        )
    stated = plain_text("the reason", reason, MOST_REASON, LEAST_REASON)
    if sign_off.revoked_at is None:
        sign_off.revoked_at, sign_off.revoked_by, sign_off.revoke_reason = (
            clock.now(session),
            who,
            stated,
        )
        session.flush()
    return job


def _verdict(job: Job, candidate: str) -> Verdict:
    verdict = next((row for row in job.verdicts if row.candidate == candidate), None)
    if verdict is None:
        if job.verdicts:
            there = f"; it has verdicts on {', '.join(row.candidate for row in job.verdicts)}"
        else:
            there = ""
        raise NotFoundError(
            f"job {job.id} is {job.status} and has no verdict on {candidate!r:.80}{there}"
        )
    return verdict


def validity(sign_off: SignOff, job: Job, now: float) -> Validity:
    """The state of a sign-off at `now` (unix seconds)."""
    if sign_off.revoked_at is not None:
        return "revoked"
    if now >= sign_off.expires_at:
        return "expired"
    verdict = next((row for row in job.verdicts if row.candidate == sign_off.candidate), None)
    same = verdict is not None and sha256_of(verdict.read_document()) == sign_off.verdict_sha256
    if same and sha256_of(job.policy) == sign_off.policy_sha256:
        return "valid"
    return "void"
