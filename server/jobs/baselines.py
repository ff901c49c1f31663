"""Named baselines: promote, attach controls, expire, and look up the one that a job names. Plain functions of a session.

A version is the sound runs of one finished arm, under a name and a number; what it is never changes. A job that names it takes its
curves, or is refused with what differs. Reruns of it (`controls`, and members that the job does not take) go to the job's judge, which
measures the run-to-run noise on them in place of assuming it. Whatever is done to a version is an event with who and why.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.independence import dependence
from server.curves import loading
from server.database import tables
from server.database.locks import hold_lock
from server.database.lookup import find_job
from server.database.tables import Arm, Baseline, BaselineEvent, BaselineEventKind, BaselineRun, Job, Run
from server.errors import ConflictError, InvalidError, NotFoundError
from server.jobs.fingerprint import in_words, is_rerun, manifest_differences, run_spec, spec_differences, unsound
from server.jobs.workers import changed, live_workers
from training.spec import JobSpec, RunSpec, capability

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_DAY = 86_400.0
_MOST_DAYS, _MOST_REASON, _MOST_CONTROLS = 3650.0, 1000, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChoice:
    """Against which baseline a job is judged: a promoted one by name (the newest version where none is given), else one of its own.

    `reuse` lets a baseline of its own take the curves of an equal one that was trained before.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    name: Annotated[str, Field(pattern=NAME)] | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if self.name is not None:
            _check_name(self.name)
            if not self.reuse:
                raise InvalidError(f"baseline.reuse is false, but baseline.name is {self.name!r}, whose curves are taken: leave one out")
        elif self.version is not None:
            raise InvalidError(f"baseline.version is {self.version}, expected a baseline.name beside it")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A promoted baseline whose curves a job reuses: its run for each replicate of the job's baseline arm, and the ids of its controls."""

    baseline: Baseline
    runs: Mapping[int, Run]
    controls: Sequence[str]


def find(session: Session, name: str, version: int | None = None) -> Baseline:
    """A version of a baseline, expired or not; without a number the newest. NotFoundError names it."""
    wanted = select(Baseline).where(Baseline.name == name).order_by(Baseline.version.desc()).limit(1)
    baseline = session.scalars(wanted if version is None else wanted.where(Baseline.version == version)).first()
    if baseline is None:
        what = name if version is None else f"{name} version {version}"
        raise NotFoundError(f"there is no baseline {what!r}; `parity baseline list` lists them")
    return baseline


def resolve(session: Session, choice: BaselineChoice | None, spec: JobSpec, lease_seconds: float) -> NamedBaseline | None:
    """Look up the baseline that a job names; None where it names none. ConflictError where the job can't reuse it."""
    if choice is None or choice.name is None:
        return None
    baseline = find(session, choice.name, choice.version)
    if baseline.expires_at is not None and baseline.expires_at <= time.time():
        ended = time.strftime("%Y-%m-%d", time.gmtime(baseline.expires_at))
        raise ConflictError(f"baseline {called(baseline)} has expired on {ended}: name another, or promote a newer one")
    members = [link.run for link in baseline.runs if link.role == "member"]
    specs = {run.id: run_spec(run) for run in members}
    wanted = [each for arm, each in spec.runs() if arm is spec.baseline]
    runs = {each.replicate: _member(baseline, members, specs, each) for each in wanted}
    _refuse_other_trainer(session, baseline, members[0], spec, lease_seconds)
    taken = {run.id for run in runs.values()}
    return NamedBaseline(baseline=baseline, runs=runs, controls=[link.run_id for link in baseline.runs if link.run_id not in taken])


def promote(session: Session, name: str, job_id: str, arm_name: str | None, reason: str, who: str, days: float | None) -> Baseline:
    """Make the finished arm of a job (its baseline, where none is named) the next version of a name; ConflictError where it isn't sound."""
    _check_name(name)
    _check_reason(reason)
    if days is not None and not 0 < days <= _MOST_DAYS:
        raise InvalidError(f"days is {days:g}, expected more than 0 and at most {_MOST_DAYS:g}, or nothing for no expiry")
    job = find_job(session, job_id)
    arm = next((arm for arm in job.arms if arm_name in (None, arm.name)), None)
    if arm is None:
        raise NotFoundError(f"job {job_id} has no arm {arm_name!r}, expected one of {', '.join(arm.name for arm in job.arms)}")
    runs = _sound(session, arm)
    hold_lock(session, f"baseline {name}")  # two who promote under one name at once get two versions
    newest = session.scalars(select(Baseline).where(Baseline.name == name).order_by(Baseline.version.desc()).limit(1)).first()
    ids = {run.id for run in runs}
    if newest is not None and ids == {link.run_id for link in newest.runs if link.role == "member"}:
        raise ConflictError(f"these runs are {called(newest)} already; nothing was promoted")
    now = time.time()
    baseline = Baseline(
        id=tables.new_id("b"),
        name=name,
        version=1 if newest is None else newest.version + 1,
        recipe=arm.stated_recipe,
        engine=job.engine,
        created_at=now,
        expires_at=None if days is None else now + days * _DAY,
    )
    baseline.runs.extend(BaselineRun(run_id=run.id, role="member") for run in runs)
    session.add(baseline)
    session.flush()
    _note(session, baseline, "promoted", who, reason, f"arm {arm.name} of job {job.id}: runs {', '.join(sorted(ids))}")
    return baseline


def attach_controls(session: Session, baseline: Baseline, target: str, reason: str, who: str) -> list[Run]:
    """Attach reruns of a baseline: one run, or every run of a job that is one; those that are new. ConflictError where none can be."""
    _check_reason(reason)
    hold_lock(session, f"baseline {baseline.name}")
    session.refresh(baseline, ["runs"])
    reference = next(link.run for link in baseline.runs if link.role == "member")
    offered = _offered(session, target)
    ids = {link.run_id for link in baseline.runs}
    curves = [loading.losses(session, link.run) for link in baseline.runs]
    problems: list[str] = []
    controls: list[Run] = []
    for run in offered:
        trained = _locked(session, run)
        problem = _no_control(session, reference, trained)
        curve = loading.losses(session, trained)
        if trained.id in ids:
            problems.append(f"run {trained.id} belongs to it already")
        elif problem:
            problems.append(problem)
        elif why := next((doubt[1] for other in curves if (doubt := dependence(other, curve)) is not None), ""):
            problems.append(f"run {trained.id} is no rerun of its own: {why}; take another replicate")
        else:
            curves.append(curve)
            controls.append(trained)
            ids.add(trained.id)
    if not controls:
        raise ConflictError(f"{target} has no run that is a control of {called(baseline)}: {'; '.join(problems[:3])}")
    if len(ids) > _MOST_CONTROLS:
        raise ConflictError(f"{called(baseline)} would have {len(ids)} runs, expected {_MOST_CONTROLS} at most")
    baseline.runs.extend(BaselineRun(run_id=run.id, role="control") for run in controls)
    _note(session, baseline, "control", who, reason, f"runs {', '.join(run.id for run in controls)} of {target}")
    session.flush()
    return controls


def expire(session: Session, baseline: Baseline, reason: str, who: str) -> None:
    """End a version now: no later job may name it. What was judged against it stays; expiring twice changes nothing."""
    _check_reason(reason)
    now = time.time()
    if baseline.expires_at is not None and baseline.expires_at <= now:
        return
    _note(session, baseline, "expired", who, reason, f"job files that name {called(baseline)} are refused from now on")
    baseline.expires_at = now


def called(baseline: Baseline) -> str:
    """A version in a sentence."""
    return f"{baseline.name} version {baseline.version}"


def members(baseline: Baseline) -> list[Run]:
    """The runs of a version by replicate, without its controls."""
    return sorted((link.run for link in baseline.runs if link.role == "member"), key=lambda run: (run.seed, run.replicate))


def _member(baseline: Baseline, members: Sequence[Run], specs: dict[str, RunSpec], wanted: RunSpec) -> Run:
    """The run of a baseline that has exactly this specification."""
    for run in members:
        if specs[run.id] == wanted:
            return run
    nearest = next((specs[run.id] for run in members if specs[run.id].replicate == wanted.replicate), None)
    if nearest is None:
        there = ", ".join(str(spec.replicate) for spec in sorted(specs.values(), key=lambda spec: spec.replicate))
        what = f"has replicates {there}, and this job's baseline asks for replicate {wanted.replicate}: set baseline.replicates lower"
    else:
        what = f"was trained as something else: {in_words(spec_differences(nearest, wanted), 'there', 'in this job')}"
    raise ConflictError(f"baseline {called(baseline)} {what}")


def _refuse_other_trainer(session: Session, baseline: Baseline, member: Run, spec: JobSpec, lease_seconds: float) -> None:
    """ConflictError where a live worker that would train the candidates trains with something else than what trained the baseline."""
    kind = capability(spec)[0]
    if kind == "external" or member.job.engine == "external":
        return
    device_class = member.job.device_class
    for worker in live_workers(session, lease_seconds):
        may_train = worker.capability == kind and device_class in (None, worker.device.get("device_class"))
        if may_train and worker.device.get("trainer") and (reason := changed(worker, member.manifest or {})):
            raise ConflictError(f"baseline {called(baseline)} can't be compared with what is trained now: {reason}; promote one anew")


def _sound(session: Session, arm: Arm) -> list[Run]:
    """The trained runs of an arm; ConflictError names the first that can't stand for another."""
    sound = []
    for run in arm.runs:
        trained = _locked(session, run)
        if reason := unsound(session, trained):
            raise ConflictError(f"arm {arm.name} of job {arm.job_id} can't be a baseline: {reason}")
        sound.append(trained)
    return sound


def _locked(session: Session, run: Run) -> Run:
    """The run that was trained, held until the end of the transaction: retention must not drop it while it is looked at."""
    trained = run.source or run
    session.refresh(trained, with_for_update=True)
    return trained


def _offered(session: Session, target: str) -> list[Run]:
    """The run of this id, or the runs of the job of this id."""
    run = session.get(Run, target) if tables.is_id("r", target) else None
    job = session.get(Job, target) if tables.is_id("j", target) else None
    if run is None and job is None:
        raise ConflictError(f"there is no run or job {target!r}, expected the id of one; nothing was attached")
    return [run] if run is not None else list(job.runs) if job is not None else []


def _no_control(session: Session, reference: Run, run: Run) -> str | None:
    """Why a run is no rerun of a baseline, or None."""
    baseline, rerun = run_spec(reference), run_spec(run)
    if not is_rerun(baseline, rerun):
        return f"run {run.id}: {in_words(spec_differences(baseline, rerun, but=('replicate',)), 'in the baseline', 'in it')}"
    differences = manifest_differences(reference.manifest or {}, run.manifest or {})
    if differences:
        return f"run {run.id} ran on something else: {in_words(differences, 'in the baseline', 'in it')}"
    return unsound(session, run)


def _note(session: Session, baseline: Baseline, kind: BaselineEventKind, who: str, reason: str, detail: str) -> None:
    row = BaselineEvent(
        id=tables.new_id("e"), baseline_id=baseline.id, kind=kind, who=who, reason=reason.strip(), detail=detail, created_at=time.time()
    )
    session.add(row)


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise InvalidError(f"name is {name!r:.80}, expected 1 to 64 letters, digits, '_', '.' or '-', a letter or digit first")


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason.strip()) <= _MOST_REASON:
        raise InvalidError(f"reason has {len(reason.strip())} characters, expected 1 to {_MOST_REASON}: whoever asks later reads it")


def used_by(session: Session, baseline: Baseline, limit: int) -> Sequence[Job]:
    """The newest jobs that name a version."""
    return session.scalars(select(Job).where(Job.baseline_id == baseline.id).order_by(Job.id.desc()).limit(limit)).all()
