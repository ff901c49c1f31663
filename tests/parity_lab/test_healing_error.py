"""How often a search names a switch that does not heal, from searches whose truth is known.

The baseline and every healed arm have RUNS runs. The offset of a healed run is that of its
candidate's run, which forks share, and its own; how much they share does not matter to the error.
The judge's own run-to-run noise and intervals give the verdicts.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.noise.arm_noise import Prior, arm_noise, run_term
from parity_lab.healing import (
    HealingSetup,
    Look,
    expected_gap,
    found,
    looks_for,
    next_switch,
)

STEPS, RUN_STEPS, RUNS = (400, 800, 1200, 1600), 2000, 3
MARGIN, TAU, PRIOR_DF, CONFIDENCE = 0.010, 0.002, 4.0, 0.95
HEALS = 2000
NO_WITHIN = StandardError(value=0.0, df=12.0)
SETUP = HealingSetup(
    recipe="bf16",
    gemms="all",
    parents=tuple(f"run {number}" for number in range(RUNS)),
    steps=STEPS,
    run_steps=RUN_STEPS,
    gap=None,
    half_width=None,
    margin=MARGIN,
    most_steps=math.inf,
)


def look(step: int, baseline: np.ndarray, healed: np.ndarray, candidates: int) -> Look:
    """The judge's look at late means (runs,) of both arms; `candidates` share the error."""
    prior = Prior(tau=TAU, df=PRIOR_DF, basis="assumed", assumed=True)
    noises = [arm_noise(prior, runs, [0] * RUNS) for runs in (baseline, healed)]
    gap = float(healed.mean() - baseline.mean())
    measured = interval(gap, NO_WITHIN, run_term(*noises))
    shared = Multiplicity(candidates=candidates)
    low, high = measured.bounds(*shared.levels(CONFIDENCE))
    verdict = "inconclusive"
    if high < MARGIN:
        verdict = "pass"
    elif measured.bounds(CONFIDENCE)[0] > MARGIN:
        verdict = "fail"
    return Look(
        step=step,
        verdict=verdict,
        gap=gap,
        low=low,
        high=high,
        level=shared.confidence(CONFIDENCE),
        code="",
        sentence="",
    )


def without_interval(step: int, verdict: str, gap: float) -> Look:
    return Look(
        step=step,
        verdict=verdict,
        gap=gap,
        low=None,
        high=None,
        level=None,
        code="",
        sentence="",
    )


def heals(gaps: dict[int, float], shared: float, seed: int = 0, count: int = HEALS):
    """Searches among switches with these gaps, whose runs share this part of the variance."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        tau = TAU * math.sqrt(PRIOR_DF / random.chisquare(PRIOR_DF))
        baseline, parents = tau * random.normal(size=(2, RUNS))
        runs = {
            step: gap
            + math.sqrt(shared) * parents
            + math.sqrt(1 - shared) * tau * random.normal(size=RUNS)
            for step, gap in gaps.items()
        }
        own = look(RUN_STEPS, baseline, 2 * MARGIN + parents, len(STEPS))
        setup = replace(SETUP, gap=own.gap, half_width=own.high - own.gap)
        looks = []
        while (step := next_switch(setup, looks)) is not None:
            looks.append(look(step, baseline, runs[step], len(STEPS)))
        yield found(setup, looks)


def false_pass_rate_of_one_verdict(count: int = HEALS) -> float:
    random, passes = np.random.default_rng(1), 0
    for _ in range(count):
        tau = TAU * math.sqrt(PRIOR_DF / random.chisquare(PRIOR_DF))
        baseline, healed = tau * random.normal(size=(2, RUNS))
        passes += look(0, baseline, MARGIN + healed, 1).verdict == "pass"
    return passes / count


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_where_every_gap_is_at_the_margin_no_more_is_named_than_one_verdict_passes_wrongly(shared):
    named = sum(answer.switch is not None for answer in heals(dict.fromkeys(STEPS, MARGIN), shared))
    assert named / HEALS <= false_pass_rate_of_one_verdict()


LAW_HOLDS = {400: 0.2 * MARGIN, 800: MARGIN, 1200: 1.3 * MARGIN, 1600: 2 * MARGIN}
LAW_BROKEN = {400: 2 * MARGIN, 800: 1.3 * MARGIN, 1200: MARGIN, 1600: 0.2 * MARGIN}


@pytest.mark.parametrize("gaps", [LAW_HOLDS, LAW_BROKEN], ids=["law holds", "law broken"])
def test_a_switch_beyond_the_margin_is_named_no_more_often_with_or_without_the_law(gaps):
    wrong = sum(
        answer.switch is not None and gaps[answer.switch] >= MARGIN for answer in heals(gaps, 0.5)
    )
    assert wrong / HEALS <= false_pass_rate_of_one_verdict()


def test_where_every_gap_is_well_within_the_margin_the_latest_switch_is_named():
    answers = [*heals(dict.fromkeys(STEPS, 0.0), 0.5, count=500)]
    assert sum(answer.switch == STEPS[-1] for answer in answers) >= 0.85 * len(answers)


def test_where_every_gap_is_far_beyond_the_margin_nothing_is_named_and_that_is_said():
    answers = [*heals(dict.fromkeys(STEPS, 3 * MARGIN), 0.5, count=500)]
    assert sum(answer.outcome == "none" for answer in answers) >= 0.9 * len(answers)


def most_looks_of_the_best_search(steps: int) -> int:
    """Every first look, and the worse of its two outcomes: `looks_for` without its formula."""
    if not steps:
        return 0
    return 1 + min(
        max(most_looks_of_the_best_search(place), most_looks_of_the_best_search(steps - 1 - place))
        for place in range(steps)
    )


def test_the_number_of_looks_is_that_of_the_best_search():
    assert [looks_for(steps) for steps in range(9)] == [
        most_looks_of_the_best_search(steps) for steps in range(9)
    ]


@pytest.mark.parametrize("gap", [None, 1.1 * MARGIN, 50 * MARGIN])
@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_whatever_the_verdicts_are_the_search_ends_in_time_and_leaves_nothing_untested(count, gap):
    steps = tuple(range(100, 100 * (count + 1), 100))
    setup = replace(
        SETUP, steps=steps, run_steps=100 * (count + 1), gap=gap, half_width=0.1 * MARGIN
    )
    for verdicts in itertools.product(["pass", "fail", "inconclusive"], repeat=looks_for(count)):
        looks = []
        for verdict in verdicts:
            step = next_switch(setup, looks)
            if step is None:
                break
            known = {"pass": 0.5 * MARGIN, "fail": 2 * MARGIN, "inconclusive": MARGIN}[verdict]
            looks.append(without_interval(step, verdict, known))
        assert next_switch(setup, looks) is None
        answer = found(setup, looks)
        assert answer.untested == ()
        passes = [look.step for look in looks if look.verdict == "pass"]
        assert answer.switch == max(passes, default=None)  # no search looks behind a fail


def slow_expected_gap(step: int, known: dict[int, float]) -> float:
    """On the line between the nearest known steps, over the fourth power of the share of steps."""
    before = max(other for other in known if other <= step)
    after = min(other for other in known if other >= step)
    if before == after:
        return known[step]
    x, left, right = ((other / RUN_STEPS) ** 4 for other in (step, before, after))
    return known[before] + (known[after] - known[before]) * (x - left) / (right - left)


def test_the_expected_gap_is_on_the_line_between_its_neighbours():
    setup = replace(SETUP, gap=0.02, half_width=0.001)
    known = {0: 0.0, 800: 0.004, 1600: 0.011, RUN_STEPS: 0.02}
    looks = [without_interval(step, "fail", known[step]) for step in (800, 1600)]
    for step in range(0, RUN_STEPS + 1, 100):
        assert expected_gap(setup, looks, step) == pytest.approx(slow_expected_gap(step, known))
