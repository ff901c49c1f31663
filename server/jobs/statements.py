"""What a job's owner states of external runs where the record holds nothing, before they end or
after, and what it costs.

Nothing is ever overwritten: each fact of an arm, or of the job, can be stated once, and only if
neither the specification nor a trainer has stated it. Who said what, and when, stands in the
verdict. Before the job ends a statement is part of its verdict. Later it is part of what `:rejudge`
answers, while the recorded verdict stays. Once the runs can be judged, a second request about the
same fact is a look at the question, because its author may have seen what the first one did.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.judging.curves.curve import MAX_STEP, Curve, Rounding
from parity.judging.multiplicity import MAX_LOOKS, Multiplicity
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.secondary.conditions import TOKENS
from parity.recipes import (
    ALWAYS_STOCHASTIC,
    UNSTATED,
    RecipeError,
    check_recipe,
    check_rounding,
    rounds_to_nearest,
)
from parity.structure import frozen
from parity.wording import count
from server.curves.loading import multiplicity_of
from server.database import sessions
from server.database.sessions import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Fact, Job, Run, Statement, new_id
from server.errors import ConflictError, InvalidError
from server.jobs.noise_tables import named_noise_table
from server.records import Body

_Seeds = Annotated[list[Annotated[int, Field(ge=0, le=2**53)]], Field(min_length=1, max_length=64)]
OF_ARMS: tuple[Fact, ...] = ("recipe", "rounding", "seeds")
OF_JOBS: tuple[Fact, ...] = ("planned_steps", "tokens_per_step", "family")
_STATED = "stated later: "


@frozen
class StatementRequest(Body):
    """Facts of external runs that are on no record: by arm `recipe`, `rounding` and the `seeds` of
    its runs in their order; of the job `planned_steps`, `tokens_per_step`, and the `family` of
    reruns whose run-to-run noise all arms borrow.
    """

    recipe: Annotated[Mapping[str, str], Field(max_length=65)] = field(default_factory=dict)
    rounding: Annotated[Mapping[str, Rounding], Field(max_length=65)] = field(default_factory=dict)
    seeds: Annotated[Mapping[str, _Seeds], Field(max_length=65)] = field(default_factory=dict)
    planned_steps: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    tokens_per_step: Annotated[int, Field(ge=1, le=2**53)] | None = None
    family: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    def stated(self) -> list[tuple[Fact, str, Any]]:
        """Each fact with its arm, "" for the whole job, and its value."""
        of_arms = [
            (fact, arm, value) for fact in OF_ARMS for arm, value in getattr(self, fact).items()
        ]
        return [
            *of_arms,
            *(
                (fact, "", getattr(self, fact))
                for fact in OF_JOBS
                if getattr(self, fact) is not None
            ),
        ]


def state(session: Session, job_id: str, request: StatementRequest, who: str) -> Job:
    """Put what an owner states on record: all of it or nothing.

    ConflictError where a fact is on record already, InvalidError for a value that it cannot have.
    """
    job, runs = hold(session, job_id)
    if job.engine != "external":
        raise InvalidError(
            f"job {job_id} has engine {job.engine}, whose runs record all of this; expected a job "
            "with engine external"
        )
    facts = request.stated()
    if not facts:
        raise InvalidError(
            f"nothing is stated; expected {', '.join((*OF_ARMS, *OF_JOBS[:-1]))} or {OF_JOBS[-1]}"
        )
    now, is_late = sessions.now(session), job.status in JOB_ENDED
    # A judge that has begun reads no further statement; its claim is on the job's row.
    if not is_late and (job.judging_until or 0.0) > now:
        raise ConflictError(
            f"job {job_id} is being judged just now; state it again in a moment, when that has "
            "ended"
        )
    is_informed = all(any(run.state == "finished" for run in arm.runs) for arm in job.arms)
    for fact, arm, value in facts:
        _check(session, job, fact, arm, value)
        own = {
            "fact": fact,
            "arm": arm,
            "value": value,
            "who": who,
            "is_late": is_late,
            "is_informed": is_informed,
            "created_at": now,
        }
        job.statements.append(Statement(id=new_id("f"), job_id=job.id, **own))
        _check_together(job, arm)
    if request.planned_steps is not None:
        stop_at = job.spec.get("short_reruns", {}).get("stop_at", 1.0)
        for run in runs:
            if run.kind == "full":
                run.planned_steps = request.planned_steps
            else:
                run.planned_steps = round(stop_at * request.planned_steps)
    session.flush()
    return job


def hold(session: Session, job_id: str) -> tuple[Job, Sequence[Run]]:
    """A job with its runs, locked and as they are now. Every writer locks runs before their job."""
    job = find_job(session, job_id)
    runs = session.scalars(
        select(Run).where(Run.job_id == job_id).order_by(Run.id).with_for_update()
    ).all()
    session.refresh(job, with_for_update=True)
    session.expire(job, ["arms", "runs", "statements"])
    return job, runs


def _check(session: Session, job: Job, fact: Fact, name: str, value: Any) -> None:
    """Refuse a fact that is on record, and a value that it cannot have."""
    arm = _arm(job, name) if fact in OF_ARMS else None
    recorded = on_record(job, fact, arm)
    if recorded is not None:
        of = f" of {name}" if name else ""
        raise ConflictError(
            f"{fact}{of} is on record as {recorded}, and nothing on record is overwritten; leave "
            "it out"
        )
    if fact == "recipe":
        _valid(lambda: check_recipe(value, f"recipe of {name}"))
    if arm is not None and fact == "seeds" and len(value) != len(arm.runs):
        raise InvalidError(
            f"seeds of {name} are {count(len(value), 'number')}; expected one for each of its "
            f"{count(len(arm.runs), 'run')}"
        )
    # A shorter plan would choose the window by what the runs showed there. Trainers count from 0 or
    # from 1.
    if (
        fact == "planned_steps"
        and value < (longest := max((run.steps_done for run in job.runs), default=0)) - 1
    ):
        raise InvalidError(
            f"planned_steps is {value}, but a run has recorded step {longest - 1}; expected the "
            "length of the whole run"
        )
    if fact == "family":
        named_noise_table(session, value)


def _check_together(job: Job, name: str) -> None:
    """Refuse a rounding that contradicts the recipe of its arm, whichever was stated last."""
    if name:
        arm = _arm(job, name)
        recipe = of_arm(arm).recipe
        _valid(
            lambda: check_rounding(recipe, on_record(job, "rounding", arm), f"rounding of {name}")
        )


def _valid(check: Callable[[], None]) -> None:
    try:
        check()
    except RecipeError as error:
        raise InvalidError(str(error)) from None


def _arm(job: Job, name: str) -> Arm:
    arm = next((arm for arm in job.arms if arm.name == name), None)
    if arm is None:
        raise InvalidError(
            f"job {job.id} has no arm {name!r:.80}; its arms are "
            f"{', '.join(arm.name for arm in job.arms)}"
        )
    return arm


def on_record(job: Job, fact: Fact, arm: Arm | None = None) -> str | None:
    """What the record has of a fact of an arm, or of the job, as text; None where nobody has stated
    it.
    """
    stated = next(
        (
            each.value
            for each in job.statements
            if (each.fact, each.arm) == (fact, arm.name if arm else "")
        ),
        None,
    )
    recorded = stated if stated is not None else _recorded(job, fact, arm)
    if recorded is None:
        return None
    return _words(recorded)


def _recorded(job: Job, fact: Fact, arm: Arm | None) -> object:
    """What specification and trainers have said of a fact."""
    if arm is None:
        return {
            "planned_steps": job.planned_steps,
            "tokens_per_step": tokens_per_step(job),
            "family": family(job),
        }[fact]
    if fact == "recipe":
        if arm.recipe == UNSTATED:
            return None
        return arm.recipe
    if fact == "rounding":
        told = next(
            (run.rounding for run in (*arm.runs, *arm.short_reruns) if run.rounding is not None),
            None,
        )
        recipe = of_arm(arm).recipe
        by_definition = "stochastic" if recipe in ALWAYS_STOCHASTIC else None
        return told or ("nearest" if rounds_to_nearest(recipe) else by_definition)
    seeds = [run.stated_seed for run in arm.runs]
    if seeds.count(None) == len(seeds):
        return None
    return ["not stated" if seed is None else seed for seed in seeds]


def unstated(job: Job) -> list[tuple[Fact, str]]:
    """The facts that the owner of a job can still state, each with its arm, "" for the whole job;
    none where a worker trains it.
    """
    if job.engine != "external":
        return []
    of_arms = [
        (fact, arm.name)
        for arm in job.arms
        for fact in OF_ARMS
        if on_record(job, fact, arm) is None
    ]
    return [*of_arms, *((fact, "") for fact in OF_JOBS if on_record(job, fact) is None)]


# What the judge and the pages make of it.


@frozen
class Known:
    """What is known of an arm's runs beside their steps; None where that is on no record. `notes`
    say who stated what later.
    """

    recipe: str | None
    rounding: Rounding | None
    seeds: Sequence[int] | None
    notes: tuple[str, ...]


def of_arm(arm: Arm, *, late: bool = True) -> Known:
    """What the record and the owner say of an arm; `late`: also what was stated after the job's
    end.
    """
    made = [
        each for each in arm.job.statements if each.arm == arm.name and (late or not each.is_late)
    ]
    stated: dict[str, Any] = {each.fact: each.value for each in made}
    return Known(
        recipe=stated.get("recipe") or arm.stated_recipe,
        rounding=stated.get("rounding"),
        seeds=stated.get("seeds"),
        notes=tuple(map(note, made)),
    )


def note(made: Statement) -> str:
    """A statement as the verdict lists it."""
    of = f" of {made.arm}" if made.arm else ""
    return (
        f"{_STATED}{made.fact.replace('_', ' ')}{of}: {_words(made.value)}, by {made.who}, "
        f"{sessions.time_text(made.created_at)}"
    )


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def applied(curves: Sequence[Curve], runs: Sequence[Run], *, late: bool = True) -> list[Curve]:
    """The curves of these runs of one arm, with what its owner stated of them."""
    if not runs or runs[0].capability != "external":
        return [*curves]
    arm, job = runs[0].arm, runs[0].job
    lost = [
        f"left out: replicate {run.replicate} of {arm.name} {run.state} at step {run.steps_done}"
        for run in arm.runs
        if _is_lost(run)
    ]
    known = of_arm(arm, late=late)
    of_job = [each for each in job.statements if not each.arm and (late or not each.is_late)]
    tokens = next((each.value for each in of_job if each.fact == "tokens_per_step"), None)
    seed_of = dict(zip([run.id for run in arm.runs], known.seeds or (), strict=False))
    changed = []
    for curve, run in zip(curves, runs, strict=True):
        seed = seed_of.get(run.id)
        columns = curve.columns
        if tokens is not None and TOKENS not in columns:
            columns = {**columns, TOKENS: curve.steps.astype(np.float64) * tokens}
        changed.append(
            replace(
                curve,
                recipe=known.recipe,
                rounding=curve.rounding or known.rounding,
                seed=curve.seed if seed is None else seed,
                seed_stated=curve.seed_stated or seed is not None,
                columns=columns,
                notes=(*curve.notes, *known.notes, *map(note, of_job), *lost),
            )
        )
    return changed


def _is_lost(run: Run) -> bool:
    """Whether a run has steps that the judge does not read: a reader must learn of a run that
    failed.
    """
    return run.state in ("failed", "cancelled") and run.steps_done > 0


def family(job: Job, *, late: bool = True) -> str | None:
    """The family of reruns from which a job's arms borrow by name; None where it names none."""
    named: str | None = job.spec.get("family")
    return named or next(
        (
            each.value
            for each in job.statements
            if each.fact == "family" and (late or not each.is_late)
        ),
        None,
    )


def planned_steps(job: Job, *, late: bool = True) -> int | None:
    """The steps that the runs of a job were meant to take; None where nobody has stated them."""
    made = next((each for each in job.statements if each.fact == "planned_steps"), None)
    if late or made is None or not made.is_late:
        return job.planned_steps
    return None


def tokens_per_step(job: Job) -> int | None:
    """The tokens that each step trains on; None where nobody has stated them."""
    data = job.spec.get("data", {})
    if "batch_size" in data and "sequence_length" in data:
        return int(data["batch_size"] * data["sequence_length"])
    return next((each.value for each in job.statements if each.fact == "tokens_per_step"), None)


def looks(job: Job, policy: Policy | None, *, late: bool) -> tuple[Policy, Multiplicity | None]:
    """The policy by which a job is judged (another one, or its own), and which look at its question
    that is.

    A project's looks are counted as they are taken (`server.jobs.projects`). Of what was stated
    when the job could be judged already, one statement of each fact is free, and each later request
    about the same fact is a look more.
    """
    own = policy or policy_from_mapping(job.policy)
    shared = multiplicity_of(job) if policy is None or job.looked_at is not None else None
    requests = {
        (each.fact, each.created_at)
        for each in job.statements
        if each.is_informed and (late or not each.is_late)
    }
    further = len(requests) - len({fact for fact, _ in requests})
    if further:
        before = shared or Multiplicity(looks=own.looks, candidates=len(job.arms) - 1)
        many = min(MAX_LOOKS, before.looks + further)
        shared = replace(before, look=min(many, before.look + further), looks=many)
    return own if shared is None else replace(own, looks=shared.looks), shared
