"""The noises inside one pair of runs: batch noise of one arm, and the standard error of the mean gap in the window.

sigma_step = 1.4826 MAD(x_t - 2 x_{t+1} + x_{t+2}) / sqrt(6)                 batch noise of one run, free of trend
SE_within  = max(EWC, prewhitened Newey-West) of the gap series d_t          what averaging over the window leaves
  EWC: L_j = orthonormal DCT-II of d, Omega = mean of L_j^2 over j = 1..B, SE = sqrt(Omega / n), B degrees of freedom
       (3 below 100 points, where B cosines reach frequencies at which correlated noise is already weaker: decision 0012)
  NW:  AR(1) prewhitening, Bartlett kernel with Andrews' bandwidth, recoloured by 1 / (1 - rho)^2

Can fail: long memory. A run's constant offset is invisible to any of these: that is the run floor's business (`run_floor`).
Sources: Lazarus, Lewis, Stock, Watson 2018 (EWC); Andrews and Monahan 1992 (prewhitening); Andrews 1991 (bandwidth).
"""

import math
from dataclasses import dataclass

import numpy as np

from parity.judging import special
from parity.judging.curve import FloatArray

MAD_TO_SD = 1.482602218505602
MAX_PREWHITENING_RHO = 0.97
FEW_POINTS, FEW_POINTS_DF = 100, 3  # coverage at n = 50 to 80 in docs/decisions/0012
BLOCK_AVERAGE_ABOVE, BLOCKS = 65_536, 32_768
SCALE_SAMPLE = 65_536  # values, evenly spread, are enough for a robust scale


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardError:
    """Standard error of a series' mean (its own unit) and the degrees of freedom it is known with."""

    value: float
    df: float


def dot(left: FloatArray, right: FloatArray) -> float:
    """Sum of products of (n,) values, on one thread: BLAS shares long vectors out, waits for busy cores, and sums in an order of theirs."""
    return float(np.einsum("i,i->", left, right))


def dots(left: FloatArray, right: FloatArray) -> FloatArray:
    """(b,): `dot` of each row of (b, n) values."""
    products: FloatArray = np.einsum("bi,bi->b", left, right)
    return products


def median(values: FloatArray) -> float:
    """Median of (n,) finite values, n > 0: numpy's, without what it spends on axes and NaN, which is most of the time for short series."""
    half = len(values) // 2
    parted = np.partition(values, half)
    upper = float(parted[half])
    return upper if len(values) % 2 else 0.5 * (float(parted[:half].max()) + upper)


def mad_sd(values: FloatArray) -> float:
    """Robust standard deviation of (n,) values: 1.4826 x the median absolute deviation; 0.0 for fewer than 2."""
    return MAD_TO_SD * median(np.abs(values - median(values))) if len(values) > 1 else 0.0


def mad_sds(values: FloatArray) -> FloatArray:
    """(b,): `mad_sd` of each row of (b, n) values, n > 1."""
    deviations: FloatArray = np.median(np.abs(values - np.median(values, axis=-1, keepdims=True)), axis=-1)
    return MAD_TO_SD * deviations


def second_differences(series: FloatArray) -> FloatArray:
    """x_t - 2 x_{t+1} + x_{t+2} of (n,) values, (n - 2,)."""
    return series[:-2] - 2.0 * series[1:-1] + series[2:]


def step_noise(series: FloatArray) -> float:
    """sigma_step of one run's losses (n,) in nats; 0.0 for fewer than 4 points."""
    if len(series) < 4:
        return 0.0
    stride = 1 + len(series) // SCALE_SAMPLE
    return mad_sd(second_differences(series)[::stride]) / math.sqrt(6.0)


def lag1(series: FloatArray) -> float:
    """Lag-1 autocorrelation of the demeaned series (n,); 0.0 for a constant one."""
    centred = series - series.mean() if len(series) else series
    power = dot(centred, centred)
    return dot(centred[1:], centred[:-1]) / power if power > 0.0 else 0.0


def mean_se(series: FloatArray) -> StandardError:
    """SE_within: the larger of EWC and prewhitened Newey-West for the mean of (n,) values; zero for fewer than 8 or a constant."""
    if len(series) < 8:
        return StandardError(value=float(np.std(series)) if len(series) else 0.0, df=1.0)
    short = block_average(series)
    blocks = len(short)
    centred = short - short.mean()
    ewc_variance, df = _ewc(centred)
    df = min(df, FEW_POINTS_DF) if blocks < FEW_POINTS else df
    variance = max(ewc_variance, newey_west_prewhitened(centred))
    return StandardError(value=math.sqrt(variance / blocks), df=float(df))


def block_average(series: FloatArray) -> FloatArray:
    """The series itself up to 65,536 points, else about 32,768 means of equal blocks (the first points that fill none are left out)."""
    n = len(series)
    if n <= BLOCK_AVERAGE_ABOVE:
        return series
    size = n // BLOCKS
    blocks: FloatArray = series[n % size :].reshape(-1, size).mean(axis=1)
    return blocks


def _ewc(centred: FloatArray) -> tuple[float, int]:
    """Long-run variance from the lowest B cosine coefficients, and B."""
    n = len(centred)
    count = min(max(math.floor(0.4 * n ** (2 / 3)), 4), 12, n - 1)
    coefficients = special.dct(centred, type=2, norm="ortho")[1 : count + 1]
    return dot(coefficients, coefficients) / count, count


def newey_west_prewhitened(centred: FloatArray) -> float:
    """Long-run variance of a demeaned series (n,): AR(1) prewhitening, Bartlett kernel, Andrews' bandwidth, recoloured."""
    n = len(centred)
    rho = lag1(centred)
    rho = min(max(rho + (1.0 + 3.0 * rho) / n, -MAX_PREWHITENING_RHO), MAX_PREWHITENING_RHO)  # + small-sample bias of the estimate
    white = centred[1:] - rho * centred[:-1]
    left = lag1(white)
    left = min(max(left, -MAX_PREWHITENING_RHO), MAX_PREWHITENING_RHO)
    alpha = 4.0 * left**2 / ((1.0 - left) ** 2 * (1.0 + left) ** 2)
    lags = min(math.floor(1.1447 * (alpha * n) ** (1 / 3)), len(white) - 1)
    variance = dot(white, white) / n
    for lag in range(1, lags + 1):
        variance += 2.0 * (1.0 - lag / (lags + 1)) * dot(white[lag:], white[:-lag]) / n
    return max(variance, 0.0) / (1.0 - rho) ** 2
