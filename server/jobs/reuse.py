"""Finds an earlier job that answers a gate's question, and checks that its verdict still holds.

A job answers if it has the same `config_hash`, is not older than the caller allows, and would be trained today by the same trainer on
the same data. The trainer is what the workers registered (`training.provenance`), never what the caller states: so a changed trainer
gets no earlier verdict. Only a reader of a path knows the digest of its data: the newest run on that path states it.
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
    """A gate's question. A concluded job answers it for `max_age_days`; `fresh` always trains a new one.

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
    """The job that answers: it was `concluded` or `running` (or queued) already, or is `new`; and why this one, in a sentence."""

    job: Job
    found: Literal["concluded", "running", "new"]
    reason: str


def answer(session: Session, question: Question, principal: str, key: str | None, order: Order, lease_seconds: float) -> Answer:
    """The job for a question: one that answers it already, else a new one, queued. `key` makes a repeated fresh call safe."""
    spec, criteria, revision = question.spec, question.criteria, question.revision
    if question.fresh:
        job, is_new = submit_job_once(
            session, spec, criteria, principal, key, order, lease_seconds=lease_seconds, revision=revision, choice=question.choice
        )
        return Answer(job=job, found="new" if is_new else _progress(job), reason="asked for afresh")
    named = resolve(session, question.choice, spec, lease_seconds)
    digest = config_hash(spec, criteria, revision, named)
    hold_lock(session, digest)  # two callers with the same question at once get one job
    same_question = select(Job).where(Job.config_hash == digest, Job.status.in_(("queued", "running", "concluded")))
    newest_outdated: str | None = None
    for job in session.scalars(same_question.order_by(Job.id.desc()).limit(_JOBS_LOOKED_AT)):
        outdated = _outdated(session, job, question.max_age_days, lease_seconds)
        if outdated is None:
            return Answer(job=job, found=_progress(job), reason="it asked the same, and neither trainer nor data are known to have changed")
        newest_outdated = newest_outdated or f"job {job.id} does not answer: {outdated}"
    job = submit_job(session, spec, criteria, principal, order, revision, named)
    return Answer(job=job, found="new", reason=newest_outdated or "nobody asked this before")


def _progress(job: Job) -> Literal["concluded", "running"]:
    return "concluded" if job.status == "concluded" else "running"


def _outdated(session: Session, job: Job, max_age_days: float, lease_seconds: float) -> str | None:
    """Why a job does not answer any more, or None."""
    if job.status == "concluded":
        age_days = (time.time() - (job.finished_at or 0.0)) / _DAY
        if age_days > max_age_days:
            return f"its verdict is {age_days:.1f} days old, at most {max_age_days:g} are allowed"
    manifests = [run.manifest or {} for run in job.runs if run.manifest or run.state == "finished"]
    return _trainer_changed(session, job, manifests, lease_seconds) or _data_changed(session, job, manifests)


def _trainer_changed(session: Session, job: Job, manifests: Sequence[Mapping[str, str]], lease_seconds: float) -> str | None:
    """What differs between the trainer of these runs and that of the workers which would train them now."""
    if job.capability == "external" or not manifests:
        return None  # the user's own trainer is what the revision names; of what has not begun nothing can differ
    workers = would_train(session, job.capability, job.device_class, lease_seconds)
    if not workers:
        return "no worker is known that would train it, so whether the trainer changed can't be told"
    return next((reason for worker in workers for then in manifests if (reason := changed(worker, then))), None)


def _data_changed(session: Session, job: Job, manifests: Sequence[Mapping[str, str]]) -> str | None:
    """Whether the newest run on the same path read something else. Sources without a path are part of the trainer."""
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
