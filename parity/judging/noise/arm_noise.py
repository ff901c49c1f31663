"""How much two runs of one recipe differ: tau, the standard deviation of a run's window mean, and
its share of the gap's error.

tau^2     (nu0 tau0^2 + SS) / (nu0 + nu), per arm; SS, nu: sum of squares and df of run means;
          tau0: the prior, worth nu0 = 4 df
SE_run^2  tau_A^2 / K_A + tau_B^2 / K_B for one seed: replicates of the same data order
          tau_d^2 / S for S > 1 seeds: the spread of S paired gaps,
          prior tau_A0^2/k_A + tau_B0^2/k_B
df        V^2 / (a^2/df_A + b^2/df_B + 2 rho a b / sqrt(df_A df_B)),
          a = tau_A^2/K_A, b = tau_B^2/K_B, V = a + b

rho = sqrt(w_A w_B), w = nu0/df, where both arms rest on the same prior (one guess used twice counts
once), else 0 (Welch). Reruns that were stopped early add nu_n tau_n^2 and nu_n to the sums of an
arm (`early_stops.spread`). Both arms divide by the same unknown ratio, which adds 2 sd_log^2
(nu_nA/df_A) (nu_nB/df_B) sqrt(df_A df_B) to rho. tau0, assumed: 0.09 % of L where the schedule was
finished, else max(0.15 %, 1.2 % |s|), s the slope of the baseline's loss on ln(step) in shares of
L; times 1.5 where the arm rounds stochastically or nobody stated how it rounds. Both arms rest on
one guess. One run apart: its distance from the mean of its seed's others exceeds t(df - 1, 1 -
0.01/(2 m)) times their spread, of m runs and controls. A loss that is no cross-entropy counts as
unfinished: the finished constant was measured on cross-entropies. nu0 is 4 for an assumed prior;
one that is borrowed from a family of reruns has its own (`borrowing`). Can fail: the prior. It is
named in the verdict, and replicates or controls replace it. Sources: 131 groups of reruns in 15
families (docs/method.md); Satterthwaite 1946; conjugate shrinkage of a variance.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np

from parity.frozen import frozen
from parity.judging import special
from parity.judging.curves.curve import FloatArray, Rounding
from parity.judging.curves.early_stop_noise import SHARED_VARIANCE, EarlySpread
from parity.judging.noise.noise_source import BorrowedNoise, between_families
from parity.judging.policy import (
    FINISHED_NOISE,
    NOISE_PER_SLOPE,
    STOCHASTIC_FACTOR,
    UNFINISHED_NOISE,
    Amount,
    Policy,
)
from parity.recipes import rounds_to_nearest

# degrees of freedom without the run that is looked at, and false alarms
MIN_DF_APART, ONE_APART = 2, 0.01
_NUMPY_ADDS_IN_PARTS = 8  # numbers, or more


@frozen
class Prior:
    """Run-to-run noise before the arm's own runs: `tau` in nats, `df` it is worth, where it comes
    from, and the family where it is borrowed.

    All that are `assumed` are one guess, scaled to the rounding of each arm.
    """

    tau: float
    df: float
    basis: str
    borrowed: BorrowedNoise | None = None
    assumed: bool = False


@frozen
class ArmNoise:
    """tau of one arm in nats, with its df; `measured` is the unshrunk estimate (None without
    reruns) on `measured_df`.

    `early` is what reruns show that were stopped early: part of tau and df, and of neither
    `measured` nor `runs`. `by_seed` has the means of the runs and controls of each seed, nats.
    """

    tau: float
    df: float
    source: str
    prior: Prior
    measured: float | None
    measured_df: int
    runs: int
    early: EarlySpread | None = None
    by_seed: tuple[tuple[float, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def one_apart(self) -> bool:
        """Whether one of the runs and controls lies apart from the others of its seed; a false
        alarm in 1 % of sets.
        """
        return one_apart(self.by_seed)

    @property
    def borrowed_df(self) -> float:
        """Degrees of freedom of other runs of its family; 0 where the prior is assumed."""
        if not self.prior.borrowed:
            return 0.0
        return self.prior.borrowed.df

    @property
    def has_reruns(self) -> bool:
        """Whether anything was measured on reruns of this arm."""
        return self.measured_df > 0 or self.early is not None

    @property
    def early_df(self) -> float:
        """Degrees of freedom of reruns that were stopped early; 0 without any."""
        return self.early.df if self.early else 0.0


@frozen
class RunTerm:
    """The between-run part of the gap's variance (nats^2) and its degrees of freedom."""

    variance: float
    df: float
    seeds: int


def assume_stochastic(recipe: str | None, rounding: Rounding | None = None) -> bool:
    """Whether an arm counts as rounding stochastically: what was recorded of it, else yes unless
    its recipe never does.

    An arm without a recipe, and a recipe that is not one of `parity.recipes.NEAREST`, counts as
    stochastic: its prior is the wider one.
    """
    if rounding is not None:
        return rounding == "stochastic"
    return not rounds_to_nearest(recipe)


def assumed_share(slope: float | None) -> float:
    """The run-to-run noise that is assumed for rounding to nearest, as a share of the loss, at a
    slope per e-fold (None: finished).
    """
    if slope is None:
        return FINISHED_NOISE
    return max(UNFINISHED_NOISE, NOISE_PER_SLOPE * abs(slope))


def prior_for(
    recipe: str | None,
    declared: Amount | None,
    policy: Policy,
    level: float,
    rounding: Rounding | None = None,
    *,
    slope: float | None = None,
) -> Prior:
    """The prior of one arm: the policy's own, else what is assumed at this slope of an unfinished
    run (None: a finished one).
    """
    if declared is not None:
        evidence = f" ({policy.run_noise_evidence})" if policy.run_noise_evidence else ""
        return Prior(
            tau=declared.nats(level),
            df=policy.run_noise_df,
            basis=f"declared by the policy: {declared}{evidence}",
        )
    other = policy.loss_unit == "other"
    share = assumed_share(0.0 if slope is None and other else slope)
    state = "a finished schedule" if slope is None else "an unfinished run"
    if other:
        state = "a loss of another kind"
    if assume_stochastic(recipe, rounding):
        share *= STOCHASTIC_FACTOR
        state += " with stochastic or unstated rounding"
    return Prior(
        tau=share * level,
        df=policy.run_noise_df,
        basis=f"assumed for {state}: {100 * share:.3g} % of the loss",
        assumed=True,
    )


class Rounds(Protocol):
    """An arm, or a run of it: its recipe and its rounding, None where they are not on record."""

    @property
    def recipe(self) -> str | None: ...
    @property
    def rounding(self) -> Rounding | None: ...


def priors_for(
    arms: tuple[Rounds, Rounds], policy: Policy, level: float, slope: float | None = None
) -> tuple[Prior, Prior]:
    """`prior_for` of baseline and candidate."""
    baseline, candidate = (
        prior_for(arm.recipe, declared, policy, level, arm.rounding, slope=slope)
        for arm, declared in zip(arms, policy.declared_noise, strict=True)
    )
    return baseline, candidate


def arm_noise(
    prior: Prior,
    run_means: FloatArray,
    run_seeds: Sequence[int],
    control_means: FloatArray | None = None,
    early: EarlySpread | None = None,
) -> ArmNoise:
    """Shrink the spread of one arm's run means (K,) toward the prior; controls (C,) are reruns of
    the first seed's configuration.
    """
    groups = _means_by_seed(run_means, run_seeds, control_means)
    squares, df = _within(groups)
    early_squares, early_df = early_spread(early, run_means)
    data = _sources(
        replicate_df=len(run_seeds) - len(set(run_seeds)), df=df, early=early is not None
    )
    return ArmNoise(
        tau=math.sqrt(
            (prior.df * prior.tau**2 + squares + early_squares) / (prior.df + df + early_df)
        ),
        df=prior.df + df + early_df,
        source=data or ("borrowed" if prior.borrowed and prior.borrowed.is_data else "prior"),
        prior=prior,
        measured=math.sqrt(squares / df) if df else None,
        measured_df=df,
        runs=len(run_means),
        early=early,
        by_seed=groups,
    )


def own_spread(
    run_means: FloatArray, run_seeds: Sequence[int], control_means: FloatArray | None = None
) -> tuple[float, int]:
    """Sum of squares (nats^2) of an arm's runs and controls about their mean, per seed, and its
    degrees of freedom.
    """
    return _within(_means_by_seed(run_means, run_seeds, control_means))


def _sources(*, replicate_df: int, df: int, early: bool) -> str:
    """What gave an arm's own degrees of freedom, "" without any: those that its replicates do not
    give are of controls.
    """
    held = {
        "replicates": replicate_df > 0,
        "controls": df > replicate_df,
        "early-stopped reruns": early,
    }
    *first, last = [what for what, holds in held.items() if holds] or [""]
    if first:
        return f"{', '.join(first)} and {last}"
    return last


def _means_by_seed(
    run_means: FloatArray, run_seeds: Sequence[int], control_means: FloatArray | None
) -> tuple[tuple[float, ...], ...]:
    """The means of the runs (K,) of each seed, in order of the seeds; the controls (C,) are of the
    first one.
    """
    groups = [
        [
            float(mean)
            for mean, run_seed in zip(run_means, run_seeds, strict=True)
            if run_seed == seed
        ]
        for seed in sorted(set(run_seeds))
    ]
    controls = [] if control_means is None else [float(mean) for mean in control_means]
    groups = [[*groups[0], *controls], *groups[1:]] if groups else [controls]
    return tuple(tuple(group) for group in groups if group)


def _within(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Sum of squares of groups about their means, and its degrees of freedom."""
    return sum(_squares(group) for group in groups), sum(len(group) - 1 for group in groups)


def _squares(group: Sequence[float]) -> float:
    """Sum of squares of a group about its mean."""
    mean, squares = _mean(group), 0.0
    if len(group) >= _NUMPY_ADDS_IN_PARTS:
        return float(np.sum((np.array(group) - mean) ** 2))
    for value in group:
        squares += (value - mean) * (value - mean)
    return squares


def _mean(group: Sequence[float]) -> float:
    """Mean of a group.

    NumPy adds fewer than eight numbers in their order, so a loop gives the same bits in a twentieth
    of the time.
    """
    if len(group) >= _NUMPY_ADDS_IN_PARTS:
        return float(np.mean(group))
    total = 0.0
    for value in group:
        total += value
    return total / len(group)


def one_apart(groups: Sequence[Sequence[float]]) -> bool:
    """Whether one value of some groups lies apart from the others of its group, by the spread
    within groups without it.
    """
    values = sum(len(group) for group in groups)
    for group in groups:
        for place, value in enumerate(group):
            others = [*group[:place], *group[place + 1 :]]
            if others:
                squares, df = _within(
                    [others, *(other_group for other_group in groups if other_group is not group)]
                )
            else:
                squares, df = (0.0, 0)
            if df < MIN_DF_APART or squares == 0.0:
                continue
            limit = float(special.stdtrit(df, 1.0 - ONE_APART / (2 * values))) * math.sqrt(
                squares / df * (1.0 + 1.0 / len(others))
            )
            if abs(value - _mean(others)) > limit:
                return True
    return False


def early_spread(early: EarlySpread | None, run_means: FloatArray) -> tuple[float, float]:
    """nu_n tau_n^2 (nats^2) and nu_n of an arm's early-stopped reruns, whose full runs have these
    late means (K,).
    """
    if not early:
        return 0.0, 0.0
    return early.df * (early.share * float(np.mean(run_means))) ** 2, early.df


def run_term(baseline: ArmNoise, candidate: ArmNoise) -> RunTerm:
    """Between-run variance of the gap between two arms of one seed."""
    a, b = baseline.tau**2 / baseline.runs, candidate.tau**2 / candidate.runs
    variance = a + b
    if variance == 0.0:
        return RunTerm(variance=0.0, df=min(baseline.df, candidate.df), seeds=1)
    a, b = a / variance, b / variance  # as shares, whose squares can't underflow
    if _one_guess(baseline.prior, candidate.prior):
        rho = math.sqrt(_prior_weight(baseline) * _prior_weight(candidate))
    else:
        rho = 0.0
    joint = math.sqrt(baseline.df * candidate.df)
    rho += SHARED_VARIANCE * baseline.early_df * candidate.early_df / joint
    spread = a**2 / baseline.df + b**2 / candidate.df + 2.0 * rho * a * b / joint
    return RunTerm(variance=variance, df=1.0 / spread, seeds=1)


def run_term_over_seeds(
    paired_gaps: FloatArray, baseline: ArmNoise, candidate: ArmNoise
) -> RunTerm:
    """Between-run variance of the mean of S paired gaps (S,), one a seed: their spread, shrunk
    toward the arms' priors.
    """
    seeds = len(paired_gaps)
    prior_df = min(baseline.prior.df, candidate.prior.df)
    prior = seeds * (
        baseline.prior.tau**2 / baseline.runs + candidate.prior.tau**2 / candidate.runs
    )
    squares = float(np.sum((paired_gaps - paired_gaps.mean()) ** 2))
    df = prior_df + seeds - 1
    return RunTerm(variance=(prior_df * prior + squares) / df / seeds, df=df, seeds=seeds)


def _one_guess(first: Prior, second: Prior) -> bool:
    """Whether two priors are wrong together: they are equal, or one guess or estimate scaled to the
    rounding of each arm.
    """
    return (
        (first.assumed and second.assumed)
        or first == second
        or between_families(
            *(prior.borrowed.noise_source if prior.borrowed else None for prior in (first, second))
        )
    )


def _prior_weight(noise: ArmNoise) -> float:
    return noise.prior.df / noise.df
