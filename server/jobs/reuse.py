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

from sqlalchemy import ScalarResult, select
from sqlalchemy.orm import Session

from parity import Criteria
from server.database.locks import hold_lock
from server.database.tables import Job, Run
from server.errors import LookError
from server.jobs.baselines import BaselineChoice, resolve
from server.jobs.cancel import cancel_job
from server.jobs.submit import NO_LABELS, Labels, Order, config_hash, submit_job_once, submit_registered
from server.jobs.workers import changed, short, would_train
from training.spec import JobSpec

RENEWED_AFTER_DAYS = 0.5  # a gate that asks for a newer verdict than this asks the same question again, which is a further look
_DAY = 86_400.0
_JOBS_LOOKED_AT = 20
_UNCHANGED = "its specification and policy are the same, and no change of trainer or data is known"
_NO_JOB = "no earlier job has this specification and policy"
Progress = Literal["running", "concluded", "failed", "cancelled"]  # `running` includes queued


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A gate's request. The verdict of a concluded job can be reused for `max_age_days`; `fresh` always trains a new job.

    `choice` is the baseline that the job is judged against. `group` is what asks, such as a pull request: what it asked for before is
    cancelled if nobody else wants it. A new job gets the `labels`; an earlier one keeps its own.
    """

    spec: JobSpec
    criteria: Criteria
    revision: str
    max_age_days: float
    fresh: bool
    choice: BaselineChoice | None = None
    group: str = ""
    labels: Labels = NO_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The job for a gate: a `new` one, or an earlier one, `running` (or queued) or as it ended; with the reason in a sentence."""

    job: Job
    found: Literal["new"] | Progress
    reason: str


def look_up(session: Session, question: Question, lease_seconds: float) -> Answer | str:
    """The newest concluded job that answers the request, or why there is none. Reads only."""
    named = resolve(session, question.choice, question.spec, lease_seconds)
    reason: str | None = None
    for job in _same_question(session, config_hash(question.spec, question.criteria, question.revision, named)):
        outdated = _outdated(session, job, question.max_age_days, lease_seconds)
        if outdated is None and job.status == "concluded":
            return Answer(job=job, found="concluded", reason=_UNCHANGED)
        reason = reason or (
            f"job {job.id} is {job.status} and has no verdict yet" if outdated is None else f"job {job.id} cannot be reused: {outdated}"
        )
    return reason or _NO_JOB


def answer(session: Session, question: Question, principal: str, key: str | None, order: Order, lease_seconds: float) -> Answer:
    """The job for a gate's request: an earlier one if possible, else a new one, queued. `key` makes a repeated fresh call safe."""
    hold_lock(session, "gates")  # two callers with the same request at the same time get one job, and groups change one at a time
    reply = _answer(session, question, principal, key, order, lease_seconds)
    if reply.found in ("new", "running"):
        _note_group(reply, question.group)
    if question.group:
        _cancel_superseded(session, reply.job, question.group, principal)
    return reply


def _answer(session: Session, question: Question, principal: str, key: str | None, order: Order, lease_seconds: float) -> Answer:
    spec, criteria, revision = question.spec, question.criteria, question.revision

    def outdated(newest: Job) -> bool:
        return _is_new_question(session, newest, lease_seconds)

    if question.fresh:
        job, is_new = submit_job_once(
            session,
            spec,
            criteria,
            principal,
            key,
            order,
            lease_seconds=lease_seconds,
            revision=revision,
            choice=question.choice,
            labels=question.labels,
            outdated=outdated,
        )
        return Answer(job=job, found="new" if is_new else _progress(job), reason="fresh training was requested")
    named = resolve(session, question.choice, spec, lease_seconds)
    digest = config_hash(spec, criteria, revision, named)
    newest_outdated: str | None = None
    for job in _same_question(session, digest):
        why = _outdated(session, job, question.max_age_days, lease_seconds)
        if why is None:
            return Answer(job=job, found=_progress(job), reason=_UNCHANGED)
        newest_outdated = newest_outdated or f"job {job.id} cannot be reused: {why}"
    try:
        job = submit_registered(session, spec, criteria, principal, order, revision, named, outdated, question.labels)
    except LookError as error:
        raise (LookError(f"{error}. {newest_outdated}") if newest_outdated else error) from None
    return Answer(job=job, found="new", reason=newest_outdated or _NO_JOB)


def _same_question(session: Session, digest: str) -> ScalarResult[Job]:
    """Jobs of this comparison that have a verdict or may get one, newest first."""
    same = select(Job).where(Job.config_hash == digest, Job.status.in_(("queued", "running", "concluded")))
    return session.scalars(same.order_by(Job.id.desc()).limit(_JOBS_LOOKED_AT))


def _note_group(reply: Answer, group: str) -> None:
    """Remember for whom a job is queued. Who gives no group wants it for good, so that no group's newer question cancels it."""
    job = reply.job
    if not group:
        job.gate_groups = None
    elif reply.found == "new":
        job.gate_groups = [group]
    elif job.gate_groups is not None:
        job.gate_groups = sorted({*job.gate_groups, group})


def _cancel_superseded(session: Session, wanted: Job, group: str, principal: str) -> None:
    """Cancel the open jobs that only this group waited for; its newest question is answered by another one."""
    mine = (Job.submitted_by == principal, Job.status.in_(("queued", "running")), Job.id != wanted.id)
    for job in session.scalars(select(Job).where(*mine).order_by(Job.id)).all():
        if group not in (job.gate_groups or ()):
            continue
        left = [other for other in job.gate_groups or () if other != group]
        if left:
            job.gate_groups = left
        else:
            cancel_job(session, job.id, f"superseded by job {wanted.id}, the newer one of {group}")


def _progress(job: Job) -> Progress:
    return "running" if job.status == "queued" else job.status


def _outdated(session: Session, job: Job, max_age_days: float, lease_seconds: float) -> str | None:
    """Why a job can no longer be reused, or None."""
    if (why := _outdated_by_age(job, max_age_days)) is not None:
        return why
    manifests = _manifests(job)
    return _trainer_changed(session, job, manifests, lease_seconds) or _data_changed(session, job, manifests)


def _outdated_by_age(job: Job, max_age_days: float) -> str | None:
    age_days = (time.time() - (job.finished_at or 0.0)) / _DAY
    if job.status != "concluded" or age_days <= max_age_days:
        return None
    return f"its verdict is {age_days:.1f} days old, expected at most {max_age_days:g}"


def _manifests(job: Job) -> list[Mapping[str, str]]:
    return [run.manifest or {} for run in job.runs if run.manifest or run.state == "finished"]


def _is_new_question(session: Session, job: Job, lease_seconds: float) -> bool:
    """Whether the comparison is not simply made again until it passes: its trainer or data changed, or half a day has passed.

    A trainer of which nothing is known, or that only some of the workers have, may be the same: that is enough only after a pass, since
    judging again can then only take it back.
    """
    if _outdated(session, job, RENEWED_AFTER_DAYS, lease_seconds) is None:
        return False
    passed = job.status == "concluded" and all(verdict.outcome == "pass" for verdict in job.verdicts)
    if passed or _outdated_by_age(job, RENEWED_AFTER_DAYS) is not None:
        return True
    manifests = _manifests(job)
    return _has_another_trainer(session, job, manifests, lease_seconds) or _data_changed(session, job, manifests) is not None


def _has_another_trainer(session: Session, job: Job, manifests: Sequence[Mapping[str, str]], lease_seconds: float) -> bool:
    """Whether no worker that would train these runs now has the trainer of one of them."""
    if job.capability == "external":
        return False
    workers = [worker for worker in would_train(session, job.capability, job.device_class, lease_seconds) if worker.device.get("trainer")]
    stated = [then for then in manifests if then]
    return bool(workers and stated) and all(changed(worker, then) for worker in workers for then in stated)


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
