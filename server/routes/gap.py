"""The live gap of a candidate against the baseline over REST, in bins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from sqlalchemy.orm import Session

from parity.judging.live.gap_chart import step_edges
from parity.report.gap_bins import on_edges
from server.curves.buckets import NONFINITE_LISTED, Number, number, rounded
from server.database.lookup import find_job
from server.database.tables import Arm, Job
from server.errors import NotFoundError
from server.routes.candidate_gaps import CandidateGap, Range, candidate_gaps, common_range
from server.web.context import Context, InContext
from server.web.etags import entity_tag, not_modified, tagged
from server.web.query import UNCHANGED, FirstStep, IfNoneMatch, LastStep, Spacing

router = APIRouter(prefix="/api/v1", tags=["curves"])
Candidate = Annotated[str | None, Query(description="candidate arm; default: the first")]
_OUTGROWN = 1.01  # growth in steps after which the gaps of a training job are computed again
_MARKS = 100  # steps with a mark that are listed per candidate, where a chart has many candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairDocument:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GapDocument(_PairDocument):
    """The gap of a candidate against the baseline over the steps that both arms have, in bins.

    `mean`, `low` and `high` are nats (positive = candidate worse); the band is the interval of a bin's mean, including
    run-to-run noise, with the confidence of the interval that decides. `window` is the range of steps that the verdict reads.
    `nonfinite_…` are the first 1,000 steps of the range at which a run of the arm has a loss of NaN or infinity; `nonfinite_count` counts
    all of both arms. `spikes_…` are the first 200 steps at which the arm has a spike, according to the verdict; none before there is a
    verdict.
    """

    baseline: str
    first_step: list[int]
    last_step: list[int]
    mean: list[Number]
    low: list[Number]
    high: list[Number]
    planned_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateGapDocument(_PairDocument):
    """The gap of one candidate on the common bins: mean and half the width of its interval, nats, null where both arms have no step."""

    mean: list[float | None]
    half_width: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapsDocument:
    """The gaps of candidates of a job on the same bins, for one chart; a bin ends before the next one begins.

    `confidence` is that of the interval that decides, which looks and candidates share. `nonfinite_…` and `spikes_…` list the first
    100 steps of each candidate. Values have six digits.
    """

    baseline: str
    planned_steps: int
    first_step: list[int]
    last_step: list[int]
    candidates: list[CandidateGapDocument]


_ADAPTER = TypeAdapter(GapsDocument)


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
        wanted = Range(first=first_step, last=last_step, bins=bins, log=spacing == "log")
        [own] = candidate_gaps(context.cache, session, job, [chosen], wanted)
        binned = own.binned
    response.headers.update(tagged(tag))
    return GapDocument(
        **_pair(own, int(np.sum(binned.n)), NONFINITE_LISTED),
        baseline=baseline.name,
        first_step=binned.first_step.tolist(),
        last_step=binned.last_step.tolist(),
        mean=[number(value) for value in binned.mean],
        low=[number(value) for value in binned.lo],
        high=[number(value) for value in binned.hi],
        planned_steps=planned,
    )


@router.get("/jobs/{job_id}/gaps", response_model=GapsDocument, responses=UNCHANGED)
def gaps(
    job_id: str,
    context: InContext,
    candidates: Annotated[str, Query(max_length=5000, description="candidate arms, comma-separated; default: all")] = "",
    bins: Annotated[int, Query(ge=1, le=1000, description="largest number of bins")] = 150,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
    if_none_match: IfNoneMatch = "",
) -> Response:
    """The gaps of candidates for one chart. For display only; the verdict reads every step of its window."""
    with context.database.read() as session:
        job = find_job(session, job_id)
        names = dict.fromkeys(name for name in candidates.split(",") if name)
        arms = [pair_of(job, name)[1] for name in names] or job.arms[1:]
        tag = entity_tag(job, "gaps", *(arm.name for arm in arms), bins, first_step, last_step, spacing)
        if not_modified(tag, if_none_match):
            return Response(status_code=304, headers=tagged(tag))
        # Reading 90 runs of a million steps takes seconds: an answer is kept for good after the job's end, before it until 1 % is new.
        runs = [run for arm in (job.arms[0], *arms) for run in arm.runs]
        done, states = sum(run.steps_done for run in runs), tuple((run.id, run.epoch, run.state) for run in runs)
        key = tag or ("gaps", job.id, bins, first_step, last_step, spacing, states)
        cached = context.cache.get(key, _Answer)
        if cached is None or (tag is None and done > _OUTGROWN * cached.steps_done):
            wanted = Range(first=first_step, last=last_step, bins=bins, log=spacing == "log")
            cached = _Answer(content=_ADAPTER.dump_json(_gaps(context, session, job, arms, wanted)), steps_done=done)
            context.cache.put(key, cached)
    return Response(cached.content, media_type="application/json", headers=tagged(tag))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A response, and the steps that the job's runs had done when it was made."""

    content: bytes
    steps_done: int


def _gaps(context: Context, session: Session, job: Job, arms: Sequence[Arm], wanted: Range) -> GapsDocument:
    common = common_range(session, job, wanted)
    first = step_edges(*common, wanted.bins, log=wanted.log) if common else np.empty(0, np.int64)
    last = np.append(first[1:] - 1, common[1]) if common else first
    wanted = dataclasses.replace(wanted, edges=first)
    made = candidate_gaps(context.cache, session, job, arms, wanted) if common else []
    held = np.zeros(len(first), bool)
    for gap in made:
        held |= on_edges(gap.binned, first)[2] > 0
    return GapsDocument(
        baseline=job.arms[0].name,
        planned_steps=job.spec["schedule"]["steps"],
        first_step=first[held].tolist(),
        last_step=last[held].tolist(),
        candidates=[_on_bins(gap, first, held) for gap in made],
    )


def _on_bins(gap: CandidateGap, first: NDArray[np.int64], held: NDArray[np.bool_]) -> CandidateGapDocument:
    mean, half_width, n = on_edges(gap.binned, first)
    return CandidateGapDocument(
        **_pair(gap, int(np.sum(n)), _MARKS),
        mean=rounded(mean[held], digits=6),
        half_width=rounded(half_width[held], digits=4),
    )


def _pair(gap: CandidateGap, common_steps: int, marks: int) -> dict[str, Any]:
    """The fields of `_PairDocument`, with at most `marks` steps of each kind of mark."""
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


def pair_of(job: Job, candidate: str | None) -> tuple[Arm, Arm]:
    """The baseline and the candidate of this name."""
    baseline, *candidates = job.arms
    name = candidate or candidates[0].name
    chosen = next((arm for arm in candidates if arm.name == name), None)
    if chosen is None:
        raise NotFoundError(f"job {job.id} has no candidate {name!r}, expected one of {', '.join(arm.name for arm in candidates)}")
    return baseline, chosen
