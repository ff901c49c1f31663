"""A judge claims a job for as long as it judges it; what kept it from a verdict is noted."""

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, or_, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from parity.wording import count
from server.concurrency.failures import log_failure
from server.concurrency.repeating import Repeating
from server.database import clock
from server.database.sessions import Database
from server.database.states import JOB_OPEN, JUDGING_AGAIN
from server.database.tables import Job
from server.jobs import lifecycle
from server.logs import without_secrets

_log = logging.getLogger(__name__)

_CLAIM_SECONDS = 30.0  # of silence, after which a judge is taken for dead
_RENEWALS = 3  # in that time
# after the second try, and at most; the second follows the first at once
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0


def claim(session: Session, job_id: str, judge: str) -> bool:
    """Claim an open job for a judge for a while, or renew its claim; False while another has it, or
    if the job has ended.
    """
    now = clock.now(session)
    free = or_(
        Job.judging_until.is_(None),
        clock.is_over(Job.judging_until, now, _CLAIM_SECONDS),
        Job.judging_by == judge,
    )
    open_job = update(Job).where(Job.id == job_id, Job.status.in_(JOB_OPEN), free)
    return (
        session.execute(
            open_job.values(judging_by=judge, judging_until=now + _CLAIM_SECONDS).returning(Job.id)
        ).first()
        is not None
    )


def is_held(now: float) -> ColumnElement[bool]:
    """Whether another judge has a job now, or it rests until it is tried again."""
    return or_(
        ~clock.is_over(Job.judging_until, now, _CLAIM_SECONDS),
        ~clock.is_over(Job.judge_after, now, _LONGEST_PAUSE_SECONDS),
    )


@contextmanager
def claimed(database: Database, job_id: str) -> Iterator[bool]:
    """Whether the job is claimed, for as long as the block takes. An exception is noted, and gives
    it to the next who looks.
    """
    judge = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"

    def renew() -> bool:
        with database.write() as session:
            return claim(session, job_id, judge)

    if not renew():
        yield False
        return
    # Without its claim the job may be judged twice, and has one verdict all the same.
    keeper = Repeating(
        "judge's claim",
        renew,
        _CLAIM_SECONDS / _RENEWALS,
        f"the claim on job {job_id} could not be renewed",
    )
    keeper.start()
    try:
        yield True
    except BaseException as error:
        try:
            with database.write() as session:
                _give_back(session, job_id, judge, error)
        except Exception as failure:  # noqa: BLE001
            log_failure(
                _log, failure, f"job {job_id} could not be judged, and that could not be noted"
            )
        raise
    finally:
        keeper.close()


def _give_back(session: Session, job_id: str, judge: str, error: BaseException) -> None:
    """End a judge's claim; with an error that is not the end of its process, note it and when to
    try again.
    """
    job = session.get(Job, job_id, with_for_update=True)
    if job is None or job.judging_by != judge or job.status not in JOB_OPEN:
        return
    job.judging_until = None
    if not isinstance(error, Exception):
        return
    job.judge_tries += 1
    if job.judge_tries > 1:
        pause = min(
            _FIRST_PAUSE_SECONDS * 2.0 ** min(job.judge_tries - 2, 30), _LONGEST_PAUSE_SECONDS
        )
    else:
        pause = 0.0
    job.judge_after = clock.now(session) + pause
    reason = str(error.orig) if isinstance(error, DBAPIError) else repr(error)
    job.code = JUDGING_AGAIN
    job.message = without_secrets(
        f"no verdict after {count(job.judge_tries, 'try', 'tries')}, and it is tried again: "
        f"{reason.strip():.500}"
    )
    _log.warning("job %s: %s, in %.0f s", job_id, job.message, pause)
    lifecycle.tell_changed(session, job)
