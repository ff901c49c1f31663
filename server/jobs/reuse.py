"""Finds an earlier job whose verdict a gate can reuse, and checks that the verdict still holds.

A job qualifies if it has the same `config_hash`, is not older than the caller allows, and would be trained today by the same trainer on
the same data. The trainer is what the workers registered (`training.provenance`), never what the caller states, so a changed trainer
never reuses an earlier verdict. The digest of the data at a path is taken from the newest run that read this path.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity import Criteria
from server.database.locks import hold_lock
from server.database.tables import Job, Run
from server.jobs.baselines import BaselineChoice, resolve
from server.jobs.submit import Order, config_hash, submit_job, submit_job_once
from server.jobs.workers import changed, short, would_train
from training.spec import JobSpec

_DAY = 86_400.0
_JOBS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A gate's request. The verdict of a concluded job can be reused for `max_age_days`; `fresh` always trains a new job.

    `choice` is the baseline that the job is judged against.
    """

    spec: JobSpec
    criteria: Criteria
    revision: str
    max_age_days: float
    fresh: bool
    choice: BaselineChoice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The job for a gate: an earlier one, `concluded` or `running` (or queued), or a `new` one; with the reason in a sentence."""

    job: Job
    found: Literal["concluded", "running", "new"]
    reason: str


def answer(session: Session, question: Question, principal: str, key: str | None, order: Order, lease_seconds: float) -> Answer:
    """The job for a gate's request: an earlier one if possible, else a new one, queued. `key` makes a repeated fresh call safe."""
    spec, criteria, revision = question.spec, question.criteria, question.revision
    if question.fresh:
        job, is_new = submit_job_once(
            session, spec, criteria, principal, key, order, lease_seconds=lease_seconds, revision=revision, choice=question.choice
        )
        return Answer(job=job, found="new" if is_new else _progress(job), reason="fresh training was requested")
    named = resolve(session, question.choice, spec, lease_seconds)
    digest = config_hash(spec, criteria, revision, named)
    hold_lock(session, digest)  # two callers with the same request at the same time get one job
    same_question = select(Job).where(Job.config_hash == digest, Job.status.in_(("queued", "running", "concluded")))
    newest_outdated: str | None = None
    for job in session.scalars(same_question.order_by(Job.id.desc()).limit(_JOBS_LOOKED_AT)):
        outdated = _outdated(session, job, question.max_age_days, lease_seconds)
        if outdated is None:
            return Answer(
                job=job, found=_progress(job), reason="its specification and policy are the same, and no change of trainer or data is known"
            )
        newest_outdated = newest_outdated or f"job {job.id} cannot be reused: {outdated}"
    job = submit_job(session, spec, criteria, principal, order, revision, named)
    return Answer(job=job, found="new", reason=newest_outdated or "no earlier job has this specification and policy")


def _progress(job: Job) -> Literal["concluded", "running"]:
    return "concluded" if job.status == "concluded" else "running"


def _outdated(session: Session, job: Job, max_age_days: float, lease_seconds: float) -> str | None:
    """Why a job can no longer be reused, or None."""
    if job.status == "concluded":
        age_days = (time.time() - (job.finished_at or 0.0)) / _DAY
        if age_days > max_age_days:
            return f"its verdict is {age_days:.1f} days old, expected at most {max_age_days:g}"
    manifests = [run.manifest or {} for run in job.runs if run.manifest or run.state == "finished"]
    return _trainer_changed(session, job, manifests, lease_seconds) or _data_changed(session, job, manifests)


def _trainer_changed(session: Session, job: Job, manifests: Sequence[Mapping[str, str]], lease_seconds: float) -> str | None:
    """The difference between the trainer of these runs and that of the workers that would train them now, or None."""
    if job.capability == "external" or not manifests:
        return None  # a user's own trainer is identified by the revision; a run that has not begun cannot differ
    workers = would_train(session, job.capability, job.device_class, lease_seconds)
    if not workers:
        return "no registered worker would train it, so a change of the trainer cannot be ruled out"
    return next((reason for worker in workers for then in manifests if (reason := changed(worker, then))), None)


def _data_changed(session: Session, job: Job, manifests: Sequence[Mapping[str, str]]) -> str | None:
    """Why the data at the path has changed, by the newest run that read it, or None. Sources without a path belong to the trainer."""
    path = job.spec["data"]["path"]
    then = {manifest.get("data_digest") for manifest in manifests}
    if path is None or not then:
        return None
    same_path = (Job.spec["data"]["path"].as_string() == path, Job.spec["data"]["source"].as_string() == job.spec["data"]["source"])
    newest = select(Run).join(Job).where(*same_path, Run.state == "finished").order_by(Run.finished_at.desc().nulls_last()).limit(1)
    run = session.scalars(newest).first()
    now = (run.manifest or {}).get("data_digest") if run else None
    if run is None or then == {now}:
        return None
    return f"the data at {path} changed: run {run.id} read {short(now)}, this job {', '.join(sorted(map(short, then)))}"
