"""The parts of a candidate's gap from other candidates of its job that leave a part of its recipe out: of any engine, from the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from parity.judging.document_types import FloorDocument, VerdictDocument
from parity.judging.interval import Interval
from parity.why.ablations import AblationArm, ArmNoise, Pair, ablate
from parity.why.answer import CONFIDENCE
from server.curves.loading import label
from server.database.lookup import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job
from server.documents.analysis import ExplainedGap
from server.documents.verdicts import verdict_documents
from server.errors import ConflictError, InvalidError
from server.jobs.analyses import candidate_of
from server.jobs.fingerprint import unsound
from server.jobs.late_loss import late_loss

CANNOT = (
    "forks, the forward loss and the gradient of single GEMMs, which need engine emulated and kept checkpoints; a part here is all that an "
    "ablation leaves out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEstimate:
    """A value in nats with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationDocument:
    """An ablation: the part of the gap that it leaves out, and the gap that stays."""

    name: str
    part: PartEstimate
    left: PartEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationsDocument:
    """The gap of `candidate` in parts. `whole` is its gap over the `pairs` (seeds and replicates) that all arms have; the parts, their sum
    `total` and what is `unexplained` are of the same runs. `gap` is that of its verdict.

    `left_out` are runs that are not used, each with why; `assumed` names the arms without reruns, whose run noise is an assumption.
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


def ablations_document(session: Session, job_id: str, candidate: str | None, ablations: Sequence[str]) -> AblationsDocument:
    """The parts of a candidate's gap, one for each ablation: a name of another candidate (none: all others).

    Raises NotFoundError, InvalidError or ConflictError with what to do instead.
    """
    job = find_job(session, job_id)
    if job.status not in JOB_ENDED:
        raise ConflictError(f"job {job.id} is {job.status}, expected one that has ended; wait for its verdict")
    full = candidate_of(job, candidate)
    others = [arm.name for arm in job.arms if arm.role == "candidate" and arm is not full]
    chosen = [candidate_of(job, name) for name in dict.fromkeys(ablations or others)]
    if full in chosen:
        raise InvalidError(
            f"ablation {full.name!r} is the candidate itself, expected other candidates of job {job.id}: {', '.join(others)}"
        )
    if not chosen:
        raise InvalidError(
            f"job {job.id} has no candidate but {full.name}, expected ablations of it; train each as another candidate of one job: the "
            "same recipe without one part"
        )
    documents = {document["candidate"]["name"]: document for document in verdict_documents(job)}
    missing = next((arm.name for arm in (full, *chosen) if _is_unmeasured(documents.get(arm.name))), None)
    if missing is not None:
        raise ConflictError(f"the verdict on {missing} of job {job.id} has no gap, expected one; train the job again")
    left_out: list[str] = []
    within = min((_within(documents[arm.name]) for arm in (full, *chosen)), key=lambda own: own[0])
    baseline = job.arms[0]
    measured = [
        AblationArm(
            name=baseline.name,
            losses=_losses(session, job, baseline, documents[full.name]["baseline"]["left_out"], left_out),
            noise=_noise(_floor(documents[full.name], "baseline"), *within),
        ),
        *(
            AblationArm(
                name=arm.name,
                losses=_losses(session, job, arm, documents[arm.name]["candidate"]["left_out"], left_out),
                noise=_noise(_floor(documents[arm.name], "candidate"), *_within(documents[arm.name])),
            )
            for arm in (full, *chosen)
        ),
    ]
    try:
        result = ablate(measured[0], measured[1], measured[2:])
    except ValueError as error:
        raise ConflictError(f"job {job.id} cannot be explained by its ablations: {error}") from error
    verdict = next(each for each in job.verdicts if each.candidate == full.name)
    left_out += [
        f"{arm.name} replicate {replicate}: not every arm has it"
        for arm in measured
        for _, replicate in sorted(set(arm.losses) - set(result.pairs))
    ]
    return AblationsDocument(
        job=job.id,
        job_name=job.name,
        baseline=baseline.name,
        candidate=full.name,
        gap=ExplainedGap(verdict=verdict.outcome, gap=verdict.gap, low=verdict.ci_low, high=verdict.ci_high),
        whole=_estimate(result.whole),
        parts=[AblationDocument(name=each.name, part=_estimate(each.part), left=_estimate(each.left)) for each in result.parts],
        total=_estimate(result.total),
        unexplained=_estimate(result.unexplained),
        pairs=len(result.pairs),
        left_out=left_out,
        assumed=list(result.assumed),
        cannot=CANNOT,
    )


def _is_unmeasured(document: VerdictDocument | None) -> bool:
    return document is None or document.get("gap") is None or document.get("tau") is None or document.get("se_parts") is None


def _losses(session: Session, job: Job, arm: Arm, copies: Sequence[Mapping[str, str]], left_out: list[str]) -> dict[Pair, float]:
    """The late losses of an arm's runs that count, by pair; the others are added to `left_out` with why."""
    why = {copy["label"]: copy["why"] for copy in copies}
    losses: dict[Pair, float] = {}
    for run in arm.runs:
        reason = unsound(session, run.source or run) or why.get(label(run))
        if reason is not None:
            left_out.append(f"{label(run)}: {reason}")
            continue
        losses[run.seed, run.replicate] = late_loss(session, run, job)
    return losses


def _floor(document: VerdictDocument, side: str) -> FloorDocument:
    floor: FloorDocument = (document["tau"] or {})[side]  # type: ignore[index, literal-required]
    return floor


def _within(document: VerdictDocument) -> tuple[float, float]:
    parts = document["se_parts"]
    assert parts is not None  # noqa: S101 (checked before)
    return parts["within"], parts["within_df"]


def _noise(floor: FloorDocument, within: float, within_df: float) -> ArmNoise:
    return ArmNoise(
        tau=floor["value"],
        df=floor["df"],
        prior=f"{floor['prior_basis']} {floor['prior']!r}",
        prior_df=floor["prior_df"],
        within=within if math.isfinite(within) else 0.0,
        within_df=within_df,
        reruns=floor["measured_df"] > 0 or "early_stopped" in floor or "borrowed" in floor,
    )


def _estimate(own: Interval) -> PartEstimate:
    low, high = own.bounds(CONFIDENCE)
    return PartEstimate(value=own.mean, low=low, high=high)
