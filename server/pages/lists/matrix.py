"""The page of jobs side by side."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from markupsafe import Markup

from parity.report.picture.forest import DrawnGap, own_row_svg
from server.documents.matrix import MOST_JOBS, Columns, matrix
from server.documents.trend import short
from server.jobs.verdict_rows import VerdictSummary
from server.pages.es_modules import CHARTS, imported_by
from server.pages.lists.job_lines import job_charts
from server.pages.rendering import HERE, pages_router, templates
from server.web.context import InContext

router = pages_router()
COMPARE_MODULES = imported_by(
    "compare.js", HERE / "static", Path(str(files(CHARTS[0]))) / CHARTS[1]
)


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
        charts = job_charts(session, [row.job for row in table.rows])
    other = urlencode(
        [*(("job", job_id) for job_id in job), ("by", "name" if by == "recipe" else "recipe")]
    )
    values = {
        "matrix": table,
        "other": f"/compare?{other}",
        "figure_of": figure_of,
        "short": short,
        "charts": charts,
        "lines": {key: asdict(line) for key, line in charts.lines.items()},
        "modules": COMPARE_MODULES,
    }
    return templates.TemplateResponse(request, "matrix.html", values)
