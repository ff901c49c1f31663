"""The gaps of a job's candidates in bins, with bands of the level that decides; what a whole curve
gives is cached per pair.

For charts only; the verdict reads every step of its window.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.curves.counted_runs import independent_runs
from parity.judging.curves.curve import Curve
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap, GapBasis, StepRange, binned_gap, gap_basis
from parity.judging.multiplicity import Multiplicity
from parity.report.verdict_gap import interval_level, verdict_priors
from server.concurrency.cache import Cache
from server.curves import judged_curves
from server.database.metrics import replaced_steps
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, Run
from server.gaps.recorded_extents import OUTGROWN, Extents, identity
from server.jobs.multiplicity import multiplicity_of
from server.jobs.verdict_rows import verdict_documents


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

    def __init__(self, session: Session, runs: Sequence[Run], step_range: StepRange) -> None:
        self._session, self.runs, self._step_range = session, runs, step_range

    @cached_property
    def whole(self) -> list[Curve]:
        return judged_curves.loss_curves(self._session, self.runs)

    @cached_property
    def independent(self) -> tuple[Curve, ...]:
        return independent_runs(self.whole)[0]

    @cached_property
    def part(self) -> list[Curve]:
        # a cached property that was read is among them
        if "whole" in vars(self) or not self._step_range.is_part:
            return self.whole
        return _read(self._session, self.runs, self._step_range)


def candidate_gaps(
    cache: Cache, session: Session, job: Job, candidates: Sequence[Arm], step_range: StepRange
) -> list[CandidateGap]:
    """The gap of each of these candidates in a range of steps.

    The basis of its bins is cached, so that a request for a range reads only that range:
    permanently once the job has ended; while it trains, only for ranges, and until its runs are 1 %
    longer.
    """
    made_from = identity(job)
    policy = job.read_policy()
    documents: Mapping[str, VerdictDocument] = {
        document["candidate"]["name"]: document for document in verdict_documents(job)
    }
    shared = multiplicity_of(job) or Multiplicity(looks=policy.looks, candidates=len(job.arms) - 1)
    baselines: dict[str, _Baseline] = {}
    gaps = []
    for arm in candidates:
        opposite = arm.judged_against
        baseline = baselines.setdefault(
            opposite.name, _Baseline(session, judged_curves.begun_runs(opposite), step_range)
        )
        document, runs = documents.get(arm.name), judged_curves.begun_runs(arm)
        key, done = (
            ("basis", made_from, arm.name),
            sum(run.steps_done for run in (*baseline.runs, *runs)),
        )
        cached = cache.get(key, _Cached)
        if cached and (
            job.status in JOB_ENDED or (step_range.is_part and done <= OUTGROWN * cached.steps_done)
        ):
            basis, curves = cached.basis, _read(session, runs, step_range)
        else:
            curves = judged_curves.loss_curves(session, runs)
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
            step_range,
            basis=basis,
            confidence=level,
        )
        spikes = document["run_spikes"] if document else None
        steps = (spikes["steps"][0], spikes["steps"][1]) if spikes else ([], [])
        gaps.append(CandidateGap(candidate=arm.name, binned=binned, confidence=level, spikes=steps))
    return gaps


def common_range(
    session: Session, job: Job, recorded: Extents, step_range: StepRange
) -> tuple[int, int] | None:
    """First and last step of the range that the baseline and any candidate have recorded, or
    None.
    """
    curves = [
        [replaced_steps.curve_of(session, run.id) for run in judged_curves.begun_runs(arm)]
        for arm in job.arms
    ]
    arms = [[one for curve in arm for one in recorded.get(curve, {}).values()] for arm in curves]
    baseline, others = arms[0], [one for arm in arms[1:] for one in arm]
    if not baseline or not others:
        return None
    first = max(
        step_range.first, *(min(one.first_step for one in some) for some in (baseline, others))
    )
    last = min(max(one.last_step for one in some) for some in (baseline, others))
    last = last if step_range.last is None else min(last, step_range.last)
    if first <= last:
        return first, last
    return None


def _read(session: Session, runs: Sequence[Run], step_range: StepRange) -> list[Curve]:
    return judged_curves.loss_curves(
        session, runs, step_range.first, math.inf if step_range.last is None else step_range.last
    )
