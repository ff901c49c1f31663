"""A candidate in training: its gap so far, and the forecast of its end."""

from collections.abc import Sequence

from parity.judging.document_types import PathPointDocument, State
from parity.report.forecast import PROBABLE, Outlook
from parity.report.picture.scene import Dots, JudgedInterval, Marks, Trace, TraceState
from parity.wording import (
    interval_words,
    minus,
    nats_decimals,
    signed,
)

_HALF = 0.6744898 / 1.6448536  # of a normal's 90 % interval, which its 50 % interval spans


def live_trace(
    name: str,
    live: Outlook | None,
    path: Sequence[PathPointDocument] = (),
    dots: Dots | None = None,
) -> Trace:
    """A candidate in training: its gap so far, and the forecast of its end once there is one."""
    dots = dots or Dots()
    marks = Marks(nonfinite=dots.nonfinite)
    if live is None:
        return Trace(
            name=name,
            state="live",
            judged=[],
            label="",
            notes=[],
            line="",
            path=path,
            dots=dots.points,
            marks=marks,
        )
    places = nats_decimals(live.margin, live.low, live.high)
    middle = (live.low + live.high) / 2.0
    chances: Sequence[tuple[State, float]] = (
        ("pass", live.passes),
        ("fail", live.fails),
        ("inconclusive", live.inconclusive),
    )
    likely: TraceState = next((state for state, chance in chances if chance >= PROBABLE), "live")
    return Trace(
        name=name,
        state=likely,
        judged=[JudgedInterval(mean=middle, lo=live.low, hi=live.high)],
        label=minus(signed(middle, places)),
        decimals=places,
        notes=[minus(interval_words(live.low, live.high, places)), "90 % forecast"],
        line="",
        path=path,
        dots=dots.points,
        marks=marks,
        gap=live.gap,
    )


def half_of(judged: JudgedInterval) -> tuple[float, float]:
    """The ends that a forecast stays within with a chance of 50 %, where those of 90 % are known,
    as of a normal distribution.
    """
    return judged.mean - _HALF * (judged.mean - judged.lo), judged.mean + _HALF * (
        judged.hi - judged.mean
    )
