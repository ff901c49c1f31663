"""The page of a search: the policies by speed against gap, the path of its steps, and what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request, Response

from server.documents.search import PolicyDocument, SearchDocument, search_document
from server.pages.rendering import templates, visitor
from server.searches.record import find_search
from server.web.context import InContext

router = APIRouter(include_in_schema=False, dependencies=[Depends(visitor)])
WIDTH, HEIGHT = 640.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 20.0, 16.0, 40.0
_DRAWN = 60
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A policy in the figure: where it lies, and where its interval begins and ends."""

    policy: PolicyDocument
    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Policies by speed (x, times the baseline's) against gap (y, nats, upwards), with the margin, the target and zero."""

    marks: list[Mark]
    margin: float
    target: float
    zero: float
    speeds: list[tuple[float, float]]
    gaps: list[tuple[float, float]]


@router.get("/searches/{search_id}")
def show(search_id: str, request: Request, context: InContext) -> Response:
    """A search."""
    with context.database.read() as session:
        document = search_document(find_search(session, search_id))
    values = {
        "search": document,
        "plan": document.plan,
        "ended": document.state != "running",
        "figure": figure(document),
        "width": WIDTH,
        "height": HEIGHT,
        "left": _LEFT,
        "right": WIDTH - _RIGHT,
        "bottom": HEIGHT - _BOTTOM,
        "top": _TOP,
    }
    return templates.TemplateResponse(request, "search.html", values)


def figure(document: SearchDocument) -> Figure | None:
    """The figure; None before the first forks have ended. Intervals are cut off at its edges."""
    shown = document.policies[:_DRAWN]
    if not shown:
        return None
    plan = document.plan
    gaps = [0.0, plan.margin, *(each.gap for each in shown)]
    spread = max(gaps) - min(gaps)
    lowest, highest = min(gaps) - 0.15 * spread, max(gaps) + 0.15 * spread
    fastest = max(1.0 + 1e-9, *(each.speed for each in shown))

    def x(speed: float) -> float:
        return round(_LEFT + (speed - 1.0) / (fastest - 1.0) * (WIDTH - _LEFT - _RIGHT - 10.0) + 5.0, 1)

    def y(gap: float) -> float:
        kept = min(max(gap, lowest), highest)
        return round(HEIGHT - _BOTTOM - (kept - lowest) / (highest - lowest) * (HEIGHT - _TOP - _BOTTOM), 1)

    return Figure(
        marks=[Mark(policy=each, x=x(each.speed), y=y(each.gap), low=y(each.low), high=y(each.high)) for each in reversed(shown)],
        margin=y(plan.margin),
        target=y(plan.target),
        zero=y(0.0),
        speeds=[(x(speed), speed) for speed in (1.0 + at * (fastest - 1.0) / _TICKS for at in range(_TICKS + 1))],
        gaps=[(y(gap), gap) for gap in (lowest + at * (highest - lowest) / _TICKS for at in range(_TICKS + 1))],
    )
