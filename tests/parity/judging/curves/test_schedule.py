"""How steep is a loss, and is a training finished? Each limit, from both sides."""

from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.schedule import log_slope, schedule_state
from parity.judging.curves.window import plan_window
from parity.judging.policy import Policy

STEPS = 1000
AT = np.arange(STEPS)


def rated(rate: Any, steps: Any = AT, loss: float = 3.0) -> Curve:
    at = np.asarray(steps)
    rates = np.broadcast_to(np.asarray(rate, dtype=float), len(at))
    return curve_from_arrays(
        at, np.broadcast_to(loss, len(at)), columns={"learning_rate": rates}, label="r"
    )


def decayed(end: float, last: float = 0.5, points: int = STEPS) -> Curve:
    """A constant rate that falls over the last half to this share of its peak and stays there."""
    at = np.linspace(0.0, 1.0, points)
    fall = np.clip((at - (1.0 - last)) / (0.6 * last), 0.0, 1.0)
    return rated(1.0 + (end - 1.0) * fall, np.linspace(0, STEPS - 1, points).astype(int))


def falling(first: int = 2, start: float | None = None, slope: float = 0.1) -> float:
    """The slope of a log from a step on, whose first loss may be another one."""
    steps = np.arange(first, 1001)
    loss = 3.0 - 3.0 * slope * np.log(steps / 1000.0)
    level = float(loss[steps >= 800].mean())
    if start is not None:
        loss[0] = start * level
    return log_slope(steps, loss, loaded=False) * level / 3.0


@pytest.mark.parametrize(("first", "slope"), [(100, 0.1), (200, 0.1), (201, 0.2), (400, 0.2)])
def test_a_log_that_begins_after_a_fifth_of_its_steps_counts_twice(
    first: int, slope: float
) -> None:
    assert falling(first) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(("first", "unknown"), [(50, True), (51, False)])
def test_a_log_from_the_start_that_begins_low_may_be_cut(first: int, unknown: bool) -> None:
    """Its slope is then taken to be a fifth at least."""
    steps = np.arange(first, 1001)
    loss = 3.0 - 0.003 * np.log(steps / 1000.0)
    found = log_slope(steps, loss, loaded=False)
    assert found == (pytest.approx(0.2) if unknown else pytest.approx(0.001, rel=0.01))
    assert log_slope(steps, loss, loaded=True) == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize(("start", "unknown"), [(1.299, True), (1.301, False)])
def test_a_loss_from_scratch_begins_at_1_3_times_its_end(start: float, unknown: bool) -> None:
    steps = np.arange(1, 1001)
    loss = 3.0 - 0.003 * np.log(steps / 1000.0)
    loss[0] = start * float(loss[799:].mean())
    found = log_slope(steps, loss, loaded=False)
    assert found == (pytest.approx(0.2) if unknown else pytest.approx(0.001, rel=0.01))


def test_a_steeper_log_that_may_be_cut_keeps_its_slope() -> None:
    steps = np.arange(50, 1001)
    for slope, expected in ((0.19, 0.2), (0.22, 0.22)):
        loss = 3.0 - 3.0 * slope * np.log(steps / 1000.0)
        loss[0] = 3.0
        level = float(loss[steps >= 800].mean())
        found = log_slope(steps, loss, loaded=False)
        own = slope * 3.0 / level
        assert found == pytest.approx(max(own, expected if expected == 0.2 else own), rel=1e-3)


@pytest.mark.parametrize(("points", "known"), [(2, False), (3, True)])
def test_a_slope_needs_three_points(points: int, known: bool) -> None:
    steps = np.array([700, 850, 1000])[-points:]
    loss = 5.0 - 0.3 * np.log(steps / 1000.0)
    assert (log_slope(steps, loss, loaded=True) == 0.2) != known


def test_the_slope_is_that_of_the_last_four_fifths() -> None:
    """What was trained before a fifth of the last step counts for nothing."""
    steps = np.arange(1, 1001)
    loss = np.where(steps < 200, 9.0, 3.0 - 0.3 * np.log(steps / 1000.0))
    level = float(loss[steps >= 800].mean())
    assert log_slope(steps, loss, loaded=False) == pytest.approx(0.3 / level, rel=1e-6)
    loss[199] = 9.0  # step 200
    assert log_slope(steps, loss, loaded=False) != pytest.approx(0.3 / level, rel=1e-6)


@pytest.mark.parametrize(
    ("end", "stated", "plan", "finished"),
    [
        (0.1999, False, 1000, True),
        (0.2001, False, 1000, False),
        (0.2001, True, 1000, False),
        (None, True, 1000, True),
        (None, False, 1000, False),
        (0.1, False, None, False),
        (0.1, False, 1005, True),  # half a percent may be missing
        (0.1, False, 1006, False),
    ],
)
def test_a_training_is_finished(
    end: float | None, stated: bool, plan: int | None, finished: bool
) -> None:
    if end is None:
        run = curve_from_arrays(AT, np.full(STEPS, 3.0))
    else:
        run = decayed(end)
    window = plan_window([run], plan, False, 0.2)
    policy = Policy(margin="1%", schedule="decayed" if stated else "unstated")
    state = schedule_state(([run], [run]), window, policy, 0.1)
    assert state.finished == finished
    assert state.assumed_slope == (None if finished else 0.1)
