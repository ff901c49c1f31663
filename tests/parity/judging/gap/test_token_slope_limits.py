"""Which runs give a slope: each limit, from both sides."""

import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.window import make_window
from parity.judging.gap.token_slope import NoSlope, TokenSlope, token_slope
from parity.judging.policy import Policy

TAU, LEVEL = 1e-4, 3.0


def decayed(steps: int, loss: float, logged: int | None = None) -> Curve:
    """A shorter run at one loss whose cosine came to its end."""
    rate = 0.5 * (1.0 + np.cos(np.pi * np.arange(steps) / steps))
    every = 1 if logged is None else max(1, steps // logged)
    at = slice((steps - 1) % every, None, every)
    return curve_from_arrays(
        np.arange(steps)[at],
        np.full(steps, loss)[at],
        columns={"learning_rate": rate[at]},
    )


def slope(runs: list[Curve], tau: float = TAU, steps: int = 2000) -> TokenSlope | NoSlope:
    policy = Policy(margin="5% tokens")
    window = make_window(steps, 0, 0.2, "declared")
    return token_slope(policy, runs, [], window, LEVEL, tau)


@pytest.mark.parametrize(
    ("steps", "is_known"), [(499, False), (500, True), (1000, True), (1001, False)]
)
def test_a_shorter_run_has_a_quarter_to_a_half_of_the_steps(steps: int, is_known: bool) -> None:
    assert isinstance(slope([decayed(steps, 3.2)]), TokenSlope) == is_known


def test_the_slope_of_a_shorter_run_is_that_of_a_square_root() -> None:
    made = slope([decayed(500, 3.2)])
    assert isinstance(made, TokenSlope)
    assert made.nats == pytest.approx(0.5 * 0.2 / (4.0**0.5 - 1.0))
    assert made.error == pytest.approx(0.5 / (4.0**0.5 - 1.0) * TAU * math.sqrt(2.0))


@pytest.mark.parametrize(("share", "is_known"), [(0.2499, True), (0.2501, False)])
def test_a_slope_is_refused_where_its_error_is_above_a_quarter(
    share: float, is_known: bool
) -> None:
    tau = share * 0.2 / math.sqrt(2.0)  # of a slope of 0.1 the error is 0.5 tau sqrt(2)
    assert isinstance(slope([decayed(500, 3.2)], tau), TokenSlope) == is_known


@pytest.mark.parametrize(("fall", "is_known"), [(1e-9, True), (0.0, False)])
def test_a_shorter_run_ends_above_the_baseline(fall: float, is_known: bool) -> None:
    made = slope([decayed(500, LEVEL + fall)], tau=0.0)
    assert isinstance(made, TokenSlope) == is_known


@pytest.mark.parametrize(("points", "is_known"), [(5, False), (6, True)])
def test_a_shorter_run_has_six_points_in_its_late_window(points: int, is_known: bool) -> None:
    """Logged at so many steps of its last 100, and often before."""
    steps = np.append(np.arange(0, 400, 10), np.linspace(409, 499, points).astype(int))
    rate = 0.5 * (1.0 + np.cos(np.pi * steps / 500))
    run = curve_from_arrays(steps, np.full(len(steps), 3.2), columns={"learning_rate": rate})
    assert isinstance(slope([run]), TokenSlope) == is_known


def test_shorter_runs_have_one_length() -> None:
    assert isinstance(slope([decayed(500, 3.2), decayed(500, 3.3)]), TokenSlope)
    assert isinstance(slope([decayed(500, 3.2), decayed(501, 3.2)]), NoSlope)


@pytest.mark.parametrize(("points", "is_known"), [(5, False), (6, True)])
def test_a_constant_rate_needs_six_points_in_the_last_half(points: int, is_known: bool) -> None:
    steps = np.append(np.arange(0, 1000, 20), np.linspace(1000, 1999, points).astype(int))
    loss = 2.0 + 30.0 * (steps + 1.0) ** -0.5
    run = curve_from_arrays(steps, loss, columns={"learning_rate": np.ones(len(steps))})
    window = make_window(2000, 0, 0.2, "declared")
    made = token_slope(Policy(margin="5% tokens"), [], [run], window, LEVEL, 0.0)
    assert isinstance(made, TokenSlope) == is_known
    if isinstance(made, TokenSlope):
        assert made.nats == pytest.approx(0.5 * 30.0 * 2000**-0.5, rel=1e-6)


def logged(steps: object) -> Curve:
    at = np.array(steps, dtype=np.int64)
    return curve_from_arrays(at, np.full(len(at), 3.0))
