"""Which runs and steps decide at the least cost, and which decide most often inside a budget.

decides    passes a gap of 0 and fails a gap of 2 margins with 80 % probability each; where the
           policy forbids a pass whatever the gap (too few points in the window), the chance
           of a pass is 0
cheapest   fewest run-steps (K_A + K_B) x steps, then the narrowest interval; at most 16 runs per
           arm
in budget  the cheapest if it fits, else the largest of min(pass at 0, fail at 2 margins) in whole
           per cent, then the fewest run-steps
early      reruns that stop early are tried too, where they cost less than the cheapest full runs
           that decide, or fit the budget: 1 to 6 per arm (no number is worth more than 5.6 degrees
           of freedom) next to at most 6 full runs, stopped at 40 % or where the design says

A run is never made shorter than planned, because a shorter run answers another question; a longer
one shrinks only SE_within. More runs never decide less, so a length at which 16 runs per arm do
not decide is skipped. Chances at the expected spread choose what is looked at closely.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

from parity.design.chances import (
    Chances,
    chances,
    points,
)
from parity.design.experiment import (
    Design,
    full_run_steps,
    run_steps,
)
from parity.frozen import frozen
from parity.judging.curves.early_stop_noise import MIN_STOP
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import POINTS_TO_FAIL, Policy

WANTED_POWER = 0.80
MAX_RUNS = 16
MOST_EARLY, MOST_BESIDE_EARLY = 6, 6
_ROUGH_LOW, _ROUGH_HIGH = 0.10, 0.20  # rough chances were up to 0.03 too low and 0.10 too high
STEP_FACTORS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


@frozen
class DesignQuestion:
    """What a design must decide: the policy, its margin in the design's unit, and the families that
    its arms name.
    """

    policy: Policy
    margin: float
    noise_families: NoiseFamilies

    def outlook(self, design: Design, *, rough: bool = False) -> Chances:
        """The chances of a design under this policy."""
        return chances(design, self.policy, self.noise_families, rough=rough)

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


def cheapest_design(design: Design, question: DesignQuestion) -> Design | None:
    """The design with the fewest run-steps (then the narrowest interval) that decides; None up to
    16 runs per arm.
    """
    full = _cheapest_of_full_runs(dataclasses.replace(design, short_reruns=0), question)
    if full is None:
        return None
    early = _early_stop_designs(design, question.policy, run_steps(full) - 1)
    return _first_that_decides(sorted(early, key=run_steps), question) or full


def replicates_for(design: Design, question: DesignQuestion) -> Design:
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
        dataclasses.replace(_resized(design, base, cand, design.planned_steps), short_reruns=0)
        for base, cand in possible
    ]
    return min(tried, key=lambda one: question.outlook(one, rough=True).half_width)


def _cheapest_of_full_runs(design: Design, question: DesignQuestion) -> Design | None:
    arms = range(1, MAX_RUNS + 1)
    lengths = [
        steps
        for steps in _lengths(design, question.policy)
        if _may_decide(_resized(design, MAX_RUNS, MAX_RUNS, steps), question)
    ]
    tried = itertools.product(arms, arms, lengths)
    cheapest_first = sorted(
        (full_run_steps(base, cand, steps, design.candidates), base, cand, steps)
        for base, cand, steps in tried
    )
    return _first_that_decides(
        (_resized(design, base, cand, steps) for _, base, cand, steps in cheapest_first), question
    )


def _first_that_decides(designs: Iterable[Design], question: DesignQuestion) -> Design | None:
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
    design: Design, question: DesignQuestion, most_run_steps: float, cheapest: Design | None
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
    early_stopped = {
        # the last one has the most reruns, which never decide less
        (one.baseline_runs, one.candidate_runs, one.stop_at): one
        for one in _early_stop_designs(design, question.policy, most_run_steps)
    }
    tried = [(_rough_power(one, question), one) for one in (*full, *early_stopped.values())]
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
            tried.append(_resized(design, base, candidates, steps))
    return tried


def _early_stop_designs(design: Design, policy: Policy, most_run_steps: float) -> Sequence[Design]:
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


def _resized(design: Design, baseline_runs: int, candidate_runs: int, steps: int) -> Design:
    return dataclasses.replace(
        design, baseline_runs=baseline_runs, candidate_runs=candidate_runs, planned_steps=steps
    )


def _may_decide(design: Design, question: DesignQuestion) -> bool:
    """Whether a closer look is worth its time."""
    return _rough_power(design, question) >= WANTED_POWER - _ROUGH_LOW


def _rough_power(design: Design, question: DesignQuestion) -> float:
    return question.power(design, question.outlook(design, rough=True))


def _lengths(design: Design, policy: Policy) -> list[int]:
    """Steps to try: the planned ones, multiples of them, and the fewest whose window holds enough
    points; none below the plan.
    """
    least = math.ceil(policy.min_points * design.log_every / policy.window_fraction)
    multiples = (math.ceil(factor * design.planned_steps) for factor in STEP_FACTORS)
    return sorted({max(least, design.planned_steps), *multiples})
