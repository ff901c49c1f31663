"""An analysis as the API and the pages show it: what it explains, what it costs, and what it says
so far.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity_lab.analysis_plan import Origin, Setup, setup_from
from parity_lab.replay import Replay
from parity_lab.server.analyses import analysis_of, answer_of, differences, smallest_effect
from parity_lab.server.forks import (
    seconds_of,
)
from parity_lab.server.tables import Against, Analysis
from server.database.tables import JobStatus, Run, Verdict
from server.jobs.fingerprint import (
    Difference,
)
from server.records import from_attributes


@frozen
class ExplainedGap:
    """The verdict on the candidate: its gap with the interval that decided, in nats; null where it
    was not measured.
    """

    verdict: Literal["pass", "fail", "inconclusive"]
    gap: float | None
    low: float | None
    high: float | None


@frozen
class AnalysisPlan:
    """What an analysis measures and costs. Costs are in steps of training; a pair of full runs has
    `pair_steps`.

    `least_steps` if no GEMM has an effect, `steps_for_one` if one has to which the gradient points,
    `most_steps` is where the search stops, by default enough for one GEMM to which nothing points.
    `smallest_effect`: nats that the test of one GEMM sees with 80 % power if forks vary an eighth
    as much as reruns. `seconds`: about how long `steps_for_one` take; null while that is unknown.
    `replays` are the recorded steps that are trained again first, `differences` what differs on
    record between the arms apart from their precision.
    """

    explains: str
    explains_name: str
    candidate: str
    against: Against
    origin: Origin
    gap: ExplainedGap
    gemms: Sequence[str]
    ingredients: Sequence[str]
    parents: Sequence[str]
    fork_step: int
    fork_steps: int
    least_steps: float
    steps_for_one: float
    most_steps: float
    pair_steps: int
    smallest_effect: float | None
    seconds: float | None
    replays: Sequence[Replay]
    differences: list[Difference]


@frozen
class AnalysisDocument:
    """An analysis: a job of its own, its plan, and its answer (`parity_lab.answer.AnalysisAnswer`).

    While it runs the answer is what the results on record say.
    """

    job: str
    status: JobStatus
    code: str | None
    message: str | None
    plan: AnalysisPlan
    answer: Mapping[str, Any] | None


def plan_document(session: Session, analysis: Analysis) -> AnalysisPlan:
    """The plan of an analysis, on record or not."""
    job, setup = analysis.explained, setup_from(analysis.setup)
    verdict = next(row for row in job.verdicts if row.candidate == analysis.candidate)
    return from_attributes(
        AnalysisPlan,
        setup,
        gemms=setup.units,
        explains=job.id,
        explains_name=job.name,
        candidate=analysis.candidate,
        against=analysis.against,
        gap=explained_gap(verdict),
        smallest_effect=smallest_effect(verdict, setup),
        seconds=seconds_of(
            [session.get_one(Run, parent) for parent in setup.parents], setup.steps_for_one
        ),
        differences=_differences(session, setup),
    )


def _differences(session: Session, setup: Setup) -> list[Difference]:
    """Between the first runs of the arms that are replayed, by key."""
    first = {replay.arm: replay.run for replay in reversed(setup.replays)}
    rows: list[Difference] = []
    if setup.rates is not None:
        rates = (f"{rate:.6g}" for rate in (setup.rates.baseline, setup.rates.candidate))
        rows = [
            Difference(
                key=f"learning rate at step {setup.rates.step}",
                baseline=next(rates),
                other=next(rates),
            )
        ]
    if len(first) == 2:
        rows += differences(
            *(session.get_one(Run, first[role]) for role in ("baseline", "candidate"))
        )
    return rows


def explained_gap(verdict: Verdict) -> ExplainedGap:
    """The gap of a verdict that an analysis explains."""
    return from_attributes(
        ExplainedGap, verdict, verdict=verdict.outcome, low=verdict.ci_low, high=verdict.ci_high
    )


def analysis_document(session: Session, job_id: str) -> AnalysisDocument:
    """The analysis that a job is, or the newest of those that explain it; NotFoundError with the
    way to one.
    """
    analysis = analysis_of(session, job_id)
    return from_attributes(
        AnalysisDocument,
        analysis.job,
        job=analysis.job_id,
        plan=plan_document(session, analysis),
        answer=_answer(session, analysis),
    )


def _answer(session: Session, analysis: Analysis) -> Mapping[str, Any] | None:
    if analysis.answer is not None:
        return analysis.answer
    try:
        return answer_of(session, analysis)
    except ValueError:  # forks that tell nothing: the run says so
        return None
