"""The gaps of a job's candidates in bins, with bands of the level that decides; what a whole curve gives is cached per pair.

For charts only; the verdict reads every step of its window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy.orm import Session

from parity import Curve, criteria_from_mapping
from parity.judging.curve import IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.inputs.counted_runs import independent_runs
from parity.judging.live.gap_chart import BinnedGap, GapBasis, binned_gap, gap_basis
from parity.judging.multiplicity import Multiplicity
from parity.report.gap_bins import interval_level, verdict_priors
from server.cache import Cache
from server.curves import loading
from server.database import store
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job, Run
from server.documents.verdicts import verdict_documents
from server.gaps.inputs import OUTGROWN, Extents, identity
from server.jobs.ledger import multiplicity_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Steps from `first` to `last` (None: to the end), and how they are cut: at most `bins` ranges, or those that begin at `edges`."""

    first: int = 0
    last: int | None = None
    bins: int = 200
    log: bool = False
    edges: IntArray | None = None

    @property
    def is_part(self) -> bool:
        """Whether steps at an end may be missing."""
        return self.first > 0 or self.last is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateGap:
    """The gap of a candidate with the level of its band, and the steps of the spikes of (baseline, candidate) that its verdict names."""

    candidate: str
    binned: BinnedGap
    confidence: float
    spikes: tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """The basis of a pair's bins, and the steps that its runs had done when it was computed."""

    basis: GapBasis
    steps_done: int


class _Baseline:
    """The baseline's curves in a range, read at most once: all of them for a basis, and those that count in a pair."""

    def __init__(self, session: Session, runs: Sequence[Run], wanted: Range) -> None:
        self._session, self.runs, self._wanted = session, runs, wanted

    @cached_property
    def whole(self) -> list[Curve]:
        return loading.loss_curves(self._session, self.runs)

    @cached_property
    def independent(self) -> tuple[Curve, ...]:
        return independent_runs(self.whole)[0]

    @cached_property
    def part(self) -> list[Curve]:
        if "whole" in vars(self) or not self._wanted.is_part:  # a cached property that was read is among them
            return self.whole
        return _read(self._session, self.runs, self._wanted)


def candidate_gaps(cache: Cache, session: Session, job: Job, candidates: Sequence[Arm], wanted: Range) -> list[CandidateGap]:
    """The gap of each of these candidates in a range of steps.

    The basis of its bins is cached, so that a request for a range reads only that range: permanently once the job has ended; while it
    trains, only for ranges, and until its runs are 1 % longer.
    """
    made_from = identity(job)
    criteria = criteria_from_mapping(job.criteria)
    documents: Mapping[str, VerdictDocument] = {document["candidate"]["name"]: document for document in verdict_documents(job)}
    shared = multiplicity_of(job) or Multiplicity(looks=criteria.looks, candidates=len(job.arms) - 1)
    baseline = _Baseline(session, loading.begun_runs(job.arms[0]), wanted)
    gaps = []
    for arm in candidates:
        document, runs = documents.get(arm.name), loading.begun_runs(arm)
        key, done = ("basis", made_from, arm.name), sum(run.steps_done for run in (*baseline.runs, *runs))
        cached = cache.get(key, _Cached)
        if cached and (job.status in JOB_ENDED or (wanted.is_part and done <= OUTGROWN * cached.steps_done)):
            basis, curves = cached.basis, _read(session, runs, wanted)
        else:
            curves = loading.loss_curves(session, runs)
            priors, planned = verdict_priors(document) if document else None, job.spec["schedule"]["steps"]
            basis = gap_basis(baseline.whole, curves, criteria, planned, priors, independent=baseline.independent)
            cache.put(key, _Cached(basis=basis, steps_done=done))
        level = (interval_level(document) if document else None) or shared.confidence(criteria.confidence)
        binned = binned_gap(
            [baseline.part[i] for i in basis.counted[0]],
            [curves[i] for i in basis.counted[1]],
            criteria,
            bins=wanted.bins,
            first_step=wanted.first,
            last_step=wanted.last,
            basis=basis,
            log=wanted.log,
            confidence=level,
            edges=wanted.edges,
        )
        spikes = document["run_spikes"] if document else None
        steps = (spikes["steps"][0], spikes["steps"][1]) if spikes else ([], [])
        gaps.append(CandidateGap(candidate=arm.name, binned=binned, confidence=level, spikes=steps))
    return gaps


def common_range(session: Session, job: Job, recorded: Extents, wanted: Range) -> tuple[int, int] | None:
    """First and last step of the range that the baseline and any candidate have recorded, or None."""
    curves = [[store.curve_of(session, run.id) for run in loading.begun_runs(arm)] for arm in job.arms]
    arms = [[one for curve in arm for one in recorded.get(curve, {}).values()] for arm in curves]
    baseline, others = arms[0], [one for arm in arms[1:] for one in arm]
    if not baseline or not others:
        return None
    first = max(wanted.first, *(min(one.first_step for one in some) for some in (baseline, others)))
    last = min(max(one.last_step for one in some) for some in (baseline, others))
    last = last if wanted.last is None else min(last, wanted.last)
    return (first, last) if first <= last else None


def _read(session: Session, runs: Sequence[Run], wanted: Range) -> list[Curve]:
    return loading.loss_curves(session, runs, wanted.first, math.inf if wanted.last is None else wanted.last)
