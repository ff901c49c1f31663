"""How sure must one interval be, so that a question with several looks and several candidates keeps its error?

level  = 1 - (1 - C) w_k / m     confidence of the interval at look k of K for each of m candidates, C the policy's
w_1    = 1/2, w_2 = ... = w_K = 1 / (2 (K - 1));  w_1 = 1 where K is 1

A pass and a fail each spend (1 - C) / 2 over all looks and candidates. The repeated confidence interval at this level is what is shown and
what decides, so the two cannot disagree. One look and one candidate give C itself.
Half of the error is spent at the first look: O'Brien-Fleming boundaries would need 3.4 standard errors there for two looks (20 degrees of
freedom), and one pair could no longer decide. Bonferroni holds whatever the looks and candidates share (runs, batches, the baseline);
Dunnett's constants for the shared baseline are narrower (decision 0071), but need equal run floors in all arms.
Can fail: looks that nobody counts. The server's ledger counts those of its jobs; a comparison of files takes the user's word.
Sources: Jennison and Turnbull 1989 (repeated confidence intervals); Bonferroni's inequality.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_LOOKS = 10
FAIL_BY_GAP = "GAP_EXCEEDS_MARGIN"  # the one fail that further runs can undo, as a further look


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiplicity:
    """Which look at its question a comparison is, of how many, and how many candidates share the error.

    `registered` says whether a ledger counted the look; otherwise it is the user's word. Raises ValueError for a look that was not planned.
    """

    look: int = 1
    looks: int = 1
    candidates: int = 1
    registered: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.looks <= MAX_LOOKS:
            raise ValueError(f"looks is {self.looks}; expected a whole number from 1 to {MAX_LOOKS}")
        if not 1 <= self.look <= self.looks:
            raise ValueError(f"look is {self.look}; expected a whole number from 1 to the {self.looks} of the policy (looks)")
        if self.candidates < 1:
            raise ValueError(f"candidates is {self.candidates}; expected at least 1")

    @property
    def is_single(self) -> bool:
        """Whether one look at one candidate spends the whole error."""
        return self.looks == 1 and self.candidates == 1

    @property
    def left(self) -> int:
        """How many looks are still to come."""
        return self.looks - self.look

    def confidence(self, nominal: float) -> float:
        """The confidence of this look's interval for one candidate, where the question has the confidence `nominal`."""
        return nominal if self.is_single else 1.0 - (1.0 - nominal) * look_weights(self.looks)[self.look - 1] / self.candidates

    def next_confidence(self, nominal: float) -> float | None:
        """The same for the next look; None where none is left."""
        if not self.left:
            return None
        return Multiplicity(look=self.look + 1, looks=self.looks, candidates=self.candidates).confidence(nominal)


ONE_LOOK = Multiplicity()


def look_weights(looks: int) -> Sequence[float]:
    """The share of the error that each look spends (looks,): half at the first, the rest in equal parts; they add up to 1."""
    return (1.0,) if looks == 1 else (0.5, *[0.5 / (looks - 1)] * (looks - 1))


def pairs_confidence(nominal: float, candidates: int) -> float:
    """The confidence of each interval where all pairs of `candidates` (at least 2) are compared with each other at once."""
    pairs = candidates * (candidates - 1) // 2
    return nominal if pairs == 1 else 1.0 - (1.0 - nominal) / pairs
