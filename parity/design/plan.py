"""Can this experiment decide? Chances of pass, inconclusive and fail before any GPU is spent, the
cheapest design, in sentences.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from parity.canonical_json import json_value
from parity.design.chances import (
    NO_FAMILIES,
    Chances,
    LookAhead,
    Stop,
    assumed_priors,
    chances,
    decisive,
    first_confidence,
    lending_of,
    looks_ahead,
    points,
)
from parity.design.chances import stops as stops_saved
from parity.design.experiment import (
    BASELINE,
    CANDIDATE,
    Budget,
    Design,
    cost_words,
    device_hours,
    early_words,
    full_run_steps,
    gpu_hours,
    run_steps,
    runs_words,
)
from parity.frozen import frozen
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.gap.margin import determine_margin
from parity.judging.gap.window_statistics import MIN_MEASURED_DF, NoiseBasis
from parity.judging.noise.lending import Lender, Lenders
from parity.judging.noise.noise_table import ANY_DECODER
from parity.judging.noise.run_floor import RunFloor, run_floor
from parity.judging.policy import POINTS_TO_FAIL, PROFILES, SLOPE_EXAMPLE, Policy
from parity.wording import count, level_percent, percent

# Which runs and steps decide at the least cost, and which decide most often inside a budget.
#
# decides    passes a gap of 0 and fails a gap of 2 margins with 80 % probability each; where the
#            policy forbids a pass whatever the gap
#            (too few points in the window), the chance of a pass is 0
# cheapest   fewest run-steps (K_A + K_B) x steps, then the narrowest interval; at most 16 runs per
#            arm
# in budget  the cheapest if it fits, else the largest of min(pass at 0, fail at 2 margins) in whole
#            per cent, then the fewest run-steps
#
# early      reruns that stop early are tried too, where they cost less than the cheapest full runs
#            that decide, or fit the budget: 1 to 6
#   per
#            arm (no number is worth more than 5.6 degrees of freedom) next to at most 6 full runs,
#            stopped at 40 % or where the design
#   says
#
# A run is never made shorter than planned, because a shorter run answers another question; a longer
# one shrinks only SE_within. More runs never decide less, so a length at which 16 runs per arm do
# not decide is skipped. Chances at the expected spread choose what is looked at closely.

WANTED_POWER = 0.80
MAX_RUNS = 16
MOST_EARLY, MOST_BESIDE_EARLY = 6, 6
_ROUGH_LOW, _ROUGH_HIGH = 0.10, 0.20  # rough chances were up to 0.03 too low and 0.10 too high
STEP_FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@frozen
class Question:
    """What a design must decide: the policy, its margin in the design's unit, and the families that
    lend.
    """

    policy: Policy
    margin: float
    lenders: Lenders

    def outlook(self, design: Design, *, rough: bool = False) -> Chances:
        """The chances of a design under this policy."""
        return chances(design, self.policy, self.lenders, rough=rough)

    def passes(self, design: Design, outlook: Chances, gap: float) -> float:
        """The chance of a pass at a true gap, 0 where the window has too few points for one."""
        if points(design, self.policy) < self.policy.min_points:
            return 0.0
        return outlook.passes(gap, self.margin)

    def fails(self, design: Design, outlook: Chances, gap: float) -> float:
        """The chance of a fail at a true gap, 0 where the window has too few points for one."""
        if points(design, self.policy) < POINTS_TO_FAIL:
            return 0.0
        return outlook.fails(gap, self.margin)

    def power(self, design: Design, outlook: Chances) -> float:
        """The smaller of two chances: of a pass at a gap of 0, and of a fail at 2 margins."""
        return min(
            self.passes(design, outlook, 0.0), self.fails(design, outlook, 2.0 * self.margin)
        )


def cheapest_design(design: Design, question: Question) -> Design | None:
    """The design with the fewest run-steps (then the narrowest interval) that decides; None up to
    16 runs per arm.
    """
    full = _cheapest_of_full_runs(dataclasses.replace(design, short_reruns=0), question)
    if full is None:
        return None
    early = _with_early_stops(design, question.policy, run_steps(full) - 1)
    return _first_that_decides(sorted(early, key=run_steps), question) or full


def replicates_for(design: Design, question: Question) -> Design:
    """The full runs that cost at most what the design does, reruns that stop early included, and
    have the narrowest interval.
    """
    total = min(run_steps(design) // design.planned_steps, (1 + design.candidates) * MAX_RUNS)
    splits = (
        (base, (total - base) // design.candidates)
        for base in range(1, min(MAX_RUNS, total - 1) + 1)
    )
    possible = [(base, cand) for base, cand in splits if 1 <= cand <= MAX_RUNS]
    tried = [
        dataclasses.replace(_with(design, base, cand, design.planned_steps), short_reruns=0)
        for base, cand in possible
    ]
    return min(tried, key=lambda one: question.outlook(one, rough=True).half_width)


def _cheapest_of_full_runs(design: Design, question: Question) -> Design | None:
    arms = range(1, MAX_RUNS + 1)
    lengths = [
        steps
        for steps in _lengths(design, question.policy)
        if _may_decide(_with(design, MAX_RUNS, MAX_RUNS, steps), question)
    ]
    tried = itertools.product(arms, arms, lengths)
    by_cost = sorted(
        (full_run_steps(base, cand, steps, design.candidates), base, cand, steps)
        for base, cand, steps in tried
    )
    return _first_that_decides(
        (_with(design, base, cand, steps) for _, base, cand, steps in by_cost), question
    )


def _first_that_decides(designs: Iterable[Design], question: Question) -> Design | None:
    """Of designs in order of their run-steps: of the first that decide, the one with the narrowest
    interval.
    """
    for _, group in itertools.groupby(designs, key=run_steps):
        outlooks = [(one, question.outlook(one)) for one in group if _may_decide(one, question)]
        if deciding := [
            (outlook.half_width, one)
            for one, outlook in outlooks
            if question.power(one, outlook) >= WANTED_POWER
        ]:
            return min(deciding, key=lambda entry: entry[0])[1]
    return None


def best_within(
    design: Design, question: Question, most_run_steps: float, cheapest: Design | None
) -> Design | None:
    """The design within this number of run-steps that decides most often; None if they do not pay
    for one pair.
    """
    if cheapest is not None and run_steps(cheapest) <= most_run_steps:
        return cheapest
    full = _affordable(
        dataclasses.replace(design, short_reruns=0),
        _lengths(design, question.policy),
        most_run_steps,
    )
    by_full_runs = {
        # the last one has the most reruns, which never decide less
        (one.baseline_runs, one.candidate_runs, one.stop_at): one
        for one in _with_early_stops(design, question.policy, most_run_steps)
    }
    tried = [(_rough_power(one, question), one) for one in (*full, *by_full_runs.values())]
    most = max((power for power, _ in tried), default=0.0)
    near = [one for power, one in tried if power >= most - _ROUGH_HIGH]
    outlooks = [
        (round(question.power(one, question.outlook(one)), 2), -run_steps(one), one) for one in near
    ]
    if not outlooks:
        return None
    return max(outlooks, key=lambda entry: entry[:2])[2]


def _affordable(design: Design, lengths: Iterable[int], most_run_steps: float) -> Sequence[Design]:
    """For each length and number of baseline runs the most candidate runs that the budget
    pays for.
    """
    tried = []
    for steps, base in itertools.product(lengths, range(1, MAX_RUNS + 1)):
        candidates = min(MAX_RUNS, (math.floor(most_run_steps / steps) - base) // design.candidates)
        if candidates >= 1:
            tried.append(_with(design, base, candidates, steps))
    return tried


def _with_early_stops(design: Design, policy: Policy, most_run_steps: float) -> Sequence[Design]:
    """Designs of the shortest length with reruns that stop early, up to a cost in run-steps."""
    steps = _lengths(design, policy)[0]
    runs, reruns = range(1, MOST_BESIDE_EARLY + 1), range(1, MOST_EARLY + 1)
    tried = (
        dataclasses.replace(
            design,
            baseline_runs=base,
            candidate_runs=cand,
            planned_steps=steps,
            short_reruns=number,
            stop_at=stop,
        )
        for base, cand, stop, number in itertools.product(
            runs, runs, sorted({MIN_STOP, design.stop_at}), reruns
        )
    )
    return [one for one in tried if run_steps(one) <= most_run_steps]


def _with(design: Design, baseline_runs: int, candidate_runs: int, steps: int) -> Design:
    return dataclasses.replace(
        design, baseline_runs=baseline_runs, candidate_runs=candidate_runs, planned_steps=steps
    )


def _may_decide(design: Design, question: Question) -> bool:
    """Whether a closer look is worth its time."""
    return _rough_power(design, question) >= WANTED_POWER - _ROUGH_LOW


def _rough_power(design: Design, question: Question) -> float:
    return question.power(design, question.outlook(design, rough=True))


def _lengths(design: Design, policy: Policy) -> list[int]:
    """Steps to try: the planned ones, multiples of them, and the fewest whose window holds enough
    points; none below the plan.
    """
    least = math.ceil(policy.min_points * design.log_every / policy.window_fraction)
    multiples = (math.ceil(factor * design.planned_steps) for factor in STEP_FACTORS)
    return sorted({max(least, design.planned_steps), *multiples})


# Can this experiment decide? Chances of pass, inconclusive and fail before any GPU is spent, and
# the cheapest design that decides.
#
# The chances are those of `chances`, the designs that are tried those of `search`. Everything is in
# nats at the loss that is expected; at that of the family that lends where only that is known; and
# as a share of the loss where neither is.

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
class RunNoise:
    """The run-to-run noise that is planned with in one arm: a share of the loss worth `df`, its
    basis, and why a named family is not used.
    """

    arm: str
    share: float
    df: float
    basis: str
    family_unused: str


@frozen
class EarlyStops:
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
    `early_stops` compares the design's reruns that stop early, or 3 per arm if it has none. The
    chances are those of the first look; `looks` has what further ones add, and is empty where the
    policy registers one. `stops` has what `early_stop: stop` saves, and is empty where the policy
    only advises.
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
    run_noise: tuple[RunNoise, RunNoise]
    noise_basis: NoiseBasis
    run_steps: int
    gpu_hours: float | None
    cheapest: Design | None
    budget: Budget | None
    within_se: float
    run_se: float
    early_stops: EarlyStops
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
            return max(self.pass_chance, self.looks[-1].passed)
        return self.pass_chance


def plan(
    design: Design, policy: Policy, lenders: Lenders = NO_FAMILIES, budget: Budget | None = None
) -> Plan:
    """Power of a design under a policy and the cheapest one that decides; with a budget, of the
    most decisive design inside it.

    Raises ValueError for a bad design, margin or budget.
    """
    design, unit = _with_level(design, policy, lenders)
    question = Question(policy=policy, margin=_margin(design, policy), lenders=lenders)
    most = None if budget is None else budget.run_steps(design)
    cheapest = cheapest_design(design, question)
    if most is not None:
        design = best_within(design, question, most, cheapest) or design
    outlook = chances(design, policy, lenders)
    ahead = looks_ahead(design, policy, lenders, question.margin)
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
        early_stops=_early_stops(design, question),
        looks=ahead,
        stops=stops_saved(design, policy, lenders, question.margin, confidence),
        confidence=confidence,
    )


def _decides(design: Design, question: Question) -> bool:
    """Whether its first look decides."""
    return question.power(design, question.outlook(design)) >= WANTED_POWER


def _power_by_the_end(
    design: Design, question: Question, outlook: Chances, ahead: tuple[LookAhead, ...]
) -> float:
    """The power of the first look, or that of all looks where the policy can pass at all."""
    first = question.power(design, outlook)
    if first > 0.0:
        return max(first, decisive(ahead))
    return first


def _with_level(design: Design, policy: Policy, lenders: Lenders) -> tuple[Design, Unit]:
    """The design with a loss: the stated one, the middle of those of the family's groups, or 1,
    where everything is a share of it.
    """
    if design.level is not None:
        return design, NATS
    for lender in lending_of(dataclasses.replace(design, level=1.0, pair_sd=None), policy, lenders):
        if lender is not None and lender.floor is not None and lender.floor.levels is not None:
            return dataclasses.replace(design, level=sum(lender.floor.levels) / 2.0), NATS
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
    margin = determine_margin(policy, design.level or 1.0, run_floor(prior, _ONE_RUN, [0]))
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


def _early_stops(design: Design, question: Question) -> EarlyStops:
    if design.short_reruns:
        early = design
    else:
        early = dataclasses.replace(design, short_reruns=_USUAL_SHORT_RERUNS)
    full = replicates_for(early, question)
    halves = [question.outlook(one, rough=True).half_width for one in (early, full)]
    return EarlyStops(
        design=early, half_width=halves[0], replicates=full, replicates_half_width=halves[1]
    )


def _power(factor: float, design: Design, question: Question, outlook: Chances) -> Power:
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


def _run_noise(design: Design, policy: Policy, outlook: Chances) -> tuple[RunNoise, RunNoise]:
    level = design.level or 1.0
    floors = outlook.expected.floors
    baseline, candidate = (
        RunNoise(
            arm=arm,
            share=floor.prior.tau / level,
            df=floor.prior.df,
            basis=_basis(floor, declared=amount is not None),
            family_unused=""
            if lender is None or floor.prior.loan
            else lender.refused or _far(lender, level),
        )
        for arm, floor, amount, lender in zip(
            (BASELINE, CANDIDATE), floors, policy.run_floors, outlook.lending, strict=True
        )
    )
    return baseline, candidate


def _basis(floor: RunFloor, *, declared: bool) -> str:
    if floor.prior.loan:
        return (
            f"{'borrowed from' if floor.prior.loan.is_data else 'assumed as in'} "
            f"{floor.prior.loan.lender.name}"
        )
    if declared:
        return "declared by the policy"
    return "assumed"


def _far(lender: Lender, level: float) -> str:
    if lender.floor is None or lender.floor.levels is None:
        return ""
    low, high = lender.floor.levels
    return (
        f"its groups end at losses of {low:.3f} to {high:.3f} nats, and {level:.3f} is more than a "
        "tenth away"
    )


# A plan in sentences: the answer first, then what it rests on and what would decide.


def headline(plan: Plan) -> str:
    """What the design, or the best one inside the budget, can decide."""
    chance, needed = f"{100 * plan.pass_chance_by_the_end:.0f} %", f"{100 * WANTED_POWER:.0f} %"
    runs, verb = runs_words(plan.design), "decide" if plan.decides else "cannot decide"
    if plan.budget is None:
        looks = f", judged in up to {len(plan.looks)} looks," if plan.looks else ""
        subject = f"{runs}{looks} {verb} a margin of {margin_words(plan)}:"
    else:
        subject = (
            f"{plan.budget} {verb} a margin of {margin_words(plan)}: the "
            f"{'cheapest' if plan.decides else 'best'} plan inside is {runs};"
        )
    if plan.decides:
        return f"{subject} a true gap of 0 passes with {chance} probability."
    if plan.no_pass:
        return f"{subject} a pass is impossible, because {plan.no_pass}."
    line = f"{subject} a true gap of 0 passes with {chance} probability, and {needed} are needed."
    if plan.smallest_margin is None:
        return line
    smallest = share_words(plan, plan.smallest_margin)
    return (
        f"{line} They decide a margin of "
        f"{share_words(plan, plan.smallest_margin, 3) if smallest == margin_words(plan) else smallest}."  # noqa: E501
    )


def advice(plan: Plan) -> str:
    """A denser log where that is enough; else the cheapest design that decides, if it is not the
    planned one, or what to do instead.
    """
    if plan.every_step_decides:
        return (
            "The same runs decide if they log every step instead of every "
            f"{plan.design.log_every:,}."
        )
    if plan.cheapest is None:
        return (
            f"No design of up to {MAX_RUNS} runs per arm decides: state a wider margin, or measure "
            "and declare the run-to-run noise."
        )
    cheapest = f"{runs_words(plan.cheapest)}, {cost_words(plan.cheapest)}"
    if plan.looks:
        return f"The cheapest plan that decides at its first look: {cheapest}."
    if not plan.decides:
        return f"The cheapest plan with {100 * WANTED_POWER:.0f} % power: {cheapest}."
    if run_steps(plan.cheapest) < plan.run_steps:
        return f"A cheaper one decides too: {cheapest}."
    return "No cheaper plan decides."


def cost(plan: Plan) -> str:
    """What the design costs."""
    return f"Cost: {cost_words(plan.design)}."


def noise(plan: Plan) -> str:
    """The run-to-run noise that is planned with, by arm, and why a family that was named is not
    used.
    """
    baseline, candidate = plan.run_noise
    if len({(arm.share, arm.basis, arm.family_unused) for arm in plan.run_noise}) == 1:
        words = f"Run-to-run noise: {_noise_words(baseline)}, in both arms."
    else:
        words = (
            f"Run-to-run noise: baseline {_noise_words(baseline)}; candidate "
            f"{_noise_words(candidate)}."
        )
    unused = [
        f" The {arm.arm} does not borrow: {arm.family_unused}."
        for arm in plan.run_noise
        if arm.family_unused
    ]
    if any(arm.basis.startswith(f"assumed as in {ANY_DECODER}") for arm in plan.run_noise):
        unused.append(
            f" {ANY_DECODER} holds only for runs that finish their schedule and log the learning "
            "rate."
        )
    return f"{words} Noisier runs are decided less often, and wrongly more often.{''.join(unused)}"


def errors(plan: Plan) -> str:
    """The half-width, and which part of the error more steps and more runs shrink."""
    half, within, run = (
        amount(plan, value) for value in (plan.half_width, plan.within_se, plan.run_se)
    )
    return (
        f"The interval reaches {half} to each side. More steps shrink only the within-pair error "
        f"({within}); the between-run error ({run}) needs runs."
    )


def early_stops(plan: Plan) -> str:
    """Whether reruns that stop early are worth their cost, with the half-width that they reach and
    that of full runs for it.
    """
    both = plan.early_stops
    verb = "pay" if both.half_width < both.replicates_half_width else "do not pay"
    early, full = (
        f"{runs_words(design)} reach {amount(plan, half)} to each side ({run_steps(design):,} "
        "run-steps)"
        for design, half in (
            (both.design, both.half_width),
            (both.replicates, both.replicates_half_width),
        )
    )
    return f"Reruns that stop early {verb} here: {early}, {full}."


def looks(plan: Plan) -> str:
    """What further looks decide and cost, and how many candidates share the error; "" where there
    is one look and one candidate.
    """
    first = plan.design
    level = level_percent(plan.confidence)
    if first.candidates > 1:
        shared = f"{first.candidates} candidates share the error: each interval is at {level}."
    else:
        shared = ""
    if not plan.looks:
        return shared
    last = plan.looks[-1]
    hours = f" ({device_hours(last.gpu_hours)})" if last.gpu_hours is not None else ""
    levels = ", ".join(level_percent(look.confidence) for look in plan.looks)
    steps = ", ".join(f"{100 * look.passed:.0f} % by look {look.look}" for look in plan.looks)
    words = (
        f"The looks are at {levels}, with one more run per arm after each that leaves it open: a "
        f"true gap of 0 passes with {steps}"
    )
    return f"{shared} {words}, for {last.run_steps:,.0f} run-steps{hours} on average.".strip()


def stops(plan: Plan) -> str:
    """What stopping candidates that will fail or are futile saves; "" where the policy only
    advises.
    """
    if not plan.stops:
        return ""
    rows = []
    for row in plan.stops:
        hours = f", {device_hours(row.saved_gpu_hours)}" if row.saved_gpu_hours is not None else ""
        gap = "no gap" if row.gap_in_margins == 0.0 else f"{row.gap_in_margins:g} x margin"
        rows.append(
            f"{gap}: stopped in {100 * row.stopped:.0f} %, {row.saved_run_steps:,.0f} steps{hours} "
            "saved on average"
        )
    return f"With early_stop: stop, a candidate with a constant gap: {'; '.join(rows)}."


def one_line(plan: Plan) -> str:
    """The answer for a job before it trains, without a full stop."""
    design = plan.design
    one = design.baseline_runs == design.candidate_runs == 1
    runs = (
        "one run per arm" if one else f"{design.baseline_runs} against {design.candidate_runs} runs"
    )
    noisiest = max(plan.run_noise, key=lambda arm: arm.share)
    basis = noisiest.basis.partition(" ")[0]
    conditions = (
        f"margin {margin_words(plan)}, {runs}, {basis} run-to-run noise {percent(noisiest.share)}"
    )
    conditions += f", {early_words(design)}" if design.short_reruns else ""
    conditions += f", {count(design.controls, 'control')}" if design.controls else ""
    conditions += f", {design.candidates} candidates" if design.candidates > 1 else ""
    if plan.no_pass:
        return f"This job cannot pass: {plan.no_pass} ({conditions})"
    by_the_end = (
        f", {100 * plan.looks[-1].passed:.0f} % by look {len(plan.looks)}" if plan.looks else ""
    )
    return (
        f"Chance to pass if it is as good as the baseline: {100 * plan.pass_chance:.0f} "
        f"%{by_the_end} ({conditions})"
    )


def margin_words(plan: Plan) -> str:
    """The margin as a share of the loss, and in nats where the loss is known."""
    return share_words(plan, plan.margin)


def share_words(plan: Plan, value: float, digits: int = 2) -> str:
    """A difference as a share of the loss, with the nats where the loss is known: "1.0 % (0.0390
    nats)".
    """
    share = percent(value / (plan.design.level or 1.0), digits)
    if plan.unit == NATS:
        return f"{share} ({value:.4f} nats)"
    return share


def amount(plan: Plan, value: float) -> str:
    """A difference in the plan's unit."""
    if plan.unit == NATS:
        return f"{value:.4f} nats"
    return f"{percent(value)} of the loss"


def _noise_words(noise: RunNoise) -> str:
    return f"{percent(noise.share)} of the loss, {noise.basis}"


# A plan as the JSON that the command line prints and the API returns.


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON-able values, with its sentences; gaps and errors are in its `unit`."""
    words = {"headline": headline(plan), "advice": advice(plan)}
    words["note"] = f"{errors(plan)} {early_stops(plan)} {looks(plan)} {stops(plan)}".rstrip()
    return {**json_value(plan), **words, "wanted_power": WANTED_POWER}
