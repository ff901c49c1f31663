"""The live gap of a candidate against the baseline over REST, in bins."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.judging.live.gap_chart import StepRange
from server.curves.buckets import NONFINITE_LISTED
from server.database.lookups import find_job
from server.database.tables import Arm, Job
from server.errors import NotFoundError
from server.gaps.candidate_gaps import candidate_gaps
from server.gaps.chart_document import GapsDocument, PairDocument, gaps_of, pair_fields
from server.gaps.recorded_extents import Extents, extents, identity, is_current
from server.jobs.evaluations import check_has_runs
from server.json_numbers import Number, number
from server.web.context import Context, InContext
from server.web.requests.entity_tags import UNCHANGED, Tags
from server.web.requests.query import FirstStep, LastStep, Spacing

router = APIRouter(prefix="/api/v1", tags=["curves"])

Candidate = Annotated[str | None, Query(description="candidate arm; default: the first")]
_DOCUMENT = TypeAdapter(GapsDocument)


@frozen
class GapDocument(PairDocument):
    """The gap of a candidate against the baseline over the steps that both arms have, in bins.

    `mean`, `low` and `high` are nats (positive = candidate worse); the band is the interval of a
    bin's mean, including run-to-run noise, with the confidence of the interval that decides.
    `window` is the range of steps that the verdict reads. `nonfinite_…` are the first 1,000 steps
    of the range at which a run of the arm has a loss of NaN or infinity; `nonfinite_count` counts
    all of both arms. `spikes_…` are the first 200 steps at which the arm has a spike, according to
    the verdict; none before there is a verdict.
    """

    baseline: str
    first_step: list[int]
    last_step: list[int]
    mean: list[Number]
    low: list[Number]
    high: list[Number]
    planned_steps: int | None


@frozen
class _CachedGaps:
    """A response, and what was recorded when it was made."""

    content: bytes
    recorded: Extents


@router.get("/jobs/{job_id}/gap", responses=UNCHANGED)
def gap(
    job_id: str,
    context: InContext,
    tags: Tags,
    candidate: Candidate = None,
    bins: Annotated[int, Query(ge=1, le=4000, description="largest number of bins")] = 200,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
) -> GapDocument:
    """The data of the live gap chart. For display only; the verdict reads every step of its
    window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "chart of gaps over steps")
        tags.check(job, "gap", candidate, bins, first_step, last_step, spacing)
        baseline, chosen = pair_of(job, candidate)
        planned = job.planned_steps
        chart_range = StepRange(first=first_step, last=last_step, bins=bins, log=spacing == "log")
        [candidate_gap] = candidate_gaps(context.cache, session, job, [chosen], chart_range)
        binned = candidate_gap.binned
    return GapDocument(
        **pair_fields(candidate_gap, int(np.sum(binned.n)), NONFINITE_LISTED),
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
    tags: Tags,
    candidates: Annotated[
        str, Query(max_length=5000, description="candidate arms, comma-separated; default: all")
    ] = "",
    bins: Annotated[int, Query(ge=1, le=1000, description="largest number of bins")] = 150,
    first_step: FirstStep = 0,
    last_step: LastStep = None,
    spacing: Spacing = "linear",
) -> Response:
    """The gaps of candidates for one chart. For display only; the verdict reads every step of its
    window.
    """
    with context.database.read() as session:
        job = find_job(session, job_id)
        check_has_runs(job, "chart of gaps over steps")
        names = dict.fromkeys(name for name in candidates.split(",") if name)
        arms = [pair_of(job, name)[1] for name in names] or job.arms[1:]
        headers = tags.check(
            job, "gaps", *(arm.name for arm in arms), bins, first_step, last_step, spacing
        )
        chart_range = StepRange(first=first_step, last=last_step, bins=bins, log=spacing == "log")
        content = _computed(context, session, job, arms, chart_range)
    return Response(content, media_type="application/json", headers=headers)


def _computed(
    context: Context, session: Session, job: Job, arms: Sequence[Arm], chart_range: StepRange
) -> bytes:
    """The response from the recorded curves. Reading 90 runs of a million steps takes seconds, so
    it is cached as long as it counts.
    """
    key = (
        "gaps",
        identity(job),
        *(arm.name for arm in arms),
        chart_range.bins,
        chart_range.first,
        chart_range.last,
        chart_range.log,
    )
    cached, recorded = context.cache.get(key, _CachedGaps), extents(session, job)
    if cached is None or not is_current(job, cached.recorded, recorded):
        document = gaps_of(context.cache, session, job, arms, chart_range, recorded)
        cached = _CachedGaps(content=_DOCUMENT.dump_json(document), recorded=recorded)
        context.cache.put(key, cached)
    return cached.content


def pair_of(job: Job, candidate: str | None) -> tuple[Arm, Arm]:
    """The candidate of this name, after the arm that it is judged against."""
    baseline, *candidates = job.arms
    if not candidates:
        raise NotFoundError(
            f"job {job.id} has one arm so far, {baseline.name}, and no candidate to compare with it"
        )
    name = candidate or candidates[0].name
    chosen = next((arm for arm in candidates if arm.name == name), None)
    if chosen is None:
        raise NotFoundError(
            f"job {job.id} has no candidate {name!r}, expected one of "
            f"{', '.join(arm.name for arm in candidates)}"
        )
    return chosen.judged_against, chosen
