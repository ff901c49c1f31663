"""Several jobs at once over REST: side by side, and the trend of a gate or a baseline."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from server.overviews.matrix import MOST_JOBS, Columns, Matrix, matrix
from server.overviews.trend import MOST_POINTS, By, Trend, trend
from server.overviews.trend_files import Kind, trend_file
from server.overviews.wanted import Wanted
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["jobs"])
_TYPES = {"csv": "text/csv", "svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}


@router.get("/jobs:compare")
def compare(
    context: InContext,
    job: Annotated[list[str], Query(min_length=1, max_length=MOST_JOBS, description="id of a job; repeat it for several")],
    by: Annotated[Columns, Query(description="what makes two candidates one column: the recipe, or the name")] = "recipe",
) -> Matrix:
    """Jobs side by side: a row per job, a column per recipe, and what keeps rows from being compared."""
    with context.database.read() as session:
        return matrix(session, job, by)


def _history(
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    gate: Annotated[str, Query(max_length=200, description="the exact name of the jobs; leave it out for a baseline")] = "",
    candidate: Annotated[str | None, Query(max_length=200, description="candidate; default: the first of the newest job")] = None,
    by: Annotated[By, Query(description="what one group of the history is")] = "commit",
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS, description="at most this many jobs, the newest")] = 50,
) -> Trend:
    with context.database.read() as session:
        return trend(session, filters, gate.strip(), candidate, by, limit)


History = Annotated[Trend, Depends(_history)]


@router.get("/trend")
def show(history: History) -> Trend:
    """The gap of one candidate over the commits or days of a gate or a baseline, and which of them moved it beyond run noise."""
    return history


@router.get("/trend.{kind}", response_class=Response, responses={200: {"content": {kind: {} for kind in _TYPES.values()}}})
def file(history: History, kind: Kind) -> Response:
    """A trend as a file: its points as CSV, its chart as SVG, PNG or PDF."""
    return Response(trend_file(history, kind), media_type=_TYPES[kind])
