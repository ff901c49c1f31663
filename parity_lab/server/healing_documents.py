"""A healing as the API and the pages show it: its plan with its cost, its answer so far, and the
job that it proposes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity_lab.healing import HealingSetup, setup_from
from parity_lab.server.documents import ExplainedGap, explained_gap
from parity_lab.server.healings import (
    answer_so_far,
    arm_of,
    device_hours,
    healing_of,
    switched,
    then_at,
)
from parity_lab.server.judged_jobs import readable_spec
from parity_lab.server.tables import Healing
from server.database.tables import JobStatus, Run, Verdict
from server.records import from_attributes
from training.rules import OTHERS_TRAINERS
from training.spec import JobSpec

_EMULATED = "emulated"


@frozen
class HealingPlan:
    """What a healing looks at and costs. `gap` is that of the candidate's verdict, `margin` in
    nats; `recipe` and `gemms` are those of the rest of the run.

    All `parents` kept checkpoints of `steps`. At most `most_looks` of them are looked at, each with
    the error of one verdict divided by their number. `least_steps`: the first look, `most_steps`:
    where the search stops, in steps of training, of which a full run has `run_steps`; in device
    hours null while no run tells their speed. `speedup`: how much faster than the baseline the
    candidate trained; null where the engine is emulated, or its steps have no times.
    """

    heals: str
    heals_name: str
    candidate: str
    baseline: str
    recipe: str
    gemms: str
    gap: ExplainedGap
    margin: float | None
    parents: Sequence[str]
    steps: Sequence[int]
    run_steps: int
    most_looks: int
    least_steps: float
    most_steps: float
    least_device_hours: float | None
    most_device_hours: float | None
    speedup: float | None


@frozen
class HealingProposal:
    """The job whose own verdict would be the pass: what to call it, the patch that makes it of the
    healed job (POST `:again`), and the line of the job file.
    """

    label: str
    patch: Mapping[str, Any]
    line: str


@frozen
class HealingDocument:
    """A healing: a job of its own, its plan, its answer
    (`parity_lab.healing_answer.HealingAnswer`), and the job that it proposes; null before a switch
    passes, or is estimated to.

    While it runs, and where it was cancelled or failed, the answer is what the looks on record say:
    the error of each is shared by all that could be looked at, so it stands. It is never a pass: no
    gate, baseline or sign-off takes it.
    """

    kind: Literal["healing"]
    job: str
    status: JobStatus
    code: str | None
    message: str | None
    plan: HealingPlan
    answer: Mapping[str, Any]
    proposal: HealingProposal | None


def healing_plan_document(session: Session, healing: Healing) -> HealingPlan:
    """The plan of a healing, on record or not."""
    job, setup = healing.healed, setup_from(healing.setup)
    verdict = next(row for row in job.verdicts if row.candidate == healing.candidate)
    parents = [session.get_one(Run, parent) for parent in setup.parents]
    return from_attributes(
        HealingPlan,
        setup,
        heals=job.id,
        heals_name=job.name,
        candidate=healing.candidate,
        baseline=job.arms[0].name,
        gap=explained_gap(verdict),
        least_device_hours=device_hours(parents, setup.least_steps, job.devices),
        most_device_hours=device_hours(parents, setup.most_steps, job.devices),
        speedup=_speedup(verdict, job.engine),
    )


def healing_document(session: Session, job_id: str) -> HealingDocument:
    """The healing that a job is, or the newest one of its candidates; NotFoundError with the way to
    one.
    """
    healing = healing_of(session, job_id)
    answer = healing.answer
    if answer is None:
        answer = dict(answer_so_far(session, healing))
    return from_attributes(
        HealingDocument,
        healing.job,
        kind="healing",
        job=healing.job_id,
        plan=healing_plan_document(session, healing),
        answer=answer,
        proposal=_proposal(healing, setup_from(healing.setup), answer),
    )


def _proposal(
    healing: Healing, setup: HealingSetup, answer: Mapping[str, Any]
) -> HealingProposal | None:
    """The candidate with its later recipe, as a job of its own: from the switch that passes, else
    from the one that is estimated to.
    """
    switch, label = answer["switch"], "Train"
    if switch is None and answer["outcome"] == "open" and answer["complete"]:
        switch, label = answer.get("estimate"), "With more runs of both arms, train"
    if switch is None:
        return None
    spec = readable_spec(healing.healed)
    candidate = arm_of(spec, healing.candidate)
    then = then_at(setup, switch)
    arm = switched(candidate, then)
    proposed: JobSpec = replace(spec, candidates=(arm,))
    document = dict(proposed.document()["candidates"][0])
    scope = ", gemms: forward" if then.gemms == "forward" else ""
    return HealingProposal(
        label=f"{label} {candidate.name}, then {then.recipe} from step {switch:,}",
        patch={"job": {"candidates": [document]}},
        line=f"then: {{recipe: {then.recipe}, from_step: {switch}{scope}}}",
    )


def _speedup(verdict: Verdict, engine: str) -> float | None:
    """How much faster than the baseline the candidate trained, where its steps ran on the real
    arithmetic.
    """
    throughput = verdict.read_document()["throughput"]
    if throughput is None or engine == _EMULATED or engine in OTHERS_TRAINERS:
        return None
    return throughput["baseline_step_seconds"] / throughput["candidate_step_seconds"]
