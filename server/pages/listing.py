"""The list of jobs, with submitter, outcome and filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.document_types import VerdictDocument
from server.database.tables import Job, JobStatus, Verdict, is_id
from server.documents.job import WHOLE, JobSummary, job_summary
from server.documents.principals import principal_names
from server.documents.verdicts import verdict_documents

JOBS_A_PAGE = 50
OUTCOMES = ("pass", "fail", "inconclusive")
Wanted = JobStatus | Literal["pass", "fail", "inconclusive"]
STATES = (*OUTCOMES, *get_args(JobStatus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job in the list, with the judge's verdict documents and the name of its submitter."""

    job: JobSummary
    verdicts: list[VerdictDocument]
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Jobs, newest first; `older` is the id below which the next page begins."""

    rows: list[Row]
    older: str | None


def listing(session: Session, state: Wanted | None, name: str, before: str | None) -> Page:
    """One page of the jobs with a status (or verdict) whose name contains a text."""
    # Ids first: a search by name reads an index, not the jobs with their specifications.
    statement = select(Job.id).order_by(Job.id.desc()).limit(JOBS_A_PAGE + 1)
    if state in OUTCOMES:
        statement = statement.where(Job.verdicts.any(Verdict.outcome == state))
    elif state:
        statement = statement.where(Job.status == state)
    if name:
        statement = statement.where(Job.name.icontains(name, autoescape=True))
    if before and is_id("j", before):
        statement = statement.where(Job.id < before)
    ids = session.scalars(statement).all()
    jobs = session.scalars(select(Job).options(*WHOLE).where(Job.id.in_(ids)).order_by(Job.id.desc())).all()
    shown = jobs[:JOBS_A_PAGE]
    names = principal_names(session, {job.submitted_by for job in shown})
    rows = [Row(job=job_summary(job), verdicts=verdict_documents(job), who=names.get(job.submitted_by or "", "–")) for job in shown]
    return Page(rows=rows, older=shown[-1].id if len(jobs) > JOBS_A_PAGE else None)
