"""The gap where runs come in clusters: runs of one system share its hardware and software, so the
system is the unit, not the run.

m_aj = mean of arm a's runs in cluster j;  arm's mean = mean of its m_aj over its J_a clusters
clusters of the arms differ (nested):  s^2 = (SS_A + SS_B) / (J_A + J_B - 2) of the m_aj around
    their arm's mean V = s^2 (1/J_A + 1/J_B),   df = J_A + J_B - 2
every cluster has both arms (crossed): g_j = m_Bj - m_Aj,  V = var(g) / J,  df = J - 1
V is at least what the runs' own spread inside clusters gives, sum over a, j of s_a^2 / (n_aj
    J_a^2): a few clusters can agree by chance.

Can fail: nested clusters whose spread differs between the arms (one variance is used for both); a
difference that all clusters of one arm share, and none of the other's, such as another software
version: no number of clusters shows it. With 2 against 4 clusters there are 4 df. Source: nested
analysis of variance with the cluster as the experimental unit (Snedecor and Cochran 1989, chapter
13).
"""

import math
from collections.abc import Mapping

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import FloatArray
from parity.judging.evaluations.group_means import GroupEstimate

ByCluster = Mapping[str, FloatArray]


@frozen
class ClusteredGap:
    """The gap over clusters, how many clusters each arm has, and whether every cluster has both
    arms.
    """

    estimate: GroupEstimate
    clusters: tuple[int, int]
    crossed: bool


def clustered_gap(baseline: ByCluster, candidate: ByCluster) -> ClusteredGap | None:
    """The gap of two arms' run values by cluster; None where the clusters leave no degree of
    freedom.
    """
    means = [np.array([values.mean() for values in arm.values()]) for arm in (baseline, candidate)]
    counts = len(means[0]), len(means[1])
    crossed = set(baseline) == set(candidate)
    df = counts[0] - 1 if crossed else sum(counts) - 2
    if df < 1:
        return None
    if crossed:
        variance = float((means[1] - means[0]).var(ddof=1)) / counts[0]
    else:
        squares = sum(float(((arm - arm.mean()) ** 2).sum()) for arm in means)
        variance = squares / df * (1.0 / counts[0] + 1.0 / counts[1])
    variance = max(variance, _runs_alone(baseline) + _runs_alone(candidate))
    gap = float(means[1].mean() - means[0].mean())
    return ClusteredGap(
        estimate=GroupEstimate(mean=gap, se=math.sqrt(variance), df=float(df)),
        clusters=counts,
        crossed=crossed,
    )


def _runs_alone(arm: ByCluster) -> float:
    """Variance of the mean of an arm's cluster means if clusters did not differ, from the runs'
    spread inside them.
    """
    df = sum(len(values) - 1 for values in arm.values())
    if df < 1:
        return 0.0
    spread = sum(float(((values - values.mean()) ** 2).sum()) for values in arm.values()) / df
    return spread * sum(1.0 / len(values) for values in arm.values()) / len(arm) ** 2
