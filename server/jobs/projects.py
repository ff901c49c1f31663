"""Projects: jobs of external runs without a job file. The first run of an arm makes what it needs;
whoever owns the project concludes it.

A project is an open job of engine external. Each of its owner's trainers names the project, its arm
and its seed; the baseline is that which the first one names, else the first arm. An open job takes
further arms and runs, and is not judged by itself: `:rejudge` answers at any time, and `conclude`
records the verdict under the default policy and closes the job. A later run of that project begins
another job, whose baseline must be known: a replicate of a candidate that came first would else
become it. A policy of one's own is registered before the runs, in a job file. Who judges and adds
runs until it passes has looked more than once: each judging with other finished runs, or with more
statements, is counted, and shares the error.
"""

import time
from dataclasses import asdict
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.curve import MAX_STEP
from parity.judging.policy import NVFP4, Policy
from parity.recipes import OTHER, RECIPES, UNSTATED, RecipeError, check_recipe
from parity.wording import count
from server.database import clock, tables
from server.database.locks import hold_lock
from server.database.lookups import find_job
from server.database.states import JOB_OPEN, RUN_ENDED
from server.database.tables import Arm, Job, Run
from server.errors import ConflictError, InvalidError
from server.jobs import applied_statements, lifecycle, statements
from server.jobs.submit import announce_new
from server.records import Body
from server.settings import Settings
from training.spec import MOST_CANDIDATES, ArmSpec

_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
_MOST_SEED = 2**53


@frozen
class ProjectRun:
    """The run of a project for a trainer; whether it is new, and the ended job of that project, if
    the run began another one.
    """

    run: Run
    is_new: bool
    after: str | None


@frozen
class RunRequest(Body):
    """A run of a project's arm. Without `seed` it is a run of its own each time; with one, a
    trainer that restarts goes on with its run.

    The baseline is the arm that the project's first run names as `baseline`, else that run's own
    arm. Once the project has ended, a run begins another job and must name the baseline, unless its
    own arm was the baseline. `recipe` and `planned_steps` are recorded when they are first stated;
    later requests may leave all three out, and must not contradict them.
    """

    project: Annotated[str, Field(min_length=1, max_length=200)]
    arm: Annotated[str, Field(pattern=_NAME)]
    baseline: Annotated[str, Field(pattern=_NAME)] | None = None
    seed: Annotated[int, Field(ge=0, le=_MOST_SEED)] | None = None
    recipe: Annotated[str, Field(max_length=100)] | None = None
    planned_steps: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None


def run_of(
    session: Session, settings: Settings, request: RunRequest, who: str, key: str | None
) -> ProjectRun:
    """The run of a project for a trainer. `key` is the trainer's name for this request: it gets one
    run for it.

    ConflictError where it contradicts what is on record or the project has ended and no baseline is
    named, InvalidError for a recipe that is not known and for too many arms or runs.
    """
    project = request.project
    if not project.strip() or not project.isprintable():
        raise InvalidError(f"project is {project!r:.80}; expected printable characters")
    try:
        check_recipe(request.recipe)
    except RecipeError as error:
        raise InvalidError(str(error)) from None
    hold_lock(session, f"project {who} {project}")
    is_project = (Job.name == project, Job.looked_at.is_not(None), Job.submitted_by == who)
    newest = session.scalars(
        select(Job).where(*is_project).order_by(Job.id.desc()).limit(1)
    ).first()
    ended = newest if newest and not (newest.is_open and newest.status in JOB_OPEN) else None
    job = None if ended else newest
    if job is None:
        if ended is not None:
            _check_baseline(request, ended)
        job = _new_job(request, who)
        session.add(job)
        session.flush()
        announce_new(session, job)
    else:
        statements.lock_job_with_runs(session, job.id)
    if request.baseline not in (None, job.arms[0].name):
        what = (
            f"baseline is {request.baseline}, but {job.arms[0].name} is that of project {project}, "
            f"job {job.id}"
        )
        raise ConflictError(f"{what}; expected one baseline for all runs")
    arm = next((arm for arm in job.arms if arm.name == request.arm), None) or _new_arm(job, request)
    session.flush()
    _note_facts(session, job, arm, request, who)
    run = _going_on(arm, request.seed, key)
    if run is not None:
        if key is not None and key not in (run.asked_by or ()):
            run.asked_by = [*(run.asked_by or ()), key]
        return ProjectRun(run=run, is_new=False, after=None)
    if len(job.runs) >= settings.max_runs_per_job:
        raise InvalidError(
            f"project {project} has {len(job.runs)} runs, the most of one job "
            "(PARITY_MAX_RUNS_PER_JOB); conclude it first"
        )
    run = _new_run(session, job, arm, request, key)
    begins = ended is not None and len(job.runs) == 1
    return ProjectRun(run=run, is_new=True, after=ended.id if ended and begins else None)


def _check_baseline(request: RunRequest, ended: Job) -> None:
    """Raise ConflictError where the baseline of the job after an ended one would be a guess."""
    baseline = ended.arms[0].name
    how = "concluded" if ended.status in JOB_OPEN else ended.status  # the judge may be at it
    if request.baseline is None and request.arm != baseline:
        raise ConflictError(
            f"project {request.project} is {how} (job {ended.id}) and takes no further run; a run "
            f"of {request.arm} would begin another job and be its baseline. To begin one against "
            f'{baseline}, give the run baseline="{baseline}"; steps that were '
            f"logged without it go there with `parity resend FILE --baseline {baseline}`"
        )


def _new_job(request: RunRequest, who: str) -> Job:
    """A project with its baseline, which may have no run yet."""
    if request.baseline in (None, request.arm):
        first = request
    else:
        first = RunRequest(project=request.project, arm=request.baseline or "")
    job = Job(
        id=tables.new_id("j"),
        name=request.project,
        status="queued",
        engine="external",
        capability="external",
        spec={
            "name": request.project,
            "engine": "external",
            "baseline": _described(first),
            "candidates": [],
        },
        devices=1,
        policy=Policy(profile=NVFP4).document(),
        submitted_by=who,
        reuse=False,
        is_open=True,
        looked_at=0,
        created_at=time.time(),
    )
    _new_arm(job, first)
    return job


def _described(request: RunRequest) -> dict[str, object]:
    """An arm as a specification has it."""
    return asdict(ArmSpec(name=request.arm, recipe=_recipe(request)))


def _recipe(request: RunRequest) -> str:
    """The recipe of a new arm, where it is a word that a specification has; a recipe with switches
    is a statement (`_note_facts`).
    """
    recipe = request.recipe
    if recipe is not None and (recipe in RECIPES or recipe.startswith(OTHER)):
        return recipe
    return UNSTATED


def _new_arm(job: Job, request: RunRequest) -> Arm:
    if len(job.arms) > MOST_CANDIDATES:
        raise InvalidError(
            f"project {job.name} has {len(job.arms)} arms, the most of one job; conclude it first"
        )
    described = _described(request)
    if job.arms:
        job.spec = {**job.spec, "candidates": [*job.spec["candidates"], described]}
    role: tables.Role = "candidate" if job.arms else "baseline"
    arm = Arm(
        id=tables.new_id("a"),
        position=len(job.arms),
        name=request.arm,
        role=role,
        recipe=_recipe(request),
    )
    job.arms.append(arm)
    return arm


def _going_on(arm: Arm, seed: int | None, key: str | None) -> Run | None:
    """The run that this trainer goes on with: that of its key, else the arm's run of its seed that
    has not ended.
    """
    for run in arm.runs:
        if key is not None and key in (run.asked_by or ()):
            return run
    return next(
        (
            run
            for run in arm.runs
            if seed is not None and run.stated_seed == seed and run.state not in RUN_ENDED
        ),
        None,
    )


def _new_run(session: Session, job: Job, arm: Arm, request: RunRequest, key: str | None) -> Run:
    run = Run(
        id=tables.new_id("r"),
        arm_id=arm.id,
        position=len(job.runs),
        seed=request.seed or 0,
        has_seed=request.seed is not None,
        replicate=sum(other.stated_seed == request.seed for other in arm.runs),
        capability="external",
        state="awaiting_data",
        planned_steps=job.planned_steps,
        asked_by=[key] if key else [],
        created_at=clock.now(session),
    )
    job.runs.append(run)
    session.flush()
    session.refresh(arm, ["runs"])
    return run


def _note_facts(session: Session, job: Job, arm: Arm, request: RunRequest, who: str) -> None:
    """Record recipe and length where they are first stated; ConflictError where they contradict
    what is on record.
    """
    recorded = applied_statements.arm_facts(arm).recipe
    if request.recipe is not None and recorded not in (None, request.recipe):
        raise ConflictError(
            f"recipe of {arm.name} is {request.recipe}, but {recorded} is on record; expected one "
            "recipe in an arm"
        )
    if request.planned_steps is not None and job.planned_steps not in (None, request.planned_steps):
        length = f"planned_steps is {request.planned_steps}, but {job.planned_steps} are on record"
        raise ConflictError(f"{length}; expected one length for all runs")
    facts = statements.StatementRequest(
        recipe={arm.name: request.recipe}
        if request.recipe is not None and recorded is None
        else {},
        planned_steps=request.planned_steps if job.planned_steps is None else None,
    )
    if facts.stated():
        statements.record_statement(session, job.id, facts, who)


def look(session: Session, job_id: str) -> None:
    """Count a look at a project, unless the same runs with the same statements were judged before.
    Call it before it is judged.
    """
    job, runs = statements.lock_job_with_runs(session, job_id)
    facts = sum(run.state == "finished" for run in runs) + len(job.statements)
    if job.looked_at is not None and facts > job.looked_at and _lacking(job) is None:
        job.looked_at = facts
        job.look, job.look_candidates = (job.look or 0) + 1, max(1, len(job.arms) - 1)
        session.flush()


def close(session: Session, job_id: str) -> Job:
    """Close a project, so that it is judged; runs without a step are cancelled.

    ConflictError for another job, where a run has steps and has not ended, and where an arm has no
    finished run.
    """
    job = find_job(session, job_id)
    hold_lock(session, f"project {job.submitted_by} {job.name}")
    job, runs = statements.lock_job_with_runs(session, job_id)
    if not job.is_open or job.status not in JOB_OPEN:
        raise ConflictError(
            f"job {job_id} is {job.status}; expected an open project, which takes runs without a "
            "job file"
        )
    waiting = [run for run in runs if run.state not in RUN_ENDED]
    if begun := [run for run in waiting if run.state == "running" or run.steps_done]:
        # A run that broke off may have diverged: who leaves it out decides by its curve.
        named = ", ".join(
            f"{run.arm.name} {run.id} ({run.state.replace('_', ' ')})" for run in begun[:3]
        )
        remedy = "let it finish, or end it as failed: parity runs fail RUN"
        raise ConflictError(
            f"project {job.name} has {count(len(begun), 'run')} with steps that has not ended: "
            f"{named}; {remedy}"
        )
    if lacking := _lacking(job):
        raise ConflictError(
            f"project {job.name} cannot be judged: {lacking}; expected a baseline and a candidate "
            "with a finished run each"
        )
    for run in waiting:
        lifecycle.cancel(session, run, message="the project was concluded")
    look(session, job_id)
    job.is_open = False
    session.flush()
    return job


def _lacking(job: Job) -> str | None:
    """What a project lacks to be judged, or None."""
    if len(job.arms) < 2:
        return f"it has one arm, {job.arms[0].name}"
    name = next(
        (arm.name for arm in job.arms if not any(run.state == "finished" for run in arm.runs)), None
    )
    return name and f"arm {name} has no finished run"
