"""Jobs as lists show them.

Read by columns, without their specifications and verdict documents, which take most of a
job's bytes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BindParameter, Row, bindparam, func, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.report.sign_off_words import accepted_lead
from server.database import clock
from server.database.clock import time_text
from server.database.tables import Arm, Job, JobStatus, JobTag, Run, SignOff, Verdict, table_of
from server.documents.job_lists.parent_jobs import parent_jobs
from server.documents.principals import principal_names
from server.jobs.ledger import QUESTION_DIGITS
from server.jobs.sign_offs import validity
from server.jobs.verdict_rows import VerdictSummary, shown_lead, verdict_summary
from server.json_digest import digest
from server.records import from_attributes

_jobs, _arms, _tags, _verdicts, _runs = (
    table_of(model).c for model in (Job, Arm, JobTag, Verdict, Run)
)
_IDS: BindParameter[Sequence[str]] = bindparam("ids", expanding=True)
_JOB_COLUMNS = (
    "id",
    "name",
    "status",
    "lead",
    "engine",
    "model",
    "revision",
    "branch",
    "submitted_by",
    "created_at",
    "finished_at",
)
_QUESTION_COLUMNS = ("code", "baseline_id", "policy")
_VERDICT_COLUMNS = (
    "id",
    "job_id",
    "candidate",
    "outcome",
    "lead",
    "code",
    "gap",
    "ci_low",
    "ci_high",
    "gap_rel",
    "margin",
    "document_sha256",
    "columns_sha256",
)
_JOBS = select(*_jobs[_JOB_COLUMNS + _QUESTION_COLUMNS]).where(_jobs.id.in_(_IDS))
_ARMS = (
    select(*_arms["job_id", "name", "recipe", "question"])
    .where(_arms.job_id.in_(_IDS))
    .order_by(_arms.job_id, _arms.position)
)
_TAGS = (
    select(*_tags["job_id", "tag"]).where(_tags.job_id.in_(_IDS)).order_by(_tags.job_id, _tags.tag)
)
_VERDICTS = select(*_verdicts[_VERDICT_COLUMNS]).where(_verdicts.job_id.in_(_IDS))
_DOCUMENTS = select(*_verdicts["id", "document"]).where(_verdicts.id.in_(_IDS))
_STEPS = (
    select(
        _runs.job_id,
        func.sum(_runs.steps_done),
        func.sum(_runs.planned_steps),
        func.max(_runs.planned_steps),
    )
    .where(_runs.job_id.in_(_IDS), _runs.planned_steps.is_not(None))
    .group_by(_runs.job_id)
)


@frozen
class JobSummary:
    """A job in a list; `lead` is the answer of its verdicts in one sentence, `recipes` are
    those of its candidates, `submitted_by` the name of the token, `code` why it has no verdict.

    Jobs of one `group` ask one question again: they have the same name, candidates, baseline,
    policy and steps, whatever the code's revision. `parent_job` is the job that an analysis
    explains.
    """

    id: str
    name: str
    status: JobStatus
    code: str | None
    lead: str | None
    group: str
    parent_job: str | None
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
    rows = execute(_VERDICTS, chosen).all()
    without_lead = [row.id for row in rows if row.lead is None]
    documents = (
        {row.id: row.document for row in execute(_DOCUMENTS, {"ids": without_lead})}
        if without_lead
        else {}
    )
    for verdict in rows:
        verdicts[verdict.job_id].append(verdict_summary(verdict, documents.get(verdict.id)))
    done, longest = dict[str, float](), dict[str, int]()
    for job_id, steps, planned, most in execute(_STEPS, chosen):
        done[job_id], longest[job_id] = (
            (float(steps) / float(planned) if planned else 0.0),
            int(most),
        )
    parents, signed = parent_jobs(session, ids), _sign_offs(session, ids)
    names = principal_names(session, {job.submitted_by for job in jobs.values()})
    summaries = []
    for job in (jobs[one] for one in ids if one in jobs):
        baseline, *candidates = arms[job.id]
        position = {arm.name: number for number, arm in enumerate(candidates)}
        summaries.append(
            from_attributes(
                JobSummary,
                job,
                group=_group(job, arms[job.id], longest.get(job.id)),
                parent_job=parents.get(job.id),
                baseline=baseline.name,
                candidates=[arm.name for arm in candidates],
                recipes=[*dict.fromkeys(arm.recipe for arm in candidates)],
                tags=tags[job.id],
                share_done=done.get(job.id, 0.0),
                submitted_by=names.get(job.submitted_by or ""),
                lead=_lead(job.lead, verdicts[job.id], signed.get(job.id, [])),
                verdicts=sorted(verdicts[job.id], key=lambda verdict: position[verdict.candidate]),
            )
        )
    return summaries


def _sign_offs(session: Session, ids: Sequence[str]) -> Mapping[str, list[SignOff]]:
    """The sign-offs that hold, by job; most pages of a list have none."""
    rows = session.scalars(
        select(SignOff).where(SignOff.job_id.in_(ids), SignOff.revoked_at.is_(None))
    ).all()
    now = clock.now(session) if rows else 0.0
    holding = defaultdict(list)
    for row in rows:
        if validity(row, session.get_one(Job, row.job_id), now) == "valid":
            holding[row.job_id].append(row)
    return holding


def _lead(
    stored: str | None, verdicts: Sequence[VerdictSummary], signed: Sequence[SignOff]
) -> str | None:
    """The lead that the job's page has: of a single verdict that was signed off that it was."""
    if not verdicts:
        return None
    if len(verdicts) == 1 and signed:
        return accepted_lead(signed[0].candidate, time_text(signed[0].expires_at))
    return shown_lead(stored, verdicts)


def _group(
    job: Row[*tuple[Any, ...]], arms: Sequence[Row[*tuple[Any, ...]]], steps: int | None
) -> str:
    """What all repeats of a question have in common. `Arm.question` begins with what the ledger
    knows of it: model, data, schedule.
    """
    asked = [(arm.name, arm.recipe, (arm.question or "")[:QUESTION_DIGITS]) for arm in arms]
    return digest([job.name, job.engine, job.model, job.baseline_id, job.policy, steps, asked])
