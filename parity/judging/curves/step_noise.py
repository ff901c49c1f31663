"""The noises inside one pair of runs: batch noise of one arm, and the standard error of the mean
gap in the window.

sigma_step  1.4826 MAD(x_t - 2 x_{t+1} + x_{t+2}) / sqrt(6): batch noise of one run, free of trend
SE_within   error of the mean of the gap series d_t (n,), which averaging over the window leaves
  to 100 points  that of an AR(1) process whose lag-1 correlation is taken a standard error too
                 high, with max(2, n (1 - u)/(1 + u) - 1) degrees of freedom:
                 rho = clip(r1 + (1 + 3 r1)/n, 0, 0.97), u = min(rho + sqrt((1 - rho^2)/n), 0.97)
                 f = 1 + 2 sum_{k<n} (1 - k/n) u^k, SE^2 = var(d) / max(1 - f/n, 0.05) f/n
  from 200 on    max(EWC, NW); in between, both variances and 1/df are mixed by (n - 100)/100, so
                 that no single point changes the rule
  EWC            L_j = orthonormal DCT-II of d, Omega = mean of L_j^2 over j = 1..B,
                 SE = sqrt(Omega / n), B degrees of freedom
  NW             AR(1) prewhitening, Bartlett kernel with Andrews' bandwidth, recoloured by
                 1 / (1 - rho)^2

Coverage of few points (benchmarks/calibration P1): 93 % and more from 12 points on to a
correlation of 0.8, from 20 points on to 0.9. Can fail: long memory. A run's constant offset is
invisible to any of these: that is the run-to-run noise's business (`arm_noise`). Sources: Lazarus,
Lewis, Stock, Watson 2018 (EWC); Andrews and Monahan 1992 (prewhitening); Andrews 1991 (bandwidth).
"""

import math

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import (
    FloatArray,
    dot,
    dots,
    mean,
    median,
    row_means,
)

MAD_TO_SD = 1.482602218505602
MAX_PREWHITENING_RHO = 0.97
# up to the first the AR(1) error alone, from the second on EWC and Newey-West alone
FEW_POINTS, MANY_POINTS = 100, 200
# of the AR(1) error; they bound what a few points can say of their own correlation
MAX_RHO, LEAST_FREE, LEAST_DF = 0.97, 0.05, 2.0
BLOCKS = 32_768
SCALE_SAMPLE = 65_536  # values, evenly spread, are enough for a robust scale


@frozen
class StandardError:
    """Standard error of a series' mean (its own unit) and the degrees of freedom it is known
    with.
    """

    value: float
    df: float


def mad_sd(values: FloatArray) -> float:
    """Robust standard deviation of (n,) values: 1.4826 x the median absolute deviation; 0.0 for
    fewer than 2.
    """
    if len(values) > 1:
        return MAD_TO_SD * median(np.abs(values - median(values)))
    return 0.0


def mad_sds(values: FloatArray) -> FloatArray:
    """(b,): `mad_sd` of each row of (b, n) values, n > 1."""
    deviations: FloatArray = np.median(
        np.abs(values - np.median(values, axis=-1, keepdims=True)), axis=-1
    )
    return MAD_TO_SD * deviations


def second_differences(series: FloatArray) -> FloatArray:
    """x_t - 2 x_{t+1} + x_{t+2} of (..., n) values, (..., n - 2)."""
    return series[..., :-2] - 2.0 * series[..., 1:-1] + series[..., 2:]


def step_noise(series: FloatArray) -> float:
    """sigma_step of one run's losses (n,) in nats; 0.0 for fewer than 4 points."""
    if len(series) < 4:
        return 0.0
    stride = 1 + len(series) // SCALE_SAMPLE
    return mad_sd(second_differences(series)[::stride]) / math.sqrt(6.0)


def lag1(series: FloatArray) -> float:
    """Lag-1 autocorrelation of the demeaned series (n,); 0.0 for a constant one."""
    centred = series - mean(series) if len(series) else series
    power = dot(centred, centred)
    if power > 0.0:
        return dot(centred[1:], centred[:-1]) / power
    return 0.0


def _lag1s(centred: FloatArray) -> FloatArray:
    """(b,): `lag1` of each row of (b, n) demeaned values."""
    power = dots(centred, centred)
    return np.divide(
        dots(centred[:, 1:], centred[:, :-1]), power, out=np.zeros_like(power), where=power > 0.0
    )


def mean_se(series: FloatArray) -> StandardError:
    """SE_within of the mean of (n,) values; zero for a constant, the values' own spread for fewer
    than 4.
    """
    if len(series) < 4:
        return StandardError(value=float(np.std(series)) if len(series) else 0.0, df=1.0)
    values, df = mean_ses(block_average(series)[None])
    return StandardError(value=float(values[0]), df=float(df[0]))


def mean_ses(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """SE_within (b,) of the means of (b, n) values, n > 3, and its degrees of freedom (b,)."""
    n = rows.shape[1]
    centred = rows - row_means(rows)[:, None]
    weight = min(max((n - FEW_POINTS) / (MANY_POINTS - FEW_POINTS), 0.0), 1.0)
    variances, inverse_df = np.zeros(len(rows)), np.zeros(len(rows))
    for share, estimate in ((1.0 - weight, _ar1), (weight, _long_run)):
        if share > 0.0:
            variance, df = estimate(centred)
            variances, inverse_df = variances + share * variance, inverse_df + share / df
    return np.sqrt(variances), 1.0 / inverse_df


def _ar1(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variance (b,) of the means of few demeaned values (b, n), as AR(1) processes with a
    correlation on the safe side; and its df (b,).
    """
    n = centred.shape[1]
    lag = _lag1s(centred)
    rho = np.clip(lag + (1.0 + 3.0 * lag) / n, 0.0, MAX_RHO)
    u = np.minimum(rho + np.sqrt((1.0 - rho**2) / n), MAX_RHO)
    f = 1.0 + 2.0 * u * (n * (1.0 - u) - (1.0 - u**n)) / (n * (1.0 - u) ** 2)
    variance = dots(centred, centred) / n / np.maximum(1.0 - f / n, LEAST_FREE) * f / n
    return variance, np.maximum(LEAST_DF, n * (1.0 - u) / (1.0 + u) - 1.0)


def _long_run(centred: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same by the larger of EWC and prewhitened Newey-West."""
    variance, df = _ewc(centred)
    return np.maximum(variance, newey_west_prewhitened(centred)) / centred.shape[1], np.full(
        len(centred), float(df)
    )


def block_average(series: FloatArray, blocks: int = BLOCKS) -> FloatArray:
    """Means of about this number of equal blocks, less the first points, which fill none; a series
    of up to twice as many points itself.
    """
    n = len(series)
    if n <= 2 * blocks:
        return series
    size = n // blocks
    means: FloatArray = series[n % size :].reshape(-1, size).mean(axis=1)
    return means


def _ewc(centred: FloatArray) -> tuple[FloatArray, int]:
    """Long-run variances (b,) of (b, n) demeaned values from the lowest B cosine coefficients, and
    B.
    """
    count = min(math.floor(0.4 * centred.shape[1] ** (2 / 3)), 12)
    coefficients = special.dct(centred, type=2, norm="ortho")[:, 1 : count + 1]
    return dots(coefficients, coefficients) / count, count


def newey_west_prewhitened(centred: FloatArray) -> FloatArray:
    """Long-run variances (b,) of demeaned series (b, n): AR(1) prewhitening, Bartlett kernel,
    Andrews' bandwidth, recoloured.
    """
    n = centred.shape[1]
    rho = _lag1s(centred)
    # + small-sample bias of the estimate
    rho = np.clip(rho + (1.0 + 3.0 * rho) / n, -MAX_PREWHITENING_RHO, MAX_PREWHITENING_RHO)
    white = centred[:, 1:] - rho[:, None] * centred[:, :-1]
    left = np.clip(
        _lag1s(white - row_means(white)[:, None]), -MAX_PREWHITENING_RHO, MAX_PREWHITENING_RHO
    )
    alpha = 4.0 * left**2 / ((1.0 - left) ** 2 * (1.0 + left) ** 2)
    lags = np.minimum(np.floor(1.1447 * (alpha * n) ** (1 / 3)), white.shape[1] - 1)
    variance = dots(white, white) / n
    for lag in range(1, int(lags.max()) + 1):
        some = np.flatnonzero(lags >= lag)
        weights = 2.0 * (1.0 - lag / (lags[some] + 1.0)) / n
        rows = white if len(some) == len(white) else white[some]
        variance[some] += weights * dots(rows[:, lag:], rows[:, :-lag])
    found: FloatArray = np.maximum(variance, 0.0) / (1.0 - rho) ** 2
    return found
