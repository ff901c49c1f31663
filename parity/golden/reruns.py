"""Several goldens of one recipe, code and container give a test the noise of its own level.

The variance of their levels is pooled with that which the limit of one golden stands for, which
counts as one degree of freedom:

    s0  = LIMIT / (t(1) sqrt(2))
    s^2 = (s0^2 + sum of squares about their mean) / G
    limit = max(LIMIT, t(G) s sqrt(1 + 1/G)),   t(df) the 99 % quantile of Student's t

Reruns of one container may be equal to the bit and say nothing of another one, so they never make
the limit narrower.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from parity.frozen import frozen
from parity.golden.batches import late_agreement
from parity.golden.common_steps import common_steps
from parity.golden.level import LIMIT_PCT, level
from parity.judging.curves.curve import Curve

PRIOR_DF = 1  # a convention: a single further golden has as much to say as the prior
# 99 % quantiles of Student's t by degrees of freedom, scipy.stats.t.ppf(0.99, df): 1 % of honest
# reruns may be called worse, and 1 % better
QUANTILES = {
    1: 31.8205,
    2: 6.9646,
    3: 4.5407,
    4: 3.7469,
    5: 3.3649,
    6: 3.1427,
    7: 2.9980,
    8: 2.8965,
    9: 2.8214,
    10: 2.7638,
}
MOST = 10


@frozen
class RerunNoise:
    """What several goldens show: the limit of the level in %, the largest difference of their first
    losses in nats, and the least agreement (q) of their batches.
    """

    limit_pct: float
    first_nats: float
    q: float


ONE_GOLDEN = RerunNoise(limit_pct=LIMIT_PCT, first_nats=0.0, q=0.0)


def rerun_noise(goldens: Sequence[Curve]) -> RerunNoise:
    """The noise between goldens that share at least 8 steps; that of `ONE_GOLDEN` for one."""
    if len(goldens) < 2:
        return ONE_GOLDEN
    levels = [0.0] + [level(common_steps(goldens[0], other)).pct for other in goldens[1:]]
    first, q = 0.0, 0.0
    for one, other in combinations(goldens, 2):
        common = common_steps(one, other)
        first = max(first, abs(float(common.difference[0])))
        q = max(q, late_agreement(common).q)
    return RerunNoise(limit_pct=level_limit(levels), first_nats=first, q=q)


def level_limit(levels: Sequence[float]) -> float:
    """The limit of the level in % for the levels in % of 1 to 10 goldens against one of them."""
    df = PRIOR_DF + len(levels) - 1
    prior = LIMIT_PCT / (QUANTILES[PRIOR_DF] * 2.0**0.5)
    squares = float(np.sum((np.asarray(levels) - np.mean(levels)) ** 2))
    spread = float(np.sqrt((PRIOR_DF * prior**2 + squares) / df))
    further = float(np.sqrt(1.0 + 1.0 / len(levels)))  # the run's own noise, and that of their mean
    return max(LIMIT_PCT, QUANTILES[df] * spread * further)
