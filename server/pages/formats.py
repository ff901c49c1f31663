"""Number formats of the pages: signs, units and decimals."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from markupsafe import Markup

from parity import wording
from parity.judging.document_types import VerdictDocument
from parity.recipes import UNSTATED
from parity.report.html.code_words import with_code
from parity.report.picture.forest import estimate_of, own_row_svg
from parity.report.view import view_of

_MISSING = "\u2013"
_DAYS_FROM = 3 * 86_400
P = ParamSpec("P")


def _number_format(
    write: Callable[Concatenate[float, P], str],
) -> Callable[Concatenate[float | str | None, P], str]:
    """A format that also shows a missing number, and one that is not finite; JSON documents write
    these as nan, inf and -inf.
    """

    @wraps(write)
    def shown(value: float | str | None, /, *more: P.args, **named: P.kwargs) -> str:
        if value is None:
            return _MISSING
        number = float(value)
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            if number > 0:
                return "\u221e"
            return f"{wording.MINUS}\u221e"
        return write(number, *more, **named)

    return shown


@_number_format
def nats(number: float, places: int = 4) -> str:
    """A gap in nats with its sign: +0.0262; what is rounded to zero has none."""
    return wording.signed(number, places).replace("-", wording.MINUS)


@_number_format
def loss(number: float) -> str:
    """A loss in nats, unsigned: 1.3834."""
    return f"{number:.4f}"


@_number_format
def percent(number: float, places: int = 1) -> str:
    """A share as percent: 0.874 -> 87.4 %."""
    return f"{100 * number:.{places}f}\u00a0%".replace("-", wording.MINUS)


@_number_format
def signed_percent(number: float, places: int = 2) -> str:
    """A share as percent with its sign: 0.0035 -> +0.35 %; what is rounded to zero has none."""
    return f"{wording.signed(100 * number, places)}\u00a0%".replace("-", wording.MINUS)


def chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100 %."""
    if probability < 0.01:
        return "<\u00a01\u00a0%"
    if probability > 0.99:
        return ">\u00a099\u00a0%"
    return f"{100 * probability:.0f}\u00a0%"


@_number_format
def count(number: float) -> str:
    """A whole number with thousands: 1,500."""
    return f"{number:,.0f}"


@_number_format
def rate(number: float) -> str:
    """Steps per second, or the time per step if that is longer than a second: 26.7/s, 31.2 s
    each.
    """
    if number >= 1 or number <= 0:
        return f"{number:.1f}/s"
    return f"{1 / number:.3g}\u00a0s each"


def ratio(measured: Mapping[str, float | str]) -> str:
    """A speed ratio with its interval: 1.31 x (1.28 to 1.34)."""
    value, low, high = (float(measured[name]) for name in ("value", "lo", "hi"))
    return f"{value:.2f}\u00a0x ({low:.2f} to {high:.2f})"


@_number_format
def step_time(number: float) -> str:
    """The time of one step: 37.4 ms, 1.52 s."""
    if number >= 1:
        return f"{number:.3g}\u00a0s"
    return f"{1000 * number:.3g}\u00a0ms"


def gap_in_margins(verdict: VerdictDocument) -> Markup:
    """The small figure of a verdict's gap on an axis of its own margins; empty without a finite gap
    and a margin.
    """
    return Markup(own_row_svg(estimate_of(view_of(verdict))))  # noqa: S704


@_number_format
def duration(number: float) -> str:
    """Seconds as readable text: 45 s, 3 min 20 s, 2 h 05 min, 9.5 days."""
    whole = round(number)
    if whole < 60:
        return f"{whole}\u00a0s"
    if whole < 3600:
        return f"{whole // 60}\u00a0min {whole % 60:02d}\u00a0s"
    if whole >= _DAYS_FROM:
        return f"{whole / 86_400:.1f}\u00a0days"
    return f"{whole // 3600}\u00a0h {whole % 3600 // 60:02d}\u00a0min"


def rough_duration(seconds: float) -> str:
    """A time to come, rounded as an estimate is: 40 s, 6 min, 2 h, 3 days."""
    for unit, length, until in (("s", 1.0, 90.0), ("min", 60.0, 5400.0), ("h", 3600.0, 172_800.0)):
        if seconds < until:
            number = max(1, round(seconds / length))
            return f"{10 * max(1, round(number / 10)) if unit == 's' else number} {unit}"
    return f"{round(seconds / 86_400)} days"


def between(start: str | None, end: str | None) -> str:
    """The time between two instants; None as the second means now."""
    if start is None:
        return _MISSING
    last = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return duration((last - datetime.fromisoformat(start)).total_seconds())


def minute(instant: str) -> str:
    """An instant to the minute: 2026-11-23 04:18 (UTC)."""
    return instant[:16].replace("T", " ")


def instant_words(at: datetime) -> str:
    """An instant to come, to the minute: 04:18 UTC today, else 24 Nov, 04:18 UTC."""
    day = "" if at.date() == datetime.now(UTC).date() else f"{at.day}\u00a0{at:%b}, "
    return f"{day}{at:%H:%M}\u00a0UTC"


def day_or_time(instant: str) -> str:
    """When something was, short and the same until the day ends: 04:18 (UTC) today, 23 Nov,
    2025-11-23.
    """
    at, now = datetime.fromisoformat(instant).astimezone(UTC), datetime.now(UTC)
    if at.date() == now.date():
        return f"{at:%H:%M}"
    if at.year == now.year:
        return f"{at.day}\u00a0{at:%b}"
    return f"{at:%Y-%m-%d}"


def recipe_words(recipe: str) -> str:
    """A recipe, or that nobody has stated it."""
    if recipe == UNSTATED:
        return "recipe not stated"
    return recipe


def size(value: float | str | None) -> str:
    """A number of parameters: 336 k, 8.0 B."""
    number = float(value or 0.0)
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        shown = number / scale
        if shown >= 100:
            return f"{shown:.0f}\u00a0{unit}"
        if shown >= 1:
            return f"{shown:{'.2g' if shown < 10 else '.3g'}}\u00a0{unit}"
    return f"{number:.0f}"


def sentence(words: str) -> Markup:
    """A sentence of the judge, with true minus signs and with its commands as code."""
    return Markup(with_code(wording.minus(words)))  # noqa: S704


FILTERS: Mapping[str, Callable[..., Any]] = {
    "between": between,
    "chance": chance,
    "count": count,
    "day_or_time": day_or_time,
    "duration": duration,
    "gap_in_margins": gap_in_margins,
    "loss": loss,
    "minus": wording.minus,
    "minute": minute,
    "recipe": recipe_words,
    "nats": nats,
    "percent": percent,
    "sentence": sentence,
    "share": wording.percent,
    "signed_percent": signed_percent,
    "rate": rate,
    "ratio": ratio,
    "size": size,
    "step_time": step_time,
}
