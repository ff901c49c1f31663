"""Number formats of the pages: signs, units and decimals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from parity import wording
from parity.judging.document_types import VerdictDocument
from parity.report.forest import estimate_of, own_row_svg

MINUS = "\u2212"
_MISSING = "\u2013"


def nats(value: float | str | None, places: int = 4) -> str:
    """A gap in nats with its sign: +0.0262; what is rounded to zero has none."""
    number = _number(value)
    if number is None:
        return _MISSING
    return wording.signed(number, places).replace("-", MINUS) if math.isfinite(number) else _nonfinite(number)


def minus(sentence: str) -> str:
    """A sentence of the judge, which is plain ASCII, with true minus signs: gap -0.004 becomes gap \u22120.004."""
    return re.sub(r"(?<![\w)])-(?=\d)", MINUS, sentence)


def loss(value: float | str | None) -> str:
    """A loss in nats, unsigned: 1.3834."""
    number = _number(value)
    if number is None:
        return _MISSING
    return f"{number:.4f}" if math.isfinite(number) else _nonfinite(number)


def percent(value: float | str | None, places: int = 1) -> str:
    """A share as percent: 0.874 -> 87.4 %."""
    number = _number(value)
    if number is None:
        return _MISSING
    return f"{100 * number:.{places}f}\u00a0%".replace("-", MINUS) if math.isfinite(number) else _nonfinite(number)


def signed_percent(value: float | str | None, places: int = 2) -> str:
    """A share as percent with its sign: 0.0035 -> +0.35 %; what is rounded to zero has none."""
    number = _number(value)
    if number is None:
        return _MISSING
    return f"{wording.signed(100 * number, places)}\u00a0%".replace("-", MINUS) if math.isfinite(number) else _nonfinite(number)


def chance(probability: float) -> str:
    """A probability in whole percent, never 0 or 100 %."""
    return "<\u00a01\u00a0%" if probability < 0.01 else ">\u00a099\u00a0%" if probability > 0.99 else f"{100 * probability:.0f}\u00a0%"


def count(value: float | str | None) -> str:
    """A whole number with thousands: 1,500."""
    number = _number(value)
    return _MISSING if number is None else f"{number:,.0f}"


def rate(value: float | str | None) -> str:
    """Steps per second, or the time per step if that is longer than a second: 26.7/s, 31.2 s each."""
    number = _number(value)
    if number is None:
        return _MISSING
    return f"{number:.1f}/s" if number >= 1 or number <= 0 else f"{1 / number:.3g}\u00a0s each"


def ratio(measured: Mapping[str, float | str]) -> str:
    """A speed ratio with its interval: 1.31 x (1.28 to 1.34)."""
    value, low, high = (_number(measured[name]) for name in ("value", "lo", "hi"))
    return f"{value:.2f}\u00a0x ({low:.2f} to {high:.2f})"


def step_time(seconds: float | str | None) -> str:
    """The time of one step: 37.4 ms, 1.52 s."""
    number = _number(seconds)
    if number is None:
        return _MISSING
    return f"{number:.3g}\u00a0s" if number >= 1 else f"{1000 * number:.3g}\u00a0ms"


_DAYS_FROM = 3 * 86_400


def gap_in_margins(verdict: VerdictDocument) -> Markup:
    """The small figure of a verdict's gap on an axis of its own margins; empty without a finite gap and a margin."""
    return Markup(own_row_svg(estimate_of(verdict)))  # noqa: S704 (numbers of our own)


def duration(seconds: float | str | None) -> str:
    """Seconds as readable text: 45 s, 3 min 20 s, 2 h 05 min, 9.5 days."""
    number = _number(seconds)
    if number is None:
        return _MISSING
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
    number = _number(value) or 0.0
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            shown = number / scale
            return f"{shown:.0f}\u00a0{unit}" if shown >= 100 else f"{shown:.2g}\u00a0{unit}" if shown < 10 else f"{shown:.3g}\u00a0{unit}"
    return f"{number:.0f}"


def _number(value: float | str | None) -> float | None:
    """A number, also from the strings nan, inf and -inf, which JSON documents use."""
    return None if value is None else float(value)


def _nonfinite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "\u221e" if number > 0 else f"{MINUS}\u221e"


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
