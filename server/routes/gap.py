"""The live gap of a candidate against the baseline over REST, in bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import Field
from sqlalchemy.orm import Session

from parity import criteria_from_mapping
from parity.judging.live.gap_chart import BinnedGap, GapBasis, binned_gap, gap_basis
from server.curves import loading
from server.curves.buckets import NONFINITE_LISTED, Number, number
from server.database.lookup import find_job
from server.database.states import JOB_ENDED
from server.database.tables import Arm, Job
from server.documents.verdicts import verdict_documents
from server.errors import NotFoundError
from server.web.context import Context, InContext
from server.web.etags import entity_tag, not_modified, tagged
from server.web.query import UNCHANGED, FirstStep, IfNoneMatch, LastStep, Spacing

router = APIRouter(prefix="/api/v1", tags=["curves"])
Candidate = Annotated[str | None, Query(description="candidate arm; default: the first")]
_OUTGROWN = 1.01  # growth in steps after which the basis of a training pair's gap is computed again


@dataclass(frozen=True, slots=True, kw_only=True)
class GapDocument:
    """The gap of a candidate against the baseline over the steps that both arms have, in bins.

    `mean`, `low` and `high` are nats (positive = candidate worse); the band is the interval of a bin's mean, including
    run-to-run noise. `window` is the range of steps that the verdict reads. `nonfinite_…` are the first 1,000 steps
    of the range at which a run of the arm has a loss of NaN or infinity; `nonfinite_count` counts all of both arms. `spikes_…` are the
    first 200 steps at which the arm has a spike, according to the verdict; none before there is a verdict.
    """

    candidate: str
    baseline: str
    first_step: list[int]
    last_step: list[int]
    mean: list[Number]
    low: list[Number]
    high: list[Number]
    nonfinite_baseline: list[int]
    nonfinite_candidate: list[int]
    nonfinite_count: int
    spikes_baseline: list[int]
    spikes_candidate: list[int]
    margin_nats: float | None
    level_nats: float | None
    window: Annotated[list[int], Field(min_length=2, max_length=2)] | None
    planned_steps: int
    common_steps: int


@router.get("/jobs/{job_id}/gap", response_model=GapDocument, responses=UNCHANGED)
def gap(
    job_id: str,
    context: InContext,
    response: Response,
    candidate: Candidate = None,
    bins: Annotated[int, Query(ge=1, le=4000, description="largest number of bins")] = 200,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
    if_none_match: IfNoneMatch = "",
) -> Response | GapDocument:
    """The data of the live gap chart. For display only; the verdict reads every step of its window."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        tag = entity_tag(job, "gap", candidate, bins, first_step, last_step, spacing)
        if not_modified(tag, if_none_match):
            return Response(status_code=304, headers=tagged(tag))
        baseline, chosen = pair_of(job, candidate)
        planned = job.spec["schedule"]["steps"]
        spikes = _spikes(job, chosen.name)
        binned = _binned(context, session, job, chosen, bins, first_step, last_step, log=spacing == "log")
    response.headers.update(tagged(tag))
    return GapDocument(
        candidate=chosen.name,
        baseline=baseline.name,
        first_step=binned.first_step.tolist(),
        last_step=binned.last_step.tolist(),
        mean=[number(value) for value in binned.mean],
        low=[number(value) for value in binned.lo],
        high=[number(value) for value in binned.hi],
        nonfinite_baseline=binned.nonfinite_baseline[:NONFINITE_LISTED].tolist(),
        nonfinite_candidate=binned.nonfinite_candidate[:NONFINITE_LISTED].tolist(),
        nonfinite_count=len(binned.nonfinite_baseline) + len(binned.nonfinite_candidate),
        spikes_baseline=spikes[0],
        spikes_candidate=spikes[1],
        margin_nats=binned.margin_nats,
        level_nats=binned.level,
        window=[*binned.window],
        planned_steps=planned,
        common_steps=int(np.sum(binned.n)),
    )


def pair_of(job: Job, candidate: str | None) -> tuple[Arm, Arm]:
    """The baseline and the candidate of this name."""
    baseline, *candidates = job.arms
    name = candidate or candidates[0].name
    chosen = next((arm for arm in candidates if arm.name == name), None)
    if chosen is None:
        raise NotFoundError(f"job {job.id} has no candidate {name!r}, expected one of {', '.join(arm.name for arm in candidates)}")
    return baseline, chosen


def _spikes(job: Job, candidate: str) -> tuple[list[int], list[int]]:
    """Steps of the spikes of the baseline and of the candidate in the verdict document."""
    for document in verdict_documents(job):
        if document["candidate"]["name"] == candidate and document["run_spikes"]:
            baseline, other = document["run_spikes"]["steps"]
            return baseline, other
    return [], []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    """The basis of a pair's bins, and the steps that its runs had done when it was computed."""

    basis: GapBasis
    steps_done: int


def _binned(
    context: Context, session: Session, job: Job, candidate: Arm, bins: int, first: int, last: int | None, *, log: bool
) -> BinnedGap:
    """The gap in bins. Its basis is cached, so that a request for a range reads only that range.

    Cached permanently once the job has ended; while it trains, only for ranges, and until its runs are 1 % longer.
    """
    criteria, planned = criteria_from_mapping(job.criteria), job.spec["schedule"]["steps"]
    arms = loading.begun_runs(job.arms[0]), loading.begun_runs(candidate)
    begun = [(run.id, run.epoch) for arm in arms for run in arm]
    key = entity_tag(job, "ground", candidate.name) or ("ground", job.id, candidate.name, *begun)
    cached, done = context.cache.get(key, _Cached), sum(run.steps_done for arm in arms for run in arm)
    is_part = first > 0 or last is not None
    if cached and (job.status in JOB_ENDED or (is_part and done <= _OUTGROWN * cached.steps_done)):
        basis, end = cached.basis, math.inf if last is None else last
        base, cand = (
            loading.loss_curves(session, [runs[i] for i in used], first, end) for runs, used in zip(arms, basis.counted, strict=True)
        )
    else:
        whole = loading.loss_curves(session, arms[0]), loading.loss_curves(session, arms[1])
        basis = gap_basis(*whole, criteria, planned)
        context.cache.put(key, _Cached(basis=basis, steps_done=done))
        base, cand = ([curves[i] for i in used] for curves, used in zip(whole, basis.counted, strict=True))
    return binned_gap(base, cand, criteria, bins=bins, first_step=first, last_step=last, basis=basis, log=log)
