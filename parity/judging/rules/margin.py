"""Rules about the gap: on which side of the margin its interval lies, and what could move it."""

import math

from parity.judging.curves.context import RECIPE, shared_facts
from parity.judging.curves.curve import FloatArray, computed_once
from parity.judging.curves.spikes import interpolate
from parity.judging.gap.margin import Margin
from parity.judging.gap.run_end import late_part_above
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.measurements import Measurements
from parity.judging.policy import POINTS_TO_FAIL, WIDE_MARGIN
from parity.judging.rules.with_margin import with_margin
from parity.judging.secondary.validation import gap_before_window
from parity.wording import count, interval_words, nats_decimals, percent

# of the loss in a relative margin: fewer are a margin between neighbouring digits
MIN_PRINTED_STEPS = 4

NOT_KNOWN = (math.nan, math.nan)  # the ends of an interval without a window


@with_margin
def gap_exceeds(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    bounds = nominal_bounds(m)
    if s.n < POINTS_TO_FAIL or not bounds[0] - _averages_explain(m, s) > margin.nats:
        return None
    words = interval_words(*bounds, decimals_of(m, margin))
    as_of_step = "" if m.schedule.finished else f" as of step {m.schedule.step:,}"
    return (
        f"The whole interval ({words}) is above the margin of {nats_words(m, margin)} "
        f"nats{as_of_step}."
    )


@with_margin
def ends_above(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not s.end.above:
        return None
    if m.smoothing_bias is not None and not late_part_above(
        without_averages(m, s), s.interval, margin.nats, (m.policy.confidence, m.policy.confidence)
    ):
        return None
    where = (
        f"the last quarter or half of the window is above the margin of {nats_words(m, margin)} "
        "nats"
    )
    whole = "" if gap_exceeds(m) else ", although the interval over the whole window is not"
    return f"{m.arms.candidate.name} ends too high: {where}{whole}."


def without_averages(m: Measurements, s: WindowStatistics) -> FloatArray:
    """The gap series (n,) without what averages in the candidate's log could add to it."""
    gap: FloatArray = s.spikes.masked_gap
    if m.smoothing_bias is not None:
        gap = gap - interpolate(m.smoothing_bias, s.spikes.mask)
    return gap


def _averages_explain(m: Measurements, s: WindowStatistics) -> float:
    """How much of the mean gap averages in the candidate's log could explain, nats."""
    return max(0.0, float((s.spikes.masked_gap - without_averages(m, s)).mean()))


@with_margin
def better(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if not (nominal_bounds(m)[1] < 0.0 and s.interval.mean <= -margin.nats):
        return None
    better = (
        f"{m.arms.candidate.name} is better than {m.arms.baseline.name} by the margin or more "
        f"({interval_in_words(m, margin)})"
    )
    if m.compares != RECIPE:
        return (
            f"{better}: a gain, or other data, another loss or targets that leak, which the losses "
            "cannot tell apart."
        )
    return f"{better}. Are the arms swapped? {_agreement(m)}"


def _agreement(m: Measurements) -> str:
    """What the record says of a difference other than the recipe."""
    if m.differing_context:
        return f"Their records differ in {count(len(m.differing_context), 'fact')}."
    facts = shared_facts(m.arms.runs)
    if not facts:
        return "Nothing else is on record of how they trained."
    return f"All {facts:,} recorded facts agree." if facts > 1 else "The one recorded fact agrees."


@with_margin
def rounding_hides(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    _, hi = deciding_bounds(m)
    if (
        m.resolution.rounding == 0.0
        or hi + m.resolution.rounding < margin.nats
        or hi >= margin.nats
    ):
        return None
    return (
        f"Losses are rounded to {m.resolution.rounding_step:.2g}: that can move the gap by "
        f"{m.resolution.rounding:.2g} nats, across the margin."
    )


@with_margin
def validation_before(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    """The last evaluation before the window, where the window has none in common; `checks` looks at
    those of the window.
    """
    if m.policy.validation != "veto":
        return None
    before = gap_before_window(*m.arms.both_runs, m.window, s.interval.run, m.policy.confidence)
    if before is None or before[1] <= margin.nats:
        return None
    where = f"At step {before[0]:,}, the last common evaluation,"
    return (
        f"{where} the validation gap is at least {before[1]:+.4f} nats, above the margin of "
        f"{nats_words(m, margin)}."
    )


@with_margin
def margin_of_few_digits(m: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    """Batch noise wider than a printed step averages the rounding away, so that a long curve shows
    less than a step.
    """
    printed = m.resolution.rounding_step
    if m.policy.is_absolute or printed <= s.sigma_step or within_margin(m) is None:
        return None
    if margin.nats < MIN_PRINTED_STEPS * printed:
        return few_digits(margin, printed)
    return None


def few_digits(margin: Margin, printed: float) -> str:
    """The sentence for a relative margin below 4 steps of the losses as they are printed (nats)."""
    return (
        f"The margin of {margin.nats:.2g} is below {MIN_PRINTED_STEPS} steps of {printed:.2g}, to "
        "which the losses are printed: expected "
        "more digits, or a margin and run-to-run noise in absolute units."
    )


@with_margin
def margin_wide(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if margin.rel <= WIDE_MARGIN or m.policy.wide_margin == "accept" or within_margin(m) is None:
        return None
    return f"The margin of {nats_words(m, margin)} nats is {percent(margin.rel)} of the loss."


def identical(m: Measurements) -> str | None:
    if m.identical is None:
        return None
    names = f"{m.arms.candidate.name} trains exactly as {m.arms.baseline.name} does"
    return (
        f"{names}: {count(m.identical.runs, 'run is', 'runs are')} equal at each of "
        f"{m.identical.steps:,} logged steps."
    )


@with_margin
def within_margin(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    lo, hi = deciding_bounds(m)
    if not hi < margin.nats or (m.policy.two_sided and not lo > -margin.nats):
        return None
    return (
        f"The upper end of the interval ({interval_in_words(m, margin)}) is below the margin of "
        f"{nats_words(m, margin)} nats."
    )


@with_margin
def straddles(m: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if within_margin(m) or gap_exceeds(m) or better(m):
        return None
    return (
        f"The interval ({interval_in_words(m, margin)}) straddles the margin of "
        f"{nats_words(m, margin)} nats."
    )


def deciding_bounds(m: Measurements) -> tuple[float, float]:
    """The interval that decides, at the confidence of this look and candidate."""
    return m.bounds or NOT_KNOWN


@computed_once
def nominal_bounds(m: Measurements) -> tuple[float, float]:
    """The interval of a fail and of a veto: further looks and candidates must not make either
    harder to reach.
    """
    if m.statistics:
        return m.statistics.interval.bounds(m.policy.confidence)
    return NOT_KNOWN


def interval_in_words(m: Measurements, margin: Margin) -> str:
    return interval_words(*deciding_bounds(m), decimals_of(m, margin))


def nats_words(m: Measurements, margin: Margin) -> str:
    return f"{margin.nats:.{decimals_of(m, margin)}f}"


def decimals_of(m: Measurements, margin: Margin) -> int:
    """Decimals of all nats in the sentences, so that no end of the interval is printed on another
    side of zero or the margin.
    """
    return nats_decimals(margin.nats, *deciding_bounds(m))
