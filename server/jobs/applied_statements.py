"""What the judge and the pages make of what a job's owner stated (`server.jobs.statements`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, Rounding
from parity.judging.document_types import STATED_LATER
from parity.judging.multiplicity import MAX_LOOKS, Multiplicity
from parity.judging.policy import Policy
from parity.judging.secondary.conditions import TOKENS
from server.database import clock
from server.database.tables import Arm, Job, Run, Statement
from server.jobs.multiplicity import multiplicity_of


@frozen
class ArmFacts:
    """What is known of an arm's runs beside their steps; None where that is on no record. `notes`
    say who stated what later.
    """

    recipe: str | None
    rounding: Rounding | None
    seeds: Sequence[int] | None
    notes: tuple[str, ...]


def arm_facts(arm: Arm, *, late: bool = True) -> ArmFacts:
    """What the record and the owner say of an arm; `late`: also what was stated after the job's
    end.
    """
    statements = [
        statement
        for statement in arm.job.statements
        if statement.arm == arm.name and (late or not statement.is_late)
    ]
    stated: dict[str, Any] = {statement.fact: statement.value for statement in statements}
    return ArmFacts(
        recipe=stated.get("recipe") or arm.stated_recipe,
        rounding=stated.get("rounding"),
        seeds=stated.get("seeds"),
        notes=tuple(map(note, statements)),
    )


def note(statement: Statement) -> str:
    """A statement as the verdict lists it."""
    whose = f" of {statement.arm}" if statement.arm else ""
    return (
        f"{STATED_LATER}{statement.fact.replace('_', ' ')}{whose}: {words(statement.value)}, "
        f"by {statement.who}, {clock.time_text(statement.created_at)}"
    )


def words(value: object) -> str:
    """A stated or recorded value as a sentence has it."""
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
    facts = arm_facts(arm, late=late)
    stated_of_job = [
        statement
        for statement in job.statements
        if not statement.arm and (late or not statement.is_late)
    ]
    tokens = next(
        (statement.value for statement in stated_of_job if statement.fact == "tokens_per_step"),
        None,
    )
    seed_of = dict(zip([run.id for run in arm.runs], facts.seeds or (), strict=False))
    changed = []
    for curve, run in zip(curves, runs, strict=True):
        seed = seed_of.get(run.id)
        columns = curve.columns
        if tokens is not None and TOKENS not in columns:
            columns = {**columns, TOKENS: curve.steps.astype(np.float64) * tokens}
        changed.append(
            replace(
                curve,
                recipe=facts.recipe,
                rounding=curve.rounding or facts.rounding,
                seed=curve.seed if seed is None else seed,
                seed_stated=curve.seed_stated or seed is not None,
                columns=columns,
                notes=(*curve.notes, *facts.notes, *map(note, stated_of_job), *lost),
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
            statement.value
            for statement in job.statements
            if statement.fact == "family" and (late or not statement.is_late)
        ),
        None,
    )


def planned_steps(job: Job, *, late: bool = True) -> int | None:
    """The steps that the runs of a job were meant to take; None where nobody has stated them."""
    stated = next(
        (statement for statement in job.statements if statement.fact == "planned_steps"), None
    )
    if late or stated is None or not stated.is_late:
        return job.planned_steps
    return None


def tokens_per_step(job: Job) -> int | None:
    """The tokens that each step trains on; None where nobody has stated them."""
    data = job.spec.get("data", {})
    if "batch_size" in data and "sequence_length" in data:
        return int(data["batch_size"] * data["sequence_length"])
    return next(
        (statement.value for statement in job.statements if statement.fact == "tokens_per_step"),
        None,
    )


def looks(job: Job, policy: Policy | None, *, late: bool) -> tuple[Policy, Multiplicity | None]:
    """The policy by which a job is judged (another one, or its own), and which look at its question
    that is.

    A project's looks are counted as they are taken (`server.jobs.projects`). Of what was stated
    when the job could be judged already, one statement of each fact is free, and each later request
    about the same fact is a look more.
    """
    judged_by = policy or job.read_policy()
    shared = multiplicity_of(job) if policy is None or job.looked_at is not None else None
    requests = {
        (statement.fact, statement.created_at)
        for statement in job.statements
        if statement.is_informed and (late or not statement.is_late)
    }
    further = len(requests) - len({fact for fact, _ in requests})
    if further:
        before = shared or Multiplicity(looks=judged_by.looks, candidates=len(job.arms) - 1)
        many = min(MAX_LOOKS, before.looks + further)
        shared = replace(before, look=min(many, before.look + further), looks=many)
    return judged_by if shared is None else replace(judged_by, looks=shared.looks), shared
