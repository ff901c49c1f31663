"""The curve of the final gap over the step of the switch, with the margin and the intervals that
decided, in units of its SVG's view box.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from parity.frozen import frozen

WIDTH, HEIGHT = 360.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 12.0, 12.0, 10.0, 24.0
# nats: differences that the numbers next to the figure do not show have no height in it either
_LEAST_AXIS = 0.001


@frozen
class SwitchPoint:
    """A look, or the candidate itself at the end: its verdict, where its gap lies, and the ends of
    its interval.
    """

    step: int
    verdict: str
    title: str
    x: float
    y: float
    low_y: float
    high_y: float


@frozen
class HealingChart:
    """The points in the order of their steps, a line through them, and where zero and the margin
    lie; the margin is None where none was measured.
    """

    points: Sequence[SwitchPoint]
    line: str
    zero_y: float
    margin_y: float | None


def healing_chart(plan: Mapping[str, Any], answer: Mapping[str, Any]) -> HealingChart | None:
    """The chart of a healing; None before any look has a gap."""
    gap = plan["gap"]
    ends = {"step": plan["run_steps"], "verdict": gap["verdict"], "gap": gap["gap"]}
    ends |= {"low": gap["low"], "high": gap["high"]}
    looks = [row for row in answer["looks"] if row["gap"] is not None]
    rows = looks + [ends] * all(ends[name] is not None for name in ("gap", "low", "high"))
    if not looks:
        return None
    margin = plan["margin"]
    values = [row[name] for row in rows for name in ("low", "high")]
    known = [0.0, *values, *([] if margin is None else [margin])]
    least, most = min(known), max(known)
    scale = (HEIGHT - _TOP - _BOTTOM) / max(most - least, _LEAST_AXIS)

    def at(nats: float) -> float:
        return round(float(HEIGHT - _BOTTOM - (nats - least) * scale), 1)

    first = 0.8 * looks[0]["step"]
    across = (WIDTH - _LEFT - _RIGHT) / (plan["run_steps"] - first)
    points = [
        SwitchPoint(
            step=row["step"],
            verdict=row["verdict"],
            title=f"from step {row['step']:,}: {row['gap']:+.4f} nats "
            f"({row['low']:+.4f} to {row['high']:+.4f}), {row['verdict']}",
            x=round(_LEFT + (row["step"] - first) * across, 1),
            y=at(row["gap"]),
            low_y=at(row["low"]),
            high_y=at(row["high"]),
        )
        for row in rows
    ]
    return HealingChart(
        points=points,
        line=" ".join(f"{point.x},{point.y}" for point in points),
        zero_y=at(0.0),
        margin_y=None if margin is None else at(margin),
    )
