"""A mean with its interval, from values that are independent of each other: held-out batches, or
forks.

estimate = mean of n values,  se = sd / sqrt(n),  df = n - 1,  interval = mean -+ t(df) se,  p = 2
                              P(T > |mean| / se)

Can fail: values that share noise, such as batches cut from one document, are not independent, and
the interval is too narrow.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from parity.frozen import frozen
from parity.judging import special
from parity.judging.gap.interval import t_quantile


@frozen
class Estimate:
    """A value with its standard error and degrees of freedom; an error of 0 means that nothing
    varied.
    """

    value: float
    se: float
    df: float

    def bounds(self, confidence: float) -> tuple[float, float]:
        """The two-sided interval at `confidence` (0 to 1)."""
        half = t_quantile(confidence, self.df) * self.se
        return self.value - half, self.value + half

    def p(self) -> float:
        """The two-sided p-value of a true value of 0; 1 for a value that is 0, 0 for another one
        that never varied.
        """
        if self.se == 0.0:
            return 1.0 if self.value == 0.0 else 0.0
        return float(2.0 * special.stdtr(self.df, -abs(self.value) / self.se))


def estimate(values: ArrayLike) -> Estimate:
    """The mean of at least two independent values. Raises ValueError for fewer, and for values that
    are not finite.
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(
            f"values are {x.tolist()}, expected at least 2 finite numbers; measure more batches or "
            "forks"
        )
    return Estimate(
        value=float(x.mean()), se=float(x.std(ddof=1) / math.sqrt(len(x))), df=float(len(x) - 1)
    )


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> Estimate:
    """sum(numerators) / sum(denominators) with the standard error of a jackknife over the (at least
    two) values.
    """
    top, bottom = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    if len(top) < 2:
        raise ValueError(f"{len(top)} value, expected at least 2; measure more batches")
    count = len(top)
    left_out = (top.sum() - top) / (bottom.sum() - bottom)
    se = math.sqrt((count - 1) / count * float(((left_out - left_out.mean()) ** 2).sum()))
    return Estimate(value=float(top.sum() / bottom.sum()), se=se, df=float(count - 1))
