"""Submits a healing: a job of its own that looks for the latest step from which a candidate of a
job that has ended may go on with a safer recipe (`parity_lab.healing`).

The switch at each kept step is an arm of that job, and each of its runs, of kind `heal`, goes on
from a checkpoint that a run of the candidate kept. Workers train them like any other run; those of
further looks are held back. When the runs of a look have ended, whoever concludes the job judges
them, and queues those of the next look, or ends it. It has no verdict: no gate, baseline, ledger,
forecast or reuse ever sees one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.decision import PASS
from parity.judging.verdict.deciding_interval import recorded_interval
from parity_lab.healing import (
    HealingSetup,
    Look,
    first_switch,
    next_switch,
    setup_from,
    shares_to_keep,
)
from parity_lab.healing_answer import HealingAnswer, healing_answer
from parity_lab.server.forks import derived_job, results_of, seconds_of
from parity_lab.server.healed_runs import compares_nothing, forks_of, judged_look, switch_of
from parity_lab.server.judged_jobs import gap_words, judged_candidate, readable_spec
from parity_lab.server.tables import Analysis, Healing, keep_results
from server.database.lookups import find_job
from server.database.states import JOB_OPEN
from server.database.tables import Arm, Job, Run, Verdict
from server.errors import ConflictError, InvalidError, NotFoundError
from server.jobs import lifecycle
from server.jobs.fingerprint import unsound
from server.jobs.job_kinds import JobOutcome
from server.jobs.submit import Order
from server.records import Body
from training.forks import check_fork_step
from training.later_recipe import GemmScope, LaterRecipe, check_later_recipe
from training.rules import Recipe, SpecError
from training.spec import ArmSpec, JobSpec

_MOST_HOURS = 1e9
_HOUR = 3600.0
_LOOK = "look/"
_AS_ARMS = {
    "maxtext": "MaxText keeps one recipe for the whole run; train the candidate under engine: "
    "emulated, or with a launcher that declares `then`",
    "command": "the trainer and its checkpoints are the launcher's; submit switches as candidates, "
    "where the launcher declares `then`",
    "external": "the trainer and its checkpoints are yours; train switches yourself, and push them "
    "as candidates",
}


@frozen
class HealRequest(Body):
    """Which candidate to heal (null: the job's only one), with which recipe for all or for the
    forward products of the rest of the run, and the largest cost in device hours (null: what the
    search takes at most).
    """

    candidate: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    to: Recipe = "bf16"
    gemms: GemmScope = "all"
    budget: Annotated[float, Field(gt=0, le=_MOST_HOURS, allow_inf_nan=False)] | None = None


def plan_healing(session: Session, job_id: str, request: HealRequest) -> Healing:
    """A healing that could be queued, not on record yet. Raises NotFoundError, InvalidError or
    ConflictError with what to do instead.
    """
    job = find_job(session, job_id)
    for table in (Analysis, Healing):
        if session.get(table, job.id) is not None:
            raise ConflictError(
                f"job {job.id} is never judged; heal the job whose candidate it is about"
            )
    arm, verdict = judged_candidate(job, request.candidate, "so there is no gap to heal")
    spec = readable_spec(job)
    candidate = spec.candidates[arm.position - 1]
    _check_engine(spec, candidate, request)
    _check_verdict(arm, verdict)
    then = _later_recipe(spec, candidate, request)
    document = verdict.read_document()
    gap, margin = document["gap"], document["margin"]
    half_width = None
    if gap is not None:
        interval = recorded_interval(document, gap)
        half_width = (interval["hi"] - interval["lo"]) / 2
    sizes = (verdict.gap, half_width, None if margin is None else margin["nats"])
    parents = _parents(session, arm, spec, sizes)
    steps = _kept_steps(parents, spec.schedule.steps)
    if not steps:
        raise ConflictError(
            f"candidate {arm.name} of job {job.id} cannot be healed: its {len(parents)} runs kept "
            f"no checkpoint in common before their end; {_keep_line(*sizes)}"
        )
    setup = HealingSetup(
        recipe=then.recipe,
        gemms=then.gemms,
        parents=tuple(parent.id for parent in parents),
        steps=steps,
        run_steps=spec.schedule.steps,
        gap=sizes[0],
        half_width=sizes[1],
        margin=sizes[2],
        most_steps=0.0,
    )
    setup = replace(setup, most_steps=_most_steps(setup, parents, request.budget, job.devices))
    healing = Healing(healed=job, candidate=arm.name, setup=setup.document())
    _healing_spec(healing, setup)  # raises InvalidError for arms that a job cannot have
    return healing


def submit_healing(
    session: Session,
    job_id: str,
    request: HealRequest,
    submitted_by: str | None = None,
) -> tuple[Job, bool]:
    """The job of a queued healing, whose runs are held back but for those of its first look, and
    whether it is new: an open one with the same plan is returned instead. Its runs have the limits
    of the candidate's. Notify the workers of a new one after the commit. Errors as `plan_healing`.
    """
    healing = plan_healing(session, job_id, request)
    job, setup = healing.healed, setup_from(healing.setup)
    same = (
        select(Healing)
        .join(Job, Job.id == Healing.job_id)
        .where(Healing.heals == job.id, Job.status.in_(sorted(JOB_OPEN)))
    )
    for other in session.scalars(same):
        if (other.candidate, setup_from(other.setup)) == (healing.candidate, setup):
            return other.job, False
    healing.job = derived_job(
        session,
        job,
        _healing_spec(healing, setup),
        submitted_by,
        _order(job, healing.candidate),
        _forks(session, setup, first_switch(setup)),
    )
    session.add(healing)
    return healing.job, True


def conclude_healing(session: Session, job: Job) -> JobOutcome:
    """Judge the look whose runs have ended: further runs where another one follows, else the
    answer. A look with a run that has no curve ends the job.
    """
    healing = session.get_one(Healing, job.id)
    setup, looks = setup_from(healing.setup), looks_of(session, job.id)
    passed_over = {run.arm_id for run in _held_back(job)}
    judged = {look.step for look in looks}
    arm = next(
        arm for arm in job.arms[1:] if arm.id not in passed_over and switch_of(arm) not in judged
    )
    forks = forks_of(arm)
    broken = next((run for run in forks if run.state != "finished"), None)
    if broken is not None:
        return JobOutcome(
            code=broken.code or "CANCELLED",
            message=broken.message or f"run {broken.id}, a fork, was {broken.state}",
            write=partial(_leave_out, job.id),
        )
    look = judged_look(session, healing.healed, healing.candidate, setup, arm)
    keep = partial(_keep_look, forks[0].id, look)
    step = next_switch(setup, [*looks, look])
    if step is None:
        answer = healing_answer(setup, [*looks, look])
        return JobOutcome(complete=True, write=partial(_end, job.id, answer, keep))
    return JobOutcome(further=partial(_go_on, job.id, step, keep))


def healing_of(session: Session, job_id: str) -> Healing:
    """The healing that a job is, or the newest one of its candidates; NotFoundError with the way to
    one.
    """
    job = find_job(session, job_id)
    newest = select(Healing).where(Healing.heals == job.id).order_by(Healing.job_id.desc()).limit(1)
    healing = session.get(Healing, job.id) or session.scalars(newest).first()
    if healing is None:
        raise NotFoundError(f"job {job.id} has no healing; `parity heal {job.id}` plans one")
    return healing


def looks_of(session: Session, job_id: str) -> list[Look]:
    """The looks of a healing that are on record."""
    results = results_of(session, job_id)
    return [Look(**value) for key, value in sorted(results.items()) if key.startswith(_LOOK)]


def answer_so_far(session: Session, healing: Healing) -> HealingAnswer:
    """What the looks on record say."""
    return healing_answer(setup_from(healing.setup), looks_of(session, healing.job_id))


def arm_of(spec: JobSpec, name: str) -> ArmSpec:
    """A candidate of a job's specification."""
    return next(arm for arm in spec.candidates if arm.name == name)


def then_at(setup: HealingSetup, step: int) -> LaterRecipe:
    """The later recipe of the switch at a step."""
    document: dict[str, Any] = {"recipe": setup.recipe, "from_step": step, "gemms": setup.gemms}
    return LaterRecipe(**document)


def switched(arm: ArmSpec, then: LaterRecipe) -> ArmSpec:
    """An arm that goes on with another recipe. It is named after what it does: a name that claims
    less would make steps before the switch say nothing (`parity.effective_recipe`).
    """
    return replace(arm, name="", then=then)


def _healing_spec(healing: Healing, setup: HealingSetup) -> JobSpec:
    """The specification of a healing: an arm for the switch at each kept step. Raises InvalidError
    for arms that a job cannot have.
    """
    whole = readable_spec(healing.healed)
    candidate = arm_of(whole, healing.candidate)
    try:
        arms = tuple(
            replace(
                switched(candidate, then_at(setup, step)),
                replicates=1,
            )
            for step in setup.steps
        )
        return replace(
            whole,
            name=f"heal: {candidate.name} of {healing.healed.name}"[:200],
            baseline=replace(whole.baseline, replicates=1),
            candidates=arms,
            short_reruns=None,
            family=None,
            keep_checkpoints=(),
        )
    except SpecError as error:
        raise InvalidError(f"candidate {candidate.name} cannot be healed: {error}") from error


def _order(job: Job, candidate: str) -> Order:
    """The limit of a run's training time and the priority of the healed candidate. A priority above
    0 is left out: its sender needed scope admin, which whoever heals the candidate may not have.
    """
    arm = next(arm for arm in job.arms if arm.name == candidate)
    priority = min([0, *(run.priority for run in arm.runs)])
    return Order(priority=priority, max_run_seconds=job.max_run_seconds)


def _forks(
    session: Session, setup: HealingSetup, first: int
) -> list[tuple[int, Mapping[str, Any]]]:
    """A fork of each parent for each arm, of which those of the switch at `first` are queued."""
    parents = [session.get_one(Run, parent) for parent in setup.parents]
    return [
        (
            position,
            {
                "kind": "heal",
                "seed": parent.seed,
                "replicate": parent.replicate,
                "forked_from": parent.id,
                "planned_steps": setup.run_steps,
                "state": "queued" if step == first else "awaiting_data",
            },
        )
        for position, step in enumerate(setup.steps, 1)
        for parent in parents
    ]


def _held_back(job: Job) -> list[Run]:
    """The forks of a healing that no look has called up."""
    return [run for run in job.runs if run.state == "awaiting_data"]


def _keep_look(run_id: str, look: Look, session: Session) -> None:
    keep_results(session, run_id, {f"{_LOOK}{look.step:012d}": asdict(look)})


def _go_on(job_id: str, step: int, keep: Callable[[Session], None], session: Session) -> None:
    """Keep a look, and queue the runs of the next one."""
    keep(session)
    for run in _held_back(session.get_one(Job, job_id)):
        if switch_of(run.arm) == step:
            lifecycle.call_up(session, run)


def _end(
    job_id: str, answer: HealingAnswer, keep: Callable[[Session], None], session: Session
) -> None:
    """Keep the last look and the answer."""
    keep(session)
    session.get_one(Healing, job_id).answer = dict(answer)
    _leave_out(job_id, session)


def _leave_out(job_id: str, session: Session) -> None:
    """End the runs that no look needs."""
    for run in _held_back(session.get_one(Job, job_id)):
        lifecycle.cancel(session, run, message="no look needed it")


def _check_engine(spec: JobSpec, candidate: ArmSpec, request: HealRequest) -> None:
    """Raises ConflictError for an engine without forks, with the arms to train instead."""
    if spec.engine not in _AS_ARMS:
        return
    steps = [round(share * spec.schedule.steps) for share in (0.5, 0.7, 0.8, 0.9)]
    arm = f"recipe: {candidate.recipe}"
    switches = ", ".join(
        f"{{{arm}, then: {{recipe: {request.to}, from_step: {step}}}}}" for step in steps
    )
    raise ConflictError(
        f"engine {spec.engine} has no forks: {_AS_ARMS[spec.engine]}: candidates: [{switches}]"
    )


def _check_verdict(arm: Arm, verdict: Verdict) -> None:
    """Raises ConflictError for a candidate with nothing to heal, or whose gap says nothing."""
    gap = gap_words(verdict) or "not measured"
    if verdict.read_outcome() == PASS:
        raise ConflictError(
            f"candidate {arm.name} of job {arm.job_id} passed, so there is nothing to heal: its "
            f"gap is {gap}"
        )
    if compares_nothing(verdict.outcome, verdict.code):
        raise ConflictError(
            f"the verdict on candidate {arm.name} of job {arm.job_id} is inconclusive "
            f"({verdict.code}), so no gap is known to heal; follow its next step first"
        )


def _later_recipe(spec: JobSpec, candidate: ArmSpec, request: HealRequest) -> LaterRecipe:
    """The later recipe that is asked for, at some step. Raises ConflictError for a candidate that
    has one, InvalidError for one that its runs cannot go on with.
    """
    if candidate.then is not None:
        raise ConflictError(
            f"candidate {candidate.name} goes on with {candidate.then.recipe} from step "
            f"{candidate.then.from_step:,} already; heal the candidate without `then`"
        )
    if request.to == candidate.recipe:
        raise InvalidError(
            f"to is {request.to}, the recipe of candidate {candidate.name}; expected a safer one, "
            "such as bf16"
        )
    if request.to == "fp8_delayed":
        raise InvalidError(
            "to is fp8_delayed, whose scales no checkpoint of another recipe has; expected one "
            "without delayed scaling, such as fp8_current"
        )
    try:
        then = LaterRecipe(recipe=request.to, from_step=1, gemms=request.gemms)
        check_later_recipe(
            then, spec.engine, str(candidate.recipe), spec.layer_policy, spec.schedule.steps
        )
        check_fork_step(spec.run_of(candidate, 0), 1)
    except SpecError as error:
        raise InvalidError(f"candidate {candidate.name} cannot be healed: {error}") from error
    return then


def _parents(
    session: Session,
    arm: Arm,
    spec: JobSpec,
    sizes: tuple[float | None, float | None, float | None],
) -> Sequence[Run]:
    """The runs of a candidate that were judged, as they were trained. Raises ConflictError where
    one cannot be forked: without it, a look would compare other runs than the verdict did.
    """
    runs = [run.source or run for run in arm.runs if run.state == "finished"]
    for run in runs:
        reason = unsound(session, run)
        if reason is None and not _kept_steps([run], spec.schedule.steps):
            reason = f"run {run.id} kept no checkpoint before its end"
        if reason is not None:
            raise ConflictError(
                f"candidate {arm.name} of job {arm.job_id} cannot be healed: {reason}; "
                f"{_keep_line(*sizes)}"
            )
    return runs


def _kept_steps(runs: Sequence[Run], run_steps: int) -> tuple[int, ...]:
    """The steps before the end of which all of these runs kept a checkpoint, ascending."""
    kept = [set(run.kept_checkpoints or ()) for run in runs]
    return tuple(step for step in sorted(set.intersection(*kept)) if 0 < step < run_steps)


def _keep_line(gap: float | None, half_width: float | None, margin: float | None) -> str:
    shares = ", ".join(f"{share:g}" for share in shares_to_keep(gap, half_width, margin))
    return (
        f"add keep_checkpoints: [{shares}] to its job file and train it again, on one process per "
        "run"
    )


def device_hours(parents: Sequence[Run], steps: float, devices: int) -> float | None:
    """What so many steps take, in device hours; None while no run tells their speed."""
    seconds = seconds_of(parents, steps)
    return None if seconds is None else seconds * devices / _HOUR


def _most_steps(
    setup: HealingSetup, parents: Sequence[Run], budget: float | None, devices: int
) -> float:
    """The largest cost in steps of training. Raises InvalidError for a budget below the least."""
    if budget is None:
        return setup.largest_cost
    step_hours = device_hours(parents, 1.0, devices)
    if step_hours is None:
        raise InvalidError(
            f"budget is {budget:g} device hours, expected none: no run tells how long a step takes"
        )
    least = setup.least_steps * step_hours
    if budget < least:
        enough = _rounded_up(least)
        raise InvalidError(
            f"budget is {budget:g} device hours, expected at least {enough}, the cost of the first "
            f"look; add --budget {enough}"
        )
    return budget / step_hours


def _rounded_up(hours: float) -> str:
    """Two digits that are not less."""
    unit = 10.0 ** (math.floor(math.log10(hours)) - 1)
    return f"{math.ceil(hours / unit) * unit:.2g}"
