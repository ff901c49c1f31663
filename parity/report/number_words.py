"""Gap, interval and chance of a verdict as text, the same digits on every surface."""

from parity.report.view import GapView, View
from parity.wording import interval_words, signed

LEAST_CHANCE = 0.03


def ends_words(view: View, gap: GapView) -> str:
    """The ends of an interval: "+0.0258 to +0.0568"."""
    return interval_words(gap.lo, gap.hi, view.decimals)


def mean_words(view: View) -> str:
    """The gap: "+0.0413"; "none" without one."""
    gap = view.gap
    if not gap:
        return "none"
    return signed(gap.mean, view.decimals)


def chance_words(view: View) -> str:
    """The chance of parity, "62 %", "<3 %" or ">97 %"; "" where a verdict has none."""
    chance = view.chance
    if chance is None:
        return ""
    if chance < LEAST_CHANCE:
        return "<3 %"
    if chance > 1.0 - LEAST_CHANCE:
        return ">97 %"
    return f"{100.0 * chance:.0f} %"
