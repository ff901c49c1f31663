"""The gaps of a job's candidates in bins, with bands of the level that decides; what a whole curve
gives is cached in memory.
"""

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import (
    BinnedGap,
    GapBasis,
    StepRange,
    binned_gap,
    gap_basis,
    step_edges,
)
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import policy_from_mapping
from parity.report.verdict_gap import interval_level, on_edges, verdict_priors
from server.concurrency import Cache
from server.curves import loading
from server.curves.loading import begun_runs, multiplicity_of
from server.database import store
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Chunk, Job, Run
from server.jobs.verdict_rows import verdict_documents
from server.records import rounded

# What a job's gaps are computed from, so that a gap that was computed before is used only while
# none of it has changed.

OUTGROWN = 1.01
"""Growth in steps after which what was computed of a job in training is computed again."""


Extents = Mapping[str, Mapping[int, store.Range]]
"""What training steps are recorded: by the run under whose id a curve is stored, and by attempt."""


def extents(session: Session, job: Job) -> Extents:
    """What is recorded of each curve of a job's arms; a curve without a step is left out."""
    curves = {store.curve_of(session, run.id) for arm in job.arms for run in begun_runs(arm)}
    query = select(
        Chunk.run_id,
        Chunk.attempt_number,
        func.min(Chunk.first_step),
        func.max(Chunk.last_step),
        func.sum(Chunk.count),
    )
    rows = session.execute(
        query.where(Chunk.run_id.in_(curves), Chunk.kind == "train").group_by(
            Chunk.run_id, Chunk.attempt_number
        )
    )
    recorded: dict[str, dict[int, store.Range]] = {}
    for curve, attempt_number, first, last, count in rows:
        recorded.setdefault(curve, {})[attempt_number] = store.Range(
            first_step=first, last_step=last, count=int(count)
        )
    return recorded


def identity(job: Job) -> Hashable:
    """A job's verdicts, runs and attempts; a run of a job in training may have more steps with the
    same identity.
    """
    has_ended = job.status in JOB_ENDED
    runs = [
        # After a run's end only retention changes its message, when it deletes the curve.
        (
            run.id,
            run.reused_from,
            run.attempt_number,
            run.state,
            run.rounding,
            run.message if has_ended else None,
        )
        for arm in job.arms
        for run in begun_runs(arm)
    ]
    return (
        job.id,
        job.status,
        job.look,
        job.look_candidates,
        tuple(verdict.id for verdict in job.verdicts),
        tuple(runs),
    )


def is_current(job: Job, before: Extents, recorded: Extents) -> bool:
    """Whether a chart of the steps `before` still counts: exactly these once the job has ended,
    else until its runs are 1 % longer.
    """
    if job.status in JOB_ENDED:
        return recorded == before
    return _steps_of(recorded) <= OUTGROWN * _steps_of(before)


def _steps_of(recorded: Extents) -> int:
    return sum(one.count for attempts in recorded.values() for one in attempts.values())


# The gaps of a job's candidates in bins, with bands of the level that decides; what a whole curve
# gives is cached per pair.
#
# For charts only; the verdict reads every step of its window.


@frozen(eq=False)
class CandidateGap:
    """The gap of a candidate with the level of its band, and the steps of the spikes of (baseline,
    candidate) that its verdict names.
    """

    candidate: str
    binned: BinnedGap
    confidence: float
    spikes: tuple[list[int], list[int]]


@frozen
class _Cached:
    """The basis of a pair's bins, and the steps that its runs had done when it was computed."""

    basis: GapBasis
    steps_done: int


class _Baseline:
    """The baseline's curves in a range, read at most once: all of them for a basis, and those that
    count in a pair.
    """

    def __init__(self, session: Session, runs: Sequence[Run], wanted: StepRange) -> None:
        self._session, self.runs, self._wanted = session, runs, wanted

    @cached_property
    def whole(self) -> list[Curve]:
        return loading.loss_curves(self._session, self.runs)

    @cached_property
    def independent(self) -> tuple[Curve, ...]:
        return independent_runs(self.whole)[0]

    @cached_property
    def part(self) -> list[Curve]:
        # a cached property that was read is among them
        if "whole" in vars(self) or not self._wanted.is_part:
            return self.whole
        return _read(self._session, self.runs, self._wanted)


def candidate_gaps(
    cache: Cache, session: Session, job: Job, candidates: Sequence[Arm], wanted: StepRange
) -> list[CandidateGap]:
    """The gap of each of these candidates in a range of steps.

    The basis of its bins is cached, so that a request for a range reads only that range:
    permanently once the job has ended; while it trains, only for ranges, and until its runs are 1 %
    longer.
    """
    made_from = identity(job)
    policy = policy_from_mapping(job.policy)
    documents: Mapping[str, VerdictDocument] = {
        document["candidate"]["name"]: document for document in verdict_documents(job)
    }
    shared = multiplicity_of(job) or Multiplicity(looks=policy.looks, candidates=len(job.arms) - 1)
    baselines: dict[str, _Baseline] = {}
    gaps = []
    for arm in candidates:
        opposite = arm.judged_against
        baseline = baselines.setdefault(
            opposite.name, _Baseline(session, loading.begun_runs(opposite), wanted)
        )
        document, runs = documents.get(arm.name), loading.begun_runs(arm)
        key, done = (
            ("basis", made_from, arm.name),
            sum(run.steps_done for run in (*baseline.runs, *runs)),
        )
        cached = cache.get(key, _Cached)
        if cached and (
            job.status in JOB_ENDED or (wanted.is_part and done <= OUTGROWN * cached.steps_done)
        ):
            basis, curves = cached.basis, _read(session, runs, wanted)
        else:
            curves = loading.loss_curves(session, runs)
            priors, planned = verdict_priors(document) if document else None, job.planned_steps
            basis = gap_basis(
                baseline.whole, curves, policy, planned, priors, independent=baseline.independent
            )
            cache.put(key, _Cached(basis=basis, steps_done=done))
        level = (interval_level(document) if document else None) or shared.confidence(
            policy.confidence
        )
        binned = binned_gap(
            [baseline.part[i] for i in basis.counted[0]],
            [curves[i] for i in basis.counted[1]],
            policy,
            wanted,
            basis=basis,
            confidence=level,
        )
        spikes = document["run_spikes"] if document else None
        steps = (spikes["steps"][0], spikes["steps"][1]) if spikes else ([], [])
        gaps.append(CandidateGap(candidate=arm.name, binned=binned, confidence=level, spikes=steps))
    return gaps


def common_range(
    session: Session, job: Job, recorded: Extents, wanted: StepRange
) -> tuple[int, int] | None:
    """First and last step of the range that the baseline and any candidate have recorded, or
    None.
    """
    curves = [
        [store.curve_of(session, run.id) for run in loading.begun_runs(arm)] for arm in job.arms
    ]
    arms = [[one for curve in arm for one in recorded.get(curve, {}).values()] for arm in curves]
    baseline, others = arms[0], [one for arm in arms[1:] for one in arm]
    if not baseline or not others:
        return None
    first = max(wanted.first, *(min(one.first_step for one in some) for some in (baseline, others)))
    last = min(max(one.last_step for one in some) for some in (baseline, others))
    last = last if wanted.last is None else min(last, wanted.last)
    if first <= last:
        return first, last
    return None


def _read(session: Session, runs: Sequence[Run], wanted: StepRange) -> list[Curve]:
    return loading.loss_curves(
        session, runs, wanted.first, math.inf if wanted.last is None else wanted.last
    )


# The gaps of all candidates of a job on the same bins: what one chart shows, from the recorded
# curves.

_MARKS = 100  # steps with a mark that are listed per candidate


@frozen
class PairDocument:
    """What a chart of a candidate's gap shows beside the bins."""

    candidate: str
    nonfinite_baseline: list[int]
    nonfinite_candidate: list[int]
    nonfinite_count: int
    spikes_baseline: list[int]
    spikes_candidate: list[int]
    margin_nats: float | None
    level_nats: float | None
    window: Annotated[list[int], Field(min_length=2, max_length=2)] | None
    common_steps: int
    confidence: float


@frozen
class CandidateGapDocument(PairDocument):
    """The gap of one candidate on the common bins: mean and half the width of its interval, nats,
    null where both arms have no step.
    """

    mean: list[float | None]
    half_width: list[float | None]


@frozen
class GapsDocument:
    """The gaps of candidates of a job on the same bins, for one chart; a bin ends before the next
    one begins.

    `confidence` is that of the interval that decides, which looks and candidates share.
    `nonfinite_…` and `spikes_…` list the first 100 steps of each candidate. Values have six digits.
    """

    baseline: str
    planned_steps: int | None
    first_step: list[int]
    last_step: list[int]
    candidates: list[CandidateGapDocument]


def gaps_of(
    cache: Cache,
    session: Session,
    job: Job,
    arms: Sequence[Arm],
    wanted: StepRange,
    recorded: Extents,
) -> GapsDocument:
    """The gaps of these candidates in a range of steps, in the bins in which any of them has a step
    in common with the baseline.
    """
    common = common_range(session, job, recorded, wanted)
    steps, candidates = np.empty((2, 0), np.int64), []
    if common is not None:
        first = step_edges(*common, wanted.bins, log=wanted.log)
        gaps = candidate_gaps(cache, session, job, arms, dataclasses.replace(wanted, edges=first))
        binned = [on_edges(gap.binned, first) for gap in gaps]
        held = np.any([n > 0 for _, _, n in binned], axis=0)
        steps = np.stack([first, np.append(first[1:] - 1, common[1])])[:, held]
        candidates = [
            CandidateGapDocument(
                **pair_fields(gap, int(np.sum(n)), _MARKS),
                mean=rounded(mean[held], digits=6),
                half_width=rounded(half_width[held], digits=4),
            )
            for gap, (mean, half_width, n) in zip(gaps, binned, strict=True)
        ]
    return GapsDocument(
        baseline=job.arms[0].name,
        planned_steps=job.planned_steps,
        first_step=steps[0].tolist(),
        last_step=steps[1].tolist(),
        candidates=candidates,
    )


def pair_fields(gap: CandidateGap, common_steps: int, marks: int) -> dict[str, Any]:
    """The fields of `PairDocument`, with at most `marks` steps of each kind of mark."""
    binned = gap.binned
    return {
        "candidate": gap.candidate,
        "nonfinite_baseline": binned.nonfinite_baseline[:marks].tolist(),
        "nonfinite_candidate": binned.nonfinite_candidate[:marks].tolist(),
        "nonfinite_count": len(binned.nonfinite_baseline) + len(binned.nonfinite_candidate),
        "spikes_baseline": gap.spikes[0][:marks],
        "spikes_candidate": gap.spikes[1][:marks],
        "margin_nats": binned.margin_nats,
        "level_nats": binned.level,
        "window": [*binned.window],
        "common_steps": common_steps,
        "confidence": gap.confidence,
    }
