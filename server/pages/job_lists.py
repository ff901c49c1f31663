"""Pages of several jobs: the list with its filters, jobs side by side, and the trend of a gate or a
baseline with its chart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from markupsafe import Markup
from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.report.picture import spread
from parity.report.svg import Estimate, own_row_svg
from parity.wording import cut
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
    TrendPoint,
    matrix,
    short,
    trend,
)
from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.errors import NotFoundError
from server.jobs.verdict_rows import VerdictSummary
from server.pages.job_rows import rows_of
from server.pages.rendering import pages_router, templates
from server.web.auth import InContext

# Axes of figures: round values along one, and where a value lies on it.

_TICKS = 5


def even_ticks(low: float, high: float) -> list[float]:
    """About five even values from at most `low` to at least `high`."""
    raw = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(
        unit * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if unit * factor >= raw * 0.999
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def place(value: float, low: float, high: float, begin: float, end: float) -> float:
    """Where a value lies on an axis from `low` at `begin` to `high` at `end`; what is beyond an end
    lies at it.
    """
    share = (min(max(value, low), high) - low) / (high - low)
    return round(begin + share * (end - begin), 1)


# Where the marks of a trend chart stand: an SVG that the server draws, in units of its view box,
# over the time of submission.

WIDTH, HEIGHT = 1120, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 16, 40
_LABELS = 7
_NAMES = 150  # room at the right for the names of several candidates
_HALF = 9.0  # half the width of a job's margin
_APART = 14.0  # between the names of lines
_SHOWN = 8  # candidates of one chart
_NAME = 20  # characters of a name
_DASHES = ("none", "6 3", "2 3", "8 3 2 3")  # of the lines of candidates, in turn
_DAYS_SHOWN = 2 * 86_400
# jobs whose names are offered where no trend is asked for, and how many names
_LOOKED_AT, _NAMES_SHOWN = 500, 20
_BEYOND = 6.0  # an interval that is this many times as long as the middle one is cut at the edge


@frozen
class Mark:
    """A job in the chart: its place, the ends of its interval and its margin; `y` is None where it
    has no gap.
    """

    point: TrendPoint
    x: float
    y: float | None
    low: float | None
    high: float | None
    margin: float | None


@frozen
class TrendLine:
    """A candidate: the path through its gaps, its dashes, and its name at (`x`, `y`); the name is
    "" of one candidate alone.
    """

    path: str
    dashes: str
    name: str
    x: float
    y: float


@frozen
class TrendChart:
    """Lines, marks, ticks (place, nats), dates (place, text) and the places of moves, oldest first;
    `half` is half a margin's width.
    """

    width: int
    height: int
    left: int
    right: int
    bottom: int
    half: float
    lines: Sequence[TrendLine]
    marks: Sequence[Mark]
    ticks: Sequence[tuple[float, float]]
    labels: Sequence[tuple[float, str]]
    moves: Sequence[tuple[float, str, str]]


def chart(history: Trend, others: Sequence[Trend] = ()) -> TrendChart:
    """The chart of a trend and of `others`, candidates of its jobs; the scale holds zero, margins
    and intervals, but for very long ones.
    """
    trends = [history, *others]
    points = [point for each in trends for point in each.points]
    low, high = _reach(points)
    ticks = even_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    right = WIDTH - (_NAMES if others else _RIGHT)
    instants = sorted(_seconds(point) for point in points)
    begin, end = instants[0], instants[-1]

    def x(seconds: float) -> float:
        if end <= begin:
            return round((_LEFT + right) / 2, 1)
        return place(seconds, begin, end, _LEFT + 2 * _HALF, right - 2 * _HALF)

    def y(value: float | None) -> float | None:
        if value is None:
            return None
        return place(value, low, high, HEIGHT - _BOTTOM, _TOP)

    marks = [
        [
            Mark(
                point=point,
                x=x(_seconds(point)),
                y=y(point.gap_nats),
                low=y(point.ci_low),
                high=y(point.ci_high),
                margin=y(point.margin_nats),
            )
            for point in each.points
        ]
        for each in trends
    ]
    first: Mapping[str, float] = {mark.point.group: mark.x for mark in reversed(marks[0])}
    return TrendChart(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=right,
        bottom=HEIGHT - _BOTTOM,
        half=_HALF,
        lines=_trend_lines(trends, marks, named=bool(others)),
        marks=[mark for own in reversed(marks) for mark in own],
        ticks=[(y(tick) or 0.0, tick) for tick in ticks],
        labels=_dates(begin, end, x),
        moves=[
            ((first[move.before] + first[move.after]) / 2, move.what, short(move.after))
            for move in history.moves
            if move.what in ("worse", "better")
        ],
    )


def _seconds(point: TrendPoint) -> float:
    return datetime.fromisoformat(point.submitted_at).timestamp()


def _dates(begin: float, end: float, x: Callable[[float], float]) -> list[tuple[float, str]]:
    """Dates at even distances; times of the day where all jobs were submitted within two days."""
    form = "%Y-%m-%d" if end - begin > _DAYS_SHOWN else "%d %b %H:%M"
    if end > begin:
        instants = [begin + (end - begin) * part / (_LABELS - 1) for part in range(_LABELS)]
    else:
        instants = [begin]
    if end - begin > _DAYS_SHOWN:
        # a date stands where its day begins
        instants = [max(begin, instant - instant % 86_400) for instant in instants]
    words = {
        f"{datetime.fromtimestamp(instant, UTC):{form}}": x(instant)
        for instant in reversed(instants)
    }
    return [(place_of, word) for word, place_of in words.items()]


def _names(session: Session) -> list[tuple[str, int]]:
    """Names of the newest ended jobs that can have a trend, newest first, each with how many of
    these jobs have it.
    """
    newest = (
        select(Job.name)
        .where(Job.status.in_(JOB_ENDED), *on_their_own())
        .order_by(Job.id.desc())
        .limit(_LOOKED_AT)
    )
    return list(Counter(session.scalars(newest)).items())[:_NAMES_SHOWN]


def _trend_lines(
    trends: Sequence[Trend], marks: Sequence[Sequence[Mark]], *, named: bool
) -> list[TrendLine]:
    """The lines of candidates, each broken where a job has no gap, with names that do not meet."""
    ends = [next((mark for mark in reversed(own) if mark.y is not None), None) for own in marks]
    tops = spread(
        [end.y if end and end.y is not None else _TOP for end in ends],
        _APART,
        (_TOP, HEIGHT - _BOTTOM),
    )
    lines = []
    for number, (own, end, top) in enumerate(zip(marks, ends, tops, strict=True)):
        parts = ["M" if not at or own[at - 1].y is None else "L" for at in range(len(own))]
        path = "".join(
            f"{part}{mark.x} {mark.y}"
            for part, mark in zip(parts, own, strict=True)
            if mark.y is not None
        )
        name = cut(trends[number].candidate, _NAME) if named and end else ""
        lines.append(
            TrendLine(
                path=path,
                dashes=_DASHES[number % len(_DASHES)],
                name=name,
                x=(end.x if end else 0.0) + 12.0,
                y=top + 4.0,
            )
        )
    return lines


def _reach(points: Sequence[TrendPoint]) -> tuple[float, float]:
    """The smallest and the largest value to be shown."""
    gaps = [point for point in points if point.gap_nats is not None]
    widths = sorted(abs((point.ci_high or 0.0) - (point.ci_low or 0.0)) for point in gaps)
    longest = _BEYOND * widths[len(widths) // 2] if widths else 0.0
    values = [0.0, *(point.margin_nats for point in points if point.margin_nats is not None)]
    for point in gaps:
        gap, reach = point.gap_nats or 0.0, longest / 2
        values += [
            gap,
            max(point.ci_low or gap, gap - reach),
            min(point.ci_high or gap, gap + reach),
        ]
    low, high = min(values), max(values)
    if high > low:
        return low, high
    return low - 0.01, high + 0.01


# Pages of several jobs: the list with its filters, jobs side by side, and the trend of a gate or a
# baseline.

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
                    : _SHOWN - 1
                ]
                others = [trend(session, filters, name, each, by, limit) for each in beside]
        except NotFoundError as error:
            why = error.detail
    if history is None:
        with context.database.read() as session:
            names = _names(session)
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
