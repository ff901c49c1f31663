"""Jobs as lists show them. Read by columns, without their specifications and verdict documents, which take most of a job's bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.database.clock import time_text
from server.database.tables import Arm, Job, JobStatus, JobTag, Run, Verdict
from server.documents.principals import principal_names
from server.documents.verdicts import VerdictSummary, verdict_summary

_JOB = (
    Job.id,
    Job.name,
    Job.status,
    Job.engine,
    Job.model,
    Job.revision,
    Job.branch,
    Job.submitted_by,
    Job.created_at,
    Job.finished_at,
)
_VERDICT = (
    Verdict.job_id,
    Verdict.candidate,
    Verdict.outcome,
    Verdict.code,
    Verdict.gap,
    Verdict.ci_low,
    Verdict.ci_high,
    Verdict.gap_rel,
    Verdict.margin,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job in a list; `recipes` are those of its candidates, `submitted_by` the name of the token."""

    id: str
    name: str
    status: JobStatus
    engine: str
    model: str | None
    baseline: str
    candidates: list[str]
    recipes: list[str]
    revision: str | None
    branch: str | None
    tags: list[str]
    share_done: float
    submitted_by: str | None
    created_at: str
    finished_at: str | None
    verdicts: list[VerdictSummary]


def job_summaries(session: Session, ids: Sequence[str]) -> list[JobSummary]:
    """The summaries of these jobs, in this order; jobs that do not exist are left out."""
    if not ids:
        return []
    jobs = {job.id: job for job in session.execute(select(*_JOB).where(Job.id.in_(ids)))}
    arms, tags, verdicts = defaultdict(list), defaultdict(list), defaultdict(list)
    columns = (Arm.job_id, Arm.name, Arm.recipe)
    for arm in session.execute(select(*columns).where(Arm.job_id.in_(ids)).order_by(Arm.job_id, Arm.position)):
        arms[arm.job_id].append(arm)
    for tag in session.execute(select(JobTag.job_id, JobTag.tag).where(JobTag.job_id.in_(ids)).order_by(JobTag.job_id, JobTag.tag)):
        tags[tag.job_id].append(tag.tag)
    for verdict in session.execute(select(*_VERDICT).where(Verdict.job_id.in_(ids))):
        verdicts[verdict.job_id].append(verdict_summary(verdict))
    done = _shares_done(session, [job.id for job in jobs.values()])
    names = principal_names(session, {job.submitted_by for job in jobs.values()})
    summaries = []
    for job in (jobs[each] for each in ids if each in jobs):
        baseline, *candidates = arms[job.id]
        position = {arm.name: number for number, arm in enumerate(candidates)}
        summaries.append(
            JobSummary(
                id=job.id,
                name=job.name,
                status=job.status,
                engine=job.engine,
                model=job.model,
                baseline=baseline.name,
                candidates=[arm.name for arm in candidates],
                recipes=[*dict.fromkeys(arm.recipe for arm in candidates)],
                revision=job.revision,
                branch=job.branch,
                tags=tags[job.id],
                share_done=done.get(job.id, 0.0),
                submitted_by=names.get(job.submitted_by or ""),
                created_at=time_text(job.created_at),
                finished_at=time_text(job.finished_at),
                verdicts=sorted(verdicts[job.id], key=lambda verdict: position[verdict.candidate]),
            )
        )
    return summaries


def _shares_done(session: Session, ids: Sequence[str]) -> dict[str, float]:
    """The share of the planned steps of each job that is done, 0 to 1."""
    sums = (func.sum(Run.steps_done), func.sum(Run.planned_steps))
    rows = session.execute(select(Run.job_id, *sums).where(Run.job_id.in_(ids)).group_by(Run.job_id))
    return {job_id: float(done) / float(planned) if planned else 0.0 for job_id, done, planned in rows}
