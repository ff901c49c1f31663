"""The list of jobs: who asked for what, how it came out, and which jobs a reader wants to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database.tables import Job, JobStatus, Token, Verdict, is_id
from server.documents.job import WHOLE, JobSummary, job_summary, verdict_documents
from server.web import auth

JOBS_A_PAGE = 50
OUTCOMES = ("pass", "fail", "inconclusive")
Wanted = JobStatus | Literal["pass", "fail", "inconclusive"]
STATES = (*OUTCOMES, *get_args(JobStatus))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job in the list, with the verdicts as the judge wrote them and the name of who asked for it."""

    job: JobSummary
    verdicts: list[Mapping[str, Any]]
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Jobs, newest first; `older` is the id below which the next page begins."""

    rows: list[Row]
    older: str | None


def listing(session: Session, state: Wanted | None, name: str, before: str | None) -> Page:
    """One page of the jobs in a state (or with a verdict) whose name holds a text."""
    statement = select(Job).options(*WHOLE).order_by(Job.id.desc()).limit(JOBS_A_PAGE + 1)
    if state in OUTCOMES:
        statement = statement.where(Job.verdicts.any(Verdict.outcome == state))
    elif state:
        statement = statement.where(Job.status == state)
    if name:
        statement = statement.where(Job.name.icontains(name, autoescape=True))
    if before and is_id("j", before):
        statement = statement.where(Job.id < before)
    found = session.scalars(statement).all()
    shown = found[:JOBS_A_PAGE]
    who = names(session, shown)
    rows = [Row(job=job_summary(job), verdicts=verdict_documents(job), who=who.get(job.submitted_by or "", "–")) for job in shown]
    return Page(rows=rows, older=shown[-1].id if len(found) > JOBS_A_PAGE else None)


def names(session: Session, found: Sequence[Job]) -> Mapping[str, str]:
    """Names of those who submitted, by the id that a job keeps: of tokens, or this machine where none was asked for."""
    ids = {job.submitted_by for job in found if job.submitted_by}
    tokens = session.execute(select(Token.id, Token.name).where(Token.id.in_(ids)))
    return {auth.LOCAL.id: auth.LOCAL.name} | {row[0]: row[1] for row in tokens}
