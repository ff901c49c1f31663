"""Pages of several jobs: the list with its filters, jobs side by side, and the trend of a gate or a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response
from markupsafe import Markup

from parity.judging.decision import WORST_FIRST
from parity.report.forest import Estimate, own_row_svg
from parity.report.headline import MARKS
from server.documents.summaries import JobSummary
from server.documents.verdicts import VerdictSummary
from server.errors import NotFoundError
from server.overviews.job_list import job_list, known_tags
from server.overviews.matrix import MOST_JOBS, Columns, matrix
from server.overviews.trend import MOST_POINTS, By, short, trend
from server.overviews.wanted import OUTCOMES, SORTS, STATUSES, Sort, Wanted
from server.pages.figures.trend import chart
from server.pages.rendering import templates, visitor
from server.web.context import InContext

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
JOBS_A_PAGE = 50
TREND_POINTS = 50
STATES = (*OUTCOMES, *STATUSES)
_SORT_WORDS: Mapping[Sort, str] = {
    "newest": "newest first",
    "oldest": "oldest first",
    "name": "name",
    "ended": "ended last first",
    "gap": "largest gap first, % of the loss",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job in one line: the verdict that decides (the worst, of the largest gap), and how many candidates have which verdict."""

    job: JobSummary
    deciding: VerdictSummary | None
    figure: Markup
    counts: list[tuple[str, int]]

    @classmethod
    def of(cls, job: JobSummary) -> Row:
        deciding = min(job.verdicts, key=_badness, default=None)
        words = [verdict.verdict for verdict in job.verdicts]
        return cls(
            job=job,
            deciding=deciding,
            figure=figure_of(deciding) if deciding else Markup(),
            counts=[(word, words.count(word)) for word in WORST_FIRST if word in words],
        )


def _badness(verdict: VerdictSummary) -> tuple[int, float]:
    return WORST_FIRST.index(verdict.verdict), -(verdict.gap_rel if verdict.gap_rel is not None else float("inf"))


def figure_of(verdict: VerdictSummary) -> Markup:
    """The small figure of a gap in its own margins; empty without a gap, an interval or a margin."""
    if verdict.gap_nats is None or verdict.ci_low is None or verdict.ci_high is None:
        return Markup()
    estimate = Estimate(mean=verdict.gap_nats, lo=verdict.ci_low, hi=verdict.ci_high, margin=verdict.margin_nats, state=verdict.verdict)
    return Markup(own_row_svg(estimate))  # noqa: S704 (numbers of our own)


@router.get("/jobs")
def index(
    request: Request,
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """Jobs, one a line. `state` is a verdict or a status; everything that the page shows is in its address."""
    if state in OUTCOMES:
        filters = replace(filters, verdict=state)
    elif state in STATUSES:
        filters = replace(filters, status=state)
    order: Sort = next((each for each in SORTS if each == sort), "newest")
    with context.database.read() as session:
        page = job_list(session, filters, order, cursor, JOBS_A_PAGE, counted=True)
        tags = known_tags(session)
    query = filters.query() + ([("sort", order)] if order != "newest" else [])
    values = {
        "rows": [Row.of(job) for job in page.items],
        "following": f"/jobs?{urlencode([*query, ('cursor', page.next_cursor)])}" if page.next_cursor else None,
        "filters": filters,
        "tags": tags,
        "filtered": bool(filters.query()),
        "first": f"/jobs?{urlencode(query)}" if query else "/jobs",
        "paged": cursor is not None,
        "state": filters.verdict or filters.status or "",
        "states": STATES,
        "sort": order,
        "sorts": _SORT_WORDS,
        "total": page.total or 0,
        "more": page.more,
        "short": short,
        "shapes": MARKS,
    }
    return templates.TemplateResponse(request, "jobs.html", values)


@router.get("/compare")
def compare(
    request: Request,
    context: InContext,
    job: Annotated[list[str] | None, Query(max_length=100)] = None,
    by: Annotated[Columns, Query()] = "recipe",
) -> Response:
    """Jobs side by side, in the order of the address; the first is what the others are compared with."""
    if not job:
        return templates.TemplateResponse(request, "matrix.html", {"matrix": None, "most": MOST_JOBS})
    with context.database.read() as session:
        table = matrix(session, job, by)
    other = urlencode([*(("job", each) for each in job), ("by", "name" if by == "recipe" else "recipe")])
    values = {"matrix": table, "other": f"/compare?{other}", "figure_of": figure_of, "short": short}
    return templates.TemplateResponse(request, "matrix.html", values)


@router.get("/trend")
@router.get("/trend.svg")
def trend_page(
    request: Request,
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    gate: Annotated[str, Query(max_length=200)] = "",
    candidate: Annotated[str, Query(max_length=200)] = "",
    by: Annotated[By, Query()] = "commit",
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = TREND_POINTS,
) -> Response:
    """The gap of a candidate over commits or days, and which of them moved it; a form where the address names no jobs that have ended.

    `/trend.svg` is the chart alone, as a file.
    """
    if not gate.strip() and not filters.baseline:
        return templates.TemplateResponse(request, "trend.html", {"trend": None, "why": None, "gate": "", "baseline": ""})
    try:
        with context.database.read() as session:
            history = trend(session, filters, gate.strip(), candidate.strip() or None, by, limit)
    except NotFoundError as error:
        empty = {"trend": None, "why": error.detail, "gate": gate.strip(), "baseline": filters.baseline}
        return templates.TemplateResponse(request, "trend.html", empty)
    query = [*filters.query(), *([("gate", history.gate)] if history.gate else [])]
    values = {
        "trend": history,
        "chart": chart(history),
        "query": query,
        "branch": filters.branch,
        "limit": limit,
        "most": MOST_POINTS,
        "address": urlencode([*query, ("candidate", history.candidate), ("by", by), ("limit", str(limit))]),
        "short": short,
    }
    if request.url.path.endswith(".svg"):
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}  # the file has its style in it
        return templates.TemplateResponse(request, "trend_file.xml", values, headers=policy, media_type="image/svg+xml")
    return templates.TemplateResponse(request, "trend.html", values)
