"""When do two arms read the same batches? Each limit from both sides, on correlations that are
built exactly."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.alignment import Aligned, align, nonfinite, paired_by_seed
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import (
    hidden_correlation,
    is_proven_somewhere,
    pair_correlation,
    worst_correlation,
)
from parity.judging.curves.unstated_seeds import RunPairing, pair_by_batches

# Losses that are not finite: one of a few points is no divergence.


def broken(points: int, bad: int, *, at_end: bool = False) -> Curve:
    loss = np.full(points, 3.0)
    loss[1 : 1 + bad] = np.nan
    if at_end:
        loss[-1] = np.inf
    return curve_from_arrays(np.arange(points), loss)


@pytest.mark.parametrize(
    ("points", "bad", "blocks", "fails"),
    [
        (100, 1, False, False),
        (200, 2, True, False),
        (201, 2, False, False),
        (300, 3, True, True),
        (301, 3, False, False),
        (50, 2, True, False),
        (50, 3, True, True),
    ],
)
def test_two_and_three_losses_and_a_hundredth_count(
    points: int, bad: int, blocks: bool, fails: bool
) -> None:
    found = nonfinite([broken(points, bad)], 0, points)
    assert (found.count, found.blocks, found.fails) == (bad, blocks, fails)
    assert found.worst_share == pytest.approx(bad / points)


@pytest.mark.parametrize(("first", "fails"), [(0, False), (601, True), (599, False)])
def test_a_hundredth_of_the_window_is_enough(first: int, fails: bool) -> None:
    """Three of the last 300 points, of a thousand in all; 602 is the first that is bad."""
    loss = np.full(901, 3.0)
    loss[602:605] = np.nan
    found = nonfinite([curve_from_arrays(np.arange(901), loss)], first, 900)
    assert found.fails == fails


def test_one_loss_at_the_end_fails_and_one_after_it_does_not() -> None:
    run = broken(1000, 0, at_end=True)
    assert nonfinite([run], 0, 999).fails
    assert nonfinite([run], 0, 999).blocks
    assert nonfinite([run], 0, 998).count == 0


@pytest.mark.parametrize(("loss", "bad"), [(1e6, 0), (1.000001e6, 1), (-1e6, 0), (-1.000001e6, 1)])
def test_a_loss_above_a_million_is_as_good_as_infinite(loss: float, bad: int) -> None:
    run = curve_from_arrays([1, 2, 3], [3.0, loss, 3.0])
    assert nonfinite([run], 0, 3).count == bad


# Correlations of second differences, built exactly.


def integrated(changes: np.ndarray, before: int = 0, level: float = 3.0) -> np.ndarray:
    """Losses whose second differences are these, after so many points of a constant."""
    slopes = np.append(0.0, np.cumsum(changes))
    values = np.append(0.0, np.cumsum(slopes))
    values -= np.linspace(0.0, values[-1], len(values))
    return np.append(np.full(before, level), level + 1e-3 * values)


def crossed(r: float, points: int, of: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Two rows of changes that correlate exactly r over the last `of` of so many points, and are
    equal before."""
    rng = np.random.default_rng(points)
    of = points if of is None else of
    one = rng.choice([-1.0, 1.0], points)
    other = one.copy()
    x, z = one[-of:] - one[-of:].mean(), rng.normal(size=of).clip(-2.0, 2.0)
    z -= z.mean()
    z -= x * (x @ z) / (x @ x)
    z *= math.sqrt(float(x @ x) / float(z @ z))
    other[-of:] = r * x + math.sqrt(max(1.0 - r * r, 0.0)) * z
    return one, other


def late(r: float, points: int, of: int | None = None) -> Aligned:
    """A pair whose last half has these second differences."""
    base, cand = (integrated(row, points + 2) for row in crossed(r, points, of))
    return align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in (base, cand)))


def worst(pair: Aligned) -> float | None:
    runs = [
        [curve_from_arrays(pair.steps, row) for row in arm]
        for arm in (pair.baseline, pair.candidate)
    ]
    return worst_correlation(pair, *runs)


@pytest.mark.parametrize(("points", "is_known"), [(15, True), (14, False)])
def test_a_correlation_needs_six_second_differences(points: int, is_known: bool) -> None:
    """The last half of 15 points has eight of them."""
    loss = 3.0 + np.random.default_rng(0).normal(0.0, 0.1, points)
    found = pair_correlation(loss, loss)
    assert (found is not None) == is_known


@pytest.mark.parametrize(("size", "is_known"), [(7.9e-7, False), (8.1e-7, True)])
def test_below_the_spacing_of_float32_there_is_no_noise(size: float, is_known: bool) -> None:
    loss = np.full(40, 3.0)
    loss[30] += 1.5 * size  # its second difference is -2 times that
    found = pair_correlation(loss, loss)
    assert (found is not None) == is_known


@pytest.mark.parametrize(("points", "r"), [(399, 0.5), (400, 0.0), (401, 0.0)])
def test_blocks_of_two_hundred_points_are_looked_at_from_two_of_them_on(
    points: int, r: float
) -> None:
    """Other data in the last half of the last half would hide in the whole."""
    found = worst(late(0.0, points, points // 2))
    assert found == pytest.approx(r, abs=0.02)


def test_a_long_run_has_twenty_blocks() -> None:
    """Other data in the last 200 points of 8,000 are half of a block of 400."""
    assert worst(late(0.0, 8000, 200)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("r", "hidden"),
    [(0.151, True), (0.149, False), (0.499, True), (0.501, False)],
)
def test_an_order_is_hidden_between_the_limits_of_other_and_of_equal_batches(
    r: float, hidden: bool
) -> None:
    found = hidden_correlation(late(r, 350))
    assert (found is not None) == hidden
    if found is not None:
        assert found == pytest.approx(r, abs=1e-6)


@pytest.mark.parametrize(("part", "hidden"), [(0.04, True), (-0.04, False)])
def test_an_order_is_hidden_where_no_block_shows_other_batches(part: float, hidden: bool) -> None:
    """A block of 200 points may be below the whole by 4 x 1.4 / sqrt(200) = 0.396."""
    points = 1000
    one, other = crossed(0.45, points)
    own = slice(points - 200, None)
    x = one[own] - one[own].mean()
    z = other[own] - other[own].mean()
    z -= x * (x @ z) / (x @ x)
    z *= math.sqrt(float(x @ x) / float(z @ z))

    def made(r: float) -> Aligned:
        changed = other.copy()
        changed[own] = r * x + math.sqrt(1.0 - r * r) * z
        runs = [integrated(row, points + 2) for row in (one, changed)]
        return align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in runs))

    whole = pair_correlation(made(0.0).baseline[0], made(0.0).candidate[0])
    limit = whole - 4.0 * 1.4 / math.sqrt(200.0)
    found = hidden_correlation(made(limit + part))
    assert (found is not None) == hidden


def proven(r: float, points: int) -> bool:
    """Whether a pair is proven whose halves have so many second differences."""
    one, other = crossed(r, points)
    rows = [np.append(integrated(row), integrated(row)) for row in (one, other)]
    return is_proven_somewhere(
        align(*([curve_from_arrays(np.arange(len(loss)), loss)] for loss in rows))
    )


@pytest.mark.parametrize(("r", "is_proven"), [(0.501, True), (0.499, False)])
def test_batches_are_proven_from_a_correlation_of_a_half_on(r: float, is_proven: bool) -> None:
    assert proven(r, 150) == is_proven


@pytest.mark.parametrize("r", [0.6, 0.8, 0.9])
def test_batches_are_proven_where_four_errors_lie_between_them_and_chance(r: float) -> None:
    """atanh(r) sqrt(n - 5) / 1.4 is at least 4."""
    least = math.ceil((4.0 * 1.4 / math.atanh(r)) ** 2 + 5.0)
    assert proven(r, least)
    assert not proven(r, least - 1)


def test_a_quarter_of_the_run_is_enough_and_an_eighth_is_not() -> None:
    rng = np.random.default_rng(0)
    base, own = rng.normal(0.0, 0.1, 800), rng.normal(0.0, 0.1, 800)
    for points, is_proven in ((200, True), (100, False)):
        cand = own.copy()
        cand[:points] = base[:points]
        if points < 200:
            cand[points:200] = rng.normal(0.0, 0.3, 200 - points)
        pair = align(
            [curve_from_arrays(np.arange(800), 3.0 + base)],
            [curve_from_arrays(np.arange(800), 3.0 + cand)],
        )
        assert is_proven_somewhere(pair) == is_proven


# Runs without stated seeds.


def paired(rows: list[np.ndarray], baselines: int) -> RunPairing:
    runs = [
        curve_from_arrays(np.arange(len(row) + 2), integrated(row), label=str(number))
        for number, row in enumerate(rows)
    ]
    return pair_by_batches(runs[:baselines], runs[baselines:], len(rows[0]) + 2)


def turning(wanted: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The two values next to where a condition turns true, between one below and one above."""
    assert not wanted(low)
    assert wanted(high)
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if wanted(middle) else (middle, high)
    return low - 1e-8, high + 1e-8


@functools.cache
def basis(rows: int, points: int) -> np.ndarray:
    """Orthonormal rows of noise without a mean and a trend, over all and over the last half."""
    rng = np.random.default_rng(rows)
    half = points // 2
    flat = [np.ones(points), np.arange(points) * 1.0]
    flat += [np.where(np.arange(points) >= half, row, 0.0) for row in flat]
    noise = rng.uniform(-1.0, 1.0, (rows, points))
    made, _ = np.linalg.qr(np.vstack([flat, noise]).T)
    return made.T[4:] * math.sqrt(points)


def correlations(rows: list[np.ndarray], baselines: int, *, centred: bool) -> np.ndarray:
    made = np.array(rows)
    if centred:
        made = made - made.mean(axis=0)
    return np.corrcoef(made)[:baselines, baselines:]


def test_one_order_is_nine_tenths_of_all_runs() -> None:
    """Though two runs an arm each have a partner of their own in what is left."""
    points = 4000
    made = basis(3, points)

    def rows(share: float) -> list[np.ndarray]:
        return [share * made[0] + math.sqrt(1.0 - share**2) * made[own] for own in (1, 2, 1, 2)]

    def is_one(share: float) -> bool:
        parts = [[row[part:] for row in rows(share)] for part in (0, points // 2)]
        return bool(min(correlations(part, 2, centred=False).min() for part in parts) >= 0.9)

    below, above = turning(is_one, 0.8, 0.99)
    assert paired(rows(above), 2).by == "one order"
    assert paired(rows(below), 2).by == "batches"


def pairs_of(rho: float, other: float, points: int) -> list[np.ndarray]:
    """Two runs an arm: each of the candidate correlates rho with its own and `other` with the
    other one of the baseline."""
    made = basis(4, points)
    rest = math.sqrt(1.0 - rho**2 - other**2)
    first = rho * made[0] + other * made[1] + rest * made[2]
    second = rho * made[1] + other * made[0] + rest * made[3]
    return [made[0], made[1], first, second]


def test_two_runs_belong_together_from_a_correlation_of_0_15_on() -> None:
    points = 4000

    def enough(rho: float) -> bool:
        r = correlations(pairs_of(rho, 0.0, points), 2, centred=True)
        return bool(min(r[0, 0], r[1, 1]) >= 0.15)

    below, above = turning(enough, -0.5, 0.9)
    found = paired(pairs_of(above, 0.0, points), 2)
    assert (found.by, [(one.baseline, one.candidate) for one in found.pairs]) == (
        "batches",
        [(0, 0), (1, 1)],
    )
    assert paired(pairs_of(below, 0.0, points), 2).by == "unknown"


def test_two_runs_belong_together_four_errors_from_chance() -> None:
    points = 200

    def enough(rho: float) -> bool:
        r = correlations(pairs_of(rho, 0.0, points), 2, centred=True)
        return bool(np.arctanh(min(r[0, 0], r[1, 1])) * (points - 3) ** 0.5 / 1.4 >= 4.0)

    below, above = turning(enough, 0.0, 0.9)
    assert paired(pairs_of(above, 0.0, points), 2).by == "batches"
    assert paired(pairs_of(below, 0.0, points), 2).by == "unknown"


def test_a_partner_leads_by_twice_the_next_run() -> None:
    points = 4000

    def leads(rho: float) -> bool:
        r = correlations(pairs_of(rho, 0.3, points), 2, centred=True)
        return bool(r[0, 0] >= 2.0 * max(r[0, 1], r[1, 0]) and r[0, 0] >= 0.15)

    below, above = turning(leads, 0.31, 0.9)
    assert paired(pairs_of(above, 0.3, points), 2).by == "batches"
    assert paired(pairs_of(below, 0.3, points), 2).by == "unknown"


@pytest.mark.parametrize("spread", [0.75, None])
def test_one_order_is_also_a_half_of_all_runs_and_three_quarters_of_the_best(
    spread: float | None,
) -> None:
    """Without a partner that leads: all runs correlate, one of them less."""
    points = 4000
    made = basis(5, points)

    def rows(least: float) -> list[np.ndarray]:
        high = 0.85 if spread else 0.6
        shares = [1.0, 1.0, high, least]
        return [
            share * made[0] + math.sqrt(1.0 - share**2) * own
            for share, own in zip(shares, made[1:], strict=True)
        ]

    def is_one(least: float) -> bool:
        parts = [[row[part:] for row in rows(least)] for part in (0, points // 2)]
        r = np.minimum(*(correlations(part, 2, centred=False) for part in parts))
        return bool(r.min() >= max(0.5, 0.75 * r.max()))

    below, above = turning(is_one, 0.2, 0.6 if spread is None else 0.85)
    assert paired(rows(above), 2).by == "one order"
    assert paired(rows(below), 2).by == "unknown"


@pytest.mark.parametrize(("points", "by"), [(7, "seeds"), (8, "one order")])
def test_runs_are_paired_from_eight_points_on(points: int, by: str) -> None:
    loss = 3.0 + np.random.default_rng(0).normal(0.0, 0.1, points)
    runs = [curve_from_arrays(np.arange(points), loss, label=str(number)) for number in range(3)]
    assert pair_by_batches(runs[:1], runs[1:], points).by == by


def test_runs_of_seeds_that_both_arms_have_are_kept() -> None:
    def seeded(*seeds: int) -> list[Curve]:
        return [curve_from_arrays([1], [3.0], seed=seed) for seed in seeds]

    left, right, alone = paired_by_seed(seeded(0, 1, 1), seeded(1, 2))
    assert ([run.seed for run in left], [run.seed for run in right], alone) == ([1, 1], [1], 2)
