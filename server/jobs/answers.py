"""What earlier jobs answered to a question: which fail stands, what an answer names, and the new
questions that operators register.

A fail stands against every pass of the same question until what trains or the data change, or an
operator registers a new question: by whatever words, engine, token or race the pass came about. A
registered further look at the fail, in its own ledger, takes its place.
"""

from collections.abc import Callable, Iterator

from sqlalchemy.orm import Session

from parity.judging.verdict.sign_offs import LEAST_REASON
from parity.wording import count, short_commit
from server.database import clock
from server.database.lookups import find_job
from server.database.tables import Job, NewQuestion, new_id
from server.errors import ConflictError
from server.jobs import ledger
from server.jobs.evaluations import check_takes_runs
from server.jobs.notes import add_note, plain_text
from server.jobs.sign_offs import MOST_REASON

MOST_NAMED = 5  # earlier answers
_MARGIN = ("margin", "profile")


def earlier_answers(session: Session, job: Job) -> list[str]:
    """The verdicts of other jobs on the question of a job, newest first, a phrase each; the last
    one says how many are left out.
    """
    others = [*ledger.same_question(session, job, Job.status == "concluded")]
    named = [_words(other) for other in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        named.append(f"and {count(len(others) - MOST_NAMED, 'earlier one')}")
    return named


def _words(job: Job) -> str:
    outcomes = (
        ", ".join(dict.fromkeys(verdict.read_outcome() for verdict in job.verdicts)) or "no verdict"
    )
    revision = f" at revision {short_commit(job.revision)}" if job.revision else ""
    engine = f", engine {job.engine}"
    return (
        f"job {job.id}: {outcomes}{revision}{engine}, "
        f"{clock.time_text(job.finished_at or job.created_at)}"
    )


def standing_fail(session: Session, job: Job, is_new_question: Callable[[Job], bool]) -> Job | None:
    """The newest job whose fail stands against the pass of a job; None where there is none.

    `is_new_question` says of a job whether what trains it, or its data, have changed since.
    """
    return next((other for other in _fails(session, job) if not is_new_question(other)), None)


def _fails(session: Session, job: Job) -> Iterator[Job]:
    for other in ledger.same_question(session, job, Job.status == "concluded"):
        if not failed(other) or any(
            other.policy.get(key) != job.policy.get(key) for key in _MARGIN
        ):
            continue
        if ledger.is_other_code(other, job) or ledger.is_renewed(session, other):
            continue
        if not _is_further_look(job, other):
            yield other


def failed(job: Job) -> bool:
    """Whether a verdict of a job is a fail."""
    return any(verdict.read_outcome() == "fail" for verdict in job.verdicts)


def _is_further_look(job: Job, other: Job) -> bool:
    """Whether a job is a registered further look at what another one answered, in one ledger."""
    ledgers = [{arm.question for arm in asked.arms if arm.question} for asked in (job, other)]
    return bool(ledgers[0] & ledgers[1]) and (job.look or 0) > (other.look or 0)


def register_new_question(session: Session, job_id: str, who: str, reason: str) -> Job:
    """Note that the question of a job may be asked again: its answers so far stand against no later
    one. A note of the job logs it.

    ConflictError for a job without a verdict: its question has no answer yet.
    """
    job = find_job(session, job_id)
    check_takes_runs(job, "nobody counts how often its question is asked")
    stated = plain_text("the reason", reason, MOST_REASON, LEAST_REASON)
    if job.status != "concluded" or not job.verdicts:
        raise ConflictError(
            f"job {job_id} is {job.status} and has no verdict; expected a job that answered the "
            "question"
        )
    session.add(
        NewQuestion(
            id=new_id("q"), job_id=job.id, who=who, reason=stated, created_at=clock.now(session)
        )
    )
    return add_note(session, job_id, who, f"Registered a new question: {stated}")
