import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.curves.window import (
    decay_phase,
    drift,
    make_window,
    ols_change,
    plan_window,
    planned_share,
)


def run(first: int, last: int, stride: int = 1):
    steps = np.arange(first, last + 1, stride)
    return curve_from_arrays(steps, np.ones(len(steps)))


@pytest.mark.parametrize(("first", "last"), [(0, 1499), (1, 1500)])
def test_the_last_fifth_of_1500_steps_is_300_steps_from_either_origin(
    first: int, last: int
) -> None:
    window = plan_window([run(first, last)], 1500, False, 0.2)
    assert (window.first, window.last) == (last - 299, last)
    assert window.plan == "declared"
    assert planned_share([run(first, last)], window) == 1.0


def test_a_file_that_begins_late_does_not_move_the_window() -> None:
    assert plan_window([run(100, 1499)], 1500, False, 0.2).last == 1500
    assert plan_window([run(100, 1499), run(0, 1499)], 1500, False, 0.2).last == 1499


def test_without_a_plan_the_longest_run_is_the_plan_and_it_is_marked() -> None:
    runs = [run(0, 1999), run(0, 1399)]
    for assumed, source in ((True, "assumed complete"), (False, "unknown")):
        window = plan_window(runs, None, assumed, 0.2)
        assert (window.planned_steps, window.plan) == (2000, source)
    assert planned_share(runs, window) == pytest.approx(0.7)


def test_nothing_at_all_is_a_window_too() -> None:
    window = plan_window([curve_from_arrays([], [])], None, False, 0.2)
    assert window.part(np.empty(0, np.int64)) == slice(0, 0)
    assert planned_share([curve_from_arrays([], [])], window) == 0.0


@given(st.integers(1, 10_000), st.floats(0.01, 1.0), st.integers(0, 1))
def test_a_window_has_its_share_of_the_planned_steps(
    planned: int, fraction: float, origin: int
) -> None:
    window = make_window(planned, origin, fraction, "declared")
    assert window.last - window.first + 1 == max(1, round(fraction * planned))
    assert window.last == origin + planned - 1


def test_ols_change_twin() -> None:
    rng = np.random.default_rng(0)
    steps = np.sort(rng.choice(5000, 200, replace=False)).astype(np.int64)
    y = rng.normal(size=200) + 0.001 * steps
    slope = np.polyfit(steps.astype(float), y, 1)[0]
    assert ols_change(y, steps) == pytest.approx(slope * (steps[-1] - steps[0]), rel=1e-9)
    assert ols_change(np.array([1.0]), np.array([4])) == 0.0


def test_drift_error_of_white_noise_is_that_of_least_squares() -> None:
    n, steps = 4000, np.arange(4000)
    errors, changes = [], []
    for seed in range(40):
        change, se = drift(np.random.default_rng(seed).normal(size=n), steps)
        changes.append(change)
        errors.append(se)
    assert np.mean(errors) == pytest.approx(np.sqrt(12 / n), rel=0.15)
    assert np.std(changes) == pytest.approx(np.sqrt(12 / n), rel=0.35)
    assert drift(np.ones(5), np.arange(5)) == (0.0, 0.0)


def with_rate(rate: np.ndarray):
    return curve_from_arrays(
        np.arange(len(rate)), np.ones(len(rate)), columns={"learning_rate": rate}
    )


def test_a_decay_that_starts_inside_the_window_is_judged_alone() -> None:
    window = make_window(2000, 0, 0.2, "declared")
    steps = np.arange(2000)
    late_decay = np.where(steps < 1750, 1.0, 1.0 - (steps - 1750) / 250)
    decay = decay_phase(window, with_rate(late_decay), 200)
    assert (decay.first, decay.last, decay.decay_from) == (1751, 1999, 1751)
    assert "decay phase from step 1751" in decay.rule


@pytest.mark.parametrize("kind", ["cosine", "constant", "short decay", "no rate", "nan"])
def test_other_schedules_keep_the_window(kind: str) -> None:
    window, steps = make_window(2000, 0, 0.2, "declared"), np.arange(2000)
    rates = {
        "cosine": 0.5 + 0.5 * np.cos(np.pi * steps / 2000),
        "constant": np.ones(2000),
        "short decay": np.where(steps < 1900, 1.0, 0.5),
        "nan": np.where(steps < 1750, 1.0, np.nan),
    }
    item = with_rate(rates[kind]) if kind in rates else run(0, 1999)
    assert decay_phase(window, item, 200) == window
