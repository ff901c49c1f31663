"""Registered workers: which are live, which can take a job, why a job waits, what they read, and
whether their trainer has changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, object_session

from server.database import clock
from server.database.states import HELD_KINDS, JOB_ENDED
from server.database.tables import Job, Run, Token, Worker
from server.jobs import submissions
from server.jobs.registered_roots import outside_roots
from training.command import ENGINE as COMMAND
from training.environment import maxtext_mesh
from training.environment.maxtext_options import MaxTextOptions, sizes
from training.later_recipe import needed_recipes
from training.rules import CAPABILITY_IN_WORDS

# prefixes of the facts in `training.device`
_TRAINER = ("code_sha256", "trainer_version", "version.", "env.")
_WORKERS_LOOKED_AT = 500
_ANY_NUMBER = 2**31 - 1


def live_workers(session: Session, lease_seconds: float) -> Sequence[Worker]:
    """Workers with a heartbeat within the last lease period."""
    silent_since = clock.now(session) - lease_seconds
    is_silent = clock.is_over(Worker.heartbeat_at, silent_since, lease_seconds)
    return session.scalars(select(Worker).where(~is_silent)).all()


def why_waiting(job: Job, slots: int, live: Sequence[Worker]) -> str | None:
    """What an open job waits for, as a sentence, or None. `slots` are those of the workers that can
    take it.
    """
    if job.status in JOB_ENDED:
        return None
    silent = [
        run.id for run in job.runs if run.state == "awaiting_data" and run.kind not in HELD_KINDS
    ]
    if silent:
        return (
            f"Waiting for data of {len(silent)} of {len(job.runs)} runs (the first is "
            f"{silent[0]}). Attach a trainer to each."
        )
    if not any(run.state == "queued" for run in job.runs):
        return _scheduler_wait(job)
    device = CAPABILITY_IN_WORDS[job.capability]
    if job.device_class:
        device += (
            f" of device class {job.device_class}, on which its "
            f"{'baseline was trained' if job.baseline_id else 'first run began'}"
        )
    if slots and (limited := _token_limit_wait(job)):
        return limited
    if slots:
        if job.status != "queued":
            return None
        return f"Waiting for a free slot on {device}."
    if job.devices > 1:
        device += f" with {job.devices} devices for each run"
    for worker in live:
        reason = _unable(worker, job) if worker.capability == job.capability else None
        if reason:
            return f"Waiting for another worker: {worker.name} cannot run this job ({reason})."
        if worker.capability == job.capability and not devices_fit(worker, job):
            return f"Waiting for {device}: a run has {worker.device['devices']} on {worker.name}."
    return (
        f"Waiting for {device}: none is registered. Start one; the workers page lists the "
        "registered workers."
    )


def _scheduler_wait(job: Job) -> str | None:
    """A sentence if runs of the job wait for a scheduler; None if all of them train."""
    session = object_session(job) if job.engine == COMMAND else None
    if session is None:
        return None
    newest = [
        of_run[-1]
        for of_run in submissions.grouped_by_run(session, [run.id for run in job.runs]).values()
    ]
    waiting = [why for why in map(submissions.why_not_training, newest) if why]
    if not waiting:
        return None
    return f"{len(waiting)} of {len(job.runs)} runs wait; the first is {waiting[0]}."


def _token_limit_wait(job: Job) -> str | None:
    """A sentence if the job's token already has as many runs in training as it may; None if it may
    have more.
    """
    session = object_session(job)
    token = session.get(Token, job.submitted_by) if session and job.submitted_by else None
    if session is None or token is None or token.max_running is None:
        return None
    count = select(func.count()).select_from(Run).join(Job, Job.id == Run.job_id)
    training = (
        session.scalar(count.where(Run.state == "running", Job.submitted_by == token.id)) or 0
    )
    if training < token.max_running:
        return None
    return (
        f"Waiting for earlier runs of token {token.name!r} to end: {training} are training, and "
        f"its limit is {token.max_running}."
    )


def can_take(worker: Worker, job: Job) -> bool:
    """Whether a worker has the capability, the device and the libraries that a job needs."""
    return (
        worker.capability == job.capability
        and is_bound_to(worker, job)
        and devices_fit(worker, job)
        and _unable(worker, job) is None
    )


def is_bound_to(worker: Worker, job: Job) -> bool:
    """Whether a worker has the device class and the thread count that a job is bound to, if it is
    bound.
    """
    device = worker.device
    return job.device_class in (None, device.get("device_class")) and job.threads in (
        None,
        device.get("threads_per_run"),
    )


def devices_fit(worker: Worker, job: Job) -> bool:
    """Whether a run of this job finds the devices that it trains on at this worker."""
    least, most = device_counts(worker, job.engine)
    return least <= job.devices <= most


def device_counts(worker: Worker, engine: str) -> tuple[int, int]:
    """The least and the most devices that a run of this engine may train on at this worker.

    Only our own trainer in one process leaves devices unused; MaxText, and processes that train
    together, use all that they have.
    """
    devices = worker.device.get("devices")
    if devices is None:  # registered by an older version
        return 1, _ANY_NUMBER
    return (devices if engine == "maxtext" or worker.device.get("processes", 1) > 1 else 1), devices


def slices_of(worker: Worker) -> tuple[int, ...]:
    """The number of devices on each node of a run at this worker; an older version registered all
    of them as one node.
    """
    return tuple(worker.device.get("slices") or (worker.device.get("devices", 1),))


def refused_mesh(worker: Worker, job: Job) -> str | None:
    """Why MaxText can't lay the mesh of a job over a worker's nodes, or None; `devices_fit` says
    whether their devices are as many as the job's.
    """
    slices = slices_of(worker)
    if job.engine != "maxtext" or sum(slices) != job.devices:
        return None
    return maxtext_mesh.refusal(sizes(MaxTextOptions(**job.spec["maxtext"])), slices)


def _unable(worker: Worker, job: Job) -> str | None:
    """Why a worker cannot run an arm of this job, as it registered, or None."""
    reads = worker.device.get("spec_version", 1)
    if job.spec_version > reads:
        return (
            f"its version reads specifications up to version {reads}, this job has version "
            f"{job.spec_version}"
        )
    if job.engine == COMMAND:
        return _refused_launcher(worker, job)
    if outside := outside_roots(worker, job):
        return outside
    if mesh := refused_mesh(worker, job):
        return mesh
    return refused_recipe(
        worker,
        job.engine,
        [
            recipe
            for arm in job.arms
            for recipe in needed_recipes(arm.recipe, arm.overrides, arm.then)
        ],
    )


def _refused_launcher(worker: Worker, job: Job) -> str | None:
    """Why a worker's launchers cannot start the arms of a job, as it registered them, or None."""
    launchers: Mapping[str, Any] = worker.device.get("launchers", {})
    name = job.spec["command"]["launcher"]
    if name not in launchers:
        return f"it has no launcher {name}, only {', '.join(launchers) or 'none'}"
    launcher, later = launchers[name], [arm.then for arm in job.arms if arm.then is not None]
    if later and not launcher.get("then"):
        return f"its launcher {name} cannot go on with another recipe (it has no `then`)"
    needed = {arm.recipe for arm in job.arms} | {then.recipe for then in later}
    if unknown := needed - {*launcher["recipes"]}:
        return f"its launcher {name} has no recipe {min(unknown)}"
    return None


def refused_recipe(worker: Worker, engine: str, needed: Sequence[str]) -> str | None:
    """Why a worker cannot run one of these recipes on this engine, as it registered, or None."""
    can: Mapping[str, Any] = worker.device.get("can_run", {})
    for recipe in needed:
        ability = can.get(f"{engine}/{recipe}")
        if ability is not None and not ability["ok"]:
            return str(ability["reason"])
        if ability is None and can:
            return f"its version does not support recipe {recipe} of engine {engine}"
    return None


def would_train(session: Session, job: Job, lease_seconds: float) -> list[Worker]:
    """The live workers that could train a new job like this one; if none is live, the one of them
    that registered last.

    A new job is bound to a device class and a thread count only by the baseline that it names: the
    first run that starts binds any other.
    """
    newest_first = (
        select(Worker)
        .where(Worker.capability == job.capability)
        .order_by(Worker.id.desc())
        .limit(_WORKERS_LOOKED_AT)
    )
    able = [
        worker
        for worker in session.scalars(newest_first)
        if devices_fit(worker, job)
        and _unable(worker, job) is None
        and (job.baseline_id is None or is_bound_to(worker, job))
    ]
    live = {worker.id for worker in live_workers(session, lease_seconds)}
    return [worker for worker in able if worker.id in live] or able[:1]


def other_machine(workers: Sequence[Worker], job: Job) -> str | None:
    """Why none of these workers computes the bits of a job's runs, by the machine that they trained
    on; None if one does.
    """
    if not workers or any(is_bound_to(worker, job) for worker in workers):
        return None
    there = dict.fromkeys(
        f"{worker.device.get('device_class')} with {worker.device.get('threads_per_run')}"
        for worker in workers
    )
    return (
        f"the machine changed: it would be trained on {' or '.join(there)} threads, was trained on "
        f"{job.device_class} with {job.threads}"
    )


def changed(worker: Worker, then: Mapping[str, str]) -> str | None:
    """Compare a worker's registered library versions with a run's manifest: the first difference as
    a sentence, None if there is none.

    Of a run that a launcher started, the launcher is compared.
    """
    if then.get("engine") == COMMAND:
        launchers: Mapping[str, Any] = worker.device.get("launchers", {})
        there = launchers.get(then.get("launcher", ""), {}).get("digest")
        if there == then.get("launcher_digest"):
            return None
        return f"launcher {then.get('launcher')} changed on {worker.name}"
    now: Mapping[str, str] | None = worker.device.get("trainer")
    if not now:
        return f"worker {worker.name} has not registered its library versions; restart it"
    for name in sorted(now.keys() | {name for name in then if name.startswith(_TRAINER)}):
        if now.get(name) != then.get(name):
            return (
                f"the trainer changed: {name} is {short(now.get(name))} on {worker.name}, was "
                f"{short(then.get(name))}"
            )
    return None


def short(value: str | None) -> str:
    """A fact as text; digests are shortened."""
    if value is None:
        return "not stated"
    return value if len(value) <= 40 else f"{value[:12]}…"


def is_left_to_another(session: Session, worker: Worker, job: Job, lease_seconds: float) -> bool:
    """Whether this worker may not read a path of a job, and another live one, which can take it,
    may.
    """
    if outside_roots(worker, job) is None:
        return False
    return any(
        "data_roots" in other.device and can_take(other, job)
        for other in live_workers(session, lease_seconds)
    )
