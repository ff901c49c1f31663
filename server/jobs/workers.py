"""Registered workers: which are alive, which can take a job, why a job waits, and whether their trainer has changed since a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, object_session

from server.database import clock
from server.database.states import JOB_ENDED
from server.database.tables import Job, Run, Token, Worker
from training.rules import CAPABILITY_IN_WORDS

_TRAINER = ("code_sha256", "trainer_version", "version.", "env.")  # prefixes of the facts in `training.provenance`
_WORKERS_LOOKED_AT = 500


def live_workers(session: Session, lease_seconds: float) -> Sequence[Worker]:
    """Workers that were heard of within a lease."""
    return session.scalars(select(Worker).where(Worker.heartbeat_at > clock.now(session) - lease_seconds)).all()


def why_waiting(job: Job, slots: int, live: Sequence[Worker]) -> str | None:
    """What a job that has not ended waits for, in words; None where it waits for nothing. `slots` are those of workers that can take it."""
    if job.status in JOB_ENDED:
        return None
    silent = [run.id for run in job.runs if run.state == "awaiting_data"]
    if silent:
        return f"Waiting for the data of {len(silent)} of {len(job.runs)} runs, the first of them {silent[0]}: attach a trainer to each."
    if not any(run.state == "queued" for run in job.runs):
        return None
    wanted = CAPABILITY_IN_WORDS[job.capability]
    if job.device_class:
        wanted += f" of device class {job.device_class}, on which its {'baseline was trained' if job.baseline_id else 'first run began'}"
    if slots and (limited := _at_its_limit(job)):
        return limited
    if slots:
        return f"Waiting for a free slot on {wanted}." if job.status == "queued" else None
    for worker in live:
        reason = _unable(worker, job) if worker.capability == job.capability else None
        if reason:
            return f"Waiting for another worker: {worker.name} can't run it ({reason})."
    return f"Waiting for {wanted}: none is registered. Start one, or look at the workers page for what is there."


def _at_its_limit(job: Job) -> str | None:
    """That the token under which a job was submitted has as many runs training as it may; None where it may have more."""
    session = object_session(job)
    token = session.get(Token, job.submitted_by) if session and job.submitted_by else None
    if session is None or token is None or token.max_running is None:
        return None
    count = select(func.count()).select_from(Run).join(Job, Job.id == Run.job_id)
    training = session.scalar(count.where(Run.state == "running", Job.submitted_by == token.id)) or 0
    if training < token.max_running:
        return None
    return f"Waiting for earlier runs of token {token.name!r} to end: it may train {token.max_running} at once, and {training} train."


def can_take(worker: Worker, job: Job) -> bool:
    """Whether a worker has the capability, the device and the libraries that a job asks for."""
    bound = job.device_class in (None, worker.device.get("device_class")) and job.threads in (None, worker.device.get("threads_per_run"))
    return worker.capability == job.capability and bound and _unable(worker, job) is None


def _unable(worker: Worker, job: Job) -> str | None:
    """Why a worker registered that it can't run an arm of this job; None when it can."""
    can: Mapping[str, Any] = worker.device.get("can_run", {})
    for arm in job.arms:
        ability = can.get(f"{job.engine}/{arm.recipe}")
        if ability is not None and not ability["ok"]:
            return str(ability["reason"])
        if ability is None and can:
            return f"it is of a version that does not know recipe {arm.recipe} of engine {job.engine}"
    return None


def would_train(session: Session, capability: str, device_class: str | None, lease_seconds: float) -> list[Worker]:
    """The live workers of a kind and device class (None: any); where none is live, the one that registered last."""
    newest_first = select(Worker).where(Worker.capability == capability).order_by(Worker.id.desc()).limit(_WORKERS_LOOKED_AT)
    of_kind = [row for row in session.scalars(newest_first) if device_class in (None, row.device.get("device_class"))]
    alive_since = clock.now(session) - lease_seconds
    return [row for row in of_kind if row.heartbeat_at > alive_since] or of_kind[:1]


def changed(worker: Worker, then: Mapping[str, str]) -> str | None:
    """Compare a worker's registered library versions with a run's manifest: the first difference as a sentence, None if there is none."""
    now: Mapping[str, str] | None = worker.device.get("trainer")
    if not now:
        return f"worker {worker.name} does not say what it trains with; start it anew"
    for name in sorted(now.keys() | {name for name in then if name.startswith(_TRAINER)}):
        if now.get(name) != then.get(name):
            return f"the trainer changed: {name} is {short(now.get(name))} on {worker.name}, was {short(then.get(name))}"
    return None


def short(value: str | None) -> str:
    """A fact in a sentence: digests are cut."""
    return "not stated" if value is None else value if len(value) <= 40 else f"{value[:12]}…"
