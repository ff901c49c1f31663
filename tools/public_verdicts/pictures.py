"""Two pictures of the answers: SVG with both colour schemes, which no page has to know."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from parity.wording import minus, signed
from tools.public_verdicts.answers_in_words import gap_in_margins, gap_words, label, ordered
from tools.public_verdicts.ladders import Ladder, ladders

_STYLE = """\
<style>
svg { font: 11px system-ui, sans-serif; --ink: #1b1b1b; --quiet: #5c5c5c; --paper: #fff; }
svg { --pass: #00704f; --fail: #b04200; --inconclusive: #96437a; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8e8e8; --quiet: #a9a9a9; --paper: #16181d; --pass: #46d0a6; --fail: #ff9a57; --inconclusive: #eaa9cd; }
}
.paper { fill: var(--paper); }
text { fill: var(--ink); stroke: var(--paper); stroke-width: 3px; paint-order: stroke; }
.quiet { fill: var(--quiet); }
.zero, .edge { stroke: var(--quiet); }
.edge { stroke-dasharray: 4 3; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
.inconclusive { color: var(--inconclusive); }
.ladder { color: var(--quiet); }
.whisker { stroke: currentcolor; stroke-width: 2; fill: none; }
.mark { fill: currentcolor; stroke: currentcolor; stroke-width: 2; }
.hollow { fill: var(--paper); }
.band { fill: currentcolor; opacity: 0.14; stroke: none; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
</style>"""  # noqa: E501
_WIDTH, _ROW, _PAD = 440, 34, 14
_LOW, _HIGH = -4.0, 8.0  # margins


def plot() -> str:
    """All answers on one axis, in margins."""
    shown = ordered()
    bottom = 40 + _ROW * len(shown)
    body = [
        f'<text class="middle quiet" x="{_x(at)}" y="18">{word}</text>'
        for at, word in ((0.0, "0"), (1.0, "margin"), (4.0, "4"), (8.0, "8"), (-4.0, "−4"))
    ]
    for place, answer in enumerate(shown):
        mean, lo, hi = gap_in_margins(answer)
        top, y, state = 38 + _ROW * place, 60 + _ROW * place, answer.document["verdict"]
        arrows = [f"M{_x(_LOW) + 6} {y - 4}l-6 4l6 4"] if lo < _LOW else []
        arrows += [f"M{_x(_HIGH) - 6} {y - 4}l6 4l-6 4"] if hi > _HIGH else []
        # The lines stop at the words, which they would cross.
        lines = ((look, _x(at)) for look, at in (("zero", 0.0), ("edge", 1.0)))
        body += [
            f'<line class="{look}" x1="{x}" x2="{x}" y1="{y - 10}" y2="{y + 8}"/>'
            for look, x in lines
        ]
        body.append(
            f'<text x="{_PAD}" y="{top + 8}">{escape(label(answer))} <tspan '
            f'class="quiet">{answer.of.name}</tspan></text>'
        )
        body.append(
            f'<text class="end quiet" x="{_WIDTH - _PAD}" '
            f'y="{top + 8}">{escape(gap_words(answer).partition(" (")[0])}</text>'
        )
        body.append(
            f'<g class="{state}"><path class="whisker" d="M{_x(lo)} '
            f'{y}H{_x(hi)}{"".join(arrows)}"/>'
        )
        body.append(f"{_mark(state, _x(mean), y) if _LOW <= mean <= _HIGH else ''}</g>")
    return _svg(
        bottom + 10,
        f"The gaps of {len(shown)} public comparisons with their intervals, in margins",
        body,
    )


def ladder_plot() -> str:
    """The gap by size, each recipe in a panel of its own."""
    body, height = [], 132
    for place, ladder in enumerate(ladders()):
        top = 10 + height * place
        grid = [
            10.0 ** float(power)
            for power in np.linspace(math.log10(ladder.sizes[0]), math.log10(ladder.sizes[-1]), 20)
        ]
        grid[0], grid[-1] = ladder.sizes[0], ladder.sizes[-1]
        bands = [ladder.predicted(size) for size in grid]
        values = [0.0, *ladder.gaps, *(end for band in bands for end in band)]
        low, high = min(values), max(values)

        def at(
            size: float,
            value: float,
            of: tuple[float, float, float, Ladder] = (top, low, high, ladder),
        ) -> tuple[float, float]:
            above, least, most, shown = of
            share_x = math.log10(size / shown.sizes[0]) / math.log10(
                shown.sizes[-1] / shown.sizes[0]
            )
            return round(60 + (_WIDTH - 90) * share_x, 1), round(
                above + 22 + 78 * (most - value) / (most - least), 1
            )

        upper = [at(size, band[1]) for size, band in zip(grid, bands, strict=True)]
        lower = [at(size, band[0]) for size, band in zip(grid, bands, strict=True)]
        outline = "L".join(f"{x} {y}" for x, y in [*upper, *reversed(lower)])
        zero = at(ladder.sizes[0], 0.0)[1]
        body.append(
            f'<text x="{_PAD}" y="{top + 10}">{escape(ladder.name)}: gap, % of the loss; band: one '
            "more run, 95 %</text>"
        )
        body.append(
            f'<g class="ladder"><path class="band" d="M{outline}z"/></g>'
            f'<line class="zero" x1="60" x2="{_WIDTH - 30}" y1="{zero}" y2="{zero}"/>'
        )
        body += [
            '<text class="end quiet" x="54" '
            f'y="{at(ladder.sizes[0], value)[1] + 4}">{minus(signed(value, 1))}</text>'
            for value in (low, high)
        ]
        body += [
            f'<circle class="mark ladder" cx="{x}" cy="{y}" r="3"/>'
            for x, y in map(at, ladder.sizes, ladder.gaps)
        ]
        for size in (ladder.sizes[0], ladder.sizes[-1]):
            body.append(
                f'<text class="middle quiet" x="{at(size, 0.0)[0]}" '
                f'y="{top + 116}">{size / 1e6:.0f} M</text>'
            )
    return _svg(
        height * len(ladders()) + 14, "The gap by model size with what one more run may show", body
    )


def _svg(height: float, title: str, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" '
        f'width="{_WIDTH}" height="{height:g}" role="img">'
    )
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            _STYLE,
            '<rect class="paper" width="100%" height="100%"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _x(margins: float) -> float:
    return round(
        _PAD + (_WIDTH - 2 * _PAD) * (min(_HIGH, max(_LOW, margins)) - _LOW) / (_HIGH - _LOW), 1
    )


def _mark(state: str, x: float, y: float) -> str:
    if state == "pass":
        return f'<circle class="mark" cx="{x}" cy="{y}" r="4"/>'
    if state == "fail":
        return f'<rect class="mark" x="{x - 4:g}" y="{y - 4}" width="8" height="8"/>'
    return f'<path class="mark hollow" d="M{x} {y - 5}l5 5l-5 5l-5 -5z"/>'
