"""On what does the between-run term rest? Each limit, from both sides."""

import dataclasses

import numpy as np
import pytest

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.gap.window_statistics import GapNoise
from parity.judging.noise.arm_noise import arm_noise, prior_for, run_term
from parity.judging.noise.contradiction import Agreement
from parity.judging.noise.family_spread import FamilyNoise
from parity.judging.noise.noise_source import BorrowedNoise, NoiseSource
from parity.judging.policy import Policy

MARGIN, LEVEL = 0.03, 3.0


def basis(base_runs: int, cand_runs: int, seeds: int = 1) -> GapNoise:
    prior = prior_for(None, None, Policy(margin="1%"), LEVEL, "nearest")
    rng = np.random.default_rng(0)
    noises = tuple(
        arm_noise(prior, LEVEL + rng.normal(0, 0.003, runs), [0] * runs)
        for runs in (base_runs, cand_runs)
    )
    run = dataclasses.replace(run_term(*noises), seeds=seeds)
    return GapNoise(interval=interval(0.0, StandardError(value=0.0, df=4.0), run), noises=noises)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((3, 3), "measured"),
        ((2, 4), "measured"),
        ((3, 2), "assumed"),
        ((5, 1), "assumed"),
        ((6, 1), "assumed"),  # an arm without a rerun
        ((1, 1), "assumed"),
    ],
)
def test_noise_is_measured_from_four_degrees_of_freedom_on(
    runs: tuple[int, int], expected: str
) -> None:
    made = basis(*runs)
    assert made.measured_df == sum(runs) - 2
    assert made.noise_basis == expected
    assert made.noise_is_assumed == (expected == "assumed")


@pytest.mark.parametrize(("seeds", "expected"), [(4, "assumed"), (5, "measured")])
def test_five_seeds_measure_it(seeds: int, expected: str) -> None:
    made = basis(1, 1, seeds=seeds)
    assert (made.measured_df, made.noise_basis) == (seeds - 1, expected)


@pytest.mark.parametrize(("df", "expected"), [(0.99, "assumed"), (1.0, "borrowed")])
def test_an_arm_without_reruns_borrows_one_degree_of_freedom_at_least(
    df: float, expected: str
) -> None:
    """Next to an arm that has five runs."""
    made = basis(5, 1)
    noise = FamilyNoise(
        share=0.001, df=df, estimated_df=df, groups=4, runs=20, outliers=(), levels=None
    )
    borrowed = BorrowedNoise(
        noise_source=NoiseSource(family="f", noise=noise),
        noise=noise,
        agreement=Agreement(p=1.0, weight=1.0, ratio=None),
    )
    prior = dataclasses.replace(made.noises[1].prior, borrowed=borrowed, assumed=False)
    noises = made.noises[0], dataclasses.replace(made.noises[1], prior=prior)
    assert dataclasses.replace(made, noises=noises).noise_basis == expected
