"""Analyses on the record: submitted from kept checkpoints, their results and answer, and the parts
of a gap from a user's own runs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.context import confounding_keys
from parity.judging.document_types import FloorDocument, GapDocument
from parity.judging.gap.interval import Interval
from parity.judging.policy import policy_from_mapping
from parity_lab.analysis import Origin, Setup, make_setup, replayed_whole, setup_from
from parity_lab.answer import CONFIDENCE, Answer, answer, nats_words
from parity_lab.effects import AblationArm, ArmNoise, Pair, ablate
from parity_lab.replay import Replay
from parity_lab.server.forks import (
    MOST_PARENTS,
    derived_job,
    fork_parents,
    kept_step,
    results_of,
    seconds_of,
)
from parity_lab.server.replays import pairs_of, parted_pair, rates_differ, recorded, replayed_runs
from parity_lab.server.tables import Against, Analysis
from parity_lab.training.menu import Measured, subject
from server.curves import loading
from server.curves.loading import label
from server.database.sessions import find_job
from server.database.states import JOB_ENDED, JOB_OPEN
from server.database.tables import Arm, Job, JobStatus, Run, Verdict
from server.errors import ConflictError, InvalidError, NotFoundError
from server.jobs.fingerprint import (
    Difference,
    job_spec,
    manifest_differences,
    run_spec,
    spec_differences,
    unsound,
)
from server.jobs.submit import Order
from server.jobs.verdict_rows import verdict_documents
from server.records import Body, of
from training.rules import SpecError
from training.spec import JobSpec

# The loss of a run late in training, as one number.


def late_loss(session: Session, run: Run) -> float:
    """The mean loss (nats) of a run in the last part of its steps, which the policy of its job
    names.
    """
    curve = loading.losses(session, run)
    first = run.length * (1.0 - policy_from_mapping(run.job.policy).window_fraction)
    value = float(curve.loss[curve.steps >= first].mean())
    if not math.isfinite(value):
        raise ConflictError(f"the loss of run {run.id} is not finite at its end")
    return value


# Submits an analysis: a job of its own that explains the gap of a candidate of a job that has
# ended, from the checkpoints its runs kept.
#
# It has one run of kind `why`, which a worker of the same device class claims, and which is fenced,
# cancelled and resumed like any other. It ends without a verdict: no judge, baseline, run-to-run
# noise, forecast or reuse ever sees it.

_MOST_STEPS = 1e9
# The spread of forks of one checkpoint, as a share of that of reruns
# (docs/design/attribution.md#forks-start-from-kept-checkpoints).
FORKS_OVER_RERUNS = 1 / 8


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
    own = session.get(Analysis, job.id)
    if own is not None:
        raise ConflictError(f"job {job.id} is an analysis itself; explain job {own.explains}")
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
    records = [recorded(session, run, role) for role, own in runs.items() for run in own]
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


_PRECISION = ("recipe", "overrides", "bf16_from_step", "bf16_scope", "seed", "replicate")


def differences(ours: Run, theirs: Run) -> list[Difference]:
    """What differs on record between two runs, but for their precision: specification, manifest,
    and how often each was begun.
    """
    try:
        own = spec_differences(run_spec(ours), run_spec(theirs))
    except ValueError:  # of a version that this one cannot read
        own = []
    of_the_spec = [
        each for each in own if each.key not in _PRECISION and not each.key.startswith("switches.")
    ]
    facts = [
        {key: str(value) for key, value in (run.manifest or {}).items()} for run in (ours, theirs)
    ]
    confounding = confounding_keys(facts)
    of_the_manifest = [each for each in manifest_differences(*facts) if each.key in confounding]
    attempts = [str(run.attempt_number) for run in (ours, theirs)]
    if attempts[0] == attempts[1]:
        begun = []
    else:
        begun = [Difference(key="attempts", baseline=attempts[0], other=attempts[1])]
    return [*of_the_spec, *of_the_manifest, *begun]


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
) -> Job:
    """Queue an analysis, or return the open one with the same plan. Ring the doorbell after the
    commit. Errors as `plan_analysis`.
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
            return other.job
    whole = readable_spec(job)
    own = next(arm for arm in whole.candidates if arm.name == analysis.candidate)
    spec = replace(
        whole,
        name=f"why: {own.name} of {job.name}"[:200],
        baseline=replace(whole.baseline, replicates=1),
        candidates=(replace(own, replicates=1),),
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
    analysis.job = derived_job(session, job, spec, submitted_by, order or Order(), **run)
    session.add(analysis)
    return analysis.job


def answer_of(session: Session, analysis: Analysis) -> Answer:
    """What the results on record say. Raises ValueError for forks that tell nothing."""
    return answer(setup_from(analysis.setup), results_of(session, analysis.job_id))


def check_ended(job: Job) -> None:
    """Raises ConflictError for a job that is still open."""
    if job.status not in JOB_ENDED:
        raise ConflictError(
            f"job {job.id} is {job.status}, expected one that has ended; wait for its verdict"
        )


def judged_candidate(job: Job, name: str | None, missing: str) -> tuple[Arm, Verdict]:
    """A candidate as by `candidate_of`, and its verdict. ConflictError for an open job, and without
    a verdict, with what is `missing`.
    """
    check_ended(job)
    arm = candidate_of(job, name)
    verdict = next((each for each in job.verdicts if each.candidate == arm.name), None)
    if verdict is None:
        raise ConflictError(
            f"candidate {arm.name} of job {job.id} has no verdict, {missing}; train the job again"
        )
    return arm, verdict


def gap_words(verdict: Verdict) -> str | None:
    """The gap of a verdict with its interval; None where it was not measured."""
    if verdict.gap is None or verdict.ci_low is None or verdict.ci_high is None:
        return None
    return nats_words(verdict.gap, verdict.ci_low, verdict.ci_high)


def candidate_of(job: Job, name: str | None) -> Arm:
    """A candidate of a job by its name, or its only one. Raises InvalidError for an unknown name,
    and without a name among several.
    """
    candidates = [arm for arm in job.arms if arm.role == "candidate"]
    names = " or ".join(f"--candidate {arm.name}" for arm in candidates)
    if name is None and len(candidates) != 1:
        raise InvalidError(f"job {job.id} has {len(candidates)} candidates; add {names}")
    arm = next((arm for arm in candidates if name in (None, arm.name)), None)
    if arm is None:
        raise InvalidError(f"job {job.id} has no candidate {name!r}; use {names}")
    return arm


def readable_spec(job: Job) -> JobSpec:
    """The specification of a job. Raises ConflictError for one that this version cannot read."""
    try:
        return job_spec(job)
    except ValueError as error:
        raise ConflictError(
            f"this version cannot read the specification of job {job.id}; train it again"
        ) from error


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


def _smallest_effect(verdict: Verdict, setup: Setup) -> float | None:
    gap: GapDocument | None = json.loads(verdict.document).get("gap")
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
    smallest = _smallest_effect(verdict, setup)
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


# An analysis as the API and the pages show it: what it explains, what it costs, and what it says so
# far.


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
    """An analysis: a job of its own, its plan, and its answer (`parity_lab.answer.Answer`).

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
    verdict = next(each for each in job.verdicts if each.candidate == analysis.candidate)
    return of(
        AnalysisPlan,
        setup,
        gemms=setup.units,
        explains=job.id,
        explains_name=job.name,
        candidate=analysis.candidate,
        against=analysis.against,
        gap=_explained_gap(verdict),
        smallest_effect=_smallest_effect(verdict, setup),
        seconds=seconds_of(
            [session.get_one(Run, parent) for parent in setup.parents], setup.steps_for_one
        ),
        differences=_differences(session, setup),
    )


def _differences(session: Session, setup: Setup) -> list[Difference]:
    """Between the first runs of the arms that are replayed, by key."""
    first = {each.arm: each.run for each in reversed(setup.replays)}
    own: list[Difference] = []
    if setup.rates is not None:
        rates = (f"{rate:.6g}" for rate in (setup.rates.baseline, setup.rates.candidate))
        own = [
            Difference(
                key=f"learning rate at step {setup.rates.step}",
                baseline=next(rates),
                other=next(rates),
            )
        ]
    if len(first) == 2:
        own += differences(
            *(session.get_one(Run, first[role]) for role in ("baseline", "candidate"))
        )
    return own


def _explained_gap(verdict: Verdict) -> ExplainedGap:
    return of(
        ExplainedGap, verdict, verdict=verdict.outcome, low=verdict.ci_low, high=verdict.ci_high
    )


def analysis_document(session: Session, job_id: str) -> AnalysisDocument:
    """The analysis that a job is, or the newest of those that explain it; NotFoundError with the
    way to one.
    """
    analysis = analysis_of(session, job_id)
    return of(
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


# The parts of a candidate's gap from other candidates of its job that leave a part of its recipe
# out: of any engine, from the record.

CANNOT = (
    "forks, the forward loss and the gradient of single GEMMs, which need engine emulated and kept "
    "checkpoints; a part here is all that an ablation leaves out"
)


@frozen
class PartEstimate:
    """A value in nats with its 95 % interval."""

    value: float
    low: float
    high: float


@frozen
class AblationDocument:
    """An ablation: the part of the gap that it leaves out, and the gap that stays."""

    name: str
    part: PartEstimate
    left: PartEstimate


@frozen
class AblationsDocument:
    """The gap of `candidate` in parts. `whole` is its gap over the `pairs` (seeds and replicates)
    that all arms have; the parts, their sum `total` and what is `unexplained` are of the same runs.
    `gap` is that of its verdict.

    `left_out` are runs that are not used, each with why; `assumed` names the arms without reruns,
    whose run-to-run noise is an assumption.
    """

    job: str
    job_name: str
    baseline: str
    candidate: str
    gap: ExplainedGap
    whole: PartEstimate
    parts: list[AblationDocument]
    total: PartEstimate
    unexplained: PartEstimate
    pairs: int
    left_out: list[str]
    assumed: list[str]
    cannot: str


def ablations_document(
    session: Session, job_id: str, candidate: str | None, ablations: Sequence[str]
) -> AblationsDocument:
    """The parts of a candidate's gap, one for each ablation: a name of another candidate (none: all
    others).

    Raises NotFoundError, InvalidError or ConflictError with what to do instead.
    """
    job = find_job(session, job_id)
    check_ended(job)
    full = candidate_of(job, candidate)
    others = [arm.name for arm in job.arms if arm.role == "candidate" and arm is not full]
    chosen = [candidate_of(job, name) for name in dict.fromkeys(ablations or others)]
    if full in chosen:
        raise InvalidError(
            f"ablation {full.name!r} is the candidate itself, expected other candidates of job "
            f"{job.id}: {', '.join(others)}"
        )
    if not chosen:
        raise InvalidError(
            f"job {job.id} has no candidate but {full.name}, expected ablations of it; train each "
            "as another candidate of one job: the same recipe without one part"
        )
    documents: dict[str, Any] = {
        document["candidate"]["name"]: document for document in verdict_documents(job)
    }
    missing = next(
        (arm.name for arm in (full, *chosen) if _is_unmeasured(documents.get(arm.name))), None
    )
    if missing is not None:
        raise ConflictError(
            f"the verdict on {missing} of job {job.id} has no gap, expected one; train the job "
            "again"
        )
    left_out: list[str] = []
    within = {arm.name: documents[arm.name]["se_parts"] for arm in (full, *chosen)}

    def measured(arm: Arm, judged: Arm, within: Mapping[str, float]) -> AblationArm:
        """An arm with what the verdict on `judged` says of it."""
        document = documents[judged.name]
        losses = _losses(session, arm, document[arm.role]["left_out"], left_out)
        return AblationArm(
            name=arm.name, losses=losses, noise=_noise(document["tau"][arm.role], within)
        )

    arms = [measured(job.arms[0], full, min(within.values(), key=lambda own: own["within"]))]
    arms += [measured(arm, arm, within[arm.name]) for arm in (full, *chosen)]
    try:
        result = ablate(arms[0], arms[1], arms[2:])
    except ValueError as error:
        raise ConflictError(
            f"job {job.id} cannot be explained by its ablations: {error}"
        ) from error
    verdict = next(each for each in job.verdicts if each.candidate == full.name)
    left_out += [
        f"{arm.name} replicate {replicate}: not every arm has it"
        for arm in arms
        for _, replicate in sorted(set(arm.losses) - set(result.pairs))
    ]
    return AblationsDocument(
        job=job.id,
        job_name=job.name,
        baseline=arms[0].name,
        candidate=full.name,
        gap=_explained_gap(verdict),
        whole=_estimate(result.whole),
        parts=[
            AblationDocument(name=each.name, part=_estimate(each.part), left=_estimate(each.left))
            for each in result.parts
        ],
        total=_estimate(result.total),
        unexplained=_estimate(result.unexplained),
        pairs=len(result.pairs),
        left_out=left_out,
        assumed=list(result.assumed),
        cannot=CANNOT,
    )


def _is_unmeasured(document: Mapping[str, Any] | None) -> bool:
    return document is None or any(
        document.get(part) is None for part in ("gap", "tau", "se_parts")
    )


def _losses(
    session: Session, arm: Arm, copies: Sequence[Mapping[str, str]], left_out: list[str]
) -> dict[Pair, float]:
    """The late losses of an arm's runs that count, by pair; the others are added to `left_out` with
    why.
    """
    why = {copy["label"]: copy["why"] for copy in copies}
    losses: dict[Pair, float] = {}
    for run in arm.runs:
        reason = unsound(session, run.source or run) or why.get(label(run))
        if reason is not None:
            left_out.append(f"{label(run)}: {reason}")
            continue
        losses[run.seed, run.replicate] = late_loss(session, run)
    return losses


def _noise(floor: FloorDocument, parts: Mapping[str, float]) -> ArmNoise:
    return ArmNoise(
        tau=floor["value"],
        df=floor["df"],
        prior=f"{floor['prior_basis']} {floor['prior']!r}",
        prior_df=floor["prior_df"],
        within=parts["within"] if math.isfinite(parts["within"]) else 0.0,
        within_df=parts["within_df"],
        reruns=floor["measured_df"] > 0 or "early_stopped" in floor or "borrowed" in floor,
    )


def _estimate(own: Interval) -> PartEstimate:
    low, high = own.bounds(CONFIDENCE)
    return PartEstimate(value=own.mean, low=low, high=high)
