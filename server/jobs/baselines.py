"""Named baselines: promote, attach controls, expire, and look up the one that a job names. Plain
functions of a session.

A version consists of the valid runs of one finished arm, under a name and a number; it is
immutable. A job that names it reuses its curves, or is rejected with the differences. Reruns of it
(`controls`, and members that the job does not use) go to the job's judge, which measures the
run-to-run noise on them instead of assuming it. Each change to a version is an event with its
author and reason.

A name belongs to who promoted its newest version: jobs that give no version take that one. Others
change it only if they `overrule`, which takes scope approve or admin; so does a name without a
known owner.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.independence import dependence
from server.curves import judged_curves
from server.database import tables
from server.database.locks import hold_lock
from server.database.lookups import find_job
from server.database.tables import (
    LOCAL_ID,
    Arm,
    Baseline,
    BaselineEvent,
    BaselineEventKind,
    BaselineRun,
    Job,
    Run,
    Token,
)
from server.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from server.jobs.fingerprint import (
    differences_in_words,
    manifest_differences,
    run_spec,
    spec_differences,
    unsound,
)
from server.jobs.workers import changed, live_workers
from server.records import Body
from training.command import ENGINE as COMMAND
from training.spec import JobSpec, RunSpec, capability

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_DAY = 86_400.0
_MOST_DAYS, _MOST_REASON, _MOST_CONTROLS = 3650.0, 1000, 64


@frozen
class BaselineChoice(Body):
    """The baseline that a job is judged against: a promoted one by name (the newest version by
    default), else the job's own.

    `reuse` lets the job's own baseline reuse the curves of an equal earlier one.
    """

    name: Annotated[str, Field(pattern=NAME)] | None = None
    version: Annotated[int, Field(ge=1, le=2**31)] | None = None
    reuse: bool = True

    def __post_init__(self) -> None:
        if self.name is not None:
            _check_name(self.name)
            if not self.reuse:
                raise InvalidError(
                    f"baseline.reuse is false, but baseline.name is {self.name!r}, whose curves "
                    "are always reused; leave one of the two out"
                )
        elif self.version is not None:
            raise InvalidError(
                f"baseline.version is {self.version} without baseline.name; add baseline.name, or "
                "leave the version out"
            )


@frozen
class NamedBaseline:
    """A promoted baseline whose curves a job reuses: one run per replicate of the job's baseline
    arm, and the ids of its controls.
    """

    baseline: Baseline
    runs: Mapping[int, Run]
    controls: Sequence[str]


def find(session: Session, name: str, version: int | None = None) -> Baseline:
    """A version of a baseline, expired or not; by default the newest. NotFoundError if it does not
    exist.
    """
    baseline = _find(session, name, version)
    if baseline is None:
        what = name if version is None else f"{name} version {version}"
        raise NotFoundError(
            f"baseline {what!r} does not exist; `parity baseline list` lists all baselines"
        )
    return baseline


def _find(session: Session, name: str, version: int | None = None) -> Baseline | None:
    versions = (
        select(Baseline).where(Baseline.name == name).order_by(Baseline.version.desc()).limit(1)
    )
    return session.scalars(
        versions if version is None else versions.where(Baseline.version == version)
    ).first()


def is_expired(baseline: Baseline) -> bool:
    """Whether no job may name a version any more."""
    return baseline.expires_at is not None and baseline.expires_at <= time.time()


def resolve(
    session: Session, choice: BaselineChoice | None, spec: JobSpec, lease_seconds: float
) -> NamedBaseline | None:
    """Look up the baseline that a job names; None if it names none. ConflictError if the job cannot
    reuse it, InvalidError if none can.
    """
    if choice is None or choice.name is None:
        return None
    if spec.engine == COMMAND:
        raise InvalidError(
            f"baseline.name is {choice.name}, expected none under engine {COMMAND}, whose baseline "
            "is a commit"
        )
    baseline = find(session, choice.name, choice.version)
    if is_expired(baseline):
        ended = time.strftime("%Y-%m-%d", time.gmtime(baseline.expires_at))
        raise ConflictError(
            f"baseline {called(baseline)} expired on {ended}; name another version, or promote a "
            "newer one"
        )
    specs = [(run, run_spec(run)) for run in members(baseline)]
    runs = {
        baseline_run.replicate: _member(baseline, specs, baseline_run)
        for arm, baseline_run in spec.runs()
        if arm is spec.baseline
    }
    _refuse_other_trainer(session, baseline, specs[0][0], spec, lease_seconds)
    return NamedBaseline(
        baseline=baseline, runs=runs, controls=_others(baseline, {run.id for run in runs.values()})
    )


def controls_now(job: Job, baseline: Baseline) -> list[str]:
    """The reruns of a baseline that the judge would get now of a job that names it."""
    return _others(baseline, {run.reused_from for run in job.runs})


def _others(baseline: Baseline, taken: Collection[str | None]) -> list[str]:
    """The ids of a version's runs, sorted, without those whose curves a job reuses."""
    return sorted(link.run_id for link in baseline.runs if link.run_id not in taken)


def promote(
    session: Session,
    name: str,
    job_id: str,
    arm_name: str | None,
    reason: str,
    who: str,
    days: float | None,
    *,
    overrules: bool = False,
) -> Baseline:
    """Make a finished arm of a job (default: its baseline) the next version of a name;
    ConflictError if a run of it is not valid.

    ForbiddenError if the name is not the sender's, unless they overrule; the same for the two
    changes below.
    """
    _check_name(name)
    _check_reason(reason)
    if days is not None and not 0 < days <= _MOST_DAYS:
        raise InvalidError(
            f"days is {days:g}, expected more than 0 and at most {_MOST_DAYS:g}, or no value for "
            "no expiry"
        )
    job = find_job(session, job_id)
    arm = next((arm for arm in job.arms if arm_name in (None, arm.name)), None)
    if arm is None:
        raise NotFoundError(
            f"job {job_id} has no arm {arm_name!r}, expected one of "
            f"{', '.join(arm.name for arm in job.arms)}"
        )
    if not arm.runs:
        raise ConflictError(
            f"arm {arm.name} of job {job_id} has no run that was judged (forks, or an analysis); a "
            "baseline needs runs trained from step 0"
        )
    runs = _sound(session, arm)
    # two promotions under one name at the same time get two versions
    hold_lock(session, f"baseline {name}")
    newest = _find(session, name)
    if newest is not None:
        _check_owner(session, newest, who, overrules=overrules)
    ids = {run.id for run in runs}
    if newest is not None and ids == {run.id for run in members(newest)}:
        raise ConflictError(f"these runs already are {called(newest)}; nothing was promoted")
    now = time.time()
    baseline = Baseline(
        id=tables.new_id("b"),
        name=name,
        version=1 if newest is None else newest.version + 1,
        recipe=arm.stated_recipe or arm.recipe,
        engine=job.engine,
        created_at=now,
        expires_at=None if days is None else now + days * _DAY,
        owner=None if who == LOCAL_ID else who,
    )
    baseline.runs.extend(BaselineRun(run_id=run.id, role="member") for run in runs)
    session.add(baseline)
    session.flush()
    _note(
        session,
        baseline,
        "promoted",
        who,
        reason,
        f"arm {arm.name} of job {job.id}: runs {', '.join(sorted(ids))}",
    )
    return baseline


def attach_controls(
    session: Session,
    baseline: Baseline,
    target: str,
    reason: str,
    who: str,
    *,
    overrules: bool = False,
) -> list[Run]:
    """Attach reruns of a baseline: one run, or all suitable runs of a job; returns the new ones.
    ConflictError if none is suitable.
    """
    _check_reason(reason)
    _hold(session, baseline, who, overrules=overrules)
    session.refresh(baseline, ["runs"])
    reference = members(baseline)[0]
    offered = _offered(session, target)
    ids = {link.run_id for link in baseline.runs}
    curves = [judged_curves.losses(session, link.run) for link in baseline.runs]
    problems: list[str] = []
    controls: list[Run] = []
    for run in offered:
        trained = _locked(session, run)
        problem = _no_control(session, reference, trained)
        curve = judged_curves.losses(session, trained)
        if trained.id in ids:
            problems.append(f"run {trained.id} already belongs to the baseline")
        elif problem:
            problems.append(problem)
        elif why := next(
            (doubt[1] for other in curves if (doubt := dependence(other, curve)) is not None), ""
        ):
            problems.append(
                f"run {trained.id} is not an independent rerun: {why}; train another replicate"
            )
        else:
            curves.append(curve)
            controls.append(trained)
            ids.add(trained.id)
    if not controls:
        raise ConflictError(
            f"{target} has no run that can be a control of {called(baseline)}: "
            f"{'; '.join(problems[:3])}"
        )
    if len(ids) > _MOST_CONTROLS:
        raise ConflictError(
            f"{called(baseline)} would have {len(ids)} runs, expected at most {_MOST_CONTROLS}; "
            "attach fewer controls"
        )
    baseline.runs.extend(BaselineRun(run_id=run.id, role="control") for run in controls)
    _note(
        session,
        baseline,
        "control",
        who,
        reason,
        f"runs {', '.join(run.id for run in controls)} of {target}",
    )
    session.flush()
    return controls


def expire(
    session: Session, baseline: Baseline, reason: str, who: str, *, overrules: bool = False
) -> None:
    """Expire a version now: no later job may name it. Earlier verdicts stay valid; expiring twice
    changes nothing.
    """
    _check_reason(reason)
    _hold(session, baseline, who, overrules=overrules)
    if is_expired(baseline):
        return
    _note(
        session,
        baseline,
        "expired",
        who,
        reason,
        f"job files that name {called(baseline)} are rejected from now on",
    )
    baseline.expires_at = time.time()


def called(baseline: Baseline) -> str:
    """A version as text: its name and number."""
    return f"{baseline.name} version {baseline.version}"


def members(baseline: Baseline) -> list[Run]:
    """The runs of a version by replicate, without its controls."""
    return sorted(
        (link.run for link in baseline.runs if link.role == "member"),
        key=lambda run: (run.seed, run.replicate),
    )


def _member(baseline: Baseline, specs: Sequence[tuple[Run, RunSpec]], needed: RunSpec) -> Run:
    """The run of a baseline that has exactly this specification."""
    for run, spec in specs:
        if spec == needed:
            return run
    nearest = next((spec for _, spec in specs if spec.replicate == needed.replicate), None)
    if nearest is None:
        there = ", ".join(map(str, sorted(spec.replicate for _, spec in specs)))
        what = (
            f"has replicates {there}, but this job's baseline needs replicate {needed.replicate}; "
            "lower baseline.replicates"
        )
    else:
        what = (
            "has another specification: "
            f"{differences_in_words(spec_differences(nearest, needed), 'there', 'in this job')}"
        )
    raise ConflictError(f"baseline {called(baseline)} {what}")


def _refuse_other_trainer(
    session: Session, baseline: Baseline, member: Run, spec: JobSpec, lease_seconds: float
) -> None:
    """ConflictError if a live worker that would train the candidates has another trainer than the
    baseline's.
    """
    kind = capability(spec)[0]
    if kind == "external" or member.job.engine == "external":
        return
    device_class = member.job.device_class
    for worker in live_workers(session, lease_seconds):
        may_train = worker.capability == kind and device_class in (
            None,
            worker.device.get("device_class"),
        )
        if (
            may_train
            and worker.device.get("trainer")
            and (reason := changed(worker, member.manifest or {}))
        ):
            raise ConflictError(
                f"baseline {called(baseline)} cannot be compared with runs trained now: {reason}; "
                "promote a new version"
            )


def _sound(session: Session, arm: Arm) -> list[Run]:
    """The trained runs of an arm; ConflictError for the first that cannot be reused."""
    sound = []
    for run in arm.runs:
        trained = _locked(session, run)
        if reason := unsound(session, trained):
            raise ConflictError(
                f"arm {arm.name} of job {arm.job_id} cannot be a baseline: {reason}"
            )
        sound.append(trained)
    return sound


def _locked(session: Session, run: Run) -> Run:
    """The run that was trained, locked until the end of the transaction, so that retention does not
    delete its curve meanwhile.
    """
    trained = run.source or run
    session.refresh(trained, with_for_update=True)
    return trained


def _offered(session: Session, target: str) -> list[Run]:
    """The run of this id, or the runs of the job of this id."""
    if tables.is_id("r", target) and (run := session.get(Run, target)) is not None:
        return [run]
    if tables.is_id("j", target) and (job := session.get(Job, target)) is not None:
        return [full_run for full_run in job.runs if full_run.kind == "full"]
    raise ConflictError(f"{target!r} is not the id of a run or a job; nothing was attached")


def _no_control(session: Session, reference: Run, run: Run) -> str | None:
    """Why a run is not a rerun of a baseline, or None."""
    baseline, rerun = run_spec(reference), run_spec(run)
    # equal seeds read the same data in the same order
    if differences := spec_differences(baseline, rerun, but=("replicate",)):
        return f"run {run.id}: {differences_in_words(differences, 'in the baseline', 'in it')}"
    if differences := manifest_differences(reference.manifest or {}, run.manifest or {}):
        return (
            f"run {run.id} was trained in another environment: "
            f"{differences_in_words(differences, 'in the baseline', 'in it')}"
        )
    return unsound(session, run)


def _hold(session: Session, baseline: Baseline, who: str, *, overrules: bool) -> None:
    """Lock the name of a version until the end of the transaction, and check whose it is."""
    hold_lock(session, f"baseline {baseline.name}")
    session.refresh(baseline)  # who held the lock may have expired it
    _check_owner(session, _find(session, baseline.name) or baseline, who, overrules=overrules)


def _check_owner(session: Session, newest: Baseline, who: str, *, overrules: bool) -> None:
    """ForbiddenError if somebody else promoted the newest version of a name, or nobody knows
    who.
    """
    if overrules or newest.owner == who:
        return
    owner = session.scalar(select(Token.name).where(Token.id == newest.owner))
    if newest.owner is None:
        promoted = "before owners were recorded, or without a token"
    else:
        promoted = f"by token {(owner or newest.owner)!r}"
    raise ForbiddenError(
        f"baseline {called(newest)} was promoted {promoted}; expected a token of that principal, "
        "or one with scope approve or admin"
    )


def _note(
    session: Session,
    baseline: Baseline,
    kind: BaselineEventKind,
    who: str,
    reason: str,
    detail: str,
) -> None:
    about = {"kind": kind, "who": who, "reason": reason.strip(), "detail": detail}
    session.add(
        BaselineEvent(
            id=tables.new_id("e"), baseline_id=baseline.id, created_at=time.time(), **about
        )
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        raise InvalidError(
            f"name is {name!r:.80}, expected 1 to 64 letters, digits, '_', '.' or '-', a letter or "
            "digit first"
        )


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason.strip()) <= _MOST_REASON:
        raise InvalidError(
            f"reason has {len(reason.strip())} characters, expected 1 to {_MOST_REASON}; give a "
            "reason that later readers understand"
        )


def used_by(session: Session, baseline: Baseline, limit: int) -> Sequence[Job]:
    """The newest jobs that name a version."""
    return session.scalars(
        select(Job).where(Job.baseline_id == baseline.id).order_by(Job.id.desc()).limit(limit)
    ).all()
