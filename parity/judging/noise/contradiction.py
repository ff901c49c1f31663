"""How far a comparison's own runs contradict the family whose run-to-run noise it borrows, and what
of it still counts.

p = P(F(d, df_family) >= s_own^2/s0^2)             s_own: spread of the own runs on d degrees of
    freedom; no own reruns: p = 1
weight = min(1, p / 0.2)                           1: the family counts in full; the conflict is
    named below p = 0.05
tau0^2 = weight s0^2 + (1 - weight) wide^2         wide: the largest of the assumed noise, s0 and
    s_own
df  = weight df_family + (1 - weight) df_assumed

Continuous in s_own, so no run decides alone whether the family counts. Only noisier runs
contradict: quieter ones leave the noise of the family, which is then too wide. With a weight of 0
the arm is back at what it has without a family, and never below its own spread, so that an arm with
a single run does not keep the quiet family that its partner's reruns refute.

Can fail: one run per arm shows no spread, so nothing can contradict the family then. Below p = 0.2
the own spread counts in the prior and as data. 0.2 was chosen so that pairs of 2 to 5 times the
family's noise, with 5 runs in an arm, are covered in 90 %; two runs per arm reach 86 %
(benchmarks/calibration, F4). Idea: robust mixture priors (Schmidli et al. 2014).
"""

import math

from parity.frozen import frozen
from parity.judging import special
from parity.judging.noise.family_spread import (
    FamilyNoise,
)

FULL_FROM, NAMED_BELOW = 0.2, 0.05  # p


@frozen
class RunSpread:
    """Squares of own runs about their means, as multiples of the variance that the family
    expects, on `df` degrees of freedom.
    """

    squares: float
    df: float

    @property
    def ratio(self) -> float | None:
        """s_own^2 / s0^2; None without own reruns."""
        if not self.df:
            return None
        return self.squares / self.df

    def __add__(self, other: "RunSpread") -> "RunSpread":
        return RunSpread(squares=self.squares + other.squares, df=self.df + other.df)


@frozen
class Agreement:
    """How the own runs fit the family: p, the family's weight (0 to 1), and the own spread over
    that of the family; None without reruns.
    """

    p: float
    weight: float
    ratio: float | None

    @property
    def contradicted(self) -> bool:
        """Whether the own runs are noisier than the family explains."""
        return self.p < NAMED_BELOW


def agreement(measured: RunSpread, noise: FamilyNoise) -> Agreement:
    """Compare the spread of the own runs with the family's noise."""
    if measured.ratio is None:
        return Agreement(p=1.0, weight=1.0, ratio=None)
    p = (
        float(special.fdtrc(measured.df, noise.df, measured.ratio))
        if math.isfinite(measured.ratio)
        else 0.0
    )
    return Agreement(p=p, weight=min(1.0, p / FULL_FROM), ratio=math.sqrt(measured.ratio))
