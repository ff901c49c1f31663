"""Downstream accuracy: is the candidate worse by less than a margin in points? Paired items where
they are given, else two proportions.

paired:  d_i = correct_candidate(i) - correct_baseline(i), mean d -+ z sd(d)/sqrt(n) (the
         McNemar-type interval of a difference)
unpaired: p_c - p_b with Newcombe's hybrid score interval (Wilson limits of each proportion)

Can fail: items that share a passage are not independent, and one evaluation of one run says nothing
about run-to-run noise. Source: Newcombe 1998, methods 10 (unpaired); Agresti and Min 2005 (paired,
Wald with 1/2 pseudo-count).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from parity.frozen import frozen
from parity.judging import special

MAX_CHOICES = 1000


class EvaluationError(ValueError):
    """Evaluations that can't be compared; the message names the arms or the task and what was
    expected.
    """


@frozen
class TaskResult:
    """One task of one arm: correct items of all, and the results by item where they are known
    (empty for counts alone).

    `choices` is the number of choices of an item as stated, 0 for free answers, None where nobody
    stated it.
    """

    correct: int
    items: int
    by_item: Mapping[str, bool] = field(default_factory=dict)
    choices: int | None = None

    def __post_init__(self) -> None:
        if self.choices is not None and not (
            0 <= self.choices <= MAX_CHOICES and self.choices != 1
        ):
            raise EvaluationError(
                f"choices is {self.choices}; expected 2 to {MAX_CHOICES:,}, or 0 for free answers"
            )
        if not (self.items > 0 and 0 <= self.correct <= self.items):
            raise EvaluationError(
                f"{self.correct} correct of {self.items} items; expected 0 <= correct <= items and "
                "at least one item"
            )
        if self.by_item and (len(self.by_item), sum(self.by_item.values())) != (
            self.items,
            self.correct,
        ):
            raise EvaluationError(
                f"{self.correct} correct of {self.items} items, but the results by item say "
                "otherwise; expected both to agree"
            )


@frozen
class AccuracyGap:
    """Accuracy of the candidate minus the baseline's, in points (0.01 = one percentage point), with
    its interval, of `n` items.
    """

    gap: float
    lo: float
    hi: float
    n: int


def paired_accuracy(
    baseline: Sequence[bool], candidate: Sequence[bool], confidence: float = 0.95
) -> AccuracyGap:
    """Compare item results (n,) of both arms on the same items; raises ValueError for unequal or no
    items.
    """
    if len(baseline) != len(candidate) or len(baseline) == 0:
        raise ValueError(
            f"{len(baseline)} and {len(candidate)} item results; expected the same items, at least "
            "one"
        )
    left, right = np.asarray(baseline, dtype=bool), np.asarray(candidate, dtype=bool)
    n = len(left)
    better, worse = int((right & ~left).sum()), int((left & ~right).sum())
    gap = (better - worse) / n
    # half a count in each cell keeps the interval open where the arms agree on all items
    b, w, total = better + 0.5, worse + 0.5, n + 2.0
    half = _z(confidence) * math.sqrt((b + w) - (b - w) ** 2 / total) / total
    middle = (b - w) / total
    return AccuracyGap(gap=gap, lo=middle - half, hi=middle + half, n=n)


def accuracy_gap(
    baseline: tuple[int, int], candidate: tuple[int, int], confidence: float = 0.95
) -> AccuracyGap:
    """Compare (correct, items) of both arms; raises ValueError where correct is not within 0 and
    items.
    """
    for correct, items in (baseline, candidate):
        if not (items > 0 and 0 <= correct <= items):
            raise ValueError(
                f"{correct} correct of {items} items; expected 0 <= correct <= items and at least "
                "one item"
            )
    (p, p_lo, p_hi), (q, q_lo, q_hi) = (
        _wilson(correct, items, _z(confidence)) for correct, items in (baseline, candidate)
    )
    gap = q - p
    lo = gap - math.hypot(q - q_lo, p_hi - p)
    hi = gap + math.hypot(q_hi - q, p - p_lo)
    return AccuracyGap(gap=gap, lo=lo, hi=hi, n=min(baseline[1], candidate[1]))


def _wilson(correct: int, items: int, z: float) -> tuple[float, float, float]:
    """Proportion and its Wilson limits."""
    p = correct / items
    centre = (p + z * z / (2 * items)) / (1 + z * z / items)
    half = z * math.sqrt(p * (1 - p) / items + z * z / (4 * items * items)) / (1 + z * z / items)
    return p, centre - half, centre + half


def _z(confidence: float) -> float:
    return float(special.ndtri(0.5 + confidence / 2.0))
