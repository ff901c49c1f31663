"""How likely does the ordinary judge pass a policy of this gap, at the level that a confirmation has?

A search confirms at most r times, each with fresh runs of both arms at confidence 1 - (1 - C) / r, C the job's. A pass of a policy whose
gap is above the margin then has a chance of at most (1 - C) / (2 r) each, and (1 - C) / 2 in all, however the policy was chosen: the fresh
runs know nothing of the choice. This is the search's guarantee, and as good as the judge's interval.

The chances of a pass are those of `parity.design.chances`; the largest gap that passes with a wanted power is what a search aims at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from parity.design.chances import NO_FAMILIES, Chances, chances
from parity.design.experiment import Design
from parity.judging.criteria import Criteria
from parity.judging.curve import FloatArray
from parity.judging.floors.lending import Lenders
from parity.judging.multiplicity import Multiplicity

WANTED = 0.95
MOST_CONFIRMATIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """How one confirmation is judged: its chances, the margin (nats) and its confidence; `most` confirmations share the `error`."""

    chances: Chances
    margin: float
    confidence: float
    error: float
    most: int

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        times = "once" if self.most == 1 else f"at most {self.most} times"
        return (
            f"The chance that a policy is returned although its gap exceeds the margin ({self.margin:.4g} nats at the base job's loss) "
            f"is at most {100 * self.error:.3g} %: a policy is confirmed {times}, each time on fresh runs of both arms."
        )

    def passes(self, gap: float) -> float:
        """The chance of a pass at a true gap in nats."""
        return self.chances.passes(gap, self.margin)

    def expected(self, means: FloatArray, sds: FloatArray) -> FloatArray:
        """The chance of a pass (n,) at gaps that are known as normal variables, by Gauss and Hermite at 9 nodes."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        chance: FloatArray = np.interp(means[:, None] + sds[:, None] * nodes, *_table(self)) @ weights / weights.sum()
        return chance

    def largest_gap(self, power: float = WANTED) -> float | None:
        """The largest gap (nats) that passes with this power; None where even a gap of 0 does not."""
        if self.passes(0.0) < power:
            return None
        low, high = 0.0, self.margin
        for _ in range(50):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self.passes(middle) >= power else (low, middle)
        return low


@lru_cache(maxsize=8)
def _table(own: Confirmation) -> tuple[FloatArray, FloatArray]:
    """Gaps, and the chance of a pass at each."""
    reach = 8.0 * max(own.chances.se, own.margin)
    gaps = np.linspace(-reach, reach, 801)
    return gaps, np.array([own.passes(float(gap)) for gap in gaps])


def confirmation(design: Design, criteria: Criteria, margin: float, confirmations: int = 2, lenders: Lenders = NO_FAMILIES) -> Confirmation:
    """One of at most this many confirmations of a design whose level is set. Raises ValueError for more than 5 of them."""
    if not 1 <= confirmations <= MOST_CONFIRMATIONS:
        raise ValueError(f"confirmations is {confirmations}, expected 1 to {MOST_CONFIRMATIONS}; each one more widens every interval")
    confidence = Multiplicity(candidates=confirmations).confidence(criteria.confidence)
    outlook = chances(design, replace(criteria, confidence=confidence, looks=1), lenders)
    return Confirmation(chances=outlook, margin=margin, confidence=confidence, error=(1.0 - criteria.confidence) / 2.0, most=confirmations)
