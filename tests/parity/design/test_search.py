import dataclasses

import pytest

from parity.design.chances import NO_FAMILIES, chances
from parity.design.experiment import Design, run_steps
from parity.design.search import WANTED_POWER, DesignQuestion, best_within, cheapest_design
from parity.judging.policy import policy_from_mapping

POLICY = policy_from_mapping({"margin": "1%"})


def question(margin: float) -> DesignQuestion:
    return DesignQuestion(policy=POLICY, margin=margin, noise_families=NO_FAMILIES)


def power(design: Design, margin: float) -> float:
    return question(margin).power(design, chances(design, POLICY))


def test_the_cheapest_is_the_cheapest() -> None:
    design = Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4")
    best = cheapest_design(design, question(0.01))
    assert best is not None
    assert power(best, 0.01) >= WANTED_POWER
    total = best.baseline_runs + best.candidate_runs
    assert total > 2
    for base in range(1, total):
        same = dataclasses.replace(design, baseline_runs=base, candidate_runs=total - base)
        assert (
            power(same, 0.01) < WANTED_POWER
            or chances(same, POLICY).half_width >= chances(best, POLICY).half_width
        )
        if base < total - 1:
            assert (
                power(dataclasses.replace(same, candidate_runs=total - base - 1), 0.01)
                < WANTED_POWER
            )


@pytest.mark.parametrize("margin", [0.03, 0.02])
def test_the_cheapest_of_all_designs_by_brute_force(margin: float) -> None:
    """Noisy pairs, where steps help: the search finds what trying every design up to 3 runs per arm
    finds.
    """
    noisy = Design(
        level=3.0,
        planned_steps=1000,
        pair_sd=0.15,
        autocorrelation=0.2,
        baseline_rounding="nearest",
        candidate_rounding="nearest",
    )
    tried = []
    for steps in (1000, 1250, 1500, 2000, 3000, 4000, 6000, 8000):
        for base in range(1, 4):
            for cand in range(1, 4):
                design = dataclasses.replace(
                    noisy, planned_steps=steps, baseline_runs=base, candidate_runs=cand
                )
                outlook = chances(design, POLICY)
                if (
                    min(outlook.passes(0.0, margin), outlook.fails(2.0 * margin, margin))
                    >= WANTED_POWER
                ):
                    tried.append((run_steps(design), outlook.half_width, design))
    best = cheapest_design(noisy, question(margin))
    assert best == min(tried, key=lambda entry: entry[:2])[2]
    assert run_steps(best) > 2000


def test_no_run_is_shorter_than_planned_and_a_budget_without_a_pair_buys_none() -> None:
    design = Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4")
    best = best_within(design, question(0.004), 31_000, None)
    assert best is not None
    assert best.planned_steps >= 5000
    assert run_steps(best) <= 31_000
    assert best_within(design, question(0.004), 9_999, None) is None


def test_a_budget_that_pays_for_the_cheapest_gives_it() -> None:
    design = Design(level=3.0, planned_steps=5000)
    cheapest = cheapest_design(design, question(0.03))
    assert best_within(design, question(0.03), 1e9, cheapest) == cheapest
