"""What do forks and runs say about the gap of every policy, tried or not? Forks share the gap out; full runs say how large it is.

f_i     effect of switch i alone in forks, times gap of the candidate / its effect in forks      nats
g(p)    b sum x_i f_i + sum x_i c_i + sum x_i x_j w_ij (m + e_ij)        x the bits of p,  w_ij = sqrt(f_i f_j);  "00...0" has no gap
run     loss = level + g(p) + tau e

b ~ N(B, B_SD^2), c_i ~ N(0, (OWN S/n)^2 + se(f_i)^2), m ~ N(0, COMMON^2), e_ij ~ N(0, PAIR^2), S the candidate's gap, n switches. Forks see
a part of each switch's gap: b corrects what is common to all switches, c_i what is not; m is how much less (or more) the gaps of switches
add up in full runs. All unknowns have one joint normal posterior, so each run counts for every policy.

Can fail: a switch that does all its harm before the checkpoint shows nothing in forks, and c_i then has to be far outside its prior. Full
runs of the policies that would be confirmed show that, and only a confirmation passes anything. The five constants were set on worlds of
experiments/search_world.py other than those of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.judging.curve import FloatArray
from parity.search.evaluations import Result
from parity.search.policies import Policy
from parity.why.estimate import Estimate

B, B_SD, OWN, COMMON, PAIR = 1.25, 0.35, 0.4, 0.2, 0.15
_LEAST = 0.1  # of S/n: what a switch without an effect in forks counts as in interactions
_WIDE = 100.0  # nats: the standard deviation of the level before any loss was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The gap of the candidate (nats), its effect in forks, and each switch's own effect there (nats, each with its standard error)."""

    gap: float
    whole: float
    own: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations (nats) of full runs of the baseline and of other policies."""

    baseline: float
    candidate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The posterior of policies' gaps: means and standard deviations (policies,) in nats."""

    mean: FloatArray
    sd: FloatArray


def believe(policies: Sequence[Policy], results: Sequence[Result], noise: Noise, shares: Shares) -> Belief:
    """The gaps of these policies after all runs and confirmations among the results. Raises ValueError if there are none."""
    full = [result for result in results if result.evaluation.kind != "fork"]
    if not full:
        raise ValueError("there are no full runs, expected those of the baseline and the candidate at least")
    scaled = np.array([each.value for each in shares.own]) * shares.gap / shares.whole
    errors = np.array([each.se for each in shares.own]) * shares.gap / shares.whole
    each_switch = abs(shares.gap) / len(scaled)
    sizes = np.sqrt(np.maximum(scaled, _LEAST * each_switch))

    def row(policy: Policy) -> list[float]:
        """The coefficients of b, c, m and e in g(p)."""
        bits = np.array([float(bit) for bit in policy])
        pairs = np.outer(bits * sizes, bits * sizes)[np.triu_indices(len(bits), 1)]
        return [float(bits @ scaled), *bits, float(pairs.sum()), *pairs]

    pairs = len(scaled) * (len(scaled) - 1) // 2
    variance = [B_SD**2, *((OWN * each_switch) ** 2 + errors**2), COMMON**2, *[PAIR**2] * pairs, _WIDE**2]
    centre = np.zeros(len(variance))
    centre[0] = B
    prior = np.array(variance)
    is_run = np.array([result.evaluation.kind == "run" for result in full])
    values = np.array([result.value for result in full])
    values = values - np.where(is_run, values[is_run].mean() if is_run.any() else 0.0, 0.0)  # the wide prior then costs no digits
    rows = np.array([[*row(result.evaluation.policy), float(run)] for result, run in zip(full, is_run, strict=True)])
    sds = np.array([_sd(result, noise) for result in full])
    gaps = np.array([[*row(policy), 0.0] for policy in policies])
    covariance = (rows * prior) @ rows.T + np.diag(sds**2)
    cross = (gaps * prior) @ rows.T
    solved = np.linalg.solve(covariance, np.column_stack([values - rows @ centre, cross.T]))
    left = (gaps**2) @ prior - np.einsum("po,op->p", cross, solved[:, 1:])
    return Belief(mean=gaps @ centre + cross @ solved[:, 0], sd=np.sqrt(np.maximum(left, 0.0)))


def _sd(result: Result, noise: Noise) -> float:
    if result.evaluation.kind == "confirmation":
        return result.se
    return noise.candidate if "1" in result.evaluation.policy else noise.baseline
