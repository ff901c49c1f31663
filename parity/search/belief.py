"""What do forks and runs say about the gap of every policy, tried or not? A linear model with normal priors.

gap     g(p) = sum x_i b_i + sum x_i x_j b_ij          b_i ~ N(0, S^2), b_ij ~ N(0, (PAIR S)^2), x the bits of p; nats against "00...0"
run     loss = level + g(p) + tau e
fork    loss = level of its parent + r (g(p) + sum x_i c_i + sum x_i x_j c_ij) + sigma e
        c_i ~ N(0, (OWN S)^2), c_ij ~ N(0, (PAIR S)^2)                                       what a fork sees otherwise than a run

S = |gap of the candidate|,  r = the candidate's effect in forks / its gap in runs: a fork sees a part of the gap, the same of all switches
but for c. All unknowns have one joint normal posterior, so what is known of neighbouring policies counts for every policy.

Can fail: interactions of three switches are not in the model; forks may see some switches with the opposite sign, far beyond c_i. Full runs
of the chosen policy show that, and only a confirmation passes anything. PAIR and OWN were set with experiments/search.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.search.evaluations import Result
from parity.search.policies import Policy

PAIR, OWN = 0.15, 0.15
_WIDE = 100.0  # nats: the standard deviation of a level before any loss was seen
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations in nats: of forks, and of full runs of the baseline and of other policies."""

    fork: float
    baseline: float
    candidate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The candidate's gap in full runs (nats), and the share of it that its forks see."""

    gap: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The posterior of policies' gaps: means and standard deviations (policies,) in nats."""

    mean: Array
    sd: Array


def believe(policies: Sequence[Policy], results: Sequence[Result], noise: Noise, scale: Scale) -> Belief:
    """The gaps of these policies after all results. Raises ValueError without results."""
    if not results:
        raise ValueError("there are no results, expected losses of the baseline and the candidate at least")
    parents = sorted({each.evaluation.parent for each in results if each.evaluation.kind == "fork"})
    size = len(policies[0])
    pairs = size * (size - 1) // 2
    prior = scale.gap**2 * np.array([1.0] * size + [PAIR**2] * pairs + [OWN**2] * size + [PAIR**2] * pairs)
    prior = np.concatenate([prior, np.full(1 + len(parents), _WIDE**2)])
    observed, sds = zip(*(_row(result, parents, noise, scale) for result in results), strict=True)
    rows = np.array(observed)
    levels = rows[:, len(prior) - 1 - len(parents) :].any(axis=1)
    losses = np.array([result.value for result in results])
    losses = losses - np.where(levels, losses[levels].mean() if levels.any() else 0.0, 0.0)  # the wide prior then costs no digits
    gaps = np.zeros((len(policies), len(prior)))
    gaps[:, : size + pairs] = [_gap(policy) for policy in policies]
    covariance = (rows * prior) @ rows.T + np.diag(np.array(sds) ** 2)
    cross = (gaps * prior) @ rows.T
    solved = np.linalg.solve(covariance, np.column_stack([losses, cross.T]))
    left = (gaps**2) @ prior - np.einsum("po,op->p", cross, solved[:, 1:])
    return Belief(mean=cross @ solved[:, 0], sd=np.sqrt(np.maximum(left, 0.0)))


def _gap(policy: Policy) -> list[float]:
    """The coefficients of g(p): switches, then pairs of switches."""
    bits = [float(bit) for bit in policy]
    return [*bits, *(first * second for at, first in enumerate(bits) for second in bits[at + 1 :])]


def _row(result: Result, parents: Sequence[str], noise: Noise, scale: Scale) -> tuple[list[float], float]:
    """The coefficients of a result's value in all unknowns, and its standard deviation."""
    own = result.evaluation
    gap = _gap(own.policy)
    zeros, no_levels = [0.0] * len(gap), [0.0] * len(parents)
    if own.kind == "confirmation":
        return [*gap, *zeros, 0.0, *no_levels], result.se
    if own.kind == "run":
        return [*gap, *zeros, 1.0, *no_levels], noise.candidate if "1" in own.policy else noise.baseline
    seen = [scale.seen * value for value in (*gap, *gap)]
    return [*seen, 0.0, *(float(parent == own.parent) for parent in parents)], noise.fork
