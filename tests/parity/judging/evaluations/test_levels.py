"""At which level does each end of an interval of held-out losses decide, with several looks,
candidates and runs? (tests/parity/judging/verdict/test_levels.py asks it of training curves.)
"""

import dataclasses

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.gap.interval import Interval
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge

PLAN, MARGIN, NOMINAL, STEP = 500, 0.03, 0.95, 1e-6
EVALUATED = np.arange(1, 11) * 50
FIVE_LOOKS_ERROR = 2.0 * float(student.sf(4.39, 4.0))
# Looks, candidates, and what a pass needs of the run term and of the error within pairs.
SHARED = [
    (1, 1, 0.95, 0.95),
    (1, 12, 1.0 - 0.05 / 12, 1.0 - 0.05 / 12),
    (5, 12, 1.0 - FIVE_LOOKS_ERROR / 12, 1.0 - 0.05 / 12),
]


def policy(looks: int = 1, **keys: object) -> Policy:
    return Policy(margin=f"{MARGIN} nats", schedule="decayed", looks=looks, **keys)


def shifted(runs: list[Curve], gap: float) -> list[Curve]:
    return [dataclasses.replace(run, loss=run.loss + gap) for run in runs]


def verdict(
    base: list[Curve], cand: list[Curve], looks: int, candidates: int, **keys: object
) -> Verdict:
    return judge(
        base,
        {"c": cand},
        policy(looks, **keys),
        planned_steps=PLAN,
        multiplicity=Multiplicity(looks=looks, candidates=candidates),
    )[0]


def evaluated(seed: int, runs: int, seeds: bool) -> list[Curve]:
    """A finished training of so many runs, evaluated every 50 steps."""
    rng = np.random.default_rng(seed)
    law = 3.0 + 2.0 * np.exp(-EVALUATED / 40.0)
    return [
        curve_from_arrays(
            EVALUATED,
            law + rng.normal(0.0, 0.001) + rng.normal(0.0, 0.0005, len(EVALUATED)),
            label=f"{seed}-{number}",
            seed=number if seeds else 0,
            rounding="nearest",
        )
        for number in range(runs)
    ]


def case(
    base: list[Curve],
    cand: list[Curve],
    looks: int,
    candidates: int,
    paired: bool,
    **keys: object,
) -> EvaluationCase:
    return EvaluationCase(
        baseline=base,
        candidates={"c": cand},
        policy=policy(looks, **keys),
        baseline_name="b",
        paired=paired,
        planned_steps=PLAN,
        multiplicity=Multiplicity(looks=looks, candidates=candidates),
    )


def document(*args: object, **keys: object) -> EvaluationDocument:
    return case(*args, **keys).documents()[0]


def gap_of(base: list[Curve], cand: list[Curve], paired: bool) -> Interval:
    return case(base, cand, 1, 1, paired).measured("c")[0].over_runs


# Looks share the run term alone, so they are asked of arms of which nothing else is in the error.
evaluated_runs = pytest.mark.parametrize(
    ("runs", "paired", "looks", "candidates", "level"),
    [
        (runs, paired, looks, candidates, level)
        for runs, paired in [(1, False), (2, False), (3, False), (2, True), (3, True)]
        for looks, candidates, level, _ in SHARED
        if runs > 1 or looks == 1
    ],
)


@evaluated_runs
def test_held_out_losses_pass_at_the_widened_level(
    runs: int, paired: bool, looks: int, candidates: int, level: float
) -> None:
    base, cand = evaluated(1, runs, paired), evaluated(2, runs, paired)
    hi = gap_of(base, cand, paired).bounds(level)[1]
    for inside, expected in (
        (STEP, ("pass", "WITHIN_MARGIN")),
        (-STEP, ("inconclusive", "CI_STRADDLES_MARGIN")),
    ):
        runs_of = shifted(cand, MARGIN - hi - inside)
        made = document(base, runs_of, looks, candidates, paired)
        assert made["gap"]["judged"]["against_margin"] == expected[1]
        blocked = {"END_DIFFERS", "GAP_GROWING"} & set(made["codes"])
        assert (made["verdict"], made["codes"][0]) == expected or blocked


@evaluated_runs
def test_held_out_losses_fail_at_the_level_of_the_policy(
    runs: int, paired: bool, looks: int, candidates: int, level: float
) -> None:
    base, cand = evaluated(1, runs, paired), evaluated(2, runs, paired)
    lo = gap_of(base, cand, paired).bounds(NOMINAL)[0]
    for beyond, expected in (
        (STEP, ("fail", "GAP_EXCEEDS_MARGIN")),
        (-STEP, ("inconclusive", "CI_STRADDLES_MARGIN")),
    ):
        made = document(base, shifted(cand, MARGIN - lo + beyond), looks, candidates, paired)
        assert (made["verdict"], made["codes"][0]) == expected


@evaluated_runs
def test_held_out_losses_are_better_at_the_level_of_the_policy(
    runs: int, paired: bool, looks: int, candidates: int, level: float
) -> None:
    base, cand = evaluated(1, runs, paired), evaluated(2, runs, paired)
    hi = gap_of(base, cand, paired).bounds(NOMINAL)[1]
    for beyond, better in ((-STEP, True), (STEP, False)):
        made = document(base, shifted(cand, -MARGIN - hi + beyond), looks, candidates, paired)
        assert (made["gap"]["judged"]["against_margin"] == "BETTER_THAN_BASELINE") == better


@evaluated_runs
def test_a_two_sided_pass_of_held_out_losses_needs_both_ends_at_the_widened_level(
    runs: int, paired: bool, looks: int, candidates: int, level: float
) -> None:
    base, cand = evaluated(1, runs, paired), evaluated(2, runs, paired)
    lo = gap_of(base, cand, paired).bounds(level)[0]
    for inside, code in ((STEP, "WITHIN_MARGIN"), (-STEP, "CI_STRADDLES_MARGIN")):
        moved = shifted(cand, -MARGIN - lo + inside)
        made = document(base, moved, looks, candidates, paired, two_sided=True)
        assert made["gap"]["judged"]["against_margin"] == code


def test_candidates_of_held_out_losses_share_the_error_of_a_pass_alone() -> None:
    """Twelve that are judged together, where one alone would pass, and would fail."""
    base, cand = evaluated(1, 1, False), evaluated(2, 1, False)
    gap = gap_of(base, cand, False)
    wide = gap.bounds(1.0 - 0.05 / 12)[1]
    lo = gap.bounds(NOMINAL)[0]
    for shift, code in (
        (MARGIN - wide - STEP, "WITHIN_MARGIN"),
        (MARGIN - wide + STEP, "CI_STRADDLES_MARGIN"),
        (MARGIN - lo - STEP, "CI_STRADDLES_MARGIN"),
        (MARGIN - lo + STEP, "GAP_EXCEEDS_MARGIN"),
    ):
        runs = shifted(cand, shift)
        together = EvaluationCase(
            baseline=base,
            candidates={f"c{number}": runs for number in range(12)},
            policy=policy(),
            baseline_name="b",
            planned_steps=PLAN,
        )
        assert {made["codes"][0] for made in together.documents()} == {code}


@pytest.mark.parametrize("candidates", [1, 12])
def test_the_bands_of_all_points_hold_together(candidates: int) -> None:
    """Of 10 points each band has a tenth of the error of its candidate."""
    base, cand = evaluated(1, 1, False), evaluated(2, 1, False)
    made = document(base, cand, 1, candidates, False)
    alone = [dataclasses.replace(run, steps=run.steps[-1:], loss=run.loss[-1:]) for run in base]
    others = [dataclasses.replace(run, steps=run.steps[-1:], loss=run.loss[-1:]) for run in cand]
    level = 1.0 - 0.05 / candidates / len(EVALUATED)
    measured = case(alone, others, 1, candidates, False).measured("c")[0].over_runs
    width = made["curve"]["hi"][-1] - made["curve"]["lo"][-1]
    slack = sum(case(base, cand, 1, 1, False).measured("c")[0].steps_printed)
    slack -= sum(case(alone, others, 1, 1, False).measured("c")[0].steps_printed)
    lo, hi = measured.bounds(level)
    assert width == pytest.approx(hi - lo + slack)
