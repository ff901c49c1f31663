"""How runs without stated seeds are paired by their batches: each limit, from both sides."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.alignment import paired_by_seed
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.unstated_seeds import RunPairing, pair_by_batches


def integrated(changes: np.ndarray, before: int = 0, level: float = 3.0) -> np.ndarray:
    """Losses whose second differences are these, after so many points of a constant."""
    slopes = np.append(0.0, np.cumsum(changes))
    values = np.append(0.0, np.cumsum(slopes))
    values -= np.linspace(0.0, values[-1], len(values))
    return np.append(np.full(before, level), level + 1e-3 * values)


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
