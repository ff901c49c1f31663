"""Curves over REST: a run's metrics in buckets, and the live gap of a pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import Field

from parity import criteria_from_mapping
from parity.gap import binned_gap
from server import curves, external, jobs
from server.auth import requires
from server.buckets import NONFINITE_LISTED, Number, Series, number, series
from server.caching import entity_tag, not_modified, tagged
from server.context import InContext
from server.database import store
from server.errors import InvalidError, NotFoundError

router = APIRouter(prefix="/api/v1", tags=["curves"], dependencies=[Depends(requires("view"))])
_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "What If-None-Match names is still right"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsDocument:
    """Metrics of one run; columns have the same bucket edges."""

    run: str
    kind: str
    series: list[Series]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapDocument:
    """The gap of a candidate against the baseline over the steps that both arms have, in bins.

    `mean`, `low` and `high` are nats (positive = candidate worse); the band is the interval of a bin's mean with the
    between-run term in it. `window` is the range of steps that the verdict reads. `nonfinite_…` are the first 1,000 steps
    at which a run of the arm has a loss of NaN or infinity; `nonfinite_count` counts all of both arms.
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
    margin_nats: float | None
    level_nats: float | None
    window: Annotated[list[int], Field(min_length=2, max_length=2)] | None
    planned_steps: int
    common_steps: int


@router.get("/jobs/{job_id}/gap", response_model=GapDocument, responses=_UNCHANGED)
def gap(
    job_id: str,
    context: InContext,
    response: Response,
    candidate: Annotated[str | None, Query(description="candidate arm; default: the first")] = None,
    bins: Annotated[int, Query(ge=1, le=4000, description="largest number of bins")] = 200,
    first_step: Annotated[int | None, Query(alias="from", ge=0, description="first step")] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, description="last step")] = None,
    if_none_match: Annotated[str, Header(description="the ETag of an earlier answer")] = "",
) -> Response | GapDocument:
    """The live gap chart's data. For looking, not for judging: the verdict alone reads every step of its window."""
    with context.database.read() as session:
        job = jobs.find(session, job_id)
        tag = entity_tag(job, "gap", candidate, bins, first_step, last_step)
        if not_modified(tag, if_none_match):
            return Response(status_code=304, headers=tagged(tag))
        baseline, *candidates = job.arms
        name = candidate or candidates[0].name
        chosen = next((arm for arm in candidates if arm.name == name), None)
        if chosen is None:
            raise NotFoundError(f"job {job_id} has no candidate {name!r}, expected one of {', '.join(arm.name for arm in candidates)}")
        planned = job.spec["schedule"]["steps"]
        criteria = criteria_from_mapping(job.criteria)
        pair = curves.begun(session, baseline), curves.begun(session, chosen)
    found = binned_gap(*pair, criteria, bins=bins, planned_steps=planned, first_step=first_step, last_step=last_step)
    response.headers.update(tagged(tag))
    return GapDocument(
        candidate=name,
        baseline=baseline.name,
        first_step=found.first_step.tolist(),
        last_step=found.last_step.tolist(),
        mean=[number(value) for value in found.mean],
        low=[number(value) for value in found.lo],
        high=[number(value) for value in found.hi],
        nonfinite_baseline=found.nonfinite_baseline[:NONFINITE_LISTED].tolist(),
        nonfinite_candidate=found.nonfinite_candidate[:NONFINITE_LISTED].tolist(),
        nonfinite_count=len(found.nonfinite_baseline) + len(found.nonfinite_candidate),
        margin_nats=found.margin_nats,
        level_nats=found.level,
        window=None if found.window is None else [*found.window],
        planned_steps=planned,
        common_steps=int(np.sum(found.n)),
    )


@router.get("/runs/{run_id}/metrics", response_model=MetricsDocument, responses=_UNCHANGED)
def metrics(
    run_id: str,
    context: InContext,
    response: Response,
    names: Annotated[str, Query(description="columns, comma-separated")] = "lm_loss",
    kind: Annotated[str, Query(pattern="^(train|validation)$", description="which records")] = "train",
    first_step: Annotated[int | None, Query(alias="from", ge=0, description="first step")] = None,
    last_step: Annotated[int | None, Query(alias="to", ge=0, description="last step")] = None,
    points: Annotated[int, Query(ge=1, le=100_000, description="largest number of buckets")] = 2000,
    if_none_match: Annotated[str, Header(description="the ETag of an earlier answer")] = "",
) -> Response | MetricsDocument:
    """Metrics of a run as min, mean and max of buckets; every step where they fit into `points`."""
    with context.database.read() as session:
        run = external.find(session, run_id)
        tag = entity_tag(run, "metrics", names, kind, first_step, last_step, points)
        if not_modified(tag, if_none_match):
            return Response(status_code=304, headers=tagged(tag))
        wanted, known = names.split(","), store.names(session, run_id, kind)
        unknown = [name for name in wanted if name not in known]
        if unknown and known:
            raise InvalidError(f"names has {unknown[0]!r}, expected some of {', '.join(known)}")
        last = math.inf if last_step is None else last_step
        columns = store.join([*store.tables(session, run_id, kind, first_step or 0, last, wanted)], wanted)
    steps = columns["step"].astype(np.int64)
    response.headers.update(tagged(tag))
    return MetricsDocument(run=run_id, kind=kind, series=[series(name, steps, columns[name], points) for name in wanted])
