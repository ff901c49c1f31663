"""The parts of a candidate's gap from other candidates of its job that leave a part of its recipe
out: of any engine, from the record.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.document_types import ArmNoiseDocument
from parity.judging.gap.interval import Interval
from parity_lab.ablations import AblationArm, ArmErrors, Pair, ablate
from parity_lab.answer import CONFIDENCE
from parity_lab.server.documents import ExplainedGap, explained_gap
from parity_lab.server.judged_jobs import candidate_of, check_ended
from server.curves import judged_curves
from server.curves.judged_curves import label
from server.database.lookups import find_job
from server.database.tables import Arm, Job, Run
from server.errors import ConflictError, InvalidError
from server.jobs.fingerprint import unsound
from server.jobs.verdict_rows import verdict_documents
from training.rules import OTHERS_TRAINERS

CANNOT = (
    "forks, the forward loss and the gradient of single GEMMs, which need engine emulated and kept "
    "checkpoints; a part here is all that an ablation leaves out"
)

_SETTINGS = ("switches", "overrides", "then")


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


def possible_ablations(job: Job) -> Mapping[str, Sequence[str]]:
    """For each candidate with a measured gap the candidates that may be ablations of it: they have
    its recipe with other settings, or, where somebody else trains, whose settings are not on
    record, another name.
    """
    measured = {row.candidate for row in job.verdicts if row.gap is not None}
    arms = [arm for arm in job.arms if arm.role == "candidate" and arm.name in measured]

    def is_ablation(one: Arm, other: Arm) -> bool:
        if one is other or one.recipe != other.recipe:
            return False
        return job.engine in OTHERS_TRAINERS or any(
            one.requested.get(name) != other.requested.get(name) for name in _SETTINGS
        )

    found = {arm.name: [one.name for one in arms if is_ablation(arm, one)] for arm in arms}
    return {name: ablations for name, ablations in found.items() if ablations}


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

    arms = [measured(job.arms[0], full, min(within.values(), key=lambda arm: arm["within"]))]
    arms += [measured(arm, arm, within[arm.name]) for arm in (full, *chosen)]
    try:
        result = ablate(arms[0], arms[1], arms[2:])
    except ValueError as error:
        raise ConflictError(
            f"job {job.id} cannot be explained by its ablations: {error}"
        ) from error
    verdict = next(row for row in job.verdicts if row.candidate == full.name)
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
        gap=explained_gap(verdict),
        whole=_estimate(result.whole),
        parts=[
            AblationDocument(name=part.name, part=_estimate(part.part), left=_estimate(part.left))
            for part in result.parts
        ],
        total=_estimate(result.total),
        unexplained=_estimate(result.unexplained),
        pairs=len(result.pairs),
        left_out=left_out,
        assumed=list(result.assumed),
        cannot=CANNOT,
    )


def late_loss(session: Session, run: Run) -> float:
    """The mean loss (nats) of a run in the last part of its steps, which the policy of its job
    names.
    """
    curve = judged_curves.losses(session, run)
    first = run.length * (1.0 - run.job.read_policy().window_fraction)
    value = float(curve.loss[curve.steps >= first].mean())
    if not math.isfinite(value):
        raise ConflictError(f"the loss of run {run.id} is not finite at its end")
    return value


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


def _noise(noise: ArmNoiseDocument, parts: Mapping[str, float]) -> ArmErrors:
    return ArmErrors(
        tau=noise["value"],
        df=noise["df"],
        prior=f"{noise['prior_basis']} {noise['prior']!r}",
        prior_df=noise["prior_df"],
        within=parts["within"] if math.isfinite(parts["within"]) else 0.0,
        within_df=parts["within_df"],
        reruns=noise["measured_df"] > 0 or "early_stopped" in noise or "borrowed" in noise,
    )


def _estimate(interval: Interval) -> PartEstimate:
    low, high = interval.bounds(CONFIDENCE)
    return PartEstimate(value=interval.mean, low=low, high=high)
