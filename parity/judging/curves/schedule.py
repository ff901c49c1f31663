"""At which point of the training a comparison speaks: recorded learning rates, steps outside the
plan, the end or a step before it.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.judging.curves.alignment import align
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    computed_once,
    dot,
    median,
    usable,
)
from parity.judging.curves.window import CONSTANT_RATE_TOLERANCE, LEARNING_RATE, Window
from parity.judging.policy import Policy
from parity.structure import frozen

# What recorded learning rates say: whether all runs trained with the same rates, and whether a
# schedule had come to its end.
#
# differ:  at a step t of a run, its rate r(t) is outside [min, max] of the reference's rates at the
#          logged steps around t (one before,
#   one
#          after) by more than 0.001 of its peak, plus half a unit of the last digit that either run
#          logged; the reference is the run that
#          logged the most rates
# cut:     r0, r1, r2 = rates at the last step T, at T - h and at T - 2h as shares of the run's
#          peak, h = 5 % of the run (10 or 20 % where
#          the rate is logged so coarsely that it changes by at most 2.5 units of its last digit
#          over 5 %)
#          slope v = (3 r0 - 4 r1 + r2) / 2h, bend a = (r0 - 2 r1 + r2) / h^2, per run length
#          zero = r0 / -v: the rate would be 0 after so many run lengths; flat = -v / a (never where
#          a <= 0): it would stop falling then
#          A schedule was cut if its rate still falls (r1 - r0 > 0.002), is above 1 % of the peak,
#          does not level off (flat > 0.05 and
#          flat > h / 2), and either 0.03 < zero < 1.5, or it is above 12 % of the peak with zero <
#          1.5 or flat > 1.5. A rate that still
#          rises by more than 1 % of its peak was cut, too.
#
# Complete: constant rates; a cosine with any floor (flat = 0); linear decay to 0; warm-up, stable,
# decay to 10 % or less (zero <= 0.02). Inverse square root never ends (zero = 2, flat = 0.7): any
# length counts as complete. Can fail: a linear or exponential decay over the whole run that was
# planned to end above 3 % of the peak looks like one that was cut, so its plan has to be stated; a
# cut after 95 % of the steps may look complete; fewer than 10 logged rates say nothing.

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


@frozen
class RateDifference:
    """Where a run's learning rate differs most from the reference's: the step, both rates, and how
    many of the logged steps differ.
    """

    label: str
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
    recorded = [(run.label, rates) for run in runs if (rates := recorded_rates(run)) is not None]
    if not recorded:
        return None
    _, reference = max(recorded, key=lambda one: len(one[1][0]))
    differences = [
        worst
        for label, rates in recorded
        if (worst := _difference(label, reference, rates)) is not None
    ]
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


def _difference(
    label: str, reference: tuple[IntArray, FloatArray], rates: tuple[IntArray, FloatArray]
) -> RateDifference | None:
    (known_steps, known), (steps, rate) = reference, rates
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
    tolerance = SAME_RATE * peak + _rounding(known, high) + _rounding(rate, rate)
    beyond = np.maximum(low - rate, rate - high) - tolerance
    if not (beyond > 0.0).any():
        return None
    worst = int(np.argmax(beyond))
    return RateDifference(
        label=label,
        step=int(steps[worst]),
        rate=float(rate[worst]),
        reference=float(around[1][worst]),
        steps=int((beyond > 0.0).sum()),
        logged=len(steps),
    )


def _rounding(rates: FloatArray, at: FloatArray) -> FloatArray:
    """Half a unit of the last digit with which rates (n,) were logged, at rates (m,): of decimals,
    or of significant digits; (m,).
    """
    values = np.unique(np.abs(rates[:: 1 + len(rates) // _SAMPLE]))
    values = values[values > 0.0]
    error = np.zeros(len(at))
    if len(values) < MIN_POINTS:  # too few to tell a rounded schedule from one of few steps
        return error
    decimals = quantum_of(values)
    exponents = np.floor(np.log10(values))
    for digits in (1, 2, 3, 4):
        if _are_whole(values * 10.0 ** (digits - 1 - exponents)):
            with np.errstate(divide="ignore"):
                error = np.where(
                    at > 0.0, 0.5 * 10.0 ** (np.floor(np.log10(np.abs(at))) - digits + 1), 0.0
                )
            break
    return np.maximum(error, decimals / 2.0)


def quantum_of(values: FloatArray) -> float:
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


# Does a loss fall as before a decay? Against ln(step) the loss of a decaying schedule falls faster
# and faster, and ends below the straight line through 25 to 60 % of the run; at a rate that has not
# begun to decay the line bends the other way.
#
# excess e   median loss of the last tenth minus the line there, in shares of the loss; se from the
#            line's and the mean's own errors
# slope s    least squares of the loss on ln(step) over the last half, a share of the loss per
#            e-fold
# as before  e - 4 se > 0.35 |s|
#
# e / |s|: -0.2 of finished public reruns (1,750 steps), 0.36 where they are cut at 60 %; 0.45 to
# 0.53 of a 15 B model that is cut; 0.16 of a power law of step^-0.5, 0.2 of a cosine that is cut at
# 60 %. So it sees a run that was cut before its decay in a long log, and no more.

LINE_FROM, LINE_TO, LAST_PART = 0.25, 0.60, 0.9  # of the run
EXCESS_SES, EXCESS_OF_SLOPE, FEWEST_POINTS = 4.0, 0.35, 200


@computed_once
def falls_as_before(run: Curve) -> bool:
    """Whether a run's loss at its end falls as at a learning rate that has not decayed."""
    good = usable(run.loss)
    steps, loss = run.steps[good].astype(np.float64), run.loss[good]
    if len(steps) < FEWEST_POINTS:
        return False
    at = (steps - steps[0] + 1.0) / (steps[-1] - steps[0] + 1.0)
    line, end, half = (at > LINE_FROM) & (at <= LINE_TO), at > LAST_PART, at > 0.5
    if min(np.count_nonzero(part) for part in (line, end)) < MIN_POINTS:
        return False
    x, y = np.log(at[line]), loss[line]
    centred, power = x - x.mean(), float(((x - x.mean()) ** 2).sum())
    slope = float((centred * y).sum()) / power
    noise = float(((y - y.mean() - slope * centred) ** 2).sum()) / (len(y) - 2)
    ahead = float(np.log(at[end]).mean() - x.mean())
    level = median(loss[end])
    excess = level - float(y.mean()) - slope * ahead
    error = math.sqrt(
        noise * (1.0 / len(y) + ahead**2 / power)
        + 0.5 * math.pi * float(loss[end].var()) / int(end.sum())
    )
    late = np.log(at[half])
    steepness = float(((late - late.mean()) * loss[half]).sum()) / float(
        ((late - late.mean()) ** 2).sum()
    )
    return steepness < 0.0 and excess - EXCESS_SES * error > EXCESS_OF_SLOPE * -steepness


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
        unit = 2.0 * float(_rounding(rate, peak * rates).max()) / peak
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


# What was recorded outside the plan: steps after its last one, and a log that begins long after its
# first.
#
# Beyond the plan the candidate may not be worse than inside it. A pass is blocked by a loss that is
# not finite, by a mean gap over the common steps beyond the plan above the margin, and by a mean
# loss there that is above the candidate's own level in the window by more than the margin and 4
# standard errors of the step noise. Runs that go on by more than 5 % of the plan block it, too:
# then the plan is not theirs.

#
# A record keeps a quarter of the plan more than the plan: from a log of up to every fifth of it,
# the judge sees that a run goes on.

MAX_BEYOND, MAX_LATE, RECORDED_BEYOND = 0.05, 0.05, 0.25  # of the plan
NOISE_SES = 4.0


def last_recorded(planned_steps: int) -> int:
    """The last step that is recorded of a run with such a plan; one step more than the plan at
    least.
    """
    return planned_steps + max(1, int(RECORDED_BEYOND * planned_steps))


@frozen
class BeyondPlan:
    """Steps after the planned last one: the last recorded, how far they go on as share of the plan,
    and what the losses there are.

    `nonfinite_step` is the first with a NaN or infinite loss of the candidate, `gap` the mean gap
    over common steps (nats), `level` the candidate's mean loss over its `points` finite ones
    (nats); None where there is none.
    """

    last: int
    share: float
    nonfinite_step: int | None
    gap: float | None
    level: float | None
    points: int

    def is_worse(self, level: float, margin: float, sigma_step: float) -> bool:
        """Whether the candidate is worse there than its `level` inside the plan allows; all in
        nats.
        """
        if self.nonfinite_step is not None or (self.gap is not None and self.gap > margin):
            return True
        return (
            self.level is not None
            and self.level - level > margin + NOISE_SES * sigma_step / math.sqrt(self.points)
        )


def beyond_plan(
    baseline: Sequence[Curve], candidate: Sequence[Curve], window: Window
) -> BeyondPlan | None:
    """What the runs of both arms recorded after the window's last step; None where nothing was."""
    runs = (*baseline, *candidate)
    last = max((int(run.steps[-1]) for run in runs if len(run.steps)), default=0)
    if last <= window.last:
        return None
    later = [_after(run, window.last) for run in candidate]
    bad = [
        int(steps[int(np.argmax(~usable(loss)))]) for steps, loss in later if not all_usable(loss)
    ]
    finite = np.concatenate([loss[usable(loss)] for _, loss in later])
    pair = align(baseline, candidate)
    beyond = pair.steps > window.last
    gap = pair.candidate[:, beyond].mean(axis=0) - pair.baseline[:, beyond].mean(axis=0)
    return BeyondPlan(
        last=last,
        share=(last - window.last) / window.planned_steps,
        nonfinite_step=min(bad, default=None),
        gap=float(gap.mean()) if len(gap) else None,
        level=float(finite.mean()) if len(finite) else None,
        points=len(finite),
    )


def late_start(runs: Sequence[Curve], window: Window) -> int | None:
    """The latest first step of any run, where it is more than 5 % of the plan after the plan's
    first; else None.
    """
    first = max((int(run.steps[0]) for run in runs if len(run.steps)), default=0)
    if first - window.origin > MAX_LATE * window.planned_steps:
        return first
    return None


def _after(run: Curve, last: int) -> tuple[IntArray, FloatArray]:
    """Steps and losses after a step."""
    start = int(np.searchsorted(run.steps, last, side="right"))
    return run.steps[start:], run.loss[start:]


# At which point of the training does a comparison speak: at its end, or as of a step before it?
#
# finished    every run reached the plan but for one logging interval or 0.5 % of it, and the
#             learning rates that both arms recorded fell
#   to
#             20 % of their peak or below without a cut; or the owner states the decay (`schedule:
#             decayed`) and no recorded rate
#   contradicts.
#             A plan alone, and the assumption that the runs are complete, say nothing of the
#             schedule
# slope s     least squares of the baseline's loss on ln(step) from 20 % of its last step on, as a
#             share of L per e-fold: runs of one
#   recipe
#             get to a loss at different times, and an unfinished run shows that difference times
#             the slope
#             twice that where the log begins later; 20 % where a log from the start (5 %) begins
#             below 1.3 L and has fallen since: then
#   it
#             may be cut from a longer run, unless trained weights were loaded (`start: loaded`)
#
# Can fail: a schedule that somebody states. Source: 7 families of unfinished runs, tau/|s| 0.5 to
# 2.2 %.

SLOPE_FROM, STARTS_EARLY, LATE_FACTOR = 0.2, 0.05, 2.0  # shares of the last step
FROM_SCRATCH, UNKNOWN_SLOPE, FIRST_PART = 1.3, 0.20, 10


@frozen
class ScheduleState:
    """Where in its training a comparison stands: the last common `step`, whether the training was
    `finished` there (`stated`: as the owner says, without recorded rates), else `why` not, and the
    baseline's `slope` as a share of its loss per e-fold of the steps.
    """

    step: int
    finished: bool
    stated: bool
    why: str
    slope: float

    @property
    def assumed_slope(self) -> float | None:
        """The slope that the assumed run-to-run noise has to follow; None for a finished run."""
        return None if self.finished else self.slope


def schedule_state(
    arms: tuple[Sequence[Curve], Sequence[Curve]], window: Window, policy: Policy, slope: float
) -> ScheduleState:
    """The state of the schedule of the runs of both arms in their window."""
    runs = (*arms[0], *arms[1])
    recorded = all(any(recorded_rates(run) is not None for run in arm) for arm in arms)
    stated = policy.schedule == "decayed"
    if window.unreached and window.plan != "unknown":
        why = window.unreached
    elif stated:
        why = (
            contradicting_rate(runs, cut_counts=window.plan != "declared")
            or _contradicting_loss(arms[0])
            or ""
        )
    elif window.plan == "unknown":
        why = "the planned length of the runs is not known"
    elif recorded:
        why = not_at_end([run for run in runs if recorded_rates(run) is not None]) or ""
    else:
        why = (
            "no learning rates of both arms are on record, and nobody stated that they had decayed"
        )
    return ScheduleState(
        step=window.last,
        finished=not why,
        stated=stated and not recorded and not why,
        why=why,
        slope=slope,
    )


def _contradicting_loss(baseline: Sequence[Curve]) -> str | None:
    """Why losses contradict that the rate had decayed, where no rates are on record that show it;
    None where they don't.

    A candidate's may bend for a reason of its own.
    """
    for run in baseline:
        if not_at_end([run]) is not None and falls_as_before(run):
            return (
                f"the loss of {run.label or 'a run'} falls at its end as before a decay, so its "
                "learning rate had not decayed"
            )
    return None


def log_slope(steps: IntArray, loss: FloatArray, *, loaded: bool) -> float:
    """s of (n,) losses at (n,) steps: a share of their late level per e-fold, as large as the log
    leaves it open.
    """
    last = int(steps[-1]) if len(steps) else 0
    late = steps >= max(SLOPE_FROM * last, 1)
    if int(late.sum()) < 3:
        return UNKNOWN_SLOPE
    level = float(loss[steps >= (1.0 - SLOPE_FROM) * last].mean())
    x = np.log(steps[late].astype(np.float64))
    x -= x.mean()
    power = dot(x, x)
    if level <= 0.0 or power == 0.0:
        return UNKNOWN_SLOPE
    slope = abs(dot(x, loss[late] - loss[late].mean()) / power / level)
    first = int(steps[0])
    if first > SLOPE_FROM * last:
        return LATE_FACTOR * slope
    beginning = float(loss[: max(1, len(loss) // FIRST_PART)].mean())
    cut = (
        first <= STARTS_EARLY * last and float(loss[0]) < FROM_SCRATCH * level and beginning > level
    )
    if cut and not loaded:
        return max(slope, UNKNOWN_SLOPE)
    return slope
