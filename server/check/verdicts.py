"""Is each verdict as the judge wrote it, and does each concluded job still have its own?"""

import json
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.check.damage import BACKUP, Checked, Damage
from server.check.job_pages import job_pages
from server.database.sessions import Database
from server.database.tables import Arm, Job, Verdict
from server.database.verdict_digest import document_digest, has_its_columns
from server.jobs.lifecycle import listed_answer
from server.jobs.verdict_rows import has_its_lead

_ROWS_A_READ = 200


def check_verdicts(database: Database) -> Iterator[Checked]:
    """Compare each verdict with its digests, and its columns with its document."""
    last = ""
    while True:
        with database.read() as session:
            page = select(Verdict).where(Verdict.id > last).order_by(Verdict.id).limit(_ROWS_A_READ)
            rows = session.scalars(page).all()
            if not rows:
                break
            damage = tuple(found for row in rows if (found := _damage(row)) is not None)
            unchecked = sum(row.document_sha256 is None for row in rows)
            last = rows[-1].id
            yield Checked(kind="verdict", pieces=len(rows), unchecked=unchecked, damage=damage)
    with database.read() as session:
        yield Checked(kind="concluded job", pieces=0, damage=tuple(_missing_verdicts(session)))
    yield from _check_answers(database)


def _check_answers(database: Database) -> Iterator[Checked]:
    """Compare what lists and their counts show of each job with its verdicts."""
    for jobs in job_pages(database, _ROWS_A_READ):
        damage = tuple(found for job in jobs if (found := _wrong_answer(job)) is not None)
        yield Checked(kind="answer", pieces=len(jobs), damage=damage)


def _wrong_answer(job: Job) -> Damage | None:
    answer, gap = listed_answer(job.verdicts)
    if (job.answer, job.worst_gap) != (answer, gap):
        what = (
            f"job {job.id}: lists show the answer {job.answer} and the gap {job.worst_gap}, and "
            f"its verdicts say {answer} and {gap}"
        )
        return Damage(what=what, remedies=_remedies(job.id))
    if not has_its_lead(job):
        what = f"job {job.id}: lists show {job.lead!r}, which its verdicts do not say"
        return Damage(what=what, remedies=_remedies(job.id))
    return None


def _damage(row: Verdict) -> Damage | None:
    where = f"verdict on {row.candidate} of job {row.job_id}"
    remedies = _remedies(row.job_id)
    if row.document_sha256 is not None and row.document_sha256 != document_digest(row.document):
        return Damage(what=f"{where}: its document changed since it was written", remedies=remedies)
    if not has_its_columns(row):
        what = f"{where}: what lists show of it changed since it was written"
        return Damage(what=what, remedies=remedies)
    for column in ("document", "path"):
        try:
            read = json.loads(getattr(row, column) or "null")
        except ValueError as error:
            what = f"{where}: its {column} is no JSON ({error!s:.200})"
            return Damage(what=what, remedies=remedies)
        if column == "document" and read["verdict"] != row.outcome:
            what = f"{where}: it is {row.outcome} in lists and {read['verdict']} in its document"
            return Damage(what=what, remedies=remedies)
    return None


def _missing_verdicts(session: Session) -> Iterator[Damage]:
    """Candidates of concluded jobs that have no verdict; an analysis has none."""
    rows = session.execute(
        select(Arm.job_id, Arm.name)
        .join(Job, Job.id == Arm.job_id)
        .outerjoin(Verdict, (Verdict.job_id == Arm.job_id) & (Verdict.candidate == Arm.name))
        .where(Job.status == "concluded", Arm.role == "candidate", Verdict.id.is_(None))
        .order_by(Arm.job_id)
    )
    for job_id, name in rows:
        if not session.get_one(Job, job_id).is_judged:
            continue
        what = f"job {job_id} is concluded and its candidate {name} has no verdict"
        yield Damage(what=what, remedies=_remedies(job_id))


def _remedies(job_id: str) -> tuple[str, ...]:
    again = (
        f"POST /api/v1/jobs/{job_id}:rejudge shows it as computed again from the recorded curves, "
        f"and `python -m server.check --judge-again {job_id}` records that"
    )
    return again, BACKUP
