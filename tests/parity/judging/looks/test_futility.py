import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity import Criteria, Curve, criteria_from_mapping
from parity.judging.looks.futility import EarlyStop, Look, early_stop, early_stop_from_mapping, look, observe

POLICY = criteria_from_mapping({"margin": "1%"})


def stopped_at(base: np.ndarray, cand: np.ndarray, planned: int, policy: Criteria = POLICY, recipe: str | None = "mxfp8") -> int | None:
    state = early_stop(planned)
    for left, right in zip(base, cand, strict=True):
        state = observe(state, float(left), float(right))
        seen = look(state, policy, baseline_recipe="fp8_current", candidate_recipe=recipe)
        if seen and seen.hopeless:
            return seen.step
    return None


def feed(base: np.ndarray, cand: np.ndarray, planned: int) -> EarlyStop:
    state = early_stop(planned)
    for left, right in zip(base, cand, strict=True):
        state = observe(state, float(left), float(right))
    return state


def test_slow_twin() -> None:
    rng = np.random.default_rng(0)
    base, gap = 3.0 + rng.normal(0, 0.1, 300), rng.normal(0.2, 0.02, 300)
    seen = look(feed(base, base + gap, 2000), POLICY, baseline_rounding="nearest", candidate_rounding="nearest")
    assert seen is not None
    blocks = [np.mean(gap[100 + 10 * i : 110 + 10 * i]) for i in range(20)]
    level = np.mean(base[100:])
    quantile = student.ppf(1 - 0.01 / 180, 19)
    run = 3 * math.sqrt(2) * 0.0008 * level
    assert seen.mean == pytest.approx(np.mean(blocks))
    assert seen.lower == pytest.approx(np.mean(blocks) - 1.5 * quantile * np.std(blocks, ddof=1) / math.sqrt(20) - run)
    assert seen.limit == pytest.approx(3 * 0.01 * level)


def test_a10_real_reruns_are_never_stopped_up_to_two_percent_and_always_at_five(reruns: tuple[Curve, ...]) -> None:
    for base, cand in itertools.islice(itertools.permutations(reruns, 2), 0, 42, 5):
        level = base.loss[1400:].mean()
        for share in (0.0, 0.01, 0.02):
            assert stopped_at(base.loss, cand.loss + share * level, 1750) is None
        step = stopped_at(base.loss, cand.loss + 0.08 * base.loss, 1750)
        assert step is not None
        assert step < 875


def test_looks_come_every_ten_steps_from_a_tenth_of_the_plan_on() -> None:
    state, steps = early_stop(3000), []
    for step in range(1, 401):
        state = observe(state, 3.0, 3.5)
        if look(state, POLICY) is not None:
            steps.append(step)
    assert steps == list(range(300, 401, 10))


def test_the_state_is_small_and_survives_json() -> None:
    rng = np.random.default_rng(1)
    base = 3.0 + rng.normal(0, 0.1, 1015)
    state = feed(base, base + 0.2, 5000)
    again = early_stop_from_mapping(json.loads(json.dumps(state.document())))
    assert again == state
    assert len(json.dumps(state.document())) < 2000
    assert observe(again, 3.0, 3.2) == observe(state, 3.0, 3.2)


def test_a_stochastic_candidate_gets_more_room() -> None:
    state = feed(np.full(300, 3.0), np.full(300, 3.11), 1000)
    assert look(state, POLICY, baseline_recipe="fp8_current", candidate_recipe="mxfp8").hopeless
    assert not look(state, POLICY, baseline_recipe="fp8_current", candidate_recipe="nvfp4").hopeless
    assert not look(state, POLICY, baseline_recipe="fp8_current").hopeless


def test_non_finite_steps_are_left_out_and_a_noise_floor_gives_no_look() -> None:
    state = early_stop(1000)
    for value in (math.nan, math.inf, -math.inf, 1e300):
        assert observe(state, 3.0, value) == state
    floor = criteria_from_mapping({"profile": "noise-floor"})
    assert look(feed(np.full(300, 3.0), np.full(300, 9.0), 1000), floor) is None
    with pytest.raises(ValueError, match="planned_steps is 0"):
        early_stop(0)


def test_the_sentence_has_the_numbers() -> None:
    seen = Look(hopeless=True, step=1200, mean=0.25, lower=0.2, limit=0.1)
    assert seen.sentence == "hopeless after 1,200 paired steps: gap +0.2500 nats, lower bound +0.2000, limit 0.1000"
