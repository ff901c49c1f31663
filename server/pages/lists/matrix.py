"""The page of jobs side by side."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from markupsafe import Markup

from parity.report.picture.forest import DrawnGap, own_row_svg
from server.documents.matrix import MOST_JOBS, Columns, matrix
from server.documents.trend import short
from server.jobs.verdict_rows import VerdictSummary
from server.pages.rendering import pages_router, templates
from server.web.context import InContext

router = pages_router()


def figure_of(verdict: VerdictSummary) -> Markup:
    """The small figure of a gap in its own margins; empty without a gap, an interval or a
    margin.
    """
    if verdict.gap_nats is None or verdict.ci_low is None or verdict.ci_high is None:
        return Markup()
    estimate = DrawnGap(
        mean=verdict.gap_nats,
        lo=verdict.ci_low,
        hi=verdict.ci_high,
        margin=verdict.margin_nats,
        state=verdict.verdict,
    )
    return Markup(own_row_svg(estimate))  # noqa: S704


@router.get("/compare")
def compare(
    request: Request,
    context: InContext,
    job: Annotated[list[str] | None, Query(max_length=100)] = None,
    by: Annotated[Columns, Query()] = "recipe",
) -> Response:
    """Jobs side by side, in the order of the address; the first is what the others are compared
    with.
    """
    if not job:
        return templates.TemplateResponse(
            request, "matrix.html", {"matrix": None, "most": MOST_JOBS}
        )
    with context.database.read() as session:
        table = matrix(session, job, by)
    other = urlencode(
        [*(("job", job_id) for job_id in job), ("by", "name" if by == "recipe" else "recipe")]
    )
    values = {"matrix": table, "other": f"/compare?{other}", "figure_of": figure_of, "short": short}
    return templates.TemplateResponse(request, "matrix.html", values)
