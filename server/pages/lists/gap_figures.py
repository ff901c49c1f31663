"""Gaps in their own margins, as places in percent of a figure's width or height. What lies beyond
an axis is an arrow at its edge.
"""

from __future__ import annotations

from parity.frozen import frozen
from parity.report.view import NO_GAP_CODES
from parity.wording import MINUS, interval_words, nats_decimals, signed
from server.jobs.verdict_rows import VerdictSummary

_ROW, _SMALL = (-2.0, 4.0), (-1.0, 2.0)


@frozen
class GapFigure:
    """A gap on an axis of its own margins: the places of its ends, of its mean (None beyond the
    axis), of zero and of the margin.
    """

    state: str
    words: str
    low: float
    high: float
    mean: float | None
    below: bool
    above: bool
    zero: float
    margin: float


@frozen
class ShownGap:
    """A gap as a row tells it, in nats; `figure` and `small` draw it in margins, where it has an
    interval and a margin.
    """

    mean: str = ""
    interval: str = ""
    figure: GapFigure | None = None
    small: GapFigure | None = None


NO_GAP = ShownGap()


def verdict_gap(verdict: VerdictSummary) -> ShownGap:
    """The gap of a verdict; none where the runs were not compared."""
    if verdict.gap_nats is None or verdict.code in NO_GAP_CODES:
        return NO_GAP
    if verdict.ci_low is None or verdict.ci_high is None:
        return ShownGap(mean=signed(verdict.gap_nats).replace("-", MINUS))
    return drawn_gap(
        verdict.verdict, (verdict.gap_nats, verdict.ci_low, verdict.ci_high), verdict.margin_nats
    )


def drawn_gap(state: str, gap: tuple[float, float, float], margin: float | None) -> ShownGap:
    """A gap (mean, ends of its interval) in words, and drawn where there is a margin."""
    mean, low, high = gap
    places = nats_decimals(margin, low, high)
    mean_words, interval = (
        text.replace("-", MINUS)
        for text in (signed(mean, places), interval_words(low, high, places))
    )
    if not margin:
        return ShownGap(mean=mean_words, interval=interval)
    words = (
        f"{'forecast ' if state == 'live' else ''}{mean_words}, interval {interval}, margin "
        f"{margin:.{places}f}"
    )
    figure, small = (_figure(state, words, gap, margin, axis) for axis in (_ROW, _SMALL))
    return ShownGap(mean=mean_words, interval=interval, figure=figure, small=small)


def _figure(
    state: str,
    words: str,
    gap: tuple[float, float, float],
    margin: float,
    axis: tuple[float, float],
) -> GapFigure:
    def place(value: float) -> float:
        return round(100.0 * (min(max(value, axis[0]), axis[1]) - axis[0]) / (axis[1] - axis[0]), 2)

    mean, low, high = (value / margin for value in gap)
    return GapFigure(
        state=state,
        words=words,
        low=place(low),
        high=place(high),
        mean=place(mean) if axis[0] <= mean <= axis[1] else None,
        below=low < axis[0],
        above=high > axis[1],
        zero=place(0.0),
        margin=place(1.0),
    )
