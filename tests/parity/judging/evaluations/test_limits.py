"""Held-out losses: each limit that decides, from both sides."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.policy import Policy, policy_from_mapping

STEPS = np.arange(1, 11) * 100
PLAN, LEVEL = 1000, 3.0


def run(loss: object, seed: int = 0, steps: Any = STEPS, label: str = "", **extra: Any) -> Curve:
    made = np.broadcast_to(np.asarray(loss, dtype=float), len(np.atleast_1d(steps)))
    return curve_from_arrays(
        steps, made, seed=seed, label=label, **{"rounding": "nearest", **extra}
    )


def falling(level: float = LEVEL, points: Any = STEPS) -> np.ndarray:
    """A training that has come down to a level, with digits enough to show no step."""
    at = np.asarray(points)
    return level * (1.0 + 0.5 * np.exp(-at / 60.0)) + 1.234567891e-5 * np.sin(at)


OWN = 1e-3 * np.array([3.0, -2.0, 4.0, -3.0, 2.0, -4.0, 0.0, 0.0, 0.0, 0.0])


def own(seed: int) -> np.ndarray:
    """What a run has of its own early in its training, so that none is a copy of another."""
    return OWN * np.random.default_rng(seed).uniform(0.5, 1.5, len(OWN))


def judged(
    baseline: Curve | list[Curve],
    candidate: Curve | list[Curve],
    policy: dict[str, Any] | None = None,
    **asked: Any,
) -> EvaluationDocument:
    base, cand = ([arm] if isinstance(arm, Curve) else arm for arm in (baseline, candidate))
    keys = {"margin": "1%", "schedule": "decayed", **(policy or {})}
    case = EvaluationCase(
        baseline=base,
        candidates={"c": cand},
        policy=policy_from_mapping(keys),
        baseline_name="b",
        **{"planned_steps": PLAN, **asked},
    )
    return case.documents()[0]


def moved(gap: float = 0.0, loss: np.ndarray | None = None, **extra: Any) -> Curve:
    return run((falling() if loss is None else loss) + OWN + gap, label="c", **extra)


def first(document: EvaluationDocument) -> tuple[str, str]:
    return document["verdict"], document["codes"][0]


PASS, FAIL = ("pass", "WITHIN_MARGIN"), ("fail", "GAP_EXCEEDS_MARGIN")


@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("candidates", [1, 12])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.000001e6])
def test_a_candidate_without_a_finite_loss_fails(runs: int, candidates: int, bad: float) -> None:
    base = [run(falling() + 1e-3 * seed, seed) for seed in range(runs)]
    cand = [run(bad, seed) for seed in range(runs)]
    case = EvaluationCase(
        baseline=base,
        candidates={f"c{number}": cand for number in range(candidates)},
        policy=Policy(margin="1%", schedule="decayed"),
        baseline_name="b",
        planned_steps=PLAN,
    )
    made = {(one["verdict"], one["codes"][0]) for one in case.documents()}
    assert made == {("fail", "NONFINITE_CAND")}
    base, cand = cand, base
    swapped = dataclasses.replace(case, baseline=base, candidates={"c": cand})
    assert first(swapped.documents()[0]) == ("inconclusive", "BASELINE_INVALID")


@pytest.mark.parametrize("at", [0, 9])
def test_one_evaluation_that_is_not_finite_fails(at: int) -> None:
    loss = falling()
    loss[at] = np.nan
    assert first(judged(run(falling()), moved(loss=loss))) == ("fail", "NONFINITE_CAND")
    assert first(judged(run(falling()), moved())) == PASS
    loss[at] = 1e6
    assert "NONFINITE_CAND" not in judged(run(falling()), run(loss))["codes"]


@pytest.mark.parametrize(
    ("at", "gap", "code"),
    [
        (790, 0.2, "WITHIN_MARGIN"),
        (800, 0.0299, "WITHIN_MARGIN"),
        (800, 0.0301, "END_DIFFERS"),
        (900, 0.0299, "WITHIN_MARGIN"),
        (900, 0.0301, "END_DIFFERS"),
        (1000, 0.0299, "GAP_GROWING"),
        (1000, 0.0301, "END_DIFFERS"),
    ],
)
def test_a_late_evaluation_at_the_margin_blocks_a_pass(at: int, gap: float, code: str) -> None:
    """Those of the last fifth of 1,000 steps; other evaluations are every 10 steps."""
    every = np.arange(10, 1001, 10)
    loss = falling(points=every)
    differs = np.where(every < 600, 0.002 * np.cos(every), 0.0) + gap * (every == at)
    found = judged(
        run(loss, steps=every), run(loss + differs, steps=every), {"margin": "0.03 nats"}
    )
    assert found["codes"][0] == code


@pytest.mark.parametrize(("last", "code"), [(0.0151, "GAP_GROWING"), (0.0149, "WITHIN_MARGIN")])
def test_a_gap_that_would_reach_the_margin_blocks_a_pass(last: float, code: str) -> None:
    """From nothing at 80 % of the steps to half the margin at the end."""
    loss = falling()
    loss[8:] += last / 2, last
    found = judged(run(falling()), moved(loss=loss), {"margin": "0.03 nats"})
    assert found["codes"][0] == code


@pytest.mark.parametrize(("rise", "is_loss"), [(0.0299, True), (0.0301, False)])
def test_a_baseline_that_rises_by_more_than_the_margin_is_no_loss(
    rise: float, is_loss: bool
) -> None:
    own = np.full(10, LEVEL) + 1.234567e-5 * np.sin(STEPS)
    own[-1] = own[0] + rise
    found = judged(run(own), run(own + 1e-4 * np.cos(STEPS)), {"margin": "0.03 nats"})
    assert ("LOSS_NOT_NATS" in found["codes"]) != is_loss


@pytest.mark.parametrize(("missing", "is_hole"), [(800, True), (700, False)])
def test_a_late_hole_of_more_than_one_and_a_half_intervals_blocks_a_pass(
    missing: int, is_hole: bool
) -> None:
    """Which ends in the last fifth of the steps."""
    keep = missing != STEPS
    cand = run((falling() + 1e-4 * np.cos(STEPS))[keep], steps=STEPS[keep])
    assert ("DOWNSAMPLED" in judged(run(falling()), cand)["codes"]) == is_hole


@pytest.mark.parametrize(("stretch", "is_hole"), [(150, False), (151, True)])
def test_an_interval_of_one_and_a_half_is_no_hole(stretch: int, is_hole: bool) -> None:
    """After step 800, where another run has an evaluation."""
    wide = np.array([*range(100, 801, 100), 800 + stretch, 1000])
    every = np.union1d(wide, np.arange(100, 1001, 50))
    base = run(falling(points=every), steps=every)
    cand = run(falling(points=wide) + OWN, steps=wide)
    assert ("DOWNSAMPLED" in judged(base, cand)["codes"]) == is_hole


@pytest.mark.parametrize(("last", "beyond"), [(1050, False), (1051, True)])
def test_a_run_that_goes_on_by_more_than_a_twentieth_of_its_plan_blocks_a_pass(
    last: int, beyond: bool
) -> None:
    steps = np.append(STEPS, last)
    base = run(falling(points=steps), steps=steps)
    cand = run(falling(points=steps) + 1e-4 * np.cos(steps), steps=steps)
    assert ("BEYOND_PLAN" in judged(base, cand)["codes"]) == beyond


@pytest.mark.parametrize(("plan", "finished"), [(1052, True), (1053, False)])
def test_a_plan_is_reached_by_nineteen_parts_of_twenty(plan: int, finished: bool) -> None:
    """Evaluated every 100 steps: one interval may be missing, but not more than 5 %."""
    found = judged(run(falling()), moved(), planned_steps=plan)
    assert ("AS_OF" in found["codes"]) != finished


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"margin": "5%"}, "WITHIN_MARGIN"),
        ({"margin": "5.001%"}, "MARGIN_WIDE"),
        ({"margin": "5.001%", "wide_margin": "accept"}, "WITHIN_MARGIN"),
    ],
)
def test_a_margin_above_a_twentieth_has_to_be_meant(policy: dict[str, Any], code: str) -> None:
    assert judged(run(falling()), moved(), policy)["codes"][0] == code


@pytest.mark.parametrize(("last", "code"), [(4.01, "WITHIN_MARGIN"), (3.99, "ROUNDED")])
def test_a_margin_is_four_printed_steps_at_least(last: float, code: str) -> None:
    """Two decimals, and one percent of a loss of about four."""
    base = np.round(falling(4.0), 2)
    base[-3:] = 4.0, 4.0, last
    found = judged(run(base), run(base + np.round(2.0 * OWN, 2)))
    assert found["codes"][0] == code


@pytest.mark.parametrize(
    ("level", "is_known"), [(0.31, True), (0.29, False), (19.9, True), (20.1, False)]
)
def test_a_relative_margin_needs_a_loss_of_0_3_to_20_nats(level: float, is_known: bool) -> None:
    found = judged(run(falling(level)), run(falling(level) + OWN * level))
    assert (found["codes"][0] == "LOSS_NOT_NATS") != is_known


@pytest.mark.parametrize(("off", "is_unit"), [(0.019, True), (0.021, False)])
@pytest.mark.parametrize("ratio", [math.log(2.0), 1.0 / math.log(2.0)])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_losses_in_bits_are_told_within_two_percent(
    ratio: float, off: float, is_unit: bool, side: float
) -> None:
    cand = run(falling() * ratio * (1.0 + side * off))
    assert ("LOSS_SCALED" in judged(run(falling()), cand)["codes"]) == is_unit


@pytest.mark.parametrize(("runs", "is_known"), [((3, 3), True), ((3, 2), False), ((5, 1), False)])
def test_noise_of_a_model_that_nobody_may_assume_is_measured_on_four_degrees(
    runs: tuple[int, int], is_known: bool
) -> None:
    small = {"context": {"parameters": "1000000"}}
    base, cand = (
        [run(falling() + own(10 * arm + k) + 1e-4 * k, **small) for k in range(number)]
        for arm, number in enumerate(runs)
    )
    found = judged(base, cand)
    assert ("RUN_NOISE_UNKNOWN" in found["codes"]) != is_known


@pytest.mark.parametrize(("spread", "is_known"), [(0.99, True), (1.01, False)])
def test_a_noise_floor_is_at_most_one_percent_of_the_loss(spread: float, is_known: bool) -> None:
    """3 sqrt(2) times the spread of four runs."""
    sd = spread * 0.01 * LEVEL / (3.0 * math.sqrt(2.0))
    offsets = sd * np.array([1.0, 1.0, -1.0, -1.0]) * math.sqrt(0.75)
    base = [run(falling() + own(k) + offset) for k, offset in enumerate(offsets)]
    policy = {"margin": None, "profile": "noise-floor"}
    found = judged(base, [run(falling() + own(8)), run(falling() + own(9))], policy)
    assert (found["margin"] is not None) == is_known
    if found["margin"]:
        assert found["margin"]["rel"] == pytest.approx(0.01 * spread, rel=0.01)


@pytest.mark.parametrize(("runs", "is_known"), [(3, False), (4, True)])
def test_a_noise_floor_needs_four_runs(runs: int, is_known: bool) -> None:
    base = [
        run(falling() + own(k) + 1e-3 * offset)
        for k, offset in enumerate((1.0, -1.0, 0.5, -0.5)[:runs])
    ]
    policy = {"margin": None, "profile": "noise-floor"}
    found = judged(base, [run(falling() + own(8)), run(falling() + own(9))], policy)
    assert (found["margin"] is not None) == is_known


@pytest.mark.parametrize(("points", "alike"), [(4, False), (5, True)])
def test_a_copy_but_for_a_constant_is_seen_from_five_points_on(points: int, alike: bool) -> None:
    at = STEPS[-points:]
    base = run(falling(points=at), steps=at)
    cand = run(np.round(falling(points=at) + 0.02, 12), steps=at)
    named = {"ARMS_IDENTICAL"} & set(judged(base, cand)["codes"])
    assert bool(named) == alike


@pytest.mark.parametrize(("apart", "alike"), [(1, True), (2, False)])
def test_one_point_of_a_copy_may_be_anothers(apart: int, alike: bool) -> None:
    cand = falling() + 0.02
    cand[4 : 4 + apart] += 0.1
    assert ("ARMS_IDENTICAL" in judged(run(falling()), run(cand))["codes"]) == alike


@pytest.mark.parametrize(("size", "alike"), [(0.99e-5, True), (1.01e-5, False)])
def test_a_copy_is_within_a_hundred_thousandth(size: float, alike: bool) -> None:
    wave = size * np.array([1.0, -1.0, 1.0, -1.0, 0.0, 0.0, 1.0, -1.0, 1.0, -1.0])
    found = judged(run(falling()), run(falling() + 0.02 + wave))
    assert ("ARMS_IDENTICAL" in found["codes"]) == alike


@pytest.mark.parametrize(("equal", "shares"), [(1, False), (2, True)])
def test_two_equal_losses_at_the_beginning_are_a_shared_start(equal: int, shares: bool) -> None:
    cand = falling() + 0.003 * np.cos(STEPS)
    cand[:equal] = falling()[:equal]
    assert ("ARMS_SHARE_START" in judged(run(falling()), run(cand))["codes"]) == shares


@pytest.mark.parametrize(("equal", "shares"), [(2, False), (3, True)])
def test_three_that_differ_by_a_constant_are_one_too(equal: int, shares: bool) -> None:
    cand = falling() + 0.003 * np.cos(7.0 * STEPS)
    cand[:equal] = falling()[:equal] + 0.02
    assert ("ARMS_SHARE_START" in judged(run(falling()), run(cand))["codes"]) == shares


@pytest.mark.parametrize(
    ("every", "off", "common"),
    [(100, 1, True), (100, -1, True), (100, 2, False), (1000, 10, True), (1000, 11, False)],
)
def test_steps_may_be_off_by_a_hundredth_of_the_interval(
    every: int, off: int, common: bool
) -> None:
    steps = every * np.arange(1, 11)
    cand = run(falling() + OWN, steps=steps + off)
    found = judged(run(falling(), steps=steps), cand, planned_steps=10 * every)
    assert ("NO_COMMON_STEPS" in found["codes"]) != common


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(("runs", "decides"), [(1, True), (2, False)])
@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"assumed_noise": "reject"}, "RUN_NOISE_ASSUMED"),
        ({"loss_unit": "other"}, "TOO_FEW_RUNS"),
    ],
)
def test_two_runs_of_each_arm_show_how_much_runs_differ(
    policy: dict[str, str], code: str, runs: int, decides: bool, arm: int
) -> None:
    arms = [[run(falling() + own(10 * side + k)) for k in range(2)] for side in range(2)]
    arms[arm] = arms[arm][:runs]
    assert (first(judged(arms[0], arms[1], policy)) == ("inconclusive", code)) == decides
