"""What recorded learning rates say: whether all runs trained with the same rates, and whether a
schedule had come to its end.

differ:  at a step t of a run, its rate r(t) is outside [min, max] of the reference's rates at the
         logged steps around t (one before, one after) by more than 0.001 of its peak, plus half a
         unit of the last digit that either run logged; the reference is the run that logged the
         most rates
cut:     r0, r1, r2 = rates at the last step T, at T - h and at T - 2h as shares of the run's peak,
         h = 5 % of the run (10 or 20 % where the rate is logged so coarsely that it changes by at
         most 2.5 units of its last digit over 5 %). Per run length, the slope is
         v = (3 r0 - 4 r1 + r2) / 2h, the bend a = (r0 - 2 r1 + r2) / h^2.
         zero = r0 / -v: the rate would be 0 after so many run lengths.
         flat = -v / a (never where a <= 0): it would stop falling then.
         A schedule was cut if its rate still falls (r1 - r0 > 0.002), is above 1 % of the peak,
         does not level off (flat > 0.05 and flat > h / 2), and either 0.03 < zero < 1.5, or it is
         above 12 % of the peak with zero < 1.5 or flat > 1.5. A rate that still rises by more than
         1 % of its peak was cut, too.

Complete: constant rates; a cosine with any floor (flat = 0); linear decay to 0; warm-up, stable,
decay to 10 % or less (zero <= 0.02). Inverse square root never ends (zero = 2, flat = 0.7): any
length counts as complete. Can fail: a linear or exponential decay over the whole run that was
planned to end above 3 % of the peak looks like one that was cut, so its plan has to be stated; a
cut after 95 % of the steps may look complete; fewer than 10 logged rates say nothing.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    computed_once,
)
from parity.judging.curves.window import CONSTANT_RATE_TOLERANCE, LEARNING_RATE

SAME_RATE = 1e-3  # share of the peak
# of the peak, of the steps logged later, and of the run
EXPLAINING_SHARE, EXPLAINING_STEPS, WARM_UP = 0.01, 0.05, 0.2
MIN_POINTS = 10
# of the run; the first over which the rate changes by more than its rounding
BACK = (0.05, 0.10, 0.20)
DIGITS = 2.5  # units of the last digit
FALLS, RISES, ENDED = 2e-3, 1e-2, 1e-2  # shares of the peak
SOON, LATER, LEVELS_OFF, LOW = 0.03, 1.5, 0.05, 0.12
# of the peak; what a finished schedule has fallen to (the threshold was not measured)
DECAYED = 0.2
BEFORE_END, STILL_HIGH = 0.02, 0.5  # a linear decay over the last 5 % is at 0.4 there
_SAMPLE = 2000
# a unit of the last digit below a ten-thousandth of the value is no rounding worth its name
_FINEST = 1e4


PlacedRates = tuple[int, tuple[IntArray, FloatArray]]
"""The place of a run among others, and its steps with their rates."""


@frozen
class RateDifference:
    """Where a run's learning rate differs most from the reference's: the step, both rates, and how
    many of the logged steps differ. `run` and `against` are the places of both among the runs.
    """

    run: int
    against: int
    step: int
    rate: float
    reference: float
    steps: int
    logged: int


def recorded_rates(run: Curve) -> tuple[IntArray, FloatArray] | None:
    """Steps and finite learning rates (n,) of a run, n >= 2; None where fewer are recorded: a
    single rate is a setting, not a record.
    """
    rate = run.columns.get(LEARNING_RATE)
    if rate is None or len(rate) < 2:
        return None
    finite = np.isfinite(rate)
    if finite.all():
        return run.steps, rate
    if np.count_nonzero(finite) > 1:
        return run.steps[finite], rate[finite]
    return None


def constant_rate(runs: Sequence[Curve]) -> bool | None:
    """Whether the learning rate is constant from a tenth of every run on; None where a run did not
    record it.
    """
    for run in runs:
        recorded = run.columns.get(LEARNING_RATE)
        rate = recorded[len(recorded) // 10 :] if recorded is not None else np.empty(0)
        rate = rate[np.isfinite(rate)]
        if len(rate) == 0:
            return None
        if float(np.ptp(rate)) > CONSTANT_RATE_TOLERANCE * float(np.abs(rate).max()):
            return False
    return True


def differing_rates(runs: Sequence[Curve]) -> RateDifference | None:
    """The largest difference of any run's learning rates from those of the run that logged most of
    them, or None.
    """
    recorded = [
        (place, rates)
        for place, run in enumerate(runs)
        if (rates := recorded_rates(run)) is not None
    ]
    if not recorded:
        return None
    reference = max(recorded, key=lambda one: len(one[1][0]))
    differences = [worst for one in recorded if (worst := _difference(reference, one)) is not None]
    return max(differences, key=lambda one: abs(one.rate - one.reference), default=None)


def rates_could_explain_a_gap(runs: Sequence[Curve]) -> bool:
    """Whether recorded rates differ after the warm-up by more than 1 % of their peak, at 5 % of the
    logged steps or more.
    """
    recorded = [rates for run in runs if (rates := recorded_rates(run)) is not None]
    if len(recorded) < 2 or differing_rates(runs) is None:
        return False
    known_steps, known = max(recorded, key=lambda rates: len(rates[0]))
    peak = float(np.abs(known).max())
    for steps, rate in recorded:
        late = (steps >= known_steps[0] + WARM_UP * (known_steps[-1] - known_steps[0])) & (
            steps <= known_steps[-1]
        )
        apart = (
            np.abs(rate[late] - np.interp(steps[late], known_steps, known))
            > EXPLAINING_SHARE * peak
        )
        if len(apart) and float(apart.mean()) >= EXPLAINING_STEPS:
            return True
    return False


def _difference(reference: PlacedRates, other: PlacedRates) -> RateDifference | None:
    (against, (known_steps, known)), (run, (steps, rate)) = reference, other
    if np.array_equal(known_steps, steps) and np.array_equal(known, rate):
        return None
    # a first rate is logged before or after its update
    inside = (steps > max(known_steps[0], steps[0])) & (steps <= known_steps[-1])
    steps, rate = steps[inside], rate[inside]
    if len(steps) == 0 or len(known) < 2:
        return None
    at = np.searchsorted(known_steps, steps)
    # what a log that is one step late has not reached
    onward = np.append(known, max(float(2.0 * known[-1] - known[-2]), 0.0))
    around = [onward[np.maximum(at + offset, 0)] for offset in (-1, 0, 1)]
    low, high = np.minimum.reduce(around), np.maximum.reduce(around)
    peak = float(np.abs(known).max())
    tolerance = SAME_RATE * peak + rounding(known, high) + rounding(rate, rate)
    beyond = np.maximum(low - rate, rate - high) - tolerance
    if not (beyond > 0.0).any():
        return None
    worst = int(np.argmax(beyond))
    return RateDifference(
        run=run,
        against=against,
        step=int(steps[worst]),
        rate=float(rate[worst]),
        reference=float(around[1][worst]),
        steps=int((beyond > 0.0).sum()),
        logged=len(steps),
    )


def rounding(rates: FloatArray, at: FloatArray) -> FloatArray:
    """Half a unit of the last digit with which rates (n,) were logged, at rates (m,): of decimals,
    or of significant digits; (m,).
    """
    values = np.unique(np.abs(rates[:: 1 + len(rates) // _SAMPLE]))
    values = values[values > 0.0]
    error = np.zeros(len(at))
    if len(values) < MIN_POINTS:  # too few to tell a rounded schedule from one of few steps
        return error
    decimals = decimal_step(values)
    exponents = np.floor(np.log10(values))
    for digits in (1, 2, 3, 4):
        if _are_whole(values * 10.0 ** (digits - 1 - exponents)):
            with np.errstate(divide="ignore"):
                error = np.where(
                    at > 0.0, 0.5 * 10.0 ** (np.floor(np.log10(np.abs(at))) - digits + 1), 0.0
                )
            break
    return np.maximum(error, decimals / 2.0)


def decimal_step(values: FloatArray) -> float:
    """The largest power of ten of which (n,) rates are whole multiples; 0.0 where they are finer
    than a ten-thousandth of the largest.
    """
    top = float(values.max(initial=0.0))
    if not top > 0.0 or not np.isfinite(top):
        return 0.0
    exponent = int(np.floor(np.log10(top)))
    for power in range(exponent, exponent - 5, -1):
        if top / 10.0**power <= _FINEST and _are_whole(values * 10.0**-power):
            return 10.0**power
    return 0.0


def _are_whole(values: FloatArray) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(
            (np.abs(values - np.round(values)) <= 1e-6 * np.maximum(np.abs(values), 1.0)).all()
        )


def not_at_end(runs: Sequence[Curve]) -> str | None:
    """Why the recorded learning rates do not show that every run decayed to 20 % of its peak or
    below; None where they do.

    The peak is the 95 % quantile, which no stray value moves. The rates reach from the first tenth
    of a run to its end, and the decay lasts longer than its last 2 %.
    """
    return next(
        (f"{run.label or 'a run'} {why}" for run in runs if (why := _not_at_end(run)) is not None),
        None,
    )


def contradicting_rate(runs: Sequence[Curve], *, cut_counts: bool) -> str | None:
    """Which recorded rate contradicts that every run's had decayed; None where none does.

    It ends above 20 % of its peak, or rises, or (`cut_counts`, without a stated plan) would fall on
    beyond its end.
    """
    for run in runs:
        recorded = recorded_rates(run)
        if recorded is None or not float(recorded[1].max()) > 0.0:
            continue
        share = float(recorded[1][-1]) / float(np.quantile(recorded[1], 0.95) or recorded[1].max())
        end = cut_schedule(run)
        if end == "falls" and cut_counts:
            return f"the learning rate on record of {run.label or 'a run'} still falls at its end"
        if share > DECAYED or end == "rises":
            return (
                f"the last learning rate on record of {run.label or 'a run'} is "
                f"{100.0 * share:.0f} % of its peak"
            )
    return None


def _not_at_end(run: Curve) -> str | None:
    recorded = recorded_rates(run)
    if recorded is None or len(recorded[0]) < MIN_POINTS:
        return f"has {len(recorded[0]) if recorded else 'no'} learning rates on record"
    steps, rate = recorded
    first, last = int(run.steps[0]), int(run.steps[-1])
    stride = float(np.median(np.diff(steps)))
    if steps[0] - first > 0.1 * (last - first) + stride or last - steps[-1] > 2.0 * stride:
        return f"logged its learning rate from step {steps[0]:,} to {steps[-1]:,} of {last:,}"
    if rate.min() < 0.0:
        return f"logged a negative learning rate ({float(rate.min()):.3g})"
    peak = float(np.quantile(rate, 0.95))
    end, before = (
        float(np.interp(at, steps, rate)) / peak if peak > 0.0 else 1.0
        for at in (last, last - BEFORE_END * (last - first))
    )
    if end > DECAYED:
        return (
            f"ends at {100.0 * end:.0f} % of its peak learning rate; expected "
            f"{100.0 * DECAYED:.0f} % or less"
        )
    if before > STILL_HIGH:
        return (
            f"has {100.0 * before:.0f} % of its peak learning rate {100.0 * BEFORE_END:.0f} % "
            "before its end: a step, not a decay"
        )
    if cut_schedule(run) is not None:
        return "has a learning rate that still falls at its end"
    return None


@computed_once
def cut_schedule(run: Curve) -> Literal["falls", "rises"] | None:
    """What a recorded learning rate still does at its end, where that says that its schedule was
    cut; None where it doesn't.
    """
    recorded = recorded_rates(run)
    if recorded is None or len(recorded[0]) < MIN_POINTS:
        return None
    steps, rate = recorded
    peak = float(rate.max())
    if not 0.0 < peak < np.inf:
        return None
    last = _last_step(steps, int(run.steps[-1]))
    span = float(last - min(int(steps[0]), 1))
    for back in BACK:
        rates = _rates_at(steps, rate, [last, last - back * span, last - 2.0 * back * span]) / peak
        unit = 2.0 * float(rounding(rate, peak * rates).max()) / peak
        r0, r1, _ = (float(value) for value in rates)
        if abs(r1 - r0) > DIGITS * unit:
            if r0 - r1 > RISES:
                return "rises"
            if _falls_on(rates, unit, back):
                return "falls"
            return None
    return None


def _last_step(steps: IntArray, last: int) -> int:
    """The run's last step where the rate is logged every few steps up to it, else the last step
    with a rate.
    """
    if last - int(steps[-1]) <= int(steps[-1]) - int(steps[-2]):
        return last
    return int(steps[-1])


def _rates_at(steps: IntArray, rate: FloatArray, wanted: Sequence[float]) -> FloatArray:
    """Rates at steps between logged ones, on straight lines; after the last logged one on the line
    through the last two, 0 at least.
    """
    rates: FloatArray = np.interp(wanted, steps, rate)
    ahead = wanted[0] - float(steps[-1])
    if ahead > 0.0:
        rates[0] = max(
            float(rate[-1]) + ahead * float(rate[-1] - rate[-2]) / float(steps[-1] - steps[-2]), 0.0
        )
    return rates


def _falls_on(rates: FloatArray, unit: float, back: float) -> bool:
    """Whether rates r0, r1, r2 (3,) at the end and `back` run lengths apart before it, shares of
    the peak, fall on beyond the end.
    """
    r0, r1, r2 = (float(value) for value in rates)
    if r0 <= ENDED or not r1 - r0 > FALLS:
        return False
    slope = (3.0 * r0 - 4.0 * r1 + r2) / (2.0 * back)
    bend = (r0 - 2.0 * r1 + r2 + 2.0 * unit) / back**2
    zero = r0 / -slope if slope < 0.0 else np.inf
    flat = max(-slope, 0.0) / bend if bend > 0.0 else np.inf
    return flat > max(LEVELS_OFF, back / 2.0) and (
        SOON < zero < LATER or (r0 > LOW and (zero < LATER or flat > LATER))
    )
