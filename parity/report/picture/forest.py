"""Gaps with their intervals, a figure for each row of a table (a forest plot), as SVG text that is
drawn without matplotlib.

The axis shows zero and the margin on both sides; an interval that goes on beyond it ends in an
arrow. The rows of one job share an axis, which shows every interval up to six margins from zero.
Rows with margins of their own have axes of their own, from -3 to +3 margins.
"""

import math
from collections.abc import Sequence
from typing import Literal

from parity.frozen import frozen
from parity.report.view import View
from parity.wording import MINUS, interval_words, signed

WIDTH, _SMALL_WIDTH, HEIGHT, HEAD_HEIGHT = 240, 128, 20, 30
_PAD = 6.0
_MOST_MARGINS = 6.0
_LEAST_MARGINS = 1.4
_OWN_MARGINS = 3.0
_LETTER = 7.0  # width of a letter of a label, about
State = Literal["pass", "fail", "inconclusive", "forecast"]


@frozen
class DrawnGap:
    """A gap with the ends of its interval and its margin, nats. A `forecast` is of a verdict to
    come.
    """

    mean: float
    lo: float
    hi: float
    margin: float | None
    state: State


@frozen
class GapAxis:
    """What the figures of a table share: the ends of the axis and the margin, nats, and the width
    in SVG units.
    """

    low: float
    high: float
    margin: float | None
    width: int = WIDTH

    def place(self, value: float) -> float:
        """Position of a value, kept inside the figure."""
        share = (value - self.low) / (self.high - self.low)
        return round(_PAD + (self.width - 2 * _PAD) * min(1.0, max(0.0, share)), 1)


def estimate_of(view: View) -> DrawnGap | None:
    """The gap of a verdict; None where it has none that can be drawn."""
    gap, margin = view.gap, view.margin
    if gap is None or not all(map(math.isfinite, (gap.mean, gap.lo, gap.hi))):
        return None
    return DrawnGap(
        mean=gap.mean,
        lo=gap.lo,
        hi=gap.hi,
        margin=margin["nats"] if margin else None,
        state=view.state,
    )


def axis_of(estimates: Sequence[DrawnGap]) -> GapAxis | None:
    """The axis of these figures; None without any."""
    if not estimates:
        return None
    margins = [estimate.margin for estimate in estimates if estimate.margin]
    margin = max(margins, default=None)
    ends = [end for estimate in estimates for end in (estimate.lo, estimate.hi)]
    if margin is None:
        reach = 1.1 * max(1e-6, *map(abs, ends))
        return GapAxis(low=-reach, high=reach, margin=None)
    most, least = _MOST_MARGINS * margin, _LEAST_MARGINS * margin
    return GapAxis(
        low=max(-most, min(-least, 1.05 * min(ends))),
        high=min(most, max(least, 1.05 * max(ends))),
        margin=margin,
    )


def own_row_svg(estimate: DrawnGap | None) -> str:
    """A small figure that stands among gaps with other margins: from -3 to +3 of its own; empty
    without a gap and a margin.
    """
    if estimate is None or not estimate.margin:
        return ""
    reach = _OWN_MARGINS * estimate.margin
    return row_svg(
        estimate, GapAxis(low=-reach, high=reach, margin=estimate.margin, width=_SMALL_WIDTH)
    )


def row_svg(estimate: DrawnGap, axis: GapAxis) -> str:
    """The figure of one row."""
    words = (
        f"gap {signed(estimate.mean, 4)}, interval {interval_words(estimate.lo, estimate.hi, 4)}"
    )
    if estimate.state == "forecast":
        words = f"forecast: {words}"
    left, middle, right, y = (
        axis.place(estimate.lo),
        axis.place(estimate.mean),
        axis.place(estimate.hi),
        HEIGHT / 2,
    )
    end = axis.width - _PAD
    arrows = ""
    if estimate.lo < axis.low:
        arrows += f'<path d="M{_PAD + 6} {y - 4}L{_PAD} {y}L{_PAD + 6} {y + 4}"/>'
    if estimate.hi > axis.high:
        arrows += f'<path d="M{end - 6} {y - 4}L{end} {y}L{end - 6} {y + 4}"/>'
    mark = _mark(estimate.state, middle, y) if axis.low <= estimate.mean <= axis.high else ""
    return (
        f'<svg class="forest {estimate.state}" viewBox="0 0 {axis.width} {HEIGHT}" '
        f'width="{axis.width}" role="img" aria-label="{words}">'
        f"{_lines(axis, HEIGHT)}"
        f'<line class="interval" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>{arrows}{mark}</svg>'
    )


def head_svg(axis: GapAxis) -> str:
    """The labels of the axis, for the head of the column."""
    labels = [(0.0, "0")]
    if axis.margin is not None:
        edge = signed(axis.margin, 4)
        labels += [
            (axis.margin, f"margin {edge}"),
            (axis.margin, edge),
            (-axis.margin, signed(-axis.margin, 4)),
        ]
    labels += [(axis.high, signed(axis.high, 3)), (axis.low, signed(axis.low, 3))]
    drawn, taken = [], list[tuple[float, float]]()
    for value, text in labels:
        half = _LETTER * len(text) / 2
        at = min(axis.width - half, max(half, axis.place(value)))
        if all(at + half + 4 <= low or at - half - 4 >= high for low, high in taken):
            taken.append((at - half, at + half))
            drawn.append(f'<text x="{at:.1f}" y="12">{text.replace("-", MINUS)}</text>')
    return (
        f'<svg class="forest head" viewBox="0 0 {axis.width} {HEAD_HEIGHT}" width="{axis.width}" '
        'aria-hidden="true">'
        f'{"".join(drawn)}<g transform="translate(0 17)">{_lines(axis, HEAD_HEIGHT - 17)}</g></svg>'
    )


def _lines(axis: GapAxis, height: float) -> str:
    """Zero and the margins, over the whole height, so that rows join them to one line."""
    places = [("zero", 0.0)] + (
        [] if axis.margin is None else [("edge", axis.margin), ("edge", -axis.margin)]
    )
    shown = [(name, axis.place(value)) for name, value in places if axis.low <= value <= axis.high]
    return "".join(
        f'<line class="{name}" x1="{at}" x2="{at}" y1="0" y2="{height}"/>' for name, at in shown
    )


def _mark(state: State, x: float, y: float) -> str:
    """A filled circle, a filled square, a hollow diamond; a small hollow circle for a forecast."""
    if state == "fail":
        return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
    if state == "inconclusive":
        return f'<path class="hollow" d="M{x} {y - 5}L{x + 5} {y}L{x} {y + 5}L{x - 5} {y}Z"/>'
    hollow, radius = (' class="hollow"', 3.5) if state == "forecast" else ("", 4.5)
    return f'<circle{hollow} cx="{x}" cy="{y}" r="{radius}"/>'
