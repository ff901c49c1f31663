"""The end of the run, judged on its own: what the last steps say is what the model is when training stops.

tails      the last 1, 2, 4, ... points of the window, up to a quarter of it
rise_k     mean gap of the last k points minus the mean gap of the window's first three quarters (spikes taken out there alone)
noise_k    sqrt(Omega / k), Omega = n SE^2 of those three quarters: for correlated noise more than the truth, so on the safe side
limit_k    t(df, 1 - 0.01 / (2 m)) noise_k for m tails: all tails and both directions share one budget of 1 % false alarms
differs    rise_k > limit_k for some k, and with the run noise the tail's gap reaches the margin: e_k + h > M; or -rise_k > max(limit_k, M);
           or the mean gap of the last tenth or twentieth (at least 16 points) is M or more, though the window's interval is below
above      the interval of the *median* gap of the last quarter or the last half, with its own noise, is above the margin

A spike returns; what has not returned when the run ends can't be told from a divergence, so it is never masked and blocks a pass.
Measured over 9,042 windows that end anywhere in the last 40 % of honest pairs (7 public reruns of a 124 M model, two runs of a 15 B model,
8 emulated runs): rise / noise exceeds 4 in 0.4 % of them; the limit is 4.2 for 350 points. Can fail: a tail whose gap stays below the
margin is seen by the window's interval only.
"""

import math
from dataclasses import dataclass

import numpy as np

from parity.judging import special
from parity.judging.curve import FloatArray
from parity.judging.interval import Interval, t_quantile
from parity.judging.interval import interval as interval_of
from parity.judging.noise import StandardError, mean_se, median
from parity.judging.spikes import NEGLIGIBLE, find_spikes

FALSE_ALARMS = 0.01
MIN_POINTS = 16  # fewer in the window have no end of their own
LATE_PARTS = (4, 2)  # of the window: the last quarter and the last half
MEDIAN_SE = (math.pi / 2.0) ** 0.5  # of a median over that of a mean, for normal noise


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The tail of the run that stands out most: its `points`, mean `gap`, `rise` from before it, the rise's `limit`; nats.

    `differs` says whether it could carry the gap across the margin, `above` whether the run surely ends above it.
    """

    points: int
    gap: float
    rise: float
    limit: float
    differs: bool
    above: bool


def measure_end(
    gap: FloatArray, interval: Interval, margin: float, confidence: float, level: float, quantum: float, nominal: float | None = None
) -> RunEnd | None:
    """The end of the window's gap series without spikes (n,), nats; None for fewer than 16 points.

    `level` is the baseline's loss there, `quantum` the step to which losses are rounded. `confidence` is that of the interval that
    decides, `nominal` the policy's own where it is lower: an end above the margin only at that one blocks a pass without being a fail.
    """
    n = len(gap)
    if n < MIN_POINTS:
        return None
    centre, omega, df = _before(gap[: n - n // LATE_PARTS[0]], level, quantum)
    run_half = t_quantile(confidence, interval.run.df) * interval.run.variance**0.5
    lengths = 2 ** np.arange(int(math.log2(n // LATE_PARTS[0])) + 1)
    z = float(special.stdtrit(df, 1.0 - FALSE_ALARMS / (2.0 * len(lengths))))
    sums = np.cumsum(gap[: -int(lengths[-1]) - 1 : -1])
    means = sums[lengths - 1] / lengths
    rises, limits = means - centre, np.maximum(z * np.sqrt(omega / lengths), NEGLIGIBLE * abs(level))
    reaches = (means + run_half > margin) & (rises > limits) | (-rises > np.maximum(limits, margin))
    size = np.abs(rises) - limits
    most = int(np.argmax(np.where(reaches, np.abs(rises), -np.inf) if reaches.any() else size / np.maximum(limits, 1e-300)))
    above = _late_part_above(gap, interval, margin, confidence)
    at_nominal = above if nominal is None or nominal == confidence else _late_part_above(gap, interval, margin, nominal)
    ends_high = interval.bounds(confidence)[1] < margin and (_ends_high(gap, margin) or at_nominal != above)
    return RunEnd(
        points=int(lengths[most]),
        gap=float(means[most]),
        rise=float(rises[most]),
        limit=float(limits[most]),
        differs=bool(reaches.any()) or ends_high,
        above=above,
    )


def _ends_high(gap: FloatArray, margin: float) -> bool:
    """Whether the last tenth or twentieth, at least 16 points, is on average at the margin: no noise limit, so that a slow swing counts."""
    return any(float(gap[-max(MIN_POINTS, len(gap) // parts) :].mean()) >= margin for parts in (10, 20))


def _late_part_above(gap: FloatArray, interval: Interval, margin: float, confidence: float) -> bool:
    return any(_is_above(gap[len(gap) - len(gap) // parts :], interval, margin, confidence) for parts in LATE_PARTS)


def _is_above(late: FloatArray, interval: Interval, margin: float, confidence: float) -> bool:
    """Whether more than half of the late points lie so high that the interval of their median is above the margin."""
    error = mean_se(late)
    middle = interval_of(median(late), StandardError(value=MEDIAN_SE * error.value, df=error.df), interval.run)
    return middle.bounds(confidence)[0] > margin


def _before(gap: FloatArray, level: float, quantum: float) -> tuple[float, float, float]:
    """Mean of the gap before the end, its long-run variance Omega, and the degrees of freedom that this is known with."""
    quiet = find_spikes(gap, level, quantum, part_of_run=True).masked_gap
    error = mean_se(quiet)
    return float(quiet.mean()), error.value**2 * len(quiet) + quantum**2 / 6.0, error.df
