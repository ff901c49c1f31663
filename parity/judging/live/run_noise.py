"""Run-to-run noise of a comparison in training, by the judge's own rules: assumed, declared or
borrowed, and measured on runs that have ended.

Runs in training count for the plan (K) but measure nothing yet; nor do controls and early-stopped
reruns. The verdict's noise may differ. There are two degrees of freedom: those of tau today, and
those that the judge's interval will have at the end.
"""

import dataclasses

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Rounding
from parity.judging.gap.margin import Margin, determine_margin
from parity.judging.measurements import noise_source_for
from parity.judging.noise.arm_noise import (
    ArmNoise,
    RunTerm,
    arm_noise,
    assume_stochastic,
    own_spread,
    priors_for,
    run_term,
)
from parity.judging.noise.borrowed_priors import NO_SOURCES, NoiseSources, OwnRuns, borrow
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy


@frozen
class LiveArm:
    """An arm: recipe, rounding (None: not on record), planned runs, and the window's mean loss
    (nats) and seed of ended runs.
    """

    recipe: str | None = None
    rounding: Rounding | None = None
    runs: int = 1
    means: tuple[float, ...] = ()
    seeds: tuple[int, ...] = ()


@frozen
class LiveRunNoise:
    """Run-to-run noise of the final gap: variance of one pair (nats^2), its df today, the judge's
    term at the end, and the margin. `is_measured`: both arms have ended runs that measure it.
    """

    pair_variance: float
    df: float
    end: RunTerm
    margin: Margin | None
    is_measured: bool = False


def planned_noise_sources(
    names: tuple[str, str],
    arms: tuple[LiveArm, LiveArm],
    policy: Policy,
    noise_families: NoiseFamilies,
) -> NoiseSources:
    """What two arms (baseline, candidate) of these names may borrow before their runs say how they
    round.
    """
    baseline, candidate = (
        noise_source_for(
            name,
            "stochastic" if assume_stochastic(arm.recipe, arm.rounding) else "nearest",
            declared,
            noise_families,
        )
        for name, arm, declared in zip(names, arms, policy.declared_noise, strict=True)
    )
    return baseline, candidate


def run_noise(
    arms: tuple[LiveArm, LiveArm],
    policy: Policy,
    level: float,
    noise_sources: NoiseSources = NO_SOURCES,
    seeds: int = 1,
) -> LiveRunNoise:
    """The noise of a pair of arms (baseline, candidate) whose baseline has a loss of `level` nats;
    `seeds` are those that both have.
    """
    priors = priors_for(arms, policy, level)
    if noise_sources != NO_SOURCES:
        spreads = [own_spread(np.array(arm.means), arm.seeds) for arm in arms]
        measured = OwnRuns(
            squares=(spreads[0][0], spreads[1][0]),
            df=(spreads[0][1], spreads[1][1]),
            gap_runs=(max(arms[0].runs / seeds, 1.0), max(arms[1].runs / seeds, 1.0)),
        )
        priors = borrow(priors, noise_sources, measured, level)
    today = [
        arm_noise(prior, np.array(arm.means), arm.seeds)
        for prior, arm in zip(priors, arms, strict=True)
    ]
    planned = [_at_end(noise, arm, seeds) for noise, arm in zip(today, arms, strict=True)]
    end = run_term(planned[0], planned[1])
    if seeds > 1:
        df = min(prior.df for prior in priors) + seeds - 1
        end = RunTerm(variance=end.variance, df=df, seeds=seeds)
    known = run_term(
        *(dataclasses.replace(noise, runs=arm.runs) for noise, arm in zip(today, arms, strict=True))
    )
    return LiveRunNoise(
        pair_variance=max(today[0].tau ** 2 + today[1].tau ** 2, arms[1].runs * end.variance),
        df=known.df,
        end=end,
        margin=determine_margin(policy, level, today[0]),
        is_measured=all(noise.measured_df > 0 for noise in today),
    )


def _at_end(noise: ArmNoise, arm: LiveArm, seeds: int) -> ArmNoise:
    """The noise once all planned runs have ended, where they spread as it expects."""
    added = max(0, arm.runs - seeds - noise.measured_df)
    return dataclasses.replace(
        noise, runs=arm.runs, df=noise.df + added, measured_df=noise.measured_df + added
    )
