"""Means of two groups of runs: the difference with Welch's interval, and the spread of one group
with its own.

difference = mean(y) - mean(x),  SE^2 = s_x^2/n_x + s_y^2/n_y,  df by Welch and Satterthwaite
sd: from sqrt(df s^2 / chi2) at both ends

Can fail: values that are not independent (runs of one machine, copies); fewer than about 5 runs of
a heavy-tailed spread. Sources: Welch 1947; Satterthwaite 1946.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray
from parity.judging.gap.interval import t_quantile


@frozen
class GroupEstimate:
    """A mean, or a difference of means, with its standard error and degrees of freedom."""

    mean: float
    se: float
    df: float

    def bounds(self, confidence: float) -> tuple[float, float]:
        """Lower and upper end of the two-sided interval at `confidence` (0 to 1)."""
        half = t_quantile(confidence, self.df) * self.se
        return self.mean - half, self.mean + half


@frozen
class GroupSpread:
    """Standard deviation with its interval; in the values' unit."""

    sd: float
    lo: float
    hi: float


def difference(x: FloatArray, y: FloatArray) -> GroupEstimate:
    """Mean of y (n_y,) minus mean of x (n_x,), Welch; each needs at least 2 values. An error of
    zero keeps the smaller df.
    """
    parts = [(float(group.var(ddof=1)) / len(group), len(group) - 1.0) for group in (x, y)]
    return from_parts(float(y.mean() - x.mean()), parts)


def from_parts(mean: float, parts: Sequence[tuple[float, float]]) -> GroupEstimate:
    """An estimate whose variance is the sum of parts, each a variance with its degrees of freedom
    (Satterthwaite).
    """
    total = sum(part for part, _ in parts)
    if total > 0.0:
        df = 1.0 / sum((part / total) ** 2 / part_df for part, part_df in parts)
    else:
        df = min(part_df for _, part_df in parts)
    return GroupEstimate(mean=mean, se=math.sqrt(total), df=df)


def spread(values: FloatArray, confidence: float) -> GroupSpread:
    """Standard deviation of (n,) values, n >= 2, with the interval that a normal distribution gives
    it.
    """
    df, sd = len(values) - 1.0, float(values.std(ddof=1))
    tail = (1.0 - confidence) / 2.0
    # chdtri takes the upper tail
    lo, hi = (sd * math.sqrt(df / float(special.chdtri(df, p))) for p in (tail, 1.0 - tail))
    return GroupSpread(sd=sd, lo=lo, hi=hi)


def values_by_cluster(values: FloatArray, clusters: list[str]) -> dict[str, FloatArray]:
    """The (n,) values by cluster, clusters in order of name."""
    names = np.array(clusters, dtype=object)
    return {name: values[names == name] for name in sorted(set(clusters))}
