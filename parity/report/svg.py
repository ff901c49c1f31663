"""Charts as SVG text, drawn without matplotlib: gaps with their intervals (a forest plot), and the gap chart of a verdict."""

import math
from collections.abc import Sequence
from html import escape
from typing import Literal

import numpy as np

from parity.judging.curve import FloatArray, IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap
from parity.report.figures import gap_limits, spike_steps
from parity.report.words import AnyDocument, baseline_name, candidate_name, number, told_gap, words
from parity.structure import frozen
from parity.wording import MINUS, interval_words, level_percent, margin_words, minus, signed

# Gaps with their intervals, a figure for each row of a table (a forest plot), as SVG text.
#
# The axis shows zero and the margin on both sides; an interval that goes on beyond it ends in an arrow. The rows of one job share an
# axis, which shows every interval up to six margins from zero. Rows with margins of their own have axes of their own, from -3 to +3
# margins.

WIDTH, _SMALL_WIDTH, HEIGHT, HEAD_HEIGHT = 240, 128, 20, 30
_PAD = 6.0
_MOST_MARGINS = 6.0
_LEAST_MARGINS = 1.4
_OWN_MARGINS = 3.0
_LETTER = 7.0  # width of a letter of a label, about
State = Literal["pass", "fail", "inconclusive", "forecast"]


@frozen
class Estimate:
    """A gap with the ends of its interval and its margin, nats. A `forecast` is of a verdict to come."""

    mean: float
    lo: float
    hi: float
    margin: float | None
    state: State


@frozen
class Axis:
    """What the figures of a table share: the ends of the axis and the margin, nats, and the width in SVG units."""

    low: float
    high: float
    margin: float | None
    width: int = WIDTH

    def place(self, value: float) -> float:
        """Position of a value, kept inside the figure."""
        share = (value - self.low) / (self.high - self.low)
        return round(_PAD + (self.width - 2 * _PAD) * min(1.0, max(0.0, share)), 1)


def estimate_of(document: AnyDocument) -> Estimate | None:
    """The gap of a verdict; None where it has none that can be drawn."""
    gap, margin = told_gap(document), document["margin"]
    if gap is None:
        return None
    mean, lo, hi = (number(gap[key]) for key in ("mean", "lo", "hi"))
    if not all(map(math.isfinite, (mean, lo, hi))):
        return None
    return Estimate(mean=mean, lo=lo, hi=hi, margin=margin["nats"] if margin else None, state=document["verdict"])


def axis_of(estimates: Sequence[Estimate]) -> Axis | None:
    """The axis of these figures; None without any."""
    if not estimates:
        return None
    margins = [each.margin for each in estimates if each.margin]
    margin = max(margins, default=None)
    ends = [end for each in estimates for end in (each.lo, each.hi)]
    if margin is None:
        reach = 1.1 * max(1e-6, *map(abs, ends))
        return Axis(low=-reach, high=reach, margin=None)
    most, least = _MOST_MARGINS * margin, _LEAST_MARGINS * margin
    return Axis(low=max(-most, min(-least, 1.05 * min(ends))), high=min(most, max(least, 1.05 * max(ends))), margin=margin)


def own_row_svg(estimate: Estimate | None) -> str:
    """A small figure that stands among gaps with other margins: from -3 to +3 of its own; empty without a gap and a margin."""
    if estimate is None or not estimate.margin:
        return ""
    reach = _OWN_MARGINS * estimate.margin
    return row_svg(estimate, Axis(low=-reach, high=reach, margin=estimate.margin, width=_SMALL_WIDTH))


def row_svg(estimate: Estimate, axis: Axis) -> str:
    """The figure of one row."""
    words = f"gap {signed(estimate.mean, 4)}, interval {interval_words(estimate.lo, estimate.hi, 4)}"
    if estimate.state == "forecast":
        words = f"forecast: {words}"
    left, middle, right, y = axis.place(estimate.lo), axis.place(estimate.mean), axis.place(estimate.hi), HEIGHT / 2
    end = axis.width - _PAD
    arrows = ""
    if estimate.lo < axis.low:
        arrows += f'<path d="M{_PAD + 6} {y - 4}L{_PAD} {y}L{_PAD + 6} {y + 4}"/>'
    if estimate.hi > axis.high:
        arrows += f'<path d="M{end - 6} {y - 4}L{end} {y}L{end - 6} {y + 4}"/>'
    mark = _mark(estimate.state, middle, y) if axis.low <= estimate.mean <= axis.high else ""
    return (
        f'<svg class="forest {estimate.state}" viewBox="0 0 {axis.width} {HEIGHT}" width="{axis.width}" role="img" aria-label="{words}">'
        f"{_lines(axis, HEIGHT)}"
        f'<line class="interval" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>{arrows}{mark}</svg>'
    )


def head_svg(axis: Axis) -> str:
    """The labels of the axis, for the head of the column."""
    labels = [(0.0, "0")]
    if axis.margin is not None:
        edge = signed(axis.margin, 4)
        labels += [(axis.margin, f"margin {edge}"), (axis.margin, edge), (-axis.margin, signed(-axis.margin, 4))]
    labels += [(axis.high, signed(axis.high, 3)), (axis.low, signed(axis.low, 3))]
    drawn, taken = [], list[tuple[float, float]]()
    for value, text in labels:
        half = _LETTER * len(text) / 2
        at = min(axis.width - half, max(half, axis.place(value)))
        if all(at + half + 4 <= low or at - half - 4 >= high for low, high in taken):
            taken.append((at - half, at + half))
            drawn.append(f'<text x="{at:.1f}" y="12">{text.replace("-", MINUS)}</text>')
    return (
        f'<svg class="forest head" viewBox="0 0 {axis.width} {HEAD_HEIGHT}" width="{axis.width}" aria-hidden="true">'
        f'{"".join(drawn)}<g transform="translate(0 17)">{_lines(axis, HEAD_HEIGHT - 17)}</g></svg>'
    )


def _lines(axis: Axis, height: float) -> str:
    """Zero and the margins, over the whole height, so that rows join them to one line."""
    places = [("zero", 0.0)] + ([] if axis.margin is None else [("edge", axis.margin), ("edge", -axis.margin)])
    shown = [(name, axis.place(value)) for name, value in places if axis.low <= value <= axis.high]
    return "".join(f'<line class="{name}" x1="{at}" x2="{at}" y1="0" y2="{height}"/>' for name, at in shown)


def _mark(state: State, x: float, y: float) -> str:
    """A filled circle, a filled square, a hollow diamond; a small hollow circle for a forecast."""
    if state == "fail":
        return f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8"/>'
    if state == "inconclusive":
        return f'<path class="hollow" d="M{x} {y - 5}L{x + 5} {y}L{x} {y + 5}L{x - 5} {y}Z"/>'
    hollow, radius = (' class="hollow"', 3.5) if state == "forecast" else ("", 4.5)
    return f'<circle{hollow} cx="{x}" cy="{y}" r="{radius}"/>'


# The gap chart of a verdict as SVG text, drawn without matplotlib: for a notebook, and for a page where no script runs.
#
# Colours are Okabe and Ito's and the text takes the colour around it, so that the chart is readable on light and on dark paper.

WIDE, NARROW = 720, 360  # CSS pixels
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 290, 62, 50, 22, 76
_PIXELS_A_TICK = 80
_GAP_PAD = 0.1  # of the height, above and below what is drawn

STYLE = """
.parity-gap { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
.parity-gap text { fill: currentColor; }
.parity-gap .axis { stroke: currentColor; stroke-opacity: .25; }
.parity-gap .zero { stroke: currentColor; stroke-opacity: .7; }
.parity-gap .margin { stroke: currentColor; stroke-opacity: .6; stroke-dasharray: 8 4 2 4; }
.parity-gap .window { fill: currentColor; fill-opacity: .06; }
.parity-gap .band { fill: #d55e00; fill-opacity: .22; }
.parity-gap .mean { fill: none; stroke: #d55e00; stroke-width: 1.6; }
.parity-gap .interval { stroke: currentColor; stroke-width: 2; }
.parity-gap .point { fill: currentColor; }
.parity-gap .bad { fill: none; stroke: #d55e00; }
.parity-gap .bad.base { stroke: #0072b2; }
.parity-gap .spike { fill: #d55e00; }
.parity-gap .spike.base { fill: #0072b2; }
"""


def gap_svg(document: VerdictDocument, gap: BinnedGap, width: int = WIDE) -> str:
    """The chart: binned gap with its band, zero, margin, the judged window and its interval; triangles for spikes and NaN."""
    frame = _Frame(document, gap, width)
    inner = [
        f"<title>{escape(minus(words(document).line))}</title>",
        _rect("window", frame.x(gap.window[0]), _TOP, frame.x(gap.window[1]) - frame.x(gap.window[0]), frame.bottom - _TOP),
        *_axes(frame),
        *_levels(frame, gap),
        *_curve(frame, gap),
        *_marks(frame, document, gap),
        *_interval(frame, document, gap, width),
    ]
    if not len(gap.mean):
        inner.append(_text(width / 2, _HEIGHT / 2, "no step with a finite loss of both arms", "middle"))
    title = f"gap, nats ({candidate_name(document)} minus {baseline_name(document)}; above 0 = worse)"
    inner.append(_text(2, 12, title if width >= WIDE else "gap, nats (above 0 = worse)", "start"))
    return f'<svg class="parity-gap" viewBox="0 0 {width} {_HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">{"".join(inner)}</svg>'


class _Frame:
    """Scales of the chart: steps to x and nats to y."""

    def __init__(self, document: VerdictDocument, gap: BinnedGap, width: int) -> None:
        self.right = width - _RIGHT
        self.bottom = _HEIGHT - _BOTTOM
        ends = [gap.window[1], *(gap.last_step[-1:].tolist())]
        self.first, self.last = 0.0, float(max(1, *ends))
        self.low, self.high = gap_limits(document, gap, _GAP_PAD)

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first)
        return _LEFT + min(max(share, 0.0), 1.0) * (self.right - _LEFT)

    def y(self, nats: float) -> float:
        share = (nats - self.low) / (self.high - self.low)
        return self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - _TOP)


def _ticks(low: float, high: float, number: float) -> list[float]:
    """Round values between two ends, about `number` of them."""
    rough = (high - low) / max(1.0, number)
    decade = 10.0 ** math.floor(math.log10(rough))
    stride = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough)
    return [stride * index for index in range(math.ceil(low / stride), math.floor(high / stride) + 1)]


def _axes(frame: _Frame) -> list[str]:
    parts = []
    for nats in _ticks(frame.low, frame.high, 7):
        y = frame.y(nats)
        parts += [_line("axis", _LEFT, y, frame.right, y), _text(_LEFT - 6, y + 4, signed(nats, 3) if nats else "0", "end")]
    for step in _ticks(frame.first, frame.last, (frame.right - _LEFT) / _PIXELS_A_TICK):
        parts.append(_text(frame.x(step), frame.bottom + 16, f"{step:,.0f}", "middle"))
    parts.append(_line("axis", _LEFT, frame.bottom, frame.right, frame.bottom))
    return [*parts, _text((_LEFT + frame.right) / 2, frame.bottom + 32, "step", "middle")]


def _levels(frame: _Frame, gap: BinnedGap) -> list[str]:
    parts = [_line("zero", _LEFT, frame.y(0.0), frame.right, frame.y(0.0))]
    for nats in () if gap.margin_nats is None else (gap.margin_nats, -gap.margin_nats):
        if frame.low < nats < frame.high:
            y = frame.y(nats)
            parts += [_line("margin", _LEFT, y, frame.right, y), _text(frame.right + 4, y + 4, "margin" if nats > 0 else "", "start")]
    return parts


def _curve(frame: _Frame, gap: BinnedGap) -> list[str]:
    """The band and the mean of the bins, cut where the mean is not finite."""
    middle = (gap.first_step + gap.last_step) / 2

    def points(bins: IntArray, nats: FloatArray) -> str:
        return " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(middle[bins].tolist(), nats[bins].tolist(), strict=True))

    finite = np.isfinite(gap.mean) & np.isfinite(gap.lo) & np.isfinite(gap.hi)
    parts = []
    for run in np.split(np.arange(len(middle)), np.flatnonzero(np.diff(finite.astype(int))) + 1):
        if not len(run) or not finite[run[0]]:
            continue
        parts.append(f'<polygon class="band" points="{points(run, gap.hi)} {points(run[::-1], gap.lo)}"/>')
        parts.append(f'<polyline class="mean" points="{points(run, gap.mean)}"/>')
    return parts


def _marks(frame: _Frame, document: VerdictDocument, gap: BinnedGap) -> list[str]:
    """Triangles at the edges: the candidate's above, the baseline's below; one per pixel at most."""
    baseline, candidate = spike_steps(document)
    rows: Sequence[tuple[str, Sequence[int], bool]] = (
        ("spike base", baseline, False),
        ("spike", candidate, True),
        ("bad base", gap.nonfinite_baseline.tolist(), False),
        ("bad", gap.nonfinite_candidate.tolist(), True),
    )
    parts = []
    for kind, steps, above in rows:
        for x in sorted({round(frame.x(step)) for step in steps}):
            tip, base = (_TOP, _TOP + 8) if above else (frame.bottom, frame.bottom - 8)
            parts.append(f'<path class="{kind}" d="M{x} {tip}L{x - 5} {base}L{x + 5} {base}Z"/>')
    if parts:
        parts.append(_text(frame.right, 12, "triangles: spikes (filled), NaN or infinite (hollow)", "end"))
    return parts


def _interval(frame: _Frame, document: VerdictDocument, gap: BinnedGap, width: int) -> list[str]:
    """The judged gap with its interval in the window, and below the chart its numbers."""
    judged = document["gap"]
    parts, notes = [], []
    if judged:
        x, mean = frame.x(sum(gap.window) / 2), frame.y(judged["mean"])
        parts.append(_line("interval", x, frame.y(judged["lo"]), x, frame.y(judged["hi"])))
        parts.append(f'<circle class="point" cx="{x:.1f}" cy="{mean:.1f}" r="4"/>')
        words = f"{level_percent(judged['confidence'])} CI {interval_words(judged['lo'], judged['hi'], 4)}"
        shown = f" ({words if width >= WIDE else interval_words(judged['lo'], judged['hi'], 4)})"
        notes.append(f"window judged (shaded): {signed(judged['mean'], 4)}{shown}")
    if gap.margin_nats is not None:
        notes.append(margin_words(gap.margin_nats, gap.level and gap.margin_nats / gap.level))
    lines = ["; ".join(notes)] if width >= WIDE else notes
    return parts + [_text(2, _HEIGHT - 22 + 16 * number, line, "start") for number, line in enumerate(lines)]


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>' if words else ""
