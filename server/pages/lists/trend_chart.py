"""Where the marks of a trend chart stand: an SVG that the server draws, in units of its view box,
over the time of submission.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from parity.frozen import frozen
from parity.report.picture.spread import spread
from parity.wording import cut
from server.database.states import JOB_ENDED
from server.database.tables import Job
from server.documents.job_lists.parent_jobs import parentless
from server.documents.trend import Trend, TrendPoint, short
from server.pages.lists.axes import even_ticks, place

WIDTH, HEIGHT = 1120, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 16, 40
_LABELS = 7
_NAMES = 150  # room at the right for the names of several candidates
_HALF = 9.0  # half the width of a job's margin
_APART = 14.0  # between the names of lines
SHOWN = 8  # candidates of one chart
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
    points = [point for line in trends for point in line.points]
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
            for point in line.points
        ]
        for line in trends
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
        marks=[mark for line_marks in reversed(marks) for mark in line_marks],
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


def names_shown(session: Session) -> list[tuple[str, int]]:
    """Names of the newest ended jobs that can have a trend, newest first, each with how many of
    these jobs have it.
    """
    newest = (
        select(Job.name)
        .where(Job.status.in_(JOB_ENDED), *parentless())
        .order_by(Job.id.desc())
        .limit(_LOOKED_AT)
    )
    return list(Counter(session.scalars(newest)).items())[:_NAMES_SHOWN]


def _trend_lines(
    trends: Sequence[Trend], marks: Sequence[Sequence[Mark]], *, named: bool
) -> list[TrendLine]:
    """The lines of candidates, each broken where a job has no gap, with names that do not meet."""
    ends = [
        next((mark for mark in reversed(line_marks) if mark.y is not None), None)
        for line_marks in marks
    ]
    tops = spread(
        [end.y if end and end.y is not None else _TOP for end in ends],
        _APART,
        (_TOP, HEIGHT - _BOTTOM),
    )
    lines = []
    for number, (line_marks, end, top) in enumerate(zip(marks, ends, tops, strict=True)):
        parts = [
            "M" if not at or line_marks[at - 1].y is None else "L" for at in range(len(line_marks))
        ]
        path = "".join(
            f"{part}{mark.x} {mark.y}"
            for part, mark in zip(parts, line_marks, strict=True)
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
