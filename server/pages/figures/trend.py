"""Where the marks of a trend chart stand: an SVG that the server draws, in units of its view box."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.overviews.trend import Trend, TrendPoint, short
from server.pages.figures.ticks import even_ticks, place

WIDTH, HEIGHT = 1120, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 16, 40
_LABELS = 10
_BEYOND = 6.0  # an interval that is this many times as long as the middle one is cut at the edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A job in the chart: its place, the ends of its interval and its margin; `y` is None where it has no gap."""

    point: TrendPoint
    x: float
    y: float | None
    low: float | None
    high: float | None
    margin: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChart:
    """Marks, ticks (place, nats), labels (place, text) and the places of moves, oldest first; `half` is half a mark's width."""

    width: int
    height: int
    left: int
    right: int
    bottom: int
    half: float
    marks: Sequence[Mark]
    ticks: Sequence[tuple[float, float]]
    labels: Sequence[tuple[float, str]]
    moves: Sequence[tuple[float, str, str]]


def chart(history: Trend) -> TrendChart:
    """The chart of a trend; the scale holds zero, the margins and the intervals, but for very long ones."""
    points = history.points
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(points))
    low, high = _reach(points)
    ticks = even_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def y(value: float | None) -> float | None:
        return None if value is None else place(value, low, high, HEIGHT - _BOTTOM, _TOP)

    marks = [
        Mark(
            point=point,
            x=round(_LEFT + step * (number + 0.5), 1),
            y=y(point.gap_nats),
            low=y(point.ci_low),
            high=y(point.ci_high),
            margin=y(point.margin_nats),
        )
        for number, point in enumerate(points)
    ]
    first: Mapping[str, float] = {mark.point.group: mark.x for mark in reversed(marks)}
    every = max(1, math.ceil(len(first) / _LABELS))
    names = sorted(first, key=first.__getitem__)
    return TrendChart(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=HEIGHT - _BOTTOM,
        half=round(step / 2, 1),
        marks=marks,
        ticks=[(y(tick) or 0.0, tick) for tick in ticks],
        labels=[(first[name], short(name)) for name in names[::every]],
        moves=[(first[move.after] - step / 2, move.what, short(move.after)) for move in history.moves if move.what in ("worse", "better")],
    )


def _reach(points: Sequence[TrendPoint]) -> tuple[float, float]:
    """The smallest and the largest value to be shown."""
    gaps = [point for point in points if point.gap_nats is not None]
    widths = sorted(abs((point.ci_high or 0.0) - (point.ci_low or 0.0)) for point in gaps)
    longest = _BEYOND * widths[len(widths) // 2] if widths else 0.0
    values = [0.0, *(point.margin_nats for point in points if point.margin_nats is not None)]
    for point in gaps:
        gap, reach = point.gap_nats or 0.0, longest / 2
        values += [gap, max(point.ci_low or gap, gap - reach), min(point.ci_high or gap, gap + reach)]
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.01, high + 0.01)
