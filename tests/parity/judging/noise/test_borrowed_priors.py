"""Priors that are borrowed: how the judge combines a family's noise with a pair's own runs."""

import math

import numpy as np
import pytest

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import Interval, interval
from parity.judging.noise.arm_noise import ArmNoise, Prior, arm_noise, own_spread, run_term
from parity.judging.noise.borrowed_priors import NoiseSources, OwnRuns, borrow
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import NoiseSource

NOISE = FamilyNoise(
    share=0.0004, df=12.0, estimated_df=30.0, groups=10, runs=100, outliers=(), levels=(1.95, 2.1)
)
SOURCE = NoiseSource(family="f", noise=NOISE)
ASSUMED = Prior(tau=0.0016, df=4.0, basis="assumed")
LEVEL = 2.0
TAU = NOISE.share * LEVEL


def own(
    *,
    squares: tuple[float, float] = (0.0, 0.0),
    df: tuple[int, int] = (0, 0),
    gap_squares: float = 0.0,
    gap_df: int = 0,
) -> OwnRuns:
    return OwnRuns(
        squares=squares, df=df, gap_squares=gap_squares, gap_df=gap_df, gap_runs=(1.0, 1.0)
    )


def judged(
    runs: tuple[np.ndarray, np.ndarray], noise_sources: NoiseSources = (SOURCE, SOURCE)
) -> tuple[Interval, tuple[ArmNoise, ArmNoise]]:
    spreads = [own_spread(arm, [0] * len(arm)) for arm in runs]
    seen = OwnRuns(
        squares=(spreads[0][0], spreads[1][0]),
        df=(spreads[0][1], spreads[1][1]),
        gap_squares=0.0,
        gap_df=0,
        gap_runs=(len(runs[0]), len(runs[1])),
    )
    priors = borrow((ASSUMED, ASSUMED), noise_sources, seen, LEVEL)
    noises = (
        arm_noise(priors[0], runs[0], [0] * len(runs[0])),
        arm_noise(priors[1], runs[1], [0] * len(runs[1])),
    )
    return interval(
        float(runs[1].mean() - runs[0].mean()), StandardError(value=0.0, df=12.0), run_term(*noises)
    ), noises


def test_one_run_per_arm_has_the_familys_noise() -> None:
    first, second = borrow((ASSUMED, ASSUMED), (SOURCE, SOURCE), own(), LEVEL)
    assert first == second
    assert first.tau == pytest.approx(TAU)
    assert first.df == 12.0
    assert first.basis == "borrowed from f: 10 groups, 100 runs"


def test_two_arms_that_borrow_from_one_family_share_one_estimate() -> None:
    joined, noises = judged((np.array([2.0]), np.array([2.001])))
    assert joined.run.df == pytest.approx(12.0)  # and not 24
    assert [noise.source for noise in noises] == ["borrowed", "borrowed"]
    assert joined.half_width(0.95) == pytest.approx(2.1788 * math.sqrt(2.0) * TAU, rel=1e-4)


def test_only_the_arm_that_names_a_family_borrows() -> None:
    first, second = borrow((ASSUMED, ASSUMED), (None, SOURCE), own(), LEVEL)
    assert first == ASSUMED
    assert second.tau == pytest.approx(TAU)


def test_a_family_that_is_refused_changes_nothing() -> None:
    refusing = NoiseSource(family="g", noise=None, refused="no such family")
    assert borrow(
        (ASSUMED, ASSUMED), (refusing, refusing), own(squares=(1.0, 1.0), df=(2, 2)), LEVEL
    ) == (ASSUMED, ASSUMED)


def test_runs_that_agree_are_shrunk_to_the_family() -> None:
    mean = np.array([2.0 - TAU / 2, 2.0 + TAU / 2])  # squares tau^2 / 2 on 1 degree of freedom
    _, (noise, _) = judged((mean, np.array([2.0])))
    assert noise.df == 13.0
    assert noise.tau == pytest.approx(math.sqrt((12 * TAU**2 + TAU**2 / 2) / 13))
    assert noise.source == "replicates"


def test_contradicted_in_full_the_noise_is_the_own_spread_and_never_the_quiet_family() -> None:
    squares = 4 * (50 * TAU) ** 2
    first, second = borrow(
        (ASSUMED, ASSUMED), (SOURCE, SOURCE), own(squares=(squares, 0.0), df=(4, 0)), LEVEL
    )
    assert first == second
    assert second.tau == pytest.approx(50 * TAU, rel=1e-3)
    assert second.df == pytest.approx(4.0, rel=1e-3)
    assert second.borrowed is not None
    assert second.borrowed.agreement.contradicted


def test_in_conflict_the_noise_is_never_below_what_is_assumed_without_a_family() -> None:
    (first, _) = borrow(
        (ASSUMED, ASSUMED), (SOURCE, SOURCE), own(squares=(60 * TAU**2, 0.0), df=(4, 0)), LEVEL
    )
    assert first.borrowed is not None
    assert first.borrowed.agreement.weight < 0.02
    assert first.tau > 0.99 * ASSUMED.tau


def test_the_spread_of_paired_gaps_over_seeds_contradicts_too() -> None:
    quiet = borrow(
        (ASSUMED, ASSUMED), (SOURCE, SOURCE), own(gap_squares=4 * 2 * TAU**2, gap_df=4), LEVEL
    )[0]
    loud = borrow(
        (ASSUMED, ASSUMED), (SOURCE, SOURCE), own(gap_squares=25 * 4 * 2 * TAU**2, gap_df=4), LEVEL
    )[0]
    assert quiet.tau == pytest.approx(TAU)
    assert loud.tau > 4 * TAU


@pytest.mark.parametrize("level", [0.0, 1e-200, 1.7, 2.4])
def test_a_loss_that_is_far_from_the_groups_borrows_nothing(level: float) -> None:
    assert borrow((ASSUMED, ASSUMED), (SOURCE, SOURCE), own(), level) == (ASSUMED, ASSUMED)


@pytest.mark.parametrize("sizes", [(5, 5), (5, 1), (1, 5)])
def test_five_times_the_familys_noise_is_named_and_covered(sizes: tuple[int, int]) -> None:
    rng, count = np.random.default_rng(5), 600
    hits = named = 0
    for _ in range(count):
        joined, noises = judged(
            (
                LEVEL + 5 * TAU * rng.normal(size=sizes[0]),
                LEVEL + 5 * TAU * rng.normal(size=sizes[1]),
            )
        )
        low, high = joined.bounds(0.95)
        hits += low <= 0.0 <= high
        named += (
            noises[0].prior.borrowed is not None and noises[0].prior.borrowed.agreement.contradicted
        )
    assert hits >= 0.90 * count
    assert named >= 0.90 * count
