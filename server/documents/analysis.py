"""An analysis as the API and the pages show it: what it explains, what it costs, and what it says so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from parity.why.setup import Origin
from server.database.lab_tables import Against, Analysis
from server.database.tables import JobStatus
from server.jobs.analyses import PlannedAnalysis, answer_of, plan_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGap:
    """The verdict on the candidate: its gap with the interval that decided, in nats; null where it was not measured."""

    verdict: Literal["pass", "fail", "inconclusive"]
    gap: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisPlan:
    """What an analysis measures and costs. Costs are in steps of training; a pair of full runs has `pair_steps`.

    `least_steps` if no unit has an effect, `steps_for_one` if one has to which the gradient points, `most_steps` is where the search
    stops, by default enough for one unit to which nothing points. `smallest_effect`: nats that the test of one unit sees with 80 % power
    if forks vary an eighth as much as reruns. `seconds`: about how long `steps_for_one` take; null while that is unknown.
    """

    explains: str
    explains_name: str
    candidate: str
    against: Against
    origin: Origin
    gap: ExplainedGap
    units: list[str]
    ingredients: list[str]
    parents: list[str]
    fork_step: int
    fork_steps: int
    least_steps: float
    steps_for_one: float
    most_steps: float
    pair_steps: int
    smallest_effect: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisDocument:
    """An analysis: a job of its own, its plan, and its answer (`parity.why.answer.Answer`).

    While it runs the answer is what the results on record say.
    """

    job: str
    status: JobStatus
    code: str | None
    message: str | None
    plan: AnalysisPlan
    answer: Mapping[str, Any] | None


def plan_document(planned: PlannedAnalysis) -> AnalysisPlan:
    """A plan."""
    setup, verdict = planned.setup, planned.verdict
    return AnalysisPlan(
        explains=planned.job.id,
        explains_name=planned.job.name,
        candidate=planned.arm.name,
        against=planned.against,
        origin=setup.origin,
        gap=ExplainedGap(verdict=verdict.outcome, gap=verdict.gap, low=verdict.ci_low, high=verdict.ci_high),
        units=list(setup.units),
        ingredients=list(setup.ingredients),
        parents=list(setup.parents),
        fork_step=setup.fork_step,
        fork_steps=setup.fork_steps,
        least_steps=setup.plan.least_steps,
        steps_for_one=setup.plan.steps_for_one,
        most_steps=setup.most_steps,
        pair_steps=setup.pair_steps,
        smallest_effect=planned.smallest_effect,
        seconds=planned.seconds,
    )


def analysis_document(session: Session, analysis: Analysis) -> AnalysisDocument:
    """An analysis on record."""
    job = analysis.job
    return AnalysisDocument(
        job=job.id,
        status=job.status,
        code=job.code,
        message=job.message,
        plan=plan_document(plan_of(session, analysis)),
        answer=_answer(session, analysis),
    )


def _answer(session: Session, analysis: Analysis) -> Mapping[str, Any] | None:
    if analysis.answer is not None:
        return analysis.answer
    try:
        return answer_of(session, analysis)
    except ValueError:  # forks that tell nothing: the run says so
        return None
