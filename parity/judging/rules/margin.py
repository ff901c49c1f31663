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
def gap_exceeds(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    bounds = nominal_bounds(measurements)
    if s.n < POINTS_TO_FAIL or not bounds[0] - _averages_explain(measurements, s) > margin.nats:
        return None
    words = interval_words(*bounds, decimals_of(measurements, margin))
    as_of_step = (
        "" if measurements.schedule.finished else f" as of step {measurements.schedule.step:,}"
    )
    return (
        f"The whole interval ({words}) is above the margin of {nats_words(measurements, margin)} "
        f"nats{as_of_step}."
    )


@with_margin
def ends_above(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not s.end.above:
        return None
    if measurements.smoothing_bias is not None and not late_part_above(
        without_averages(measurements, s),
        s.interval,
        margin.nats,
        (measurements.policy.confidence, measurements.policy.confidence),
    ):
        return None
    where = (
        "the last quarter or half of the window is above the margin of "
        f"{nats_words(measurements, margin)} "
        "nats"
    )
    whole = (
        "" if gap_exceeds(measurements) else ", although the interval over the whole window is not"
    )
    return f"{measurements.arms.candidate.name} ends too high: {where}{whole}."


def without_averages(measurements: Measurements, s: WindowStatistics) -> FloatArray:
    """The gap series (n,) without what averages in the candidate's log could add to it."""
    gap: FloatArray = s.spikes.masked_gap
    if measurements.smoothing_bias is not None:
        gap = gap - interpolate(measurements.smoothing_bias, s.spikes.mask)
    return gap


def _averages_explain(measurements: Measurements, s: WindowStatistics) -> float:
    """How much of the mean gap averages in the candidate's log could explain, nats."""
    return max(0.0, float((s.spikes.masked_gap - without_averages(measurements, s)).mean()))


@with_margin
def better(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if not (nominal_bounds(measurements)[1] < 0.0 and s.interval.mean <= -margin.nats):
        return None
    better = (
        f"{measurements.arms.candidate.name} is better than {measurements.arms.baseline.name} by "
        "the margin or more "
        f"({interval_in_words(measurements, margin)})"
    )
    if measurements.compares != RECIPE:
        return (
            f"{better}: a gain, or other data, another loss or targets that leak, which the losses "
            "cannot tell apart."
        )
    return f"{better}. Are the arms swapped? {_agreement(measurements)}"


def _agreement(measurements: Measurements) -> str:
    """What the record says of a difference other than the recipe."""
    if measurements.differing_context:
        return f"Their records differ in {count(len(measurements.differing_context), 'fact')}."
    facts = shared_facts(measurements.arms.runs)
    if not facts:
        return "Nothing else is on record of how they trained."
    return f"All {facts:,} recorded facts agree." if facts > 1 else "The one recorded fact agrees."


@with_margin
def rounding_hides(measurements: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    _, hi = deciding_bounds(measurements)
    if (
        measurements.resolution.rounding == 0.0
        or hi + measurements.resolution.rounding < margin.nats
        or hi >= margin.nats
    ):
        return None
    return (
        f"Losses are rounded to {measurements.resolution.rounding_step:.2g}: that can move the gap "
        "by "
        f"{measurements.resolution.rounding:.2g} nats, across the margin."
    )


@with_margin
def validation_before(
    measurements: Measurements, s: WindowStatistics, margin: Margin
) -> str | None:
    """The last evaluation before the window, where the window has none in common; `checks` looks at
    those of the window.
    """
    if measurements.policy.validation != "veto":
        return None
    before = gap_before_window(
        *measurements.arms.both_runs,
        measurements.window,
        s.interval.run,
        measurements.policy.confidence,
    )
    if before is None or before[1] <= margin.nats:
        return None
    where = f"At step {before[0]:,}, the last common evaluation,"
    return (
        f"{where} the validation gap is at least {before[1]:+.4f} nats, above the margin of "
        f"{nats_words(measurements, margin)}."
    )


@with_margin
def margin_of_few_digits(
    measurements: Measurements, s: WindowStatistics, margin: Margin
) -> str | None:
    """Batch noise wider than a printed step averages the rounding away, so that a long curve shows
    less than a step.
    """
    printed = measurements.resolution.rounding_step
    if (
        measurements.policy.is_absolute
        or printed <= s.sigma_step
        or within_margin(measurements) is None
    ):
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
def margin_wide(measurements: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if (
        margin.rel <= WIDE_MARGIN
        or measurements.policy.wide_margin == "accept"
        or within_margin(measurements) is None
    ):
        return None
    return (
        f"The margin of {nats_words(measurements, margin)} nats is {percent(margin.rel)} of the "
        "loss."
    )


def identical(measurements: Measurements) -> str | None:
    if measurements.identical is None:
        return None
    names = (
        f"{measurements.arms.candidate.name} trains exactly as {measurements.arms.baseline.name} "
        "does"
    )
    return (
        f"{names}: {count(measurements.identical.runs, 'run is', 'runs are')} equal at each of "
        f"{measurements.identical.steps:,} logged steps."
    )


@with_margin
def within_margin(measurements: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    lo, hi = deciding_bounds(measurements)
    if not hi < margin.nats or (measurements.policy.two_sided and not lo > -margin.nats):
        return None
    return (
        f"The upper end of the interval ({interval_in_words(measurements, margin)}) is below the "
        "margin of "
        f"{nats_words(measurements, margin)} nats."
    )


@with_margin
def straddles(measurements: Measurements, _s: WindowStatistics, margin: Margin) -> str | None:
    if within_margin(measurements) or gap_exceeds(measurements) or better(measurements):
        return None
    return (
        f"The interval ({interval_in_words(measurements, margin)}) straddles the margin of "
        f"{nats_words(measurements, margin)} nats."
    )


def deciding_bounds(measurements: Measurements) -> tuple[float, float]:
    """The interval that decides, at the confidence of this look and candidate."""
    return measurements.bounds or NOT_KNOWN


@computed_once
def nominal_bounds(measurements: Measurements) -> tuple[float, float]:
    """The interval of a fail and of a veto: further looks and candidates must not make either
    harder to reach.
    """
    if measurements.statistics:
        return measurements.statistics.interval.bounds(measurements.policy.confidence)
    return NOT_KNOWN


def interval_in_words(measurements: Measurements, margin: Margin) -> str:
    return interval_words(*deciding_bounds(measurements), decimals_of(measurements, margin))


def nats_words(measurements: Measurements, margin: Margin) -> str:
    return f"{margin.nats:.{decimals_of(measurements, margin)}f}"


def decimals_of(measurements: Measurements, margin: Margin) -> int:
    """Decimals of all nats in the sentences, so that no end of the interval is printed on another
    side of zero or the margin.
    """
    return nats_decimals(margin.nats, *deciding_bounds(measurements))
