"""A waterfall of parts with intervals: where each bar stands, in units of its SVG's view box."""

from collections.abc import Mapping, Sequence

from parity.frozen import frozen

WATERFALL_WIDTH = 320.0
# nats: differences that the numbers next to the figure do not show have no length in it either
_LEAST_AXIS = 0.001


@frozen
class Bar:
    """A row of a waterfall: its value and interval in nats, and where the bar, its interval and
    zero lie, from 0 to WIDTH.
    """

    name: str
    kind: str
    value: float
    low: float
    high: float
    zero: float
    begin: float
    end: float
    low_at: float
    high_at: float


def bars(rows: Sequence[tuple[str, str, Mapping[str, float]]]) -> list[Bar]:
    """Rows on one axis; a part begins where the part before it ended."""
    begin, placed = 0.0, []
    for name, kind, estimate in rows:
        start = 0.0 if kind == "whole" else begin
        placed.append((name, kind, estimate, start))
        begin = 0.0 if kind == "whole" else start + estimate["value"]
    ends = [
        start + estimate[key] for *_, estimate, start in placed for key in ("value", "low", "high")
    ]
    least, most = min(0.0, *ends), max(0.0, *ends)
    scale = (WATERFALL_WIDTH - 8) / max(most - least, _LEAST_AXIS)

    def at(value: float) -> float:
        return round(4 + (value - least) * scale, 1)

    return [
        Bar(
            name=name,
            kind=kind,
            value=estimate["value"],
            low=estimate["low"],
            high=estimate["high"],
            zero=at(0.0),
            begin=at(start),
            end=at(start + estimate["value"]),
            low_at=at(start + estimate["low"]),
            high_at=at(start + estimate["high"]),
        )
        for name, kind, estimate, start in placed
    ]
