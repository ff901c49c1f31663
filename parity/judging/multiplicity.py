"""How sure must one interval be, so that a question with several looks and several candidates keeps
its error?

run-to-run noise  1 - (1 - C) w_L / m: level of its part of the interval at each of L looks for
                  each of m candidates, C the policy's
within            1 - (1 - C) / m: level of the error within pairs
w_L               P(|t(4)| > q_L) / 0.05, q_L = 2.78, 3.44, 4.39, 5.13, 5.87, 6.29
                  at L = 1, 2, 5, 10, 20, 30, between them linear in ln L

A run's offset is one draw that all looks share: with assumed noise (4 degrees of freedom) the looks
of a pair that gets a run more per arm each time need q_L for 2.5 % false passes in all, where
Bonferroni's bound is 3.50 to 7.53. With other degrees of freedom the level stays and the quantile
follows: for known noise 2.24 at L = 2 and 2.70 at 10, above Pocock's 2.18 and 2.56. The interval at
this level is what is shown, and its upper end decides a pass. A fail and the vetoes keep C: further
looks make neither harder. One look and one candidate give C itself. Candidates share by Bonferroni,
whatever they have in common (runs, batches, the baseline); Dunnett's constants for the shared
baseline are narrower, but need equal run-to-run noise in all arms. Can fail: looks that nobody
counts. The server's ledger counts those of its jobs; a comparison of files takes the user's word.
Sources: simulation (calibration/looks.py); Jennison and Turnbull 1989 (repeated confidence
intervals); Pocock 1977; Bonferroni.
"""

import math
from itertools import pairwise

from parity.frozen import frozen

MAX_LOOKS = 30
# q_L of t(4) for a two-sided 95 %, by looks.
LOOK_QUANTILES = ((1, 2.7764451051977987), (2, 3.44), (5, 4.39), (10, 5.13), (20, 5.87), (30, 6.29))
TABLE_ERROR = 0.05


@frozen
class Multiplicity:
    """Which look at its question a comparison is, of how many, and how many candidates share the
    error.

    `registered` says whether a ledger counted the look; otherwise it is the user's word. Raises
    ValueError for a look that was not planned.
    """

    look: int = 1
    looks: int = 1
    candidates: int = 1
    registered: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.looks <= MAX_LOOKS:
            raise ValueError(
                f"looks is {self.looks}; expected a whole number from 1 to {MAX_LOOKS}"
            )
        if not 1 <= self.look <= self.looks:
            raise ValueError(
                f"look is {self.look}; expected a whole number from 1 to the {self.looks} of the "
                "policy (looks)"
            )
        if self.candidates < 1:
            raise ValueError(f"candidates is {self.candidates}; expected at least 1")

    @property
    def left(self) -> int:
        """How many looks are still to come."""
        return self.looks - self.look

    def confidence(self, nominal: float) -> float:
        """The level of the run-to-run noise in each look's interval for one candidate, where the
        question has the confidence `nominal`.
        """
        if self.looks == self.candidates == 1:  # which spends the whole error
            return nominal
        return 1.0 - (1.0 - nominal) * look_weight(self.looks) / self.candidates

    def within_confidence(self, nominal: float) -> float:
        """The level of the error within pairs in the same interval, which looks do not change."""
        if self.candidates == 1:
            return nominal
        return 1.0 - (1.0 - nominal) / self.candidates

    def levels(self, nominal: float) -> tuple[float, float]:
        """Both: `confidence` and `within_confidence`."""
        return self.confidence(nominal), self.within_confidence(nominal)


ONE_LOOK = Multiplicity()


def look_weight(looks: int) -> float:
    """w_L: the share of the policy's error at which the run-to-run noise of each of 1 to 30 looks
    is taken.
    """
    if looks == 1:
        return 1.0
    (few, low), (many, high) = next(
        pair for pair in pairwise(LOOK_QUANTILES) if pair[0][0] < looks <= pair[1][0]
    )
    quantile = low + (high - low) * math.log(looks / few) / math.log(many / few)
    # of Student's t with 4 degrees of freedom
    tails = 1.0 - quantile * (quantile**2 + 6.0) / math.pow(quantile**2 + 4.0, 1.5)
    return tails / TABLE_ERROR


def pairs_confidence(nominal: float, candidates: int) -> float:
    """The confidence of each interval where all pairs of `candidates` (at least 2) are compared
    with each other at once.
    """
    pairs = candidates * (candidates - 1) // 2
    if pairs == 1:
        return nominal
    return 1.0 - (1.0 - nominal) / pairs
