"""Records held-out losses as a job of engine evaluations, judged by this server, once per
idempotency key.

The caller judges before the transaction (`server.jobs.evaluations.outcome_of`) and owns that: job,
losses and verdicts come into the record together, or not at all.
"""

import time

from sqlalchemy.orm import Session

from parity.canonical_json import json_value
from parity.frozen import frozen
from parity.judging.evaluations.case import EvaluationCase
from parity.recipes import UNSTATED
from server.database import tables
from server.database.tables import EVALUATIONS, Arm, Job, JobTag
from server.jobs import evaluations
from server.jobs.conclude import write_outcome
from server.jobs.job_kinds import JobOutcome
from server.jobs.keys import job_of_key, keep_key
from server.jobs.submit import NO_LABELS, JobLabels, announce_new
from server.json_digest import digest

# What is asked besides the policy.
_QUESTION = ("paired", "cluster", "at", "target", "tokens_per_step", "planned_steps")


@frozen
class EvaluationSubmission:
    """Held-out losses as somebody sends them: the case with the bytes that store it, and the name
    and labels by which the job is found.
    """

    name: str
    case: EvaluationCase
    bundle: bytes
    labels: JobLabels = NO_LABELS


def record_once(
    session: Session,
    submission: EvaluationSubmission,
    outcome: JobOutcome,
    principal: str,
    key: str | None,
) -> tuple[Job, bool]:
    """The job of these losses with True; if this principal used this key before, the earlier job
    with False. InvalidError if the key was used for another body.
    """
    row = evaluations.bundle_row("", submission.bundle)
    body = digest([EVALUATIONS, submission.name, row.sha256])
    if (earlier := job_of_key(session, principal, key, body)) is not None:
        return earlier, False
    job = _new_job(submission, principal)
    announce_new(session, job)
    row.job_id = job.id
    session.add(row)
    session.flush()
    write_outcome(session, job.id, outcome)
    session.expire(job, ["status", "verdicts"])
    keep_key(session, principal, key, body, job.id)
    return job, True


def _new_job(submission: EvaluationSubmission, principal: str) -> Job:
    case = submission.case
    described = [
        {
            "name": name,
            "recipe": runs[0].recipe or UNSTATED,
            "losses": digest([run.digest() for run in runs]),
        }
        for _, name, runs in case.arms()
    ]
    question = {key: getattr(case, key) for key in _QUESTION}
    job = Job(
        id=tables.new_id("j"),
        name=submission.name,
        status="queued",
        engine=EVALUATIONS,
        capability=EVALUATIONS,
        spec={
            "name": submission.name,
            "engine": EVALUATIONS,
            "baseline": described[0],
            "candidates": described[1:],
            "question": json_value(question),
        },
        policy=case.policy.document(),
        branch=submission.labels.branch,
        submitted_by=principal,
        reuse=False,
        created_at=time.time(),
    )
    job.arms.extend(
        Arm(
            id=tables.new_id("a"),
            position=position,
            name=arm["name"],
            role="candidate" if position else "baseline",
            recipe=arm["recipe"],
        )
        for position, arm in enumerate(described)
    )
    job.tags.extend(JobTag(tag=tag) for tag in submission.labels.tags)
    return job
