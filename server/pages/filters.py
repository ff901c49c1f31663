"""Number formats of the pages: signs, units and decimals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from markupsafe import Markup

from parity import wording
from parity.judging.document_types import VerdictDocument
from parity.report.forest import estimate_of, own_row_svg

MINUS = "\u2212"
_MISSING = "\u2013"
_DAYS_FROM = 3 * 86_400
P = ParamSpec("P")


def _of_number(write: Callable[Concatenate[float, P], str]) -> Callable[Concatenate[float | str | None, P], str]:
    """A format that also shows a missing number, and one that is not finite; JSON documents write these as nan, inf and -inf."""

    @wraps(write)
    def shown(value: float | str | None, /, *more: P.args, **named: P.kwargs) -> str:
        if value is None:
            return _MISSING
        number = float(value)
        if math.isnan(number):
            return "NaN"
        if math.isinf(number):
            return "\u221e" if number > 0 else f"{MINUS}\u221e"
        return write(number, *more, **named)

    return shown


@_of_number
def nats(number: float, places: int = 4) -> str:
    """A gap in nats with its sign: +0.0262; what is rounded to zero has none."""
    return wording.signed(number, places).replace("-", MINUS)


def minus(sentence: str) -> str:
    """A sentence of the judge, which is plain ASCII, with true minus signs: gap -0.004 becomes gap \u22120.004."""
    return re.sub(r"(?<![\w)])-(?=\d)", MINUS, sentence)


@_of_number
def loss(number: float) -> str:
    """A loss in nats, unsigned: 1.3834."""
    return f"{number:.4f}"


@_of_number
def percent(number: float, places: int = 1) -> str:
    """A share as percent: 0.874 -> 87.4 %."""
    return f"{100 * number:.{places}f}\u00a0%".replace("-", MINUS)


@_of_number
def signed_percent(number: float, places: int = 2) -> str:
    """A share as percent with its sign: 0.0035 -> +0.35 %; what is rounded to zero has none."""
    return f"{wording.signed(100 * number, places)}\u00a0%".replace("-", MINUS)


def chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100 %."""
    if probability < 0.01:
        return "<\u00a01\u00a0%"
    return ">\u00a099\u00a0%" if probability > 0.99 else f"{100 * probability:.0f}\u00a0%"


@_of_number
def count(number: float) -> str:
    """A whole number with thousands: 1,500."""
    return f"{number:,.0f}"


@_of_number
def rate(number: float) -> str:
    """Steps per second, or the time per step if that is longer than a second: 26.7/s, 31.2 s each."""
    return f"{number:.1f}/s" if number >= 1 or number <= 0 else f"{1 / number:.3g}\u00a0s each"


def ratio(measured: Mapping[str, float | str]) -> str:
    """A speed ratio with its interval: 1.31 x (1.28 to 1.34)."""
    value, low, high = (float(measured[name]) for name in ("value", "lo", "hi"))
    return f"{value:.2f}\u00a0x ({low:.2f} to {high:.2f})"


@_of_number
def step_time(number: float) -> str:
    """The time of one step: 37.4 ms, 1.52 s."""
    return f"{number:.3g}\u00a0s" if number >= 1 else f"{1000 * number:.3g}\u00a0ms"


def gap_in_margins(verdict: VerdictDocument) -> Markup:
    """The small figure of a verdict's gap on an axis of its own margins; empty without a finite gap and a margin."""
    return Markup(own_row_svg(estimate_of(verdict)))  # noqa: S704 (numbers of our own)


@_of_number
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


def between(start: str | None, end: str | None) -> str:
    """The time between two instants; None as the second means now."""
    if start is None:
        return _MISSING
    last = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return duration((last - datetime.fromisoformat(start)).total_seconds())


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


FILTERS: Mapping[str, Callable[..., Any]] = {
    "between": between,
    "chance": chance,
    "count": count,
    "duration": duration,
    "gap_in_margins": gap_in_margins,
    "loss": loss,
    "minus": minus,
    "nats": nats,
    "percent": percent,
    "share": wording.percent,
    "signed_percent": signed_percent,
    "rate": rate,
    "ratio": ratio,
    "size": size,
    "step_time": step_time,
}
