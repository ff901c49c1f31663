"""How much two runs of one recipe differ: tau, the standard deviation of a run's window mean, and its share of the gap's error.

tau^2 = (nu0 tau0^2 + SS) / (nu0 + nu)           per arm; SS, nu: sum of squares and df of run means; tau0: the prior, worth nu0 = 4 df
SE_run^2 = tau_A^2 / K_A + tau_B^2 / K_B         one seed: replicates of the same data order
SE_run^2 = tau_d^2 / S                           S > 1 seeds: the spread of S paired gaps, prior tau_A0^2/k_A + tau_B0^2/k_B
df = V^2 / (a^2/df_A + b^2/df_B + 2 rho a b / sqrt(df_A df_B)), a = tau_A^2/K_A, b = tau_B^2/K_B, V = a + b

rho = sqrt(w_A w_B), w = nu0/(nu0 + nu), where both arms rest on the same prior (one guess used twice counts once), else 0 (Welch).
nu0 is 4 for an assumed prior; one that is borrowed from a family of reruns has its own (`borrowing`).
Can fail: the prior. It is named in the verdict, and replicates or controls replace it.
Sources: 116 groups of reruns (docs/method.md); Satterthwaite 1946; conjugate shrinkage of a variance.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from parity.judging.criteria import RUN_FLOOR_DETERMINISTIC, RUN_FLOOR_STOCHASTIC, Amount, Criteria
from parity.judging.curve import FloatArray, Rounding
from parity.judging.floors.lending import Loan, between_families
from parity.recipes import rounds_to_nearest

TauSource = Literal["prior", "borrowed", "replicates", "controls", "replicates and controls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A run floor before the arm's own runs: `tau` in nats, `df` it is worth, where it comes from, and the loan where it is borrowed."""

    tau: float
    df: float
    basis: str
    loan: Loan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFloor:
    """tau of one arm in nats, with its df; `measured` is the unshrunk estimate (None without reruns) on `measured_df`."""

    tau: float
    df: float
    source: TauSource
    prior: Prior
    measured: float | None
    measured_df: int
    runs: int

    @property
    def borrowed_df(self) -> float:
        """Degrees of freedom of other runs of its family; 0 where the prior is assumed."""
        return self.prior.loan.df if self.prior.loan else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerm:
    """The between-run part of the gap's variance (nats^2) and its degrees of freedom."""

    variance: float
    df: float
    seeds: int


def assume_stochastic(recipe: str | None, rounding: Rounding | None = None) -> bool:
    """Whether an arm counts as rounding stochastically: what was recorded of it, else yes unless its recipe never does.

    An arm without a recipe, and a recipe that is not one of `parity.recipes.NEAREST`, counts as stochastic: its prior is the wider one.
    """
    return rounding == "stochastic" if rounding is not None else not rounds_to_nearest(recipe)


def prior_for(recipe: str | None, declared: Amount | None, criteria: Criteria, level: float, rounding: Rounding | None = None) -> Prior:
    """The prior of one arm: the policy's own, else 0.08 % of the loss where it rounds to nearest and 0.30 % for all others."""
    if declared is not None:
        evidence = f" ({criteria.run_floor_evidence})" if criteria.run_floor_evidence else ""
        return Prior(tau=declared.nats(level), df=criteria.run_floor_df, basis=f"declared by the policy: {declared}{evidence}")
    if assume_stochastic(recipe, rounding):
        basis = "assumed for stochastic or unstated rounding: 0.30 % of the loss, seen on models of about 1 M parameters, a guess at scale"
        return Prior(tau=RUN_FLOOR_STOCHASTIC * level, df=criteria.run_floor_df, basis=basis)
    return Prior(tau=RUN_FLOOR_DETERMINISTIC * level, df=criteria.run_floor_df, basis="assumed: 0.08 % of the loss")


def run_floor(prior: Prior, run_means: FloatArray, run_seeds: Sequence[int], control_means: FloatArray | None = None) -> RunFloor:
    """Shrink the spread of one arm's run means (K,) toward the prior; controls (C,) are reruns of the first seed's configuration."""
    squares, df, source = own_spread(run_means, run_seeds, control_means)
    return RunFloor(
        tau=math.sqrt((prior.df * prior.tau**2 + squares) / (prior.df + df)),
        df=prior.df + df,
        source=source or ("borrowed" if prior.loan and prior.loan.is_data else "prior"),
        prior=prior,
        measured=math.sqrt(squares / df) if df else None,
        measured_df=df,
        runs=len(run_means),
    )


def own_spread(
    run_means: FloatArray, run_seeds: Sequence[int], control_means: FloatArray | None = None
) -> tuple[float, int, TauSource | None]:
    """Sum of squares (nats^2) of an arm's runs and controls about their mean, per seed, its degrees of freedom, and what gave them."""
    seed_groups = [[mean for mean, own in zip(run_means, run_seeds, strict=True) if own == seed] for seed in sorted(set(run_seeds))]
    replicate_df = sum(len(group) - 1 for group in seed_groups)
    controls = [] if control_means is None else list(control_means)
    if controls:
        seed_groups[0] = [*seed_groups[0], *controls]
    df = sum(len(group) - 1 for group in seed_groups)
    squares = sum(float(np.sum((np.array(group) - np.mean(group)) ** 2)) for group in seed_groups)
    source: TauSource | None = None
    if df:
        source = "replicates" if not controls else "controls" if not replicate_df else "replicates and controls"
    return squares, df, source


def run_term(baseline: RunFloor, candidate: RunFloor) -> RunTerm:
    """Between-run variance of the gap between two arms of one seed."""
    a, b = baseline.tau**2 / baseline.runs, candidate.tau**2 / candidate.runs
    variance = a + b
    if variance == 0.0:
        return RunTerm(variance=0.0, df=min(baseline.df, candidate.df), seeds=1)
    a, b = a / variance, b / variance  # as shares, whose squares can't underflow
    rho = math.sqrt(_prior_weight(baseline) * _prior_weight(candidate)) if _one_guess(baseline.prior, candidate.prior) else 0.0
    spread = a**2 / baseline.df + b**2 / candidate.df + 2.0 * rho * a * b / math.sqrt(baseline.df * candidate.df)
    return RunTerm(variance=variance, df=1.0 / spread, seeds=1)


def run_term_over_seeds(paired_gaps: FloatArray, baseline: RunFloor, candidate: RunFloor) -> RunTerm:
    """Between-run variance of the mean of S paired gaps (S,), one a seed: their spread, shrunk toward the arms' priors."""
    seeds = len(paired_gaps)
    prior_df = min(baseline.prior.df, candidate.prior.df)
    prior = seeds * (baseline.prior.tau**2 / baseline.runs + candidate.prior.tau**2 / candidate.runs)
    squares = float(np.sum((paired_gaps - paired_gaps.mean()) ** 2))
    df = prior_df + seeds - 1
    return RunTerm(variance=(prior_df * prior + squares) / df / seeds, df=df, seeds=seeds)


def _one_guess(first: Prior, second: Prior) -> bool:
    """Whether two priors are wrong together: they are equal, or one estimate scaled to the rounding of each arm."""
    return first == second or between_families(*(prior.loan.lender if prior.loan else None for prior in (first, second)))


def _prior_weight(floor: RunFloor) -> float:
    return floor.prior.df / (floor.prior.df + floor.measured_df)
