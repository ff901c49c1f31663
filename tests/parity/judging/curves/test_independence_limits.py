"""When is a run a copy or a fork of another? Each limit, from both sides."""

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.independence import (
    block_memory,
    dependence,
    is_mixture,
    last_rounding_step,
    resemblance,
    shared_start,
    starts_late,
)
from parity.judging.curves.step_noise import step_noise

POINTS = 400


def noise(seed: int, points: int = POINTS, sd: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sd, points)


def run(loss: np.ndarray, first: int = 0) -> Curve:
    return curve_from_arrays(np.arange(len(loss)) + first, loss, label="r")


LOSS = 3.0 + noise(0)


def related(x: np.ndarray, y: np.ndarray) -> str | None:
    found = dependence(run(x), run(y))
    return None if found is None else found[0]


def scaled(x: np.ndarray) -> np.ndarray:
    return 1.1 * x - 0.2


@pytest.mark.parametrize(("points", "relation"), [(7, None), (8, "equal")])
def test_runs_are_held_against_each_other_from_eight_points_on(
    points: int, relation: str | None
) -> None:
    """Equal as printed, but not to the bit."""
    x = LOSS[:points]
    assert related(x, x * (1.0 + 1e-9)) == relation
    assert (resemblance(run(x), run(x * (1.0 + 1e-9))) is not None) == (relation is not None)


@pytest.mark.parametrize(
    ("points", "differ", "equal"),
    [
        (199, 0, True),
        (199, 1, False),
        (200, 0, True),
        (200, 1, True),
        (400, 2, True),
        (400, 3, False),
    ],
)
def test_runs_are_equal_at_995_points_of_1000_from_two_hundred_on(
    points: int, differ: int, equal: bool
) -> None:
    x = 3.0 + noise(0, points)
    y = x.copy()
    y[np.linspace(3, points - 4, 3).astype(int)[:differ]] += 0.3
    assert (related(x, y) == "equal") == equal


@pytest.mark.parametrize(("off", "equal"), [(0.49, True), (0.52, False)])
def test_runs_are_equal_within_half_a_printed_step(off: float, equal: bool) -> None:
    x = np.round(LOSS, 3)
    y = x + off * 1e-3 * np.resize([1.0, -1.0], POINTS)
    assert (related(x, y) == "equal") == equal


@pytest.mark.parametrize(("points", "copy"), [(23, False), (24, True)])
def test_a_copy_is_proven_from_twenty_four_points_on(points: int, copy: bool) -> None:
    x = 3.0 + noise(0, points)
    assert (related(x, scaled(x)) == "copy") == copy


@pytest.mark.parametrize(("steps", "copy"), [(20.5, True), (19.5, False)])
def test_a_copy_is_proven_where_the_noise_is_twenty_printed_steps(steps: float, copy: bool) -> None:
    """An average over three steps, printed as coarsely as the log that it was made from."""
    base = noise(0, 2000)
    x = 3.0 + np.round(base / step_noise(base) * steps * 1e-3, 3)
    y = x + 0.05 + 0.02 * np.sin(np.arange(2000) / 300.0)
    own = step_noise(x) / 1e-3
    assert (own >= 20.0) == copy
    assert (related(np.round(x, 3), np.round(y, 3)) == "copy") == copy


def averaged(x: np.ndarray) -> np.ndarray:
    """Means of three steps, which only a filter explains."""
    return np.convolve(np.pad(x, 1, "edge"), np.full(3, 1.0 / 3.0), "valid")


def signs(points: int) -> np.ndarray:
    return np.random.default_rng(5).permutation(np.resize([1.0, -1.0], points))


@pytest.mark.parametrize(("share", "copy"), [(0.905, True), (0.895, False)])
def test_a_filter_explains_nine_points_in_ten(share: float, copy: bool) -> None:
    """The others are three times as far away as they may be."""
    x = 3.0 + noise(0, 2000)
    y = averaged(x)
    at = np.random.default_rng(2).permutation(1990)[: round((1.0 - share) * 1997)] + 4
    y[at] += 3e-3 * step_noise(y) * signs(len(at))
    assert (related(x, y) == "copy") == copy


@pytest.mark.parametrize(("times", "copy"), [(0.85, True), (1.15, False)])
def test_a_filter_is_exact_to_a_thousandth_of_the_noise(times: float, copy: bool) -> None:
    x = 3.0 + noise(0, 2000)
    y = averaged(x)
    assert (related(x, y + times * 1e-3 * step_noise(y) * signs(2000)) == "copy") == copy


@pytest.mark.parametrize(("share", "named"), [(0.0195, True), (0.0205, False)])
def test_little_noise_is_two_percent_of_that_of_the_batches(share: float, named: bool) -> None:
    x = 3.0 + noise(0, 1000)
    own = noise(1, 1000)
    own *= share * step_noise(x) / step_noise(own)
    assert step_noise(own) == pytest.approx(share * step_noise(x))
    assert (related(x, x + own) == "copy") == named


@pytest.mark.parametrize(("memory", "named"), [(2.9, True), (3.1, False)])
def test_little_noise_has_no_memory(memory: float, named: bool) -> None:
    """An offset of its own is what a rerun has: T of 3 and more."""
    x = 3.0 + noise(0, 1000)
    own = noise(1, 1000, sd=1e-3)
    low, high = 0.0, 1e-3
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if block_memory(own + middle) < memory else (low, middle)
    assert (related(x, x + own + low) == "copy") == named


@pytest.mark.parametrize(("points", "known"), [(48, False), (49, True)])
def test_a_memory_needs_five_points_in_each_of_eight_blocks(points: int, known: bool) -> None:
    """Of the last four fifths."""
    assert (block_memory(noise(0, points)) is not None) == known


@pytest.mark.parametrize(("share", "named"), [(0.0048, True), (0.0052, False)])
def test_a_smooth_change_leaves_half_a_percent_of_second_differences(
    share: float, named: bool
) -> None:
    x = 3.0 + noise(0, 1000)
    wide = 0.5 * np.sin(np.arange(1000) / 100.0)  # which no filter explains
    own = noise(1, 1000)
    y = x + wide + own * share * step_noise(x) / step_noise(own)
    assert (related(x, y) == "copy") == named


@pytest.mark.parametrize(
    ("points", "shared", "fork"),
    [(100, 9, False), (100, 10, True), (400, 19, False), (400, 20, True)],
)
def test_a_fork_shares_a_twentieth_of_its_points_and_ten_at_least(
    points: int, shared: int, fork: bool
) -> None:
    """Within rounding, though not to the bit."""
    x, y = 3.0 + noise(0, points), 3.0 + noise(1, points)
    y[:shared] = x[:shared] * (1.0 + 1e-9)
    assert shared_start(run(x), run(y)) == (shared - 1 if fork else None)
    assert (related(x, y) == "fork") == fork


@pytest.mark.parametrize(("equal", "fork"), [(9, False), (10, True)])
def test_ten_equal_points_in_a_row_are_a_fork(equal: int, fork: bool) -> None:
    x, y = LOSS, 3.0 + noise(1)
    y[200 : 200 + equal] = x[200 : 200 + equal]
    assert (related(x, y) == "fork") == fork
    named = resemblance(run(x), run(y))
    assert (named is not None) == fork


@pytest.mark.parametrize(("step", "fork"), [(1e-4, True), (2**-12, False), (1e-3, False)])
def test_equal_points_count_where_four_decimals_are_printed(step: float, fork: bool) -> None:
    x, y = (np.round(own / step) * step for own in (LOSS, 3.0 + noise(1)))
    y[200:215] = x[200:215]
    assert (related(x, y) == "fork") == fork


@pytest.mark.parametrize(("first", "late"), [(21, False), (22, True)])
def test_a_log_starts_late_after_a_twentieth_of_its_last_step(first: int, late: bool) -> None:
    """Of 400 steps more."""
    x, y = run(LOSS, first), run(3.0 + noise(1), first)
    assert starts_late(y) == late
    found = dependence(x, y)
    assert (found is not None and found[0] == "late") == late


@pytest.mark.parametrize(("steps", "named"), [(4.4, True), (3.9, False)])
def test_noise_of_four_printed_steps_shows_that_logs_are_one(steps: float, named: bool) -> None:
    base = noise(0)
    x = np.round(3.0 + base / step_noise(base) * steps * 1e-3, 3)
    assert (step_noise(x) >= 4e-3) == named
    found = resemblance(run(x), run(x + 1e-10 * np.resize([1.0, -1.0], POINTS)))
    assert (found == "equal as printed") == named


@pytest.mark.parametrize(("size", "named"), [(0.9e-6, False), (1.1e-6, True)])
def test_without_noise_of_a_millionth_of_the_loss_nothing_is_one(size: float, named: bool) -> None:
    base = noise(0)
    x = 1e-3 + base / step_noise(base) * size * 1e-3
    found = resemblance(run(x), run(x + 1e-14))
    assert (found == "equal as printed") == named


def mixture(own: float, points: int = 1000) -> tuple[Curve, list[Curve]]:
    """The mean of two runs, and noise of its own whose share of the differences is given."""
    one, two = noise(1, points, 0.01), noise(2, points, 0.01)
    batch = 3.0 + noise(0, points)
    others = [run(batch + one), run(batch + two)]
    extra = noise(3, points, 0.01)

    def made(size: float) -> tuple[float, Curve]:
        mixed = run(batch + 0.5 * one + 0.5 * two + size * extra)
        late = [row.loss[points // 2 :] for row in (mixed, *others)]
        changes = [np.diff(row - late[1], 2) for row in late]
        basis = changes[2][:, None]
        residual = changes[0] - basis @ np.linalg.lstsq(basis, changes[0], rcond=None)[0]
        return float(residual.std() / changes[0].std()), mixed

    low, high = 0.0, 10.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if made(middle)[0] < own else (low, middle)
    return made(low)[1], others


@pytest.mark.parametrize(("own", "mixed"), [(0.0999, True), (0.1001, False)])
def test_a_mixture_has_less_than_a_tenth_of_its_own(own: float, mixed: bool) -> None:
    target, others = mixture(own)
    assert is_mixture(target, others) == mixed


@pytest.mark.parametrize(("points", "known"), [(58, False), (59, True), (60, True)])
def test_a_mixture_is_looked_for_with_ten_points_a_run_in_the_last_half(
    points: int, known: bool
) -> None:
    target, others = mixture(0.01, points)
    assert (is_mixture(target, others) is not None) == known
    assert is_mixture(target, others[:1]) is False


@pytest.mark.parametrize(("whole", "seen"), [(614, True), (613, False)])
def test_the_last_1024_losses_show_their_rounding(whole: int, seen: bool) -> None:
    """Six in ten of their 1,023 changes; all before are of another kind."""
    change = np.random.default_rng(0).uniform(-0.1, 0.1, 2999)
    some = np.append(np.arange(64), np.arange(1023 - whole + 64, 1023)) - 1023
    change[some] = 0.01 * np.random.default_rng(1).integers(-9, 10, whole)
    loss = 30.0 + np.append(0.0, np.cumsum(change))
    assert (last_rounding_step(run(loss)) == 0.01) == seen


@pytest.mark.parametrize(("same", "copy"), [(2048, True), (2000, False)])
def test_a_filter_is_sought_in_the_last_2048_points(same: int, copy: bool) -> None:
    x, y = 3.0 + noise(0, 6000), 3.0 + noise(1, 6000)
    y[-same:] = scaled(x[-same:])
    assert (related(x, y) == "copy") == copy
