"""Can this experiment decide? Chances of pass, inconclusive and fail before any GPU is spent, and
the cheapest design that decides.

The chances are those of `chances`, the designs that are tried those of `search`. Everything is in
nats at the loss that is expected; at that of the family where only that is known; and
as a share of the loss where neither is.
"""

import dataclasses
import math
from typing import Literal

import numpy as np

from parity.design.budget import Budget
from parity.design.chances import (
    NO_FAMILIES,
    Chances,
    assumed_priors,
    chances,
    first_confidence,
    noise_sources_of,
    points,
)
from parity.design.experiment import (
    BASELINE,
    CANDIDATE,
    Design,
    gpu_hours,
    run_steps,
)
from parity.design.looks import LookAhead, anchored, decisive, looks_ahead
from parity.design.search import (
    WANTED_POWER,
    DesignQuestion,
    best_within,
    cheapest_design,
    replicates_for,
)
from parity.design.stops import Stop
from parity.design.stops import stops as stops_saved
from parity.frozen import frozen
from parity.judging.gap.margin import determine_margin
from parity.judging.gap.window_statistics import MIN_MEASURED_DF, NoiseBasis
from parity.judging.noise.arm_noise import ArmNoise, arm_noise
from parity.judging.noise.noise_source import NoiseFamilies, NoiseSource
from parity.judging.policy import PROFILES, SLOPE_EXAMPLE, Policy
from parity.wording import count

_ONE_RUN = np.zeros(1)
_USUAL_SHORT_RERUNS = 3  # per arm, as in a job that states no number
GAPS_IN_MARGINS = (0.0, 0.25, 0.5, 1.0, 2.0)
Unit = Literal["nats", "share of the loss"]
NATS: Unit = "nats"
SHARE: Unit = "share of the loss"


@frozen
class Power:
    """Chances at one true gap (in the plan's unit, and in margins)."""

    gap: float
    gap_in_margins: float
    pass_chance: float
    inconclusive_chance: float
    fail_chance: float


@frozen
class PlannedNoise:
    """The run-to-run noise that is planned with in one arm: a share of the loss worth `df`, its
    basis, and why a named family is not used.
    """

    arm: str
    share: float
    df: float
    basis: str
    family_unused: str


@frozen
class EarlyStopDesigns:
    """Reruns that stop early against full runs that cost no more: both designs and their
    half-widths.
    """

    design: Design
    half_width: float
    replicates: Design
    replicates_half_width: float


@frozen
class Plan:
    """What a design can decide. Gaps and errors are in `unit`; `design.level` is the loss in that
    unit.

    `largest_gap_that_passes` passes half the time; `smallest_margin` is the smallest that it
    decides, None if none. `every_step_decides`: it does not decide as it logs, and would if it
    logged every step. `cheapest` is the cheapest design that decides. With a `budget` the design is
    the most decisive one inside it. `no_pass` is why the policy forbids a pass whatever the gap.
    `early_stops` compares the design's reruns that stop early, else those of `cheapest`, or 3 per
    arm if neither has any. The chances are those of the first look; `looks` has what further ones
    add, and is empty where the policy registers one. `stops` has what `early_stop: stop` saves, and
    is empty where the policy only advises.
    """

    design: Design
    unit: Unit
    margin: float
    half_width: float
    largest_gap_that_passes: float
    smallest_margin: float | None
    power: tuple[Power, ...]
    decides: bool
    every_step_decides: bool
    no_pass: str
    run_noise: tuple[PlannedNoise, PlannedNoise]
    noise_basis: NoiseBasis
    run_steps: int
    gpu_hours: float | None
    cheapest: Design | None
    budget: Budget | None
    within_se: float
    run_se: float
    early_stops: EarlyStopDesigns
    looks: tuple[LookAhead, ...]
    stops: tuple[Stop, ...]

    confidence: float

    @property
    def pass_chance(self) -> float:
        """The chance of a pass at a true gap of 0."""
        return self.power[0].pass_chance

    @property
    def pass_chance_by_the_end(self) -> float:
        """The same by the last look that is registered."""
        if self.looks and self.pass_chance > 0.0:
            return self.looks[-1].passed
        return self.pass_chance


def plan(
    design: Design,
    policy: Policy,
    noise_families: NoiseFamilies = NO_FAMILIES,
    budget: Budget | None = None,
) -> Plan:
    """Power of a design under a policy and the cheapest one that decides; with a budget, of the
    most decisive design inside it.

    Raises ValueError for a bad design, margin or budget.
    """
    design, unit = _levelled(design, policy, noise_families)
    question = DesignQuestion(
        policy=policy, margin=_margin(design, policy), noise_families=noise_families
    )
    most = None if budget is None else budget.run_steps(design)
    cheapest = cheapest_design(design, question)
    if most is not None:
        design = best_within(design, question, most, cheapest) or design
    outlook = chances(design, policy, noise_families)
    ahead = anchored(
        looks_ahead(design, policy, noise_families, question.margin),
        question.passes(design, outlook, 0.0),
        question.fails(design, outlook, 2.0 * question.margin),
    )
    confidence, _ = first_confidence(design, policy)
    gap = outlook.expected.interval
    decides = _power_by_the_end(design, question, outlook, ahead) >= WANTED_POWER
    return Plan(
        design=design,
        unit=unit,
        margin=question.margin,
        half_width=outlook.half_width,
        largest_gap_that_passes=question.margin - outlook.half_width,
        smallest_margin=outlook.smallest_margin(WANTED_POWER),
        power=tuple(_power(factor, design, question, outlook) for factor in GAPS_IN_MARGINS),
        decides=decides,
        every_step_decides=not decides
        and design.log_every > 1
        and _decides(dataclasses.replace(design, log_every=1), question),
        no_pass=_why_no_pass(design, policy, outlook),
        run_noise=_run_noise(design, policy, outlook),
        noise_basis=outlook.expected.noise_basis,
        run_steps=run_steps(design),
        gpu_hours=gpu_hours(design),
        cheapest=cheapest,
        budget=budget,
        within_se=gap.within.value,
        run_se=math.sqrt(gap.run.variance),
        early_stops=_early_stops(design, cheapest, question),
        looks=ahead,
        stops=stops_saved(design, policy, noise_families, question.margin, confidence),
        confidence=confidence,
    )


def _decides(design: Design, question: DesignQuestion) -> bool:
    """Whether its first look decides."""
    return question.power(design, question.outlook(design)) >= WANTED_POWER


def _power_by_the_end(
    design: Design, question: DesignQuestion, outlook: Chances, ahead: tuple[LookAhead, ...]
) -> float:
    """The power of the first look, or that of all looks where the policy can pass at all."""
    first = question.power(design, outlook)
    if first > 0.0:
        return max(first, decisive(ahead))
    return first


def _levelled(design: Design, policy: Policy, noise_families: NoiseFamilies) -> tuple[Design, Unit]:
    """The design with a loss: the stated one, the middle of those of the family's groups, or 1,
    where everything is a share of it.
    """
    if design.level is not None:
        return design, NATS
    for noise_source in noise_sources_of(
        dataclasses.replace(design, level=1.0, pair_sd=None), policy, noise_families
    ):
        if (
            noise_source is not None
            and noise_source.noise is not None
            and noise_source.noise.levels is not None
        ):
            return dataclasses.replace(design, level=sum(noise_source.noise.levels) / 2.0), NATS
    amounts = (
        policy.margin,
        PROFILES[policy.profile] if policy.profile else None,
        policy.baseline_run_noise,
        policy.candidate_run_noise,
    )
    stated = [f"{amount}" for amount in amounts if amount is not None and amount.unit != "relative"]
    stated += [f"{design.pair_sd:g} nats"] if design.pair_sd is not None else []
    if stated:
        raise ValueError(
            f"level is missing; expected the loss at the end, because {stated[0]} cannot be "
            "compared with shares of the loss"
        )
    return dataclasses.replace(design, level=1.0), SHARE


def _margin(design: Design, policy: Policy) -> float:
    prior = assumed_priors(design, policy)[0]
    # One run: a margin that is measured by the runs has no value before them.
    margin = determine_margin(policy, design.level or 1.0, arm_noise(prior, _ONE_RUN, [0]))
    if margin is None and policy.margin is not None and policy.margin.unit == "tokens":
        raise ValueError(
            f"a margin of {policy.margin} can't be planned with: its slope is not stated; expected "
            f"{SLOPE_EXAMPLE!r}"
        )
    if margin is None:
        raise ValueError(
            "the noise-floor margin can't be planned with: it is measured by the runs; state a "
            "margin in % or nats"
        )
    return margin.nats


def _early_stops(
    design: Design, cheapest: Design | None, question: DesignQuestion
) -> EarlyStopDesigns:
    if design.short_reruns:
        early = design
    elif cheapest is not None and cheapest.short_reruns:
        early = cheapest
    else:
        early = dataclasses.replace(design, short_reruns=_USUAL_SHORT_RERUNS)
    full = replicates_for(early, question)
    halves = [question.outlook(one, rough=True).half_width for one in (early, full)]
    return EarlyStopDesigns(
        design=early, half_width=halves[0], replicates=full, replicates_half_width=halves[1]
    )


def _power(factor: float, design: Design, question: DesignQuestion, outlook: Chances) -> Power:
    gap = factor * question.margin
    passes, fails = question.passes(design, outlook, gap), question.fails(design, outlook, gap)
    return Power(
        gap=gap,
        gap_in_margins=factor,
        pass_chance=passes,
        inconclusive_chance=max(0.0, 1.0 - passes - fails),
        fail_chance=fails,
    )


def _why_no_pass(design: Design, policy: Policy, outlook: Chances) -> str:
    """Why the policy forbids a pass of this design whatever the gap, "" where it does not."""
    logged = points(design, policy)
    if logged < policy.min_points:
        every = f" (every {design.log_every:,} steps)" if design.log_every > 1 else ""
        return (
            f"its window holds {count(logged, 'logged step')}{every} and {policy.min_points:,} are "
            "needed"
        )
    if not outlook.counts.any():
        full = f"2 runs per arm and {MIN_MEASURED_DF + 2} in all"
        return (
            f"the policy rejects assumed run-to-run noise, and to measure it takes {full}, or "
            "fewer with reruns that stop early"
        )
    return ""


def _run_noise(
    design: Design, policy: Policy, outlook: Chances
) -> tuple[PlannedNoise, PlannedNoise]:
    level = design.level or 1.0
    noises = outlook.expected.noises
    baseline, candidate = (
        PlannedNoise(
            arm=arm,
            share=noise.prior.tau / level,
            df=noise.prior.df,
            basis=_basis(noise, declared=amount is not None),
            family_unused=""
            if noise_source is None or noise.prior.borrowed
            else noise_source.refused or _far(noise_source, level),
        )
        for arm, noise, amount, noise_source in zip(
            (BASELINE, CANDIDATE), noises, policy.declared_noise, outlook.noise_sources, strict=True
        )
    )
    return baseline, candidate


def _basis(noise: ArmNoise, *, declared: bool) -> str:
    if noise.prior.borrowed:
        return (
            f"{'borrowed from' if noise.prior.borrowed.is_data else 'assumed as in'} "
            f"{noise.prior.borrowed.noise_source.name}"
        )
    if declared:
        return "declared by the policy"
    return "assumed"


def _far(noise_source: NoiseSource, level: float) -> str:
    if noise_source.noise is None or noise_source.noise.levels is None:
        return ""
    low, high = noise_source.noise.levels
    return (
        f"its groups end at losses of {low:.3f} to {high:.3f} nats, and {level:.3f} is more than a "
        "tenth away"
    )
