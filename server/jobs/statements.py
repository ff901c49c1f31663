"""What a job's owner states of external runs where the record holds nothing, before they end or
after, and what it costs.

Nothing is ever overwritten: each fact of an arm, or of the job, can be stated once, and only if
neither the specification nor a trainer has stated it. Who said what, and when, stands in the
verdict. Before the job ends a statement is part of its verdict. Later it is part of what `:rejudge`
answers, while the recorded verdict stays. Once the runs can be judged, a second request about the
same fact is a look at the question, because its author may have seen what the first one did.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.curve import MAX_STEP, Rounding
from parity.recipes import (
    ALWAYS_STOCHASTIC,
    UNSTATED,
    RecipeError,
    check_recipe,
    check_rounding,
    rounds_to_nearest,
)
from parity.wording import count
from server.database import clock
from server.database.lookups import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Fact, Job, Run, Statement, new_id
from server.errors import ConflictError, InvalidError
from server.jobs.applied_statements import arm_facts, family, tokens_per_step, words
from server.jobs.evaluations import check_takes_runs
from server.jobs.imported_noise import named_noise_table
from server.records import Body

_Seeds = Annotated[list[Annotated[int, Field(ge=0, le=2**53)]], Field(min_length=1, max_length=64)]
ARM_FACTS: tuple[Fact, ...] = ("recipe", "rounding", "seeds")
JOB_FACTS: tuple[Fact, ...] = ("planned_steps", "tokens_per_step", "family")


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
        arm_statements = [
            (fact, arm, value) for fact in ARM_FACTS for arm, value in getattr(self, fact).items()
        ]
        return [
            *arm_statements,
            *(
                (fact, "", getattr(self, fact))
                for fact in JOB_FACTS
                if getattr(self, fact) is not None
            ),
        ]


def record_statement(session: Session, job_id: str, request: StatementRequest, who: str) -> Job:
    """Put what an owner states on record: all of it or nothing.

    ConflictError where a fact is on record already, InvalidError for a value that it cannot have.
    """
    job, runs = lock_job_with_runs(session, job_id)
    check_takes_runs(job, "state what is known where they are sent: `parity compare --push`")
    if job.engine != "external":
        raise InvalidError(
            f"job {job_id} has engine {job.engine}, whose runs record all of this; expected a job "
            "with engine external"
        )
    facts = request.stated()
    if not facts:
        raise InvalidError(
            f"nothing is stated; expected {', '.join((*ARM_FACTS, *JOB_FACTS[:-1]))} or "
            f"{JOB_FACTS[-1]}"
        )
    now, is_late = clock.now(session), job.status in JOB_ENDED
    # A judge that has begun reads no further statement; its claim is on the job's row.
    if not is_late and (job.judging_until or 0.0) > now:
        raise ConflictError(
            f"job {job_id} is being judged just now; state it again in a moment, when that has "
            "ended"
        )
    is_informed = all(any(run.state == "finished" for run in arm.runs) for arm in job.arms)
    for fact, arm, value in facts:
        _check(session, job, fact, arm, value)
        columns = {
            "fact": fact,
            "arm": arm,
            "value": value,
            "who": who,
            "is_late": is_late,
            "is_informed": is_informed,
            "created_at": now,
        }
        job.statements.append(Statement(id=new_id("f"), job_id=job.id, **columns))
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


def lock_job_with_runs(session: Session, job_id: str) -> tuple[Job, Sequence[Run]]:
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
    arm = _arm(job, name) if fact in ARM_FACTS else None
    recorded = recorded_value(job, fact, arm)
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
        recipe = arm_facts(arm).recipe
        _valid(
            lambda: check_rounding(
                recipe, recorded_value(job, "rounding", arm), f"rounding of {name}"
            )
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


def recorded_value(job: Job, fact: Fact, arm: Arm | None = None) -> str | None:
    """What the record has of a fact of an arm, or of the job, as text; None where nobody has stated
    it.
    """
    stated = next(
        (
            statement.value
            for statement in job.statements
            if (statement.fact, statement.arm) == (fact, arm.name if arm else "")
        ),
        None,
    )
    recorded = stated if stated is not None else _recorded(job, fact, arm)
    if recorded is None:
        return None
    return words(recorded)


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
        rounding = next(
            (run.rounding for run in (*arm.runs, *arm.short_reruns) if run.rounding is not None),
            None,
        )
        recipe = arm_facts(arm).recipe
        by_definition = "stochastic" if recipe in ALWAYS_STOCHASTIC else None
        return rounding or ("nearest" if rounds_to_nearest(recipe) else by_definition)
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
    unstated_of_arms = [
        (fact, arm.name)
        for arm in job.arms
        for fact in ARM_FACTS
        if recorded_value(job, fact, arm) is None
    ]
    return [
        *unstated_of_arms,
        *((fact, "") for fact in JOB_FACTS if recorded_value(job, fact) is None),
    ]
