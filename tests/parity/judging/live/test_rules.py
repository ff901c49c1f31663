import itertools
import json

import numpy as np
import pytest

from parity.judging.curves.curve import Curve
from parity.judging.live.forecast_words import sentence
from parity.judging.live.pair_sums import BLOCKS, PairProgress, begin, observe
from parity.judging.live.prediction import predict
from parity.judging.live.rules import (
    ENDED_BY,
    FIRST_FORECAST,
    Forecast,
    due_forecasts,
    forecast_at,
    state_of,
)
from parity.judging.live.run_noise import LiveArm
from parity.judging.policy import policy_from_mapping

POLICY = policy_from_mapping({"margin": "1%"})
LOOKS = [(block,) for block in range(8, 81, 2)]
NEAREST, STOCHASTIC = LiveArm(rounding="nearest"), LiveArm(rounding="stochastic")


def pair(gap: float | np.ndarray, seed: int = 0) -> PairProgress:
    rng = np.random.default_rng(seed)
    steps = np.arange(1, 10 * BLOCKS + 1)
    base = np.full(len(steps), 3.0)
    return observe(
        begin(len(steps)),
        steps,
        base,
        base + np.broadcast_to(gap, len(steps)) + 0.003 * rng.normal(size=len(steps)),
    )


def states(
    whole: PairProgress, arms: tuple[LiveArm, LiveArm] = (NEAREST, NEAREST)
) -> dict[int, str]:
    made = {
        block: predict([(whole.until(block), block == BLOCKS)], 1, arms, POLICY)
        for (block,) in LOOKS
    }
    return {
        block: state_of(prediction) for block, prediction in made.items() if prediction is not None
    }


def stopped_at(
    whole: PairProgress, arms: tuple[LiveArm, LiveArm] = (NEAREST, NEAREST)
) -> float | None:
    return next(
        (block / BLOCKS for block, state in states(whole, arms).items() if state in ENDED_BY), None
    )


def test_looks_come_every_fortieth_of_the_plan_from_a_tenth_on() -> None:
    assert list(due_forecasts([0], [BLOCKS], 1)) == LOOKS
    assert list(due_forecasts([0], [FIRST_FORECAST - 1], 1)) == []
    assert list(due_forecasts([10], [13], 1)) == [(12,)]
    assert list(due_forecasts([12], [13], 1, ended=True)) == [(13,)]
    assert list(due_forecasts([13], [13], 1, ended=True)) == []


def test_pairs_that_train_in_step_or_one_after_the_other_have_the_same_number_of_looks() -> None:
    assert list(due_forecasts([0, 0], [9, 9], 2)) == [(8, 8)]
    assert list(due_forecasts([0, 0], [80, 80], 2)) == [(block, block) for (block,) in LOOKS]
    one_by_one = [*due_forecasts([0], [80], 2), *due_forecasts([80, 0], [80, 80], 2)]
    assert len(one_by_one) == len(LOOKS)
    assert one_by_one[0] == (16,)
    assert one_by_one[-1] == (80, 80)
    assert list(due_forecasts([40, 10], [40, 13], 2)) == [(40, 12)]


def test_a_gap_far_above_the_margin_will_fail_before_half() -> None:
    at = stopped_at(pair(0.09))
    assert at is not None
    assert at < 0.5
    assert states(pair(0.09))[BLOCKS] == "will_fail"


def test_no_gap_is_on_course_and_never_stopped() -> None:
    assert set(states(pair(0.0)).values()) == {"on_course"}


def test_a_gap_at_the_margin_is_futile_only_late() -> None:
    seen = states(pair(0.03))
    assert seen[40] == "open"
    assert seen[78] == "futile"
    assert "will_fail" not in seen.values()


@pytest.mark.parametrize("shape", ["linear", "exponential", "step"])
def test_a_transient_is_not_stopped(shape: str) -> None:
    t = np.linspace(0.0, 1.0, 10 * BLOCKS)
    gap = {"linear": 1.0 - t, "exponential": np.exp(-t / 0.2), "step": (t < 0.15).astype(float)}[
        shape
    ]
    assert stopped_at(pair(0.06 * gap)) is None


def test_a_late_ramp_is_seen() -> None:
    t = np.linspace(0.0, 1.0, 10 * BLOCKS)
    at = stopped_at(pair(0.06 * np.clip((t - 0.6) / 0.3, 0.0, 1.0)))
    assert at is not None
    assert 0.6 < at < 1.0


def test_run_noise_that_could_explain_the_gap_stops_nothing() -> None:
    assert stopped_at(pair(0.024), (STOCHASTIC, STOCHASTIC)) is None
    assert set(states(pair(0.0), (STOCHASTIC, STOCHASTIC)).values()) <= {"open", "on_course"}


def test_real_reruns_are_never_stopped(reruns: tuple[Curve, ...]) -> None:
    for base, cand in itertools.islice(itertools.permutations(reruns, 2), 0, 42, 5):
        whole = observe(begin(1750), base.steps, base.loss, cand.loss)
        assert stopped_at(whole) is None
        assert stopped_at(observe(begin(1750), base.steps, base.loss, cand.loss + 0.12)) is not None


def test_a_look_survives_json_and_has_its_numbers_in_words() -> None:
    prediction = predict([(pair(0.09).until(40), False)], 1, (NEAREST, NEAREST), POLICY)
    assert prediction is not None
    forecast = forecast_at(prediction)
    assert Forecast(**json.loads(json.dumps(forecast.document()))) == forecast
    assert forecast.low < forecast.low_half < forecast.gap < forecast.high_half < forecast.high
    assert forecast.passes + forecast.fails + forecast.inconclusive == pytest.approx(1.0)
    words = sentence(forecast)
    assert words.startswith("Will fail")
    assert f"{forecast.gap:+.4f} nats" in words
    assert "step 400 (50 % of the plan)" in words
    assert "pass below 1 %" in words


def test_an_early_would_be_pass_is_only_on_course() -> None:
    prediction = predict([(pair(0.0).until(40), False)], 1, (NEAREST, NEAREST), POLICY)
    assert prediction is not None
    forecast = forecast_at(prediction)
    assert forecast.state == "on_course"
    assert "forecast and no verdict" in sentence(forecast)


def test_while_looks_are_left_nothing_is_futile_and_a_shared_error_widens_the_verdict() -> None:
    late = [(pair(0.03).until(78), False)]
    prediction = predict(late, 1, (NEAREST, NEAREST), POLICY)
    shared = predict(late, 1, (NEAREST, NEAREST), POLICY, confidence=0.99)
    assert prediction is not None
    assert shared is not None
    assert state_of(prediction) == "futile"
    assert state_of(prediction, looks_left=1) == "open"
    assert shared.half_width > prediction.half_width
