"""How many more tokens does the candidate need for the baseline's loss? The token tax, from a power
law fitted to the baseline.

f(t) = E + A t^-p, least squares with Huber weights on log-spaced bins tax = s - 1 for the s with
mean over the window of f(t/s) - f(t) = gap: s^p = 1 + gap / (A mean of t^-p)

Can fail: only at a constant learning rate is this the number of extra tokens needed; under a
decaying schedule it is an equal-loss shift under this schedule. The linear shortcut gap / (-dL/dln
t) reads 33 % where the truth is 36 %. Checked on synthetic laws only (A11). Source: neural scaling
laws (Kaplan et al. 2020; Hoffmann et al. 2022) for the form.
"""

import math

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray, IntArray, mean
from parity.judging.curves.step_noise import mad_sd
from parity.judging.gap.token_slope import TokenSlope

BINS, TAX_SKIPPED_SHARE = 100, 0.02
LOG_POWERS = (math.log(0.02), math.log(3.0))
HUBER, REWEIGHTINGS = 2.0, 3
MAX_SHIFT = 32.0
MIN_POINTS, MAX_WINDOW_POINTS = 100, 1000
CAVEAT_CONSTANT = "extra tokens needed at this learning rate"
CAVEAT_SCHEDULE = (
    "equal-loss shift; the learning rate changes, so do not read it as extra tokens needed"
)
CAVEAT_UNKNOWN = (
    "equal-loss shift; extra tokens needed only if the learning rate, which was not recorded, is "
    "constant"
)


@frozen
class PowerLaw:
    """L(t) = floor + scale t^-power in nats, t in steps from 1."""

    floor: float
    scale: float
    power: float

    def at(self, t: FloatArray) -> FloatArray:
        """The law's loss at times (n,)."""
        return self.floor + self.scale * t**-self.power


@frozen
class TokenTax:
    """Extra tokens as a share (0.36 = 36 % more), with the ends that the gap's interval gives; inf
    where no shift reaches the loss.
    """

    estimate: float
    lo: float
    hi: float
    caveat: str


def fit_law(steps: IntArray, loss: FloatArray) -> PowerLaw | None:
    """Fit the law to the baseline's mean curve, (n,) steps and losses; None for fewer than 100
    points or no decline.
    """
    if len(steps) < MIN_POINTS:
        return None
    t, level, n = _log_bins(steps - steps[0] + 1, loss)
    if len(t) < 5 or level[0] <= level[-1]:
        return None
    weight = n
    law = PowerLaw(floor=0.0, scale=0.0, power=1.0)
    for _ in range(REWEIGHTINGS):
        law = _least_squares(t, level, weight)
        residual = (level - law.at(t)) * np.sqrt(n)
        limit = HUBER * max(mad_sd(residual), 1e-12)
        weight = n * np.minimum(1.0, limit / np.maximum(np.abs(residual), 1e-300))
    return law if law.scale > 0.0 else None


def _least_squares(t: FloatArray, loss: FloatArray, weight: FloatArray) -> PowerLaw:
    """The best floor and scale for each power are linear; the power is found by bounded search."""
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    share = weight / weight.sum()
    mean_loss = float(share @ loss)
    y = loss - mean_loss

    def linear(log_power: float) -> tuple[float, float, float]:
        u = t ** -math.exp(log_power)
        mean_u = float(share @ u)
        u -= mean_u
        slope = float(share @ (u * y) / (share @ u**2))
        return mean_loss - slope * mean_u, slope, float(share @ (y - slope * u) ** 2)

    minimum = minimize_scalar(
        lambda x: linear(x)[2], bounds=LOG_POWERS, method="bounded", options={"xatol": 1e-6}
    )
    floor, scale, _ = linear(float(minimum.x))
    return PowerLaw(floor=floor, scale=scale, power=math.exp(minimum.x))


def token_tax(
    law: PowerLaw,
    window: IntArray,
    first_step: int,
    gap: float,
    lo: float,
    hi: float,
    *,
    constant_rate: bool | None,
) -> TokenTax:
    """The tax for a window's mean gap and its interval's ends (nats); `window` are its steps,
    counted from `first_step`.

    `constant_rate` is None where the learning rate was not recorded.
    """
    stride = 1 + len(window) // MAX_WINDOW_POINTS  # a smooth law needs few points
    t = (window[stride // 2 :: stride] - first_step + 1).astype(np.float64)
    above = law.scale * mean(t**-law.power)
    ends = [_shift(law.power, above, value) - 1.0 for value in (gap, lo, hi)]
    caveat = {True: CAVEAT_CONSTANT, False: CAVEAT_SCHEDULE, None: CAVEAT_UNKNOWN}[constant_rate]
    return TokenTax(estimate=ends[0], lo=ends[1], hi=ends[2], caveat=caveat)


def tax_of_slope(slope: TokenSlope, gap: float, lo: float, hi: float) -> TokenTax:
    """The tax for a mean gap and its interval's ends (nats) by the slope of finished runs, whose
    schedules were as long as the runs.
    """
    ends = [slope.tokens(value) for value in (gap, lo, hi)]
    return TokenTax(
        estimate=ends[0],
        lo=ends[1],
        hi=ends[2],
        caveat=f"extra tokens needed, by {slope.nats:.3g} nats per e-fold: {slope.basis}",
    )


def _shift(power: float, above: float, gap: float) -> float:
    """The s with mean(f(t/s)) - mean(f(t)) = gap, from 1/32 to 32; inf or 0 beyond. `above` is the
    mean of f(t) - E.
    """
    if above * (MAX_SHIFT**power - 1.0) <= gap:
        return math.inf
    if above * (MAX_SHIFT**-power - 1.0) >= gap:
        return 0.0
    return math.exp(math.log1p(gap / above) / power)


def _log_bins(t: IntArray, loss: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Geometric-middle time, mean loss and number of points of the non-empty log-spaced bins after
    the start.
    """
    # the first steps, warm-up among them, follow no power law
    first = int(np.searchsorted(t, TAX_SKIPPED_SHARE * t[-1], side="right"))
    late, values = t[first:], loss[first:]
    starts = np.unique(np.searchsorted(late, np.geomspace(late[0], late[-1] + 1, BINS + 1)[:-1]))
    ends = np.append(starts[1:], len(late))
    n = (ends - starts).astype(np.float64)
    return (
        np.sqrt(late[starts].astype(np.float64) * late[ends - 1]),
        np.add.reduceat(values, starts) / n,
        n,
    )
