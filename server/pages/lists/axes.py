"""Axes of figures: round values along one, and where a value lies on it."""

import math

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
