"""Pages of several jobs: the list with its filters, jobs side by side, and the trend of a gate or
a baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from markupsafe import Markup

from parity.frozen import frozen
from parity.report.svg import Estimate, own_row_svg
from server.api.lists import (
    ANSWERS,
    MOST_COUNTED,
    SORTS,
    STATUSES,
    AnswerState,
    Sort,
    Wanted,
    answer_counts,
    job_list,
    known_tags,
    on_their_own,
    with_answer,
)
from server.api.overviews import (
    MOST_JOBS,
    MOST_POINTS,
    By,
    Columns,
    Trend,
    matrix,
    short,
    trend,
)
from server.errors import NotFoundError
from server.jobs.verdict_rows import VerdictSummary
from server.pages.job_rows import rows_of
from server.pages.rendering import pages_router, templates
from server.pages.trend_chart import SHOWN, chart, names_shown
from server.web.auth import InContext

router = pages_router()
JOBS_A_PAGE = 50
TREND_POINTS = 50
_CHIPS: Mapping[AnswerState | Literal[""], str] = {
    "": "All",
    "fail": "Fail",
    "inconclusive": "Undecided",
    "pass": "Pass",
    "running": "Running",
    "unfinished": "Did not finish",
}
_FIELDS = ("recipe", "model", "branch", "revision", "baseline", "since", "until")
_DAYS = ("since", "until")


@frozen
class Chip:
    """A filter by answer: its word, its mark, how many jobs it shows, and where it leads."""

    word: str
    state: str
    jobs: int
    address: str
    current: bool


@frozen
class Head:
    """A column that sorts: where its head leads, and how it is sorted now."""

    address: str
    now: Literal["", "ascending", "descending"] = ""


def _address(query: Sequence[tuple[str, str]], **more: str) -> str:
    pairs = [*query, *((name, value) for name, value in more.items() if value)]
    if not pairs:
        return "/jobs"
    return f"/jobs?{urlencode(pairs)}"


def _chips(
    query: Sequence[tuple[str, str]], counts: Mapping[str, int], state: str, sort: str
) -> list[Chip]:
    numbers = {each: counts.get(each, 0) for each in _CHIPS} | {"": sum(counts.values())}
    return [
        Chip(
            word=word,
            state=each,
            jobs=numbers[each],
            address=_address(query, state=each, sort=sort),
            current=each == state,
        )
        for each, word in _CHIPS.items()
    ]


def _heads(query: Sequence[tuple[str, str]], order: Sort) -> Mapping[str, Head]:
    """The columns that sort. A column that sorts already leads to the other direction where there
    is one, else back to the newest first.
    """

    def to(sort: Sort, now: Literal["", "ascending", "descending"] = "") -> Head:
        return Head(address=_address(query, sort="" if sort == "newest" else sort), now=now)

    when: Mapping[Sort, Head] = {
        "newest": to("oldest", "descending"),
        "oldest": to("newest", "ascending"),
    }
    return {
        "name": to("newest", "ascending") if order == "name" else to("name"),
        "gap": to("newest", "descending") if order == "gap" else to("gap"),
        "when": when.get(order, to("newest")),
    }


def figure_of(verdict: VerdictSummary) -> Markup:
    """The small figure of a gap in its own margins; empty without a gap, an interval or a
    margin.
    """
    if verdict.gap_nats is None or verdict.ci_low is None or verdict.ci_high is None:
        return Markup()
    estimate = Estimate(
        mean=verdict.gap_nats,
        lo=verdict.ci_low,
        hi=verdict.ci_high,
        margin=verdict.margin_nats,
        state=verdict.verdict,
    )
    return Markup(own_row_svg(estimate))  # noqa: S704


@router.get("/jobs")
def index(
    request: Request,
    context: InContext,
    filters: Annotated[Wanted, Depends()],
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """Jobs, one answer a row. `state` is an answer or a status; everything that the page shows is
    in its address.

    Jobs that belong to another are shown where somebody searches, or asks for those of that job;
    else that job's row counts them.
    """
    answer = next((each for each in ANSWERS if each == state), None)
    if answer is None and state in STATUSES:
        filters = replace(filters, status=state)
    order: Sort = next((each for each in SORTS if each == sort), "newest")
    also = [] if filters.find or filters.parent_job else on_their_own()
    with context.database.read() as session:
        answered = [*also, with_answer(answer)] if answer else also
        page = job_list(session, filters, order, cursor, JOBS_A_PAGE, counted=False, also=answered)
        counts = answer_counts(session, filters, also)
        rows = rows_of(session, page.items)
        tags = known_tags(session)
    told, own = "" if order == "newest" else order, filters.query()
    query = [*own, ("state", answer)] if answer else own
    hidden = [(name, value) for name, value in query if name not in ("find", "tag", *_FIELDS)]
    values = {
        "rows": rows,
        "chips": _chips(own, counts, answer or "", told),
        "many": sum(counts.values()) > MOST_COUNTED,
        "most": MOST_COUNTED,
        "heads": _heads(query, order),
        "following": _address(query, sort=told, cursor=page.next_cursor)
        if page.next_cursor
        else None,
        "filters": filters,
        "fields": [(name, getattr(filters, name)) for name in _FIELDS],
        "days": _DAYS,
        "unfolded": any(getattr(filters, name) for name in _FIELDS) or bool(filters.tags),
        "hidden": [*hidden, ("sort", told)] if told else hidden,
        "tags": tags,
        "filtered": bool(query),
        "first": _address(query, sort=told),
        "paged": cursor is not None,
    }
    return templates.TemplateResponse(request, "jobs.html", values)


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
        [*(("job", each) for each in job), ("by", "name" if by == "recipe" else "recipe")]
    )
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
                beside = [each for each in history.candidates if each != history.candidate][
                    : SHOWN - 1
                ]
                others = [trend(session, filters, name, each, by, limit) for each in beside]
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
