"""The interval of few held-out losses: against the formula written out, its ends, its points, and
its printed digits.
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.evaluations.gap import few_errors, gap_interval, printed_step
from parity.judging.gap.interval import Interval
from parity.judging.noise.arm_noise import Prior, prior_for
from parity.judging.policy import Policy

LEVEL = 3.0


def prior(recipe: str = "bf16", slope: float | None = None) -> Prior:
    return prior_for(recipe, None, Policy(margin="1%"), LEVEL, slope=slope)


def gap(
    base: np.ndarray,
    cand: np.ndarray,
    rounding: float = 0.0,
    seeds: Sequence[Sequence[int]] | None = None,
) -> Interval:
    """The interval of (K_A, n) and (K_B, n) losses that round to nearest, of a finished
    training.
    """
    own = (
        [np.array(seed, np.int64) for seed in seeds]
        if seeds
        else [np.zeros(len(arm), np.int64) for arm in (base, cand)]
    )
    return gap_interval((base, cand), (prior(), prior()), (own[0], own[1]), rounding)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 11])
def test_one_run_an_arm_as_the_formula_says(n: int) -> None:
    rng = np.random.default_rng(n)
    base, cand = LEVEL + rng.normal(0, 0.001, (1, n)), LEVEL + 0.01 + rng.normal(0, 0.001, (1, n))
    d = cand[0] - base[0]
    squares = sum((value - d.mean()) ** 2 for value in d)
    s0 = 0.0005 * base.mean()
    variance = (1.5 if n > 1 else 1.0) * (4 * s0**2 + squares) / (n + 3) / n
    tau = 0.0009 * LEVEL
    half = math.hypot(
        stats.t.ppf(0.975, 4) * tau * math.sqrt(2.0),
        stats.t.ppf(0.975, n + 3) * math.sqrt(variance),
    )
    measured = gap(base, cand, rounding=0.0005)
    assert measured.mean == pytest.approx(d.mean())
    assert measured.half_width(0.95) == pytest.approx(half + 0.0005, rel=1e-6)
    lo, hi = measured.bounds(0.95)
    assert lo >= measured.mean - half - 0.0005 - 1e-12
    assert hi <= measured.mean + half + 0.0005 + 1e-12


def test_several_runs_an_arm_as_the_formula_says() -> None:
    rng = np.random.default_rng(0)
    base, cand = LEVEL + rng.normal(0, 0.004, (5, 3)), LEVEL + 0.01 + rng.normal(0, 0.004, (3, 3))
    measured = gap(base, cand)
    variance = 0.0
    for arm in (base, cand):
        x, k = arm.mean(axis=1), len(arm)
        variance += (4 * (0.0009 * LEVEL) ** 2 + ((x - x.mean()) ** 2).sum()) / (3 + k) / k
    assert measured.se == pytest.approx(math.sqrt(variance))
    assert measured.within.value == 0.0


def test_pairs_of_one_seed_leave_out_runs_without_a_partner() -> None:
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 0.05, (4, 1))
    base, cand = (LEVEL + shared + rng.normal(0, 0.001, (4, 2)) for _ in range(2))
    alone = np.vstack([cand, np.full((1, 2), 9.0)])
    paired, all_runs = (
        gap(base, cand, seeds=([0, 1, 2, 3], [0, 1, 2, 3])),
        gap(base, alone, seeds=([0, 1, 2, 3], [0, 1, 2, 3, 7])),
    )
    assert paired.bounds(0.95) == all_runs.bounds(0.95)
    assert paired.se < 0.2 * gap(base, cand).se
    assert paired.run.df == 7.0


@pytest.mark.parametrize("n", [2, 3, 5, 11, 12, 30])
def test_one_wild_evaluation_undoes_no_fail(n: int) -> None:
    base, margin = np.full((1, n), LEVEL), 0.01 * LEVEL
    cand = base + 0.06
    assert gap(base, cand).bounds(0.95)[0] > margin
    for wild in (0.1, 1.0, 5.0):
        worse = cand.copy()
        worse[0, -1] += wild
        assert gap(base, worse).bounds(0.95)[0] > margin


def test_one_wild_run_undoes_no_fail() -> None:
    base, cand = np.full((3, 2), LEVEL), np.full((3, 2), LEVEL + 0.06)
    worse = cand.copy()
    worse[2] += 3.0
    assert min(gap(base, arm).bounds(0.95)[0] for arm in (cand, worse)) > 0.01 * LEVEL


@pytest.mark.parametrize(("first", "second"), [(11, 12), (99, 101), (199, 201)])
def test_one_evaluation_more_is_no_cliff(first: int, second: int) -> None:
    halves = []
    for n in (first, second):
        rows = np.random.default_rng(0).normal(0, 0.0005 * LEVEL / 2**0.5, (40, 2, n))
        halves.append(
            np.median([gap(LEVEL + row[:1], LEVEL + row[1:]).half_width(0.95) for row in rows])
        )
    assert halves[1] / halves[0] == pytest.approx(1.0, abs=0.05)


def test_an_unfinished_pair_is_wider_by_its_slope() -> None:
    base, cand = np.full((1, 1), LEVEL), np.full((1, 1), LEVEL)
    zeros = np.zeros(1, np.int64)
    halves = [
        gap_interval(
            (base, cand), (prior(slope=slope), prior(slope=slope)), (zeros, zeros), 0.0
        ).half_width(0.95)
        for slope in (None, 0.0, 0.20, 0.40)
    ]
    assert halves == sorted(halves)
    assert halves[2] == pytest.approx(
        LEVEL * math.hypot(2.7764451 * 0.0024 * 2**0.5, 2.7764451 * 0.0005), rel=1e-6
    )


def test_errors_of_several_series_are_those_of_each() -> None:
    rows = np.random.default_rng(2).normal(0, 1, (4, 6))
    values, df = few_errors(rows, 0.5)
    for row, value in zip(rows, values, strict=True):
        assert few_errors(row[None], 0.5)[0][0] == pytest.approx(value)
    assert df.tolist() == [9.0] * 4


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([[2.242]], 1e-3),
        ([[2.24], [2.2421]], 1e-4),
        ([[3.4617701, 3.3717701]], 1e-7),
        ([[2.21875, 2.234375, 2.25, 2.28125, 2.265625, 2.296875]], 2.0**-6),
    ],
)
def test_the_printed_step_of_an_arm(losses: list[list[float]], step: float) -> None:
    runs = [curve_from_arrays(np.arange(1, len(own) + 1), own) for own in losses]
    assert printed_step(runs) == pytest.approx(step)
