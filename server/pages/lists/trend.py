"""The page of the trend of a gate or a baseline, and its chart as a file."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from server.documents.job_lists.filters import JobFilters
from server.documents.trend import MOST_POINTS, By, Trend, short, trend
from server.errors import NotFoundError
from server.pages.lists.trend_chart import SHOWN, chart, names_shown
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()

TREND_POINTS = 50


@router.get("/trend")
@router.get("/trend.svg")
def trend_page(
    request: Request,
    context: InContext,
    filters: Annotated[JobFilters, Depends()],
    gate: Annotated[str, Query(max_length=200)] = "",
    candidate: Annotated[str, Query(max_length=200)] = "",
    by: Annotated[By, Query()] = "commit",
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = TREND_POINTS,
) -> Response:
    """The gap of a candidate over commits or days, and which of them moved it; a form where the
    address names no jobs that have ended.

    `/trend.svg` is the chart alone, as a file.
    """
    name, history, why = gate.strip(), None, None
    others: list[Trend] = []
    if name or filters.baseline:
        try:
            with context.database.read() as session:
                history = trend(session, filters, name, candidate.strip() or None, by, limit)
                beside = [other for other in history.candidates if other != history.candidate][
                    : SHOWN - 1
                ]
                others = [trend(session, filters, name, other, by, limit) for other in beside]
        except NotFoundError as error:
            why = error.detail
    if history is None:
        with context.database.read() as session:
            names = names_shown(session)
        empty = {
            "trend": None,
            "why": why,
            "gate": name,
            "baseline": filters.baseline,
            "names": names,
        }
        return templates.TemplateResponse(request, "trend.html", empty)
    query = [*filters.query(), *([("gate", history.gate)] if history.gate else [])]
    values = {
        "trend": history,
        "chart": chart(history, others),
        "left_out": len(history.candidates) - 1 - len(others),
        "query": query,
        "branch": filters.branch,
        "limit": limit,
        "most": MOST_POINTS,
        "address": urlencode(
            [*query, ("candidate", history.candidate), ("by", by), ("limit", str(limit))]
        ),
        "short": short,
    }
    if request.url.path.endswith(".svg"):
        # the file has its style in it
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return templates.TemplateResponse(
            request, "trend_file.xml", values, headers=policy, media_type="image/svg+xml"
        )
    return templates.TemplateResponse(request, "trend.html", values)
