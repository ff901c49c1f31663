"""Submits an analysis: a job of its own that explains the gap of a candidate of a job that has
ended, from the checkpoints its runs kept.

It has one run of kind `why`, which a worker of the same device class claims, and which is fenced,
cancelled and resumed like any other. It ends without a verdict: no judge, baseline, run-to-run
noise, forecast or reuse ever sees it.
"""

import math
from dataclasses import asdict, replace
from typing import Annotated

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.context import confounding_keys
from parity.judging.document_types import VerdictGapDocument
from parity_lab.analysis_plan import Origin, Setup, make_setup, replayed_whole, setup_from
from parity_lab.answer import AnalysisAnswer, answer
from parity_lab.server.forks import MOST_PARENTS, derived_job, fork_parents, kept_step, results_of
from parity_lab.server.judged_jobs import gap_words, judged_candidate, readable_spec
from parity_lab.server.replays import pairs_of, parted_pair, rates_differ, recorded, replayed_runs
from parity_lab.server.tables import Against, Analysis
from parity_lab.training.menu import Measured
from parity_lab.training.subject import subject
from server.database.lookups import find_job
from server.database.states import JOB_OPEN
from server.database.tables import Arm, Job, Run, Verdict
from server.errors import ConflictError, InvalidError, NotFoundError
from server.jobs.fingerprint import (
    Difference,
    manifest_differences,
    run_spec,
    spec_differences,
)
from server.jobs.submit import Order
from server.records import Body
from training.rules import SpecError
from training.spec import JobSpec

_MOST_STEPS = 1e9
# The spread of forks of one checkpoint, as a share of that of reruns
# (docs/design/attribution.md#forks-start-from-kept-checkpoints).
FORKS_OVER_RERUNS = 1 / 8
_PRECISION = ("recipe", "switches", "overrides", "then", "seed", "replicate")


@frozen
class WhyRequest(Body):
    """Which candidate to explain (null: the job's only one), what a GEMM takes that is off, and
    whose checkpoints are forked.

    `step`: a kept checkpoint (null: the one nearest to 60 % of the steps). `fork_steps` and
    `budget`, the largest cost in steps of training, have defaults. `whole`: replay every recorded
    step, whatever it costs. `anyway`: also explain a gap that passed, or one that forks probably
    cannot see, and runs that follow their record within the noise of reruns only.
    """

    candidate: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    against: Against = "baseline"
    origin: Origin = "baseline"
    step: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
    fork_steps: Annotated[int, Field(ge=1, le=_MOST_STEPS)] | None = None
    budget: Annotated[float, Field(gt=0, le=_MOST_STEPS, allow_inf_nan=False)] | None = None
    whole: bool = False
    anyway: bool = False


def plan_analysis(session: Session, job_id: str, question: WhyRequest) -> Analysis:
    """An analysis that could be queued, not on record yet. Raises NotFoundError, InvalidError or
    ConflictError with what to do instead.
    """
    job = find_job(session, job_id)
    analysis = session.get(Analysis, job.id)
    if analysis is not None:
        raise ConflictError(f"job {job.id} is an analysis itself; explain job {analysis.explains}")
    arm, verdict = judged_candidate(job, question.candidate, "so there is no gap to explain")
    if verdict.outcome == "pass" and not question.anyway:
        raise ConflictError(
            f"candidate {arm.name} of job {job.id} passed: its gap is "
            f"{gap_words(verdict) or 'not measured'}; add --anyway to explain it nevertheless"
        )
    spec = readable_spec(job)
    forked = arm if question.origin == "candidate" else job.arms[0]
    step = kept_step(forked, question.step, spec.schedule.steps)
    # before the parents, whose remedy is to train again
    measured = _subject(spec, arm, question, step)
    parents = fork_parents(session, forked, step)[:MOST_PARENTS]
    runs = replayed_runs(session, job.arms[0], arm, parents)
    records = [
        recorded(session, run, role) for role, role_runs in runs.items() for run in role_runs
    ]
    try:
        setup = make_setup(
            units=tuple(unit.name for unit in measured.units),
            ingredients=tuple(measured.ingredients),
            parents=tuple(parent.id for parent in parents),
            fork_step=step,
            run_steps=spec.schedule.steps,
            fork_steps=question.fork_steps,
            most_steps=question.budget,
            recorded=records,
        )
    except ValueError as error:
        raise InvalidError(str(error)) from error
    if question.whole:
        setup = replayed_whole(setup, records)
    pairs = pairs_of(runs)
    setup = replace(
        setup,
        origin=question.origin,
        rates=rates_differ(session, pairs),
        accept_noise=question.anyway,
    )
    parted = None if setup.rates else parted_pair(session, pairs, setup.replays, records)
    if parted is not None:
        raise ConflictError(
            f"{parted}; add --whole, which trains every recorded step again, before GEMMs are "
            "blamed"
        )
    _check_worth(verdict, setup, anyway=question.anyway)
    return Analysis(
        explained=job, candidate=arm.name, against=question.against, setup=asdict(setup)
    )


def differences(ours: Run, theirs: Run) -> list[Difference]:
    """What differs on record between two runs, but for their precision: specification, manifest,
    and how often each was begun.
    """
    try:
        changes = spec_differences(run_spec(ours), run_spec(theirs))
    except ValueError:  # of a version that this one cannot read
        changes = []
    spec_changes = [change for change in changes if change.key.split(".")[0] not in _PRECISION]
    facts = [
        {key: str(value) for key, value in (run.manifest or {}).items()} for run in (ours, theirs)
    ]
    confounding = confounding_keys(facts)
    manifest_changes = [
        change for change in manifest_differences(*facts) if change.key in confounding
    ]
    attempts = [str(run.attempt_number) for run in (ours, theirs)]
    if attempts[0] == attempts[1]:
        begun = []
    else:
        begun = [Difference(key="attempts", baseline=attempts[0], other=attempts[1])]
    return [*spec_changes, *manifest_changes, *begun]


def analysis_of(session: Session, job_id: str) -> Analysis:
    """The analysis that a job is, or the newest of those that explain it; NotFoundError with the
    way to one.
    """
    job = find_job(session, job_id)
    newest = (
        select(Analysis)
        .where(Analysis.explains == job.id)
        .order_by(Analysis.job_id.desc())
        .limit(1)
    )
    analysis = session.get(Analysis, job.id) or session.scalars(newest).first()
    if analysis is None:
        raise NotFoundError(f"job {job.id} has no analysis; `parity why {job.id}` plans one")
    return analysis


def submit_analysis(
    session: Session,
    job_id: str,
    question: WhyRequest,
    submitted_by: str | None = None,
    order: Order | None = None,
) -> tuple[Job, bool]:
    """The job of a queued analysis, and whether it is new: an open one with the same plan is
    returned instead. Notify the workers of a new one after the commit. Errors as `plan_analysis`.
    """
    analysis = plan_analysis(session, job_id, question)
    job, setup = analysis.explained, setup_from(analysis.setup)
    same = (
        select(Analysis)
        .join(Job, Job.id == Analysis.job_id)
        .where(Analysis.explains == job.id, Job.status.in_(sorted(JOB_OPEN)))
    )
    for other in session.scalars(same):
        if (other.candidate, other.against, setup_from(other.setup)) == (
            analysis.candidate,
            analysis.against,
            setup,
        ):
            return other.job, False
    whole = readable_spec(job)
    candidate = next(arm for arm in whole.candidates if arm.name == analysis.candidate)
    spec = replace(
        whole,
        name=f"why: {candidate.name} of {job.name}"[:200],
        baseline=replace(whole.baseline, replicates=1),
        candidates=(replace(candidate, replicates=1),),
        short_reruns=None,
        family=None,
        keep_checkpoints=(),
    )
    first = session.get_one(Run, setup.parents[0])
    steps = math.ceil(setup.most_steps)
    run = {
        "kind": "why",
        "seed": first.seed,
        "replicate": first.replicate,
        "forked_from": first.id,
        "planned_steps": steps,
    }
    analysis.job = derived_job(session, job, spec, submitted_by, order or Order(), [(1, run)])
    session.add(analysis)
    return analysis.job, True


def answer_of(session: Session, analysis: Analysis) -> AnalysisAnswer:
    """What the results on record say. Raises ValueError for forks that tell nothing."""
    return answer(setup_from(analysis.setup), results_of(session, analysis.job_id))


def _subject(spec: JobSpec, arm: Arm, question: WhyRequest, step: int) -> Measured:
    candidate = spec.run_of(spec.arms[arm.position], 0)
    baseline = spec.run_of(spec.baseline, 0) if question.against == "baseline" else None
    if question.fork_steps is None:
        length = min(candidate.schedule.steps - step, 1)
    else:
        length = question.fork_steps
    try:
        return subject(candidate, baseline, step, length)
    except SpecError as error:
        raise InvalidError(f"candidate {arm.name} cannot be analysed: {error}") from error


def smallest_effect(verdict: Verdict, setup: Setup) -> float | None:
    """The smallest part of a verdict's gap that an analysis would see; None without a gap."""
    gap: VerdictGapDocument | None = verdict.read_document().get("gap")
    if gap is None or not math.isfinite(gap["se"]):
        return None
    arms = (
        arm for arm in verdict.job.arms if arm.role == "baseline" or arm.name == verdict.candidate
    )
    runs = min(sum(run.state == "finished" for run in arm.runs) for arm in arms)
    rerun_sd = gap["se"] * math.sqrt(max(1, runs) / 2)
    return setup.smallest_effect(FORKS_OVER_RERUNS * rerun_sd)


def _check_worth(verdict: Verdict, setup: Setup, *, anyway: bool) -> None:
    """Refuse a budget below the least cost, and forks that probably cannot see the gap."""
    if setup.most_steps < setup.least_steps:
        raise InvalidError(
            f"budget is {setup.most_steps:,.0f} steps, expected at least {setup.least_steps:,.0f} "
            f"(the splits and the unchanged forks alone); about {setup.steps_for_one:,.0f} find "
            "one GEMM to which the gradient points"
        )
    smallest = smallest_effect(verdict, setup)
    if (
        verdict.gap is not None
        and smallest is not None
        and smallest > abs(verdict.gap)
        and not anyway
    ):
        raise ConflictError(
            f"the gap is {gap_words(verdict) or 'not measured'}, and forks would probably see "
            f"effects from {smallest:.4f} nats per GEMM "
            "on; keep checkpoints of more runs, or add --anyway to explain it nevertheless"
        )
