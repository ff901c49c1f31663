"""Submits a job: writes its arms and runs, once per idempotency key.

The caller owns the transaction.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.noise.noise_table import NoiseTable
from parity.judging.policy import SLOPE_EXAMPLE, Policy
from parity.version import JUDGE_VERSION
from server.database import tables
from server.database.events import emit
from server.database.tables import Arm, Job, JobTag, Run, RunState
from server.errors import InvalidError
from server.jobs import ledger
from server.jobs.baselines import BaselineChoice, NamedBaseline, resolve
from server.jobs.data_digests import place_of
from server.jobs.fingerprint import columns_of_reused
from server.jobs.fits import check_fits
from server.jobs.imported_noise import named_noise_table
from server.jobs.keys import job_of_key, keep_key
from server.jobs.tags import checked_branch, checked_tags
from server.json_digest import digest
from training.command import ENGINE as COMMAND
from training.model_shapes import PRESETS
from training.spec import TRAINER_FIELDS, JobSpec, Model, capability

_COMMON_JOB_FIELDS = frozenset({"name", "engine", "baseline", "candidates"})
_PARTS = frozenset({"model", "data", "schedule"})


@frozen
class Order:
    """Options of a job that do not affect its verdict.

    `priority` is -100 to 100, highest first; `max_run_seconds` limits the training time of one run,
    summed over its attempts; `reuse`: a baseline run may reuse the curve of an equal earlier run.
    """

    priority: int = 0
    max_run_seconds: float | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if not -100 <= self.priority <= 100:
            raise InvalidError(
                f"priority is {self.priority}, expected a whole number from -100 to 100"
            )
        if self.max_run_seconds is not None and not 0 < self.max_run_seconds < math.inf:
            raise InvalidError(
                f"max_run_seconds is {self.max_run_seconds}, expected seconds above 0; leave it "
                "out for no limit"
            )


@frozen
class JobLabels:
    """What a job is found by: tags, and the branch of the code as the sender states it. Neither
    affects its verdict.
    """

    tags: Sequence[str] = ()
    branch: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", checked_tags(self.tags))
        object.__setattr__(self, "branch", checked_branch(self.branch))


NO_LABELS = JobLabels()


@frozen
class JobSubmission:
    """A job as somebody submits it. `choice` is the baseline that it is judged against, `sent` its
    specification without defaults.

    `repository` is that of the sender's token, `by_gate` whether a gate asks: both say whose
    question it is (`server.jobs.ledger`).
    """

    spec: JobSpec
    policy: Policy
    order: Order = Order()
    revision: str = ""
    choice: BaselineChoice | None = None
    labels: JobLabels = NO_LABELS
    sent: Mapping[str, Any] | None = None
    repository: str | None = None
    by_gate: bool = False


def submit_job_once(
    session: Session,
    submission: JobSubmission,
    principal: str,
    key: str | None,
    lease_seconds: float,
    outdated: Callable[[Job], bool] = lambda _newest: False,
) -> tuple[Job, bool]:
    """Submit a job and return it with True; if this principal used this key before, return the
    earlier job with False.

    A repeated submission does not look up its baseline, because the name may mean another version
    by now. `outdated` says of the newest job on the same question whether its answer is out of
    date, so that this one is no further look. Raises InvalidError if the key was used for another
    body, or if no registered machine can hold the job; LookError for a look that is not registered.
    """
    body = _body_digest(submission)
    if (earlier := job_of_key(session, principal, key, body)) is not None:
        return earlier, False
    job = submit_registered(
        session,
        submission,
        principal,
        resolve(session, submission.choice, submission.spec, lease_seconds),
        outdated,
    )
    check_fits(session, job, submission.spec, lease_seconds)
    keep_key(session, principal, key, body, job.id)
    return job, True


def submit_registered(
    session: Session,
    submission: JobSubmission,
    principal: str,
    named: NamedBaseline | None = None,
    outdated: Callable[[Job], bool] = lambda _newest: False,
) -> Job:
    """`submit_job`, counted as a look at its question. Raises LookError for a look that is not
    registered.
    """
    _check_command(submission)
    job = submit_job(
        session,
        submission.spec,
        submission.policy,
        principal,
        submission.order,
        submission.revision,
        named,
        submission.labels,
    )
    # Before what nobody stated is left out: a default that is written out asks the same question.
    ledger.register(
        session, job, outdated, repository=submission.repository, by_gate=submission.by_gate
    )
    if submission.sent is not None and job.engine == "external":
        job.spec = stated_of(job.spec, submission.sent)
        if job.planned_steps is None:
            job.config_hash = sent_config_hash(submission, job.config_hash or "")
            for run in job.runs:
                run.planned_steps = None
    return job


def _check_command(submission: JobSubmission) -> None:
    """InvalidError for a job of engine command that states a model or data, be it the default."""
    if submission.spec.engine != COMMAND:
        return
    stated = sorted(TRAINER_FIELDS & (submission.sent or {}).keys())
    if stated:
        raise InvalidError(
            f"job.{stated[0]} is set, expected nothing under engine {COMMAND}, whose trainer has a "
            "model and data of its own; give it to the trainer, by a parameter of the launcher"
        )


def sent_config_hash(submission: JobSubmission, config: str) -> str:
    """The hash of a configuration (`config_hash`); another one where nobody stated how long a
    user's own runs are meant to be.
    """
    is_stated = (
        submission.spec.engine != "external"
        or submission.sent is None
        or "steps" in submission.sent.get("schedule", {})
    )
    if is_stated:
        return config
    return digest([config, "length not stated"])


def stated_of(spec: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """What a specification says that its sender stated: the model, data and schedule of a user's
    own trainer are not our defaults.
    """
    stated = {
        name: value for name, value in spec.items() if name in sent or name in _COMMON_JOB_FIELDS
    }
    for part in _PARTS & stated.keys():
        if "preset" not in sent[part]:
            stated[part] = {name: value for name, value in spec[part].items() if name in sent[part]}
    return stated


def _body_digest(submission: JobSubmission) -> str:
    """SHA-256 of the submitted request; stored with the key, so what it covers must not change."""
    asked = sent_config_hash(
        submission, config_hash(submission.spec, submission.policy, submission.revision)
    )
    body: dict[str, Any] = {"asked": asked, "order": dataclasses.asdict(submission.order)}
    if submission.choice is not None and submission.choice.name is not None:
        body["baseline"] = [submission.choice.name, submission.choice.version]
    return digest(body)


def config_hash(
    spec: JobSpec,
    policy: Policy,
    revision: str,
    named: NamedBaseline | None = None,
    borrowed: NoiseTable | None = None,
) -> str:
    """SHA-256 of what decides a job's verdict and is known before it trains; equal hashes mean the
    same comparison.

    Specification, policy, judge version and code revision, the named baseline with its controls as
    of now, and the groups of the named family as of now (`borrowed`). What later decides as
    well is compared when the verdict is asked for again (`server.jobs.reuse`).
    """
    inputs: dict[str, Any] = {
        "spec": spec.document(),
        "policy": policy.document(),
        "judge": JUDGE_VERSION,
        "revision": revision,
    }
    if named is not None:
        inputs["baseline"], inputs["controls"] = named.baseline.id, list(named.controls)
    if borrowed is not None:
        inputs["noise_table"] = borrowed.csv()
    return digest(inputs)


def submit_job(
    session: Session,
    spec: JobSpec,
    policy: Policy,
    submitted_by: str | None = None,
    order: Order | None = None,
    revision: str = "",
    named: NamedBaseline | None = None,
    labels: JobLabels = NO_LABELS,
) -> Job:
    """Write a job with its arms and runs, queued (or awaiting data with engine external). Notify
    the workers after the commit.

    The runs of a named baseline are finished at once: they reuse its curves, and bind the job to
    its device class. Runs are ordered by replicate before arm, so that the first trained runs
    already form pairs. InvalidError if the job names an unknown family, or has a margin in tokens
    without their slope.
    """
    if policy.margin is not None and policy.margin.unit == "tokens" and policy.margin.slope is None:
        expected = (
            f"{SLOPE_EXAMPLE!r}: the nats that finished runs gain per e-fold of tokens, or a "
            "margin in % or nats"
        )
        raise InvalidError(
            f"policy.margin is {str(policy.margin)!r}, and no run of a job shows what tokens are "
            f"worth; expected {expected}"
        )
    now, order, borrowed = time.time(), order or Order(), family_noise_table(session, spec)
    job = Job(
        id=tables.new_id("j"),
        name=spec.name,
        status="queued",
        engine=spec.engine,
        capability=capability(spec)[0],
        spec=spec.document(),
        devices=spec.devices,
        policy=policy.document(),
        config_hash=config_hash(spec, policy, revision, named, borrowed),
        revision=revision or None,
        data_place=place_of(spec),
        branch=labels.branch,
        model=model_name(spec),
        submitted_by=submitted_by,
        max_run_seconds=order.max_run_seconds,
        reuse=order.reuse,
        noise_table=borrowed.csv() if borrowed else None,
        created_at=now,
    )
    if named is not None:
        trained_by = next(iter(named.runs.values())).job
        job.baseline_id, job.controls = named.baseline.id, list(named.controls)
        job.device_class, job.threads = trained_by.device_class, trained_by.threads
    job.arms.extend(arm_rows(spec))
    arms = {arm.name: arm for arm in job.arms}
    runs = sorted(spec.runs(), key=lambda arm_and_run: arm_and_run[1].replicate)
    waiting: RunState = "awaiting_data" if job.capability == "external" else "queued"
    shared: dict[str, object] = {
        "capability": job.capability,
        "priority": order.priority,
        "created_at": now,
        "state": waiting,
    }
    for position, (arm, run) in enumerate(runs):
        columns: dict[str, object] = {
            "arm": arms[arm.name],
            "position": position,
            "planned_steps": spec.schedule.steps,
        }
        if named is not None and arm is spec.baseline:
            columns |= columns_of_reused(named.runs[run.replicate]) | {
                "state": "finished",
                "finished_at": now,
            }
        job.runs.append(
            Run(id=tables.new_id("r"), seed=run.seed, replicate=run.replicate, **shared | columns)
        )
    job.tags.extend(JobTag(tag=tag) for tag in labels.tags)
    session.add(job)
    session.flush()
    # they are trained after the full runs, and stop early
    for position, (arm, run) in enumerate(spec.early_runs(), len(runs)):
        columns = {
            "arm_id": arms[arm.name].id,
            "position": position,
            "planned_steps": spec.short_steps,
            "kind": "short",
        }
        job.runs.append(
            Run(id=tables.new_id("r"), seed=run.seed, replicate=run.replicate, **shared | columns)
        )
    announce_new(session, job)
    return job


def family_noise_table(session: Session, spec: JobSpec) -> NoiseTable | None:
    """The groups of the family that a job names, as of now; None if it names none. InvalidError for
    an unknown one.
    """
    if not spec.family:
        return None
    return named_noise_table(session, spec.family)


def announce_new(session: Session, job: Job) -> None:
    """Write a new job with its arms and runs, and its first event."""
    session.add(job)
    session.flush()
    emit(session, job.id, "status", {"status": "queued"})


def model_name(spec: JobSpec) -> str | None:
    """A short name of a job's model: its preset, else blocks x width; with engine external the
    family that the job names, if any; with engine command its launcher, by which workers find it.
    """
    if spec.engine == "external":
        return spec.family
    if spec.command is not None:
        return spec.command.launcher
    presets = (name for name in PRESETS if Model(preset=name) == spec.model)
    return next(presets, None) or f"{spec.model.n_layers} x {spec.model.d_model}"


def arm_rows(spec: JobSpec) -> list[Arm]:
    """The arms of a new job, without runs."""
    return [
        Arm(
            id=tables.new_id("a"),
            position=position,
            name=arm.name,
            role="candidate" if position else "baseline",
            recipe=arm.recipe,
        )
        for position, arm in enumerate(spec.arms)
    ]
