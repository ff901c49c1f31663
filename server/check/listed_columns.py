"""Do the columns by which jobs are listed, counted, gated and found say what they were derived
from?

These are read without the document that they repeat: states in lists and metrics, the questions
and looks of the ledger, the policy of a judged job. What nothing else repeats, such as a sign-off
or a token, cannot be checked.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from parity.judging.policy import policy_from_mapping
from parity.report.candidates import BEST_FIRST
from server.check.damage import BACKUP, Checked, Damage
from server.check.job_pages import job_pages
from server.database.sessions import Database
from server.database.states import ATTEMPT_MOVES, JOB_MOVES, RUN_ENDED, RUN_MOVES
from server.database.tables import Attempt, Job, Run, Verdict
from server.errors import StoredFormError
from server.jobs.ledger import asked_digest

_ROWS_A_READ = 200
_WORDS: Mapping[InstrumentedAttribute[Any], frozenset[str]] = {
    Job.status: frozenset(JOB_MOVES),
    Run.state: frozenset(RUN_MOVES),
    Attempt.state: frozenset(ATTEMPT_MOVES),
    Verdict.outcome: frozenset(BEST_FIRST),
}


def check_listed_columns(database: Database) -> Iterator[Checked]:
    """Read the states of every table, then the columns of each job."""
    with database.read() as session:
        damage = (*_unknown_words(session), *_attempts_of_ended_runs(session))
        yield Checked(kind="state", pieces=len(_WORDS), damage=damage)
    for jobs in job_pages(database, _ROWS_A_READ):
        damage = tuple(found for job in jobs for found in _damage_of(job))
        yield Checked(kind="listed job", pieces=len(jobs), damage=damage)


def _unknown_words(session: Session) -> Iterator[Damage]:
    """States that no version writes: a count by state leaves such rows out."""
    for column, words in _WORDS.items():
        counts = session.execute(
            select(column, func.count()).where(column.not_in(words)).group_by(column)
        )
        for word, number in counts:
            what = (
                f"table {column.class_.__tablename__}: {column.key} is {word!r} in {number} rows, "
                f"expected one of {', '.join(sorted(words))}"
            )
            yield Damage(what=what, remedies=(BACKUP,))


def _attempts_of_ended_runs(session: Session) -> Iterator[Damage]:
    """Runs whose state and newest attempt contradict each other."""
    newest = (Attempt.run_id == Run.id, Attempt.attempt_number == Run.attempt_number)
    running = Attempt.state == "running"
    rows = session.execute(
        select(Run.id, Run.job_id, Run.state, Attempt.state)
        .join(Attempt, newest[0] & newest[1])
        .where(
            (Run.state.in_(RUN_ENDED) & running)
            | ((Run.state == "running") & ~running)
            | ((Attempt.state == "finished") & (Run.state != "finished"))
            | ((Run.state == "finished") & Attempt.state.in_(("failed", "cancelled")))
        )
        .order_by(Run.id)
    )
    for run_id, job_id, state, attempt_state in rows:
        what = f"run {run_id} of job {job_id} is {state}, and its newest attempt {attempt_state}"
        yield Damage(what=what, remedies=(BACKUP,))


def _damage_of(job: Job) -> Iterator[Damage]:
    if job.verdicts and job.status != "concluded":
        what = f"job {job.id} is {job.status} and has a verdict, which only a concluded job has"
        yield Damage(what=what, remedies=(BACKUP,))
    yield from _questions(job)
    for row in job.verdicts:
        changed = _policy_changes(job, row)
        if changed:
            what = (
                f"job {job.id}: its policy changed since the verdict on {row.candidate}: "
                f"{', '.join(changed)}"
            )
            yield Damage(what=what, remedies=(BACKUP,))


def _questions(job: Job) -> Iterator[Damage]:
    """Questions that do not follow from what was submitted, so that the ledger would not find an
    earlier fail. Under engine external they depend on the token too.
    """
    for arm in job.arms[1:]:
        where = f"job {job.id}, candidate {arm.name}"
        if job.look is not None and arm.question is None and arm.asked is not None:
            what = f"{where}: its look is counted, and it has no question"
            yield Damage(what=what, remedies=(BACKUP,))
        if job.engine == "external" or arm.asked is None:
            continue
        try:
            expected = asked_digest(job, arm)
        except (StoredFormError, LookupError, TypeError, AttributeError):
            continue  # the check of stored forms says so
        if arm.asked != expected:
            what = f"{where}: what it asks is not what was submitted ({arm.asked}, not {expected})"
            yield Damage(what=what, remedies=(BACKUP,))


def _policy_changes(job: Job, row: Verdict) -> list[str]:
    """The keys of a job's policy that differ from the policy in a verdict's document; none where
    another version wrote either in a form that this one does not read.
    """
    try:
        judged_by = json.loads(row.document)["params"]["policy"]
        now, then = job.read_policy().document(), policy_from_mapping(judged_by).document()
    except (StoredFormError, LookupError, TypeError, ValueError):
        return []
    # looks are those that the statements left
    return sorted(key for key in judged_by if key != "looks" and now.get(key) != then.get(key))
