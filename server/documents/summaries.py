"""Jobs as lists show them. Read by columns, without their specifications and verdict documents, which take most of a job's bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import BindParameter, bindparam, func, select
from sqlalchemy.orm import Session

from server.database.tables import Arm, Job, JobStatus, JobTag, Run, Verdict, table_of
from server.documents.principals import principal_names
from server.documents.verdicts import VerdictSummary, verdict_summary
from server.records import frozen, of

_jobs, _arms, _tags, _verdicts, _runs = (table_of(each).c for each in (Job, Arm, JobTag, Verdict, Run))
_IDS: BindParameter[Sequence[str]] = bindparam("ids", expanding=True)
_OF_A_JOB = ("id", "name", "status", "engine", "model", "revision", "branch", "submitted_by", "created_at", "finished_at")
_OF_A_VERDICT = ("job_id", "candidate", "outcome", "code", "gap", "ci_low", "ci_high", "gap_rel", "margin")
_JOBS = select(*_jobs[_OF_A_JOB]).where(_jobs.id.in_(_IDS))
_ARMS = select(*_arms["job_id", "name", "recipe"]).where(_arms.job_id.in_(_IDS)).order_by(_arms.job_id, _arms.position)
_TAGS = select(*_tags["job_id", "tag"]).where(_tags.job_id.in_(_IDS)).order_by(_tags.job_id, _tags.tag)
_VERDICTS = select(*_verdicts[_OF_A_VERDICT]).where(_verdicts.job_id.in_(_IDS))
_STEPS = (
    select(_runs.job_id, func.sum(_runs.steps_done), func.sum(_runs.planned_steps)).where(_runs.job_id.in_(_IDS)).group_by(_runs.job_id)
)


@frozen
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
    # On tables and not on classes, which costs half of the time of a list.
    execute, chosen = session.connection().execute, {"ids": ids}
    jobs = {job.id: job for job in execute(_JOBS, chosen)}
    arms, tags, verdicts = defaultdict(list), defaultdict(list), defaultdict(list)
    for arm in execute(_ARMS, chosen):
        arms[arm.job_id].append(arm)
    for tag in execute(_TAGS, chosen):
        tags[tag.job_id].append(tag.tag)
    for verdict in execute(_VERDICTS, chosen):
        verdicts[verdict.job_id].append(verdict_summary(verdict))
    done = {job_id: float(done) / float(planned) if planned else 0.0 for job_id, done, planned in execute(_STEPS, chosen)}
    names = principal_names(session, {job.submitted_by for job in jobs.values()})
    summaries = []
    for job in (jobs[each] for each in ids if each in jobs):
        baseline, *candidates = arms[job.id]
        position = {arm.name: number for number, arm in enumerate(candidates)}
        summaries.append(
            of(
                JobSummary,
                job,
                baseline=baseline.name,
                candidates=[arm.name for arm in candidates],
                recipes=[*dict.fromkeys(arm.recipe for arm in candidates)],
                tags=tags[job.id],
                share_done=done.get(job.id, 0.0),
                submitted_by=names.get(job.submitted_by or ""),
                verdicts=sorted(verdicts[job.id], key=lambda verdict: position[verdict.candidate]),
            )
        )
    return summaries
