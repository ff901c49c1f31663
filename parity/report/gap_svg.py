"""The gap chart of a verdict as SVG text, drawn without matplotlib: for a notebook, and for a page where no script runs.

Colours are Okabe and Ito's and the text takes the colour around it, so that the chart is readable on light and on dark paper.
"""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from parity.judging.curve import FloatArray, IntArray
from parity.judging.document_types import VerdictDocument
from parity.judging.live.gap_chart import BinnedGap
from parity.report.gap_bins import gap_limits, spike_steps
from parity.report.headline import answer, baseline_name, candidate_name
from parity.wording import interval_words, level_percent, margin_words, signed

WIDE, NARROW = 720, 360  # CSS pixels
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 290, 62, 50, 22, 76
_PIXELS_A_TICK = 80
_PAD = 0.1  # of the height, above and below what is drawn

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
        f"<title>{escape(answer(document))}</title>",
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
        self.low, self.high = gap_limits(document, gap, _PAD)

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
