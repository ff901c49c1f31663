"""What blocks a pass although the interval at the last point is within the margin, and that honest
arms are not blocked.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import policy_from_mapping
from parity.report.formats.junit import render_junit
from tests.conftest import some

POINTS = np.arange(1, 21)
STEPS = POINTS * 500
LAW = 3.0 + 2.0 * np.exp(-STEPS / 800.0)


def arm(seed: int, runs: int, gap: float = 0.0, sd: float = 0.004) -> list[Curve]:
    """Runs of one spread, seeds 0, 1, ..."""
    rng = np.random.default_rng(seed)
    losses = [LAW + gap + rng.normal(0, sd) + rng.normal(0, sd / 4, len(LAW)) for _ in range(runs)]
    return [
        curve_from_arrays(STEPS, loss, label=f"{seed}-{n}", seed=n) for n, loss in enumerate(losses)
    ]


def changed(runs: list[Curve], change: np.ndarray) -> list[Curve]:
    return [
        curve_from_arrays(run.steps, run.loss + change, label=run.label, seed=run.seed)
        for run in runs
    ]


def without(run: Curve, *points: int) -> Curve:
    """The run without its evaluations of these numbers, from 1."""
    kept = ~np.isin(POINTS, points)
    return curve_from_arrays(run.steps[kept], run.loss[kept], label=run.label, seed=run.seed)


def judged(
    baseline: list[Curve],
    candidate: list[Curve],
    policy: dict[str, Any] | None = None,
    **asked: Any,
) -> EvaluationDocument:
    case = EvaluationCase(
        baseline=baseline,
        candidates={"nvfp4": candidate},
        policy=policy_from_mapping({"schedule": "decayed", **(policy or {"margin": "1.0%"})}),
        baseline_name="fp8",
        **{"planned_steps": 10_000, **asked},
    )
    return case.documents()[0]


def codes(document: EvaluationDocument) -> tuple[str, str]:
    return document["verdict"], document["codes"][0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (np.where(POINTS == 19, 4.0, 0.0), ("fail", "GAP_EXCEEDS_MARGIN")),
        (np.where(POINTS == 17, 0.04, 0.0), ("inconclusive", "END_DIFFERS")),
        (np.where(POINTS < 20, 0.1, 0.0), ("fail", "GAP_EXCEEDS_MARGIN")),
        (0.02 * np.clip((POINTS - 17) / 3, 0, 1), ("inconclusive", "GAP_GROWING")),
        (-0.3 + 0.3 * (POINTS / 20.0) ** 3, ("inconclusive", "BETTER_THAN_BASELINE")),
        (-0.06 + 0.06 * (POINTS / 20.0) ** 3, ("inconclusive", "GAP_GROWING")),
    ],
)
def test_one_good_point_is_no_pass(change: np.ndarray, expected: tuple[str, str]) -> None:
    assert codes(judged(arm(1, 6), arm(2, 6))) == ("pass", "WITHIN_MARGIN")
    assert codes(judged(arm(1, 6), changed(arm(2, 6), change))) == expected


def test_a_baseline_whose_last_point_is_bad_hides_no_gap() -> None:
    baseline = changed(arm(1, 6), np.where(POINTS == 20, 0.1, 0.0))
    assert codes(judged(baseline, arm(2, 6, 0.1))) == ("fail", "GAP_EXCEEDS_MARGIN")
    assert (
        codes(judged(changed(arm(1, 6), np.where(POINTS > 17, 0.1, 0.0)), arm(2, 6, 0.1)))[0]
        == "inconclusive"
    )


def test_a_spike_that_is_over_before_the_last_fifth_blocks_nothing() -> None:
    assert codes(judged(arm(1, 6), changed(arm(2, 6), np.where(POINTS == 8, 2.0, 0.0)))) == (
        "pass",
        "WITHIN_MARGIN",
    )


def test_a_late_evaluation_that_one_run_lacks() -> None:
    candidate = arm(2, 6)
    for points in ((19,), (17, 18)):
        assert codes(judged(arm(1, 6), [without(candidate[0], *points), *candidate[1:]])) == (
            "inconclusive",
            "DOWNSAMPLED",
        )
    assert codes(judged(arm(1, 6), [without(run, 18) for run in candidate])) == (
        "inconclusive",
        "DOWNSAMPLED",
    )


@pytest.mark.parametrize("lacking", [(3,), tuple(range(1, 20, 2))])
def test_early_holes_and_a_longer_interval_of_one_arm_block_nothing(
    lacking: tuple[int, ...],
) -> None:
    assert codes(judged(arm(1, 6), [without(run, *lacking) for run in arm(2, 6)])) == (
        "pass",
        "WITHIN_MARGIN",
    )


@pytest.mark.parametrize("plan", [1, 5_000, 9_500])
def test_a_plan_that_runs_go_far_beyond_is_not_theirs(plan: int) -> None:
    assert codes(judged(arm(1, 6), arm(2, 6), planned_steps=plan)) == (
        "inconclusive",
        "BEYOND_PLAN",
    )


def test_rounding_that_can_cross_the_margin() -> None:
    def rounded(runs: list[Curve], decimals: int) -> list[Curve]:
        return [
            curve_from_arrays(run.steps, np.round(run.loss, decimals), label=run.label)
            for run in runs
        ]

    baseline, candidate = arm(1, 8, 0.004, sd=0.006), arm(2, 8, 0.02, sd=0.006)
    assert codes(judged(rounded(baseline, 2), rounded(candidate, 2))) == (
        "inconclusive",
        "CI_STRADDLES_MARGIN",
    )
    assert codes(judged(rounded(baseline, 4), rounded(candidate, 4))) == ("pass", "WITHIN_MARGIN")


def test_a_margin_of_fewer_than_four_printed_steps_is_no_share() -> None:
    """1 % of 3 nats are 3 steps of 0.01: neither a pass nor a number without meaning; a gap of many
    steps still fails.
    """
    arms = [
        [
            curve_from_arrays(run.steps, np.round(run.loss, 2), label=run.label)
            for run in arm(seed, 8, sd=0.01)
        ]
        for seed in (1, 3)
    ]
    assert codes(judged(*arms)) == ("inconclusive", "ROUNDED")
    absolute = {
        "margin": "0.03 nats",
        "baseline_run_noise": "0.003 nats",
        "candidate_run_noise": "0.003 nats",
    }
    assert codes(judged(arms[0], arms[1], absolute))[0] == "pass"
    assert codes(judged(arms[0], changed(arms[1], np.full(20, 0.2))))[0] == "fail"


def test_a_run_without_a_partner_does_not_vanish() -> None:
    candidate = arm(2, 6)
    bad = dataclasses.replace(changed(candidate, np.full(20, 0.5))[5], seed=77)
    assert codes(judged(arm(1, 6), candidate[:5], paired=True)) == ("pass", "WITHIN_MARGIN")
    assert codes(judged(arm(1, 6), [*candidate[:5], bad], paired=True)) == (
        "inconclusive",
        "RUNS_UNPAIRED",
    )


def test_junit_has_an_error_for_what_blocks_a_pass() -> None:
    candidate = arm(2, 6)
    alone = [*candidate[:5], dataclasses.replace(candidate[5], seed=77)]
    late = changed(candidate, np.where(POINTS == 19, 0.06, 0.0))
    for document in (judged(arm(1, 6), alone, paired=True), judged(arm(1, 6), late)):
        assert f'<error message="{document["codes"][0]}: ' in render_junit([document])


def test_every_run_of_a_seed_counts() -> None:
    candidate = arm(2, 6)
    again = [
        dataclasses.replace(run, seed=n)
        for n, run in enumerate(changed(arm(3, 6), np.full(20, 0.2)))
    ]
    gap = judged(arm(1, 6), [*candidate, *again], paired=True)["gap"]["over_runs"]
    assert gap is not None
    assert gap["mean"] == pytest.approx(0.1, abs=0.01)
    assert gap["df"] == 9.0  # 5 of the 6 gaps, 4 of what is assumed


@pytest.mark.parametrize(
    "change", [lambda run: np.round(run.loss, 3), lambda run: np.round(run.loss + 0.004, 3)]
)
def test_copies_of_the_baseline_with_3_decimals(change: Callable[[Curve], np.ndarray]) -> None:
    baseline = arm(1, 4)
    candidate = [
        curve_from_arrays(run.steps, change(run), label=f"new {run.label}") for run in baseline
    ]
    assert judged(baseline, candidate)["codes"][0] == "ARMS_IDENTICAL"


def test_independent_runs_of_which_one_arm_has_3_decimals() -> None:
    candidate = [
        curve_from_arrays(run.steps, np.round(run.loss, 3), label=run.label) for run in arm(2, 6)
    ]
    assert codes(judged(arm(1, 6), candidate)) == ("pass", "WITHIN_MARGIN")


def test_a_noise_floor_above_1_percent_is_no_margin() -> None:
    policy = {"profile": "noise-floor"}
    diverging = [*changed(arm(1, 4)[:1], np.full(20, 3.0)), *arm(1, 6)[1:]]
    assert codes(judged(diverging, arm(2, 6, 1.2), policy)) == (
        "inconclusive",
        "MARGIN_UNDETERMINED",
    )
    assert codes(judged(arm(1, 8), arm(2, 8), policy))[0] == "pass"


def test_a_quantity_that_rises_is_no_loss() -> None:
    baseline, candidate = (
        [
            curve_from_arrays(STEPS, 1.0 - run.loss / 10.0, label=run.label)
            for run in arm(seed, 6, sd=0.01)
        ]
        for seed in (1, 2)
    )
    assert codes(judged(baseline, candidate, {"margin": "5%"})) == ("inconclusive", "LOSS_NOT_NATS")


def test_honest_arms_pass() -> None:
    passed = sum(
        codes(judged(arm(2 * trial, 5, 0.0), arm(2 * trial + 1, 5, 0.005)))[0] == "pass"
        for trial in range(some(40))
    )
    assert passed == some(40)
