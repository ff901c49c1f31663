"""What forks, runs and confirmations say about the gap of every assignment, and how likely the
judge passes one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from parity.design.chances import NO_FAMILIES, Chances, chances
from parity.design.experiment import Design
from parity.judging.curve import FloatArray
from parity.judging.lending import Lenders
from parity.judging.policy import Multiplicity, Policy
from parity.structure import frozen
from parity_lab.assignments import Assignment
from parity_lab.effects import Estimate

# The measurements of a search: forks, full runs and confirmations. Each has a name, so that a
# search that was stopped can go on.
#
#     fork          the baseline's checkpoint of a parent, trained on with the assignment's
#                   arithmetic      one loss
#     run           a run of the assignment from step 0
#                   one loss
#     confirmation  `pairs` fresh runs of the assignment and as many fresh runs of the baseline,
#                   judged    a verdict, and its gap with error
#
# A loss is the mean over the late window in nats. The values are the runner's: a trainer, a
# simulator, or a record that is played back.

Kind = Literal["fork", "run", "confirmation"]


@frozen
class Evaluation:
    """One thing to run. `number` tells repetitions apart (the draw of a fork, a replicate, the
    confirmation); `parent` is a fork's.
    """

    kind: Kind
    assignment: Assignment
    number: int
    parent: str = ""


@frozen
class Result:
    """What an evaluation gave: a loss; of a confirmation the gap (both in nats), its standard
    error, and whether the judge passed it.
    """

    evaluation: Evaluation
    value: float
    se: float = 0.0
    passed: bool = False


@frozen
class Outcome:
    """How a search ended: the assignment that was confirmed, or None, and why in one sentence."""

    assignment: Assignment | None = None
    reason: str


def evaluations_from(rows: Sequence[Mapping[str, Any]]) -> tuple[Evaluation, ...]:
    """Evaluations from their documents: those of `asdict`."""
    return tuple(Evaluation(**row) for row in rows)


def results_from(
    evaluations: Sequence[Evaluation], rows: Sequence[Mapping[str, Any]]
) -> tuple[Result, ...]:
    """The results of evaluations, each a mapping of value, se and passed."""
    return tuple(Result(evaluation=own, **row) for own, row in zip(evaluations, rows, strict=True))


# What do forks and runs say about the gap of every assignment, tried or not? Forks share the gap
# out; full runs say how large it is.
#
# f_i     effect of switch i alone in forks, times gap of the candidate / its effect in forks
#         nats
# g(p)    b sum x_i f_i + sum x_i c_i + sum x_i x_j w_ij (m + e_ij)        x the bits of p,  w_ij =
#         sqrt(f_i f_j);  "00...0" has no gap
# run     loss = level + g(p) + tau e
#
# b ~ N(B, B_SD^2), c_i ~ N(0, (OWN S/n)^2 + se(f_i)^2), m ~ N(0, COMMON^2), e_ij ~ N(0, PAIR^2), S
# the candidate's gap, n switches. Forks see a part of each switch's gap: b corrects what is common
# to all switches, c_i what is not; m is how much less (or more) the gaps of switches add up in full
# runs. All unknowns have one joint normal posterior, so each run counts for every assignment.
#
# Can fail: a switch that does all its harm before the checkpoint shows nothing in forks, and c_i
# then has to be far outside its prior. Full runs of the assignments that would be confirmed show
# that, and only a confirmation passes anything. The five constants were set on worlds of
# experiments/search_world.py other than those of its table.

B, B_SD, OWN, COMMON, PAIR = 1.25, 0.35, 0.4, 0.2, 0.15
_LEAST = 0.1  # of S/n: what a switch without an effect in forks counts as in interactions
_WIDE = 100.0  # nats: the standard deviation of the level before any loss was seen


@frozen
class Shares:
    """The gap of the candidate (nats), its effect in forks, and each switch's own effect there
    (nats, each with its standard error).
    """

    gap: float
    whole: float
    own: tuple[Estimate, ...]


@frozen
class Noise:
    """Standard deviations (nats) of full runs of the baseline and of other assignments."""

    baseline: float
    candidate: float


@frozen
class Belief:
    """The posterior of assignments' gaps: means and standard deviations (assignments,) in nats."""

    mean: FloatArray
    sd: FloatArray


def believe(
    assignments: Sequence[Assignment], results: Sequence[Result], noise: Noise, shares: Shares
) -> Belief:
    """The gaps of these assignments after all runs and confirmations among the results. Raises
    ValueError if there are none.
    """
    full = [result for result in results if result.evaluation.kind != "fork"]
    if not full:
        raise ValueError(
            "there are no full runs, expected those of the baseline and the candidate at least"
        )
    scaled = np.array([each.value for each in shares.own]) * shares.gap / shares.whole
    errors = np.array([each.se for each in shares.own]) * shares.gap / shares.whole
    each_switch = abs(shares.gap) / len(scaled)
    sizes = np.sqrt(np.maximum(scaled, _LEAST * each_switch))

    def row(assignment: Assignment) -> list[float]:
        """The coefficients of b, c, m and e in g(p)."""
        bits = np.array([float(bit) for bit in assignment])
        pairs = np.outer(bits * sizes, bits * sizes)[np.triu_indices(len(bits), 1)]
        return [float(bits @ scaled), *bits, float(pairs.sum()), *pairs]

    pairs = len(scaled) * (len(scaled) - 1) // 2
    variance = [
        B_SD**2,
        *((OWN * each_switch) ** 2 + errors**2),
        COMMON**2,
        *[PAIR**2] * pairs,
        _WIDE**2,
    ]
    centre = np.zeros(len(variance))
    centre[0] = B
    prior = np.array(variance)
    is_run = np.array([result.evaluation.kind == "run" for result in full])
    values = np.array([result.value for result in full])
    # the wide prior then costs no digits
    values = values - np.where(is_run, values[is_run].mean() if is_run.any() else 0.0, 0.0)
    rows = np.array(
        [
            [*row(result.evaluation.assignment), float(run)]
            for result, run in zip(full, is_run, strict=True)
        ]
    )
    sds = np.array([_sd(result, noise) for result in full])
    gaps = np.array([[*row(assignment), 0.0] for assignment in assignments])
    covariance = (rows * prior) @ rows.T + np.diag(sds**2)
    cross = (gaps * prior) @ rows.T
    solved = np.linalg.solve(covariance, np.column_stack([values - rows @ centre, cross.T]))
    left = (gaps**2) @ prior - np.einsum("po,op->p", cross, solved[:, 1:])
    return Belief(mean=gaps @ centre + cross @ solved[:, 0], sd=np.sqrt(np.maximum(left, 0.0)))


def _sd(result: Result, noise: Noise) -> float:
    if result.evaluation.kind == "confirmation":
        return result.se
    if "1" in result.evaluation.assignment:
        return noise.candidate
    return noise.baseline


# How likely does the ordinary judge pass an assignment of this gap, at the level that a
# confirmation has?
#
# A search confirms at most r times, each with fresh runs of both arms at confidence 1 - (1 - C) /
# r, C the job's. A pass of an assignment whose gap is above the margin then has a chance of at most
# (1 - C) / (2 r) each, and (1 - C) / 2 in all, however the assignment was chosen: the fresh runs
# know nothing of the choice. This is the search's guarantee, and as good as the judge's interval.
#
# The chances of a pass are those of `parity.design.chances`; the largest gap that passes with a
# wanted power is what a search aims at.

WANTED = 0.95
MOST_CONFIRMATIONS = 5


@frozen
class Confirmation:
    """How one confirmation is judged: its chances, the margin (nats) and its confidence; `most`
    confirmations share the `error`.
    """

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
            "The chance that an assignment is returned although its gap exceeds the margin "
            f"({self.margin:.4g} nats at the base job's loss)"
            f" is at most {100 * self.error:.3g} %: an assignment is confirmed {times}, each time "
            "on fresh runs of both arms."
        )

    def passes(self, gap: float) -> float:
        """The chance of a pass at a true gap in nats."""
        return self.chances.passes(gap, self.margin)

    def expected(self, means: FloatArray, sds: FloatArray) -> FloatArray:
        """The chance of a pass (n,) at gaps that are known as normal variables, by Gauss and
        Hermite at 9 nodes.
        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(9)
        chance: FloatArray = (
            np.interp(means[:, None] + sds[:, None] * nodes, *_table(self))
            @ weights
            / weights.sum()
        )
        return chance

    def largest_gap(self, power: float = WANTED) -> float | None:
        """The largest gap (nats) that passes with this power; None where even a gap of 0 does
        not.
        """
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


def confirmation(
    design: Design,
    policy: Policy,
    margin: float,
    confirmations: int = 2,
    lenders: Lenders = NO_FAMILIES,
) -> Confirmation:
    """One of at most this many confirmations of a design whose level is set. Raises ValueError for
    more than 5 of them.
    """
    if not 1 <= confirmations <= MOST_CONFIRMATIONS:
        raise ValueError(
            f"confirmations is {confirmations}, expected 1 to {MOST_CONFIRMATIONS}; each one more "
            "widens every interval"
        )
    confidence = Multiplicity(candidates=confirmations).confidence(policy.confidence)
    outlook = chances(design, replace(policy, confidence=confidence, looks=1), lenders)
    return Confirmation(
        chances=outlook,
        margin=margin,
        confidence=confidence,
        error=(1.0 - policy.confidence) / 2.0,
        most=confirmations,
    )
