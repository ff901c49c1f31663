"""Where the marks of a search's chart stand: policies by speed against gap, in units of the SVG's view box."""

from __future__ import annotations

from dataclasses import dataclass

from server.documents.search import PolicyDocument, SearchDocument
from server.pages.figures.ticks import even_ticks, place

WIDTH, HEIGHT = 560.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 16.0, 28.0, 48.0
_INSET = 8.0  # between the axis and the slowest policy
_DRAWN = 60
_BEYOND = 0.3  # intervals are cut this share of the gaps' range above and below it


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A policy in the chart: where it lies, and where its interval begins and ends."""

    policy: PolicyDocument
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChart:
    """Marks, the heights of the margin and of the largest gap that passes with 95 % power, and ticks (place, value): speeds as multiples
    of the baseline's to the right, gaps in nats upwards."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    marks: list[Mark]
    margin: float
    target: float
    speeds: list[tuple[float, float]]
    gaps: list[tuple[float, float]]


def chart(document: SearchDocument) -> PolicyChart | None:
    """The chart of a search; None before the first forks have ended."""
    shown = document.policies[:_DRAWN]
    if not shown:
        return None
    plan = document.plan
    gaps = [0.0, plan.margin, *(each.gap for each in shown)]
    room = _BEYOND * (max(gaps) - min(gaps))
    heights = even_ticks(
        max(min(gaps) - room, min(0.0, *(each.low for each in shown))),
        min(max(gaps) + room, max(plan.margin, *(each.high for each in shown))),
    )
    speeds = even_ticks(min(1.0, *(each.speed for each in shown)), max(1.05, *(each.speed for each in shown)))

    def x(speed: float) -> float:
        return place(speed, speeds[0], speeds[-1], _LEFT + _INSET, WIDTH - _RIGHT - _INSET)

    def y(gap: float) -> float:
        return place(gap, heights[0], heights[-1], HEIGHT - _BOTTOM, _TOP)

    return PolicyChart(
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bottom=HEIGHT - _BOTTOM,
        marks=[Mark(policy=each, x=x(each.speed), y=y(each.gap), low=y(each.low), high=y(each.high)) for each in reversed(shown)],
        margin=y(plan.margin),
        target=y(plan.target),
        speeds=[(x(speed), speed) for speed in speeds],
        gaps=[(y(gap), gap) for gap in heights],
    )
