"""The trend of a gate or a baseline over REST, as JSON and as CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from parity.inert import cell
from server.documents.job_lists.filters import JobFilters
from server.documents.trend import MOST_POINTS, By, Trend, TrendPoint, trend
from server.web.context import InContext

router = APIRouter(prefix="/api/v1", tags=["jobs"])


def _history(
    context: InContext,
    filters: Annotated[JobFilters, Depends()],
    gate: Annotated[
        str,
        Query(
            max_length=200, description="the exact name of the jobs; leave it out for a baseline"
        ),
    ] = "",
    candidate: Annotated[
        str | None,
        Query(max_length=200, description="candidate; default: the first of the newest job"),
    ] = None,
    by: Annotated[By, Query(description="what one group of the history is")] = "commit",
    limit: Annotated[
        int, Query(ge=1, le=MOST_POINTS, description="at most this many jobs, the newest")
    ] = 50,
) -> Trend:
    with context.database.read() as session:
        return trend(session, filters, gate.strip(), candidate, by, limit)


History = Annotated[Trend, Depends(_history)]


@router.get("/trend")
def show(history: History) -> Trend:
    """The gap of one candidate over the commits or days of a gate or a baseline, and which of them
    moved it beyond run-to-run noise.
    """
    return history


@router.get("/trend.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
def table(history: History) -> Response:
    """A trend as CSV: a line per job, oldest first, with the columns of TrendPoint; an empty cell
    where there is no value.
    """
    text = io.StringIO()
    rows = csv.DictWriter(
        text, [field.name for field in dataclasses.fields(TrendPoint)], lineterminator="\n"
    )
    rows.writeheader()
    for point in history.points:
        values = dataclasses.asdict(point) | {"differs": "; ".join(point.differs)}
        rows.writerow(
            {
                name: cell(value) if isinstance(value, str) else value
                for name, value in values.items()
            }
        )
    return Response(text.getvalue(), media_type="text/csv")
