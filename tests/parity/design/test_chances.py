"""The chances against a slow twin: simulated jobs whose interval the judge's own functions
compute.
"""

import dataclasses
import math

import numpy as np
import pytest

from parity.design.chances import (
    NO_FAMILIES,
    assumed_priors,
    chances,
    chi_squared,
    drawing,
    noise_sources_of,
    within_se,
)
from parity.design.experiment import Design
from parity.judging.curves.curve import FloatArray, Rounding
from parity.judging.curves.early_stop_noise import RATIO_SD_LOG, EarlySpread, helmert_squares
from parity.judging.curves.step_noise import StandardError, mean_se
from parity.judging.gap.interval import interval
from parity.judging.gap.robust_bounds import Unlogged, robust_interval
from parity.judging.noise.arm_noise import Prior, arm_noise, early_spread, own_spread, run_term
from parity.judging.noise.borrowed_priors import OwnRuns, borrow
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import Policy, policy_from_mapping
from tests.conftest import some, some_pairs

TRACK3 = "modded-nanogpt-124M/track3"
BOTH = NoiseFamilies(public_noise_table(), {"baseline": TRACK3, "candidate": TRACK3})
GAPS = (0.0, 0.25, 0.5, 1.0, 2.0)
JOBS = 2000
NEAREST: dict[str, Rounding] = {"baseline_rounding": "nearest", "candidate_rounding": "nearest"}


def reruns(
    design: Design, taus: list[float], offsets: list[FloatArray], rng: np.random.Generator
) -> list[EarlySpread | None]:
    """What reruns of both arms show at their stop, where a full run's offset correlates 0.66 with
    its last one (docs/method.md).
    """
    if not design.short_reruns:
        return [None, None]
    level, ratio, spreads = design.level or 1.0, math.exp(RATIO_SD_LOG * rng.normal()), []
    for tau, final in zip(taus, offsets, strict=True):
        full = 0.66 * final + math.sqrt(1.0 - 0.66**2) * tau * rng.normal(size=len(final))
        stopped = tau * rng.normal(size=design.short_reruns)
        shares = [1.0 + ratio * own / level for own in (full, stopped)]
        squares = helmert_squares(shares[0], [0] * len(full), shares[1], [0] * len(stopped))
        spreads.append(
            EarlySpread(squares=squares, runs=design.short_reruns, stop=0.5, first=0, last=0)
        )
    return spreads


def simulated(
    design: Design, policy: Policy, margin: float, noise_families: NoiseFamilies
) -> list[tuple[float, float]]:
    """Shares of passes and fails among simulated jobs at each true gap; the runs spread as assumed
    or borrowed.
    """
    rng, level = np.random.default_rng(17), design.level or 1.0
    noise_sources, assumed = (
        noise_sources_of(design, policy, noise_families),
        assumed_priors(design, policy),
    )
    runs = (design.baseline_runs, design.candidate_runs)

    def priors(squares: tuple[float, float], df: tuple[float, float]) -> tuple[Prior, Prior]:
        return borrow(
            assumed,
            noise_sources,
            OwnRuns(squares=squares, df=df, gap_squares=0.0, gap_df=0, gap_runs=runs),
            level,
        )

    taus, within = [prior.tau for prior in priors((0.0, 0.0), (0, 0))], within_se(design, policy)
    gaps, halves = np.empty(JOBS), np.empty(JOBS)
    for job in range(JOBS):
        offsets = [tau * rng.normal(size=count) for tau, count in zip(taus, runs, strict=True)]
        means = [level + own for own in offsets]
        controls = (level + taus[0] * rng.normal(size=design.controls), None)
        early = reruns(design, taus, offsets, rng)
        own = [
            own_spread(arm, [0] * len(arm), other)
            for arm, other in zip(means, controls, strict=True)
        ]
        stopped = [early_spread(spread, arm) for spread, arm in zip(early, means, strict=True)]
        (first, first_df), (second, second_df) = (
            (a[0] + b[0], a[1] + b[1]) for a, b in zip(own, stopped, strict=True)
        )
        noises = [
            arm_noise(prior, arm, [0] * len(arm), other, spread)
            for prior, arm, other, spread in zip(
                priors((first, second), (first_df, second_df)), means, controls, early, strict=True
            )
        ]
        error = StandardError(
            value=within.value * math.sqrt(rng.chisquare(within.df) / within.df), df=within.df
        )
        gaps[job] = means[1].mean() - means[0].mean() + within.value * rng.normal()
        halves[job] = interval(0.0, error, run_term(*noises)).half_width(policy.confidence)
    shares = []
    for factor in GAPS:
        measured = gaps + factor * margin
        better = (measured + halves < 0.0) & (measured <= -margin)
        passes = (measured + halves < margin) & ~better
        if policy.two_sided:
            passes &= measured - halves > -margin
        shares.append((float(passes.mean()), float((measured - halves > margin).mean())))
    return shares


@pytest.mark.parametrize(
    ("case", "runs"),
    some_pairs(
        [
            (0.005, NO_FAMILIES, "nvfp4", None, False),
            (0.0025, NO_FAMILIES, "mxfp8", None, True),
            (0.001, BOTH, "mxfp8", None, False),
            (0.002, BOTH, "mxfp8", None, False),
            (0.005, NO_FAMILIES, "mxfp8", 0.15, False),
        ],
        [(1, 1), (2, 2), (4, 4), (1, 4)],
    ),
)
def test_chances_are_those_of_simulated_jobs(
    case: tuple[float, NoiseFamilies, str, float | None, bool], runs: tuple[int, int]
) -> None:
    """Within 4 standard errors of a share among 2,000 jobs, and half a point for the quadrature."""
    share, noise_families, recipe, pair_sd, two_sided = case
    design = Design(
        level=3.3,
        planned_steps=5000,
        baseline_recipe="fp8",
        candidate_recipe=recipe,
        baseline_runs=runs[0],
        candidate_runs=runs[1],
        pair_sd=pair_sd,
    )
    policy = policy_from_mapping({"margin": f"{100 * share}%", "two_sided": two_sided})
    outlook, margin = chances(design, policy, noise_families), 3.3 * share
    for factor, (passes, fails) in zip(
        GAPS, simulated(design, policy, margin, noise_families), strict=True
    ):
        for chance, counted in (
            (outlook.passes(factor * margin, margin), passes),
            (outlook.fails(factor * margin, margin), fails),
        ):
            assert abs(chance - counted) <= 0.005 + 4.0 * math.sqrt(
                max(chance * (1.0 - chance), 1e-4) / JOBS
            )


@pytest.mark.parametrize(
    ("counts", "case"),
    some_pairs(
        [((1, 1), 3, 0), ((2, 2), 2, 0), ((1, 1), 0, 3), ((1, 2), 3, 2)],
        [(0.0025, NO_FAMILIES, "mxfp8"), (0.005, NO_FAMILIES, "nvfp4"), (0.001, BOTH, "mxfp8")],
    ),
)
def test_chances_with_controls_and_reruns_that_stop_early(
    counts: tuple[tuple[int, int], int, int], case: tuple[float, NoiseFamilies, str]
) -> None:
    """Within 4 standard errors, and 3 points because a full run that is far off also spreads its
    reruns, which is left out.
    """
    (runs, short_reruns, controls), (share, noise_families, recipe) = counts, case
    design = Design(
        level=3.3,
        planned_steps=5000,
        baseline_recipe="fp8",
        candidate_recipe=recipe,
        baseline_runs=runs[0],
        candidate_runs=runs[1],
        short_reruns=short_reruns,
        controls=controls,
    )
    policy = policy_from_mapping({"margin": f"{100 * share}%"})
    outlook, margin = chances(design, policy, noise_families), 3.3 * share
    for factor, (passes, fails) in zip(
        GAPS, simulated(design, policy, margin, noise_families), strict=True
    ):
        for chance, counted in (
            (outlook.passes(factor * margin, margin), passes),
            (outlook.fails(factor * margin, margin), fails),
        ):
            assert abs(chance - counted) <= 0.03 + 4.0 * math.sqrt(
                max(chance * (1.0 - chance), 1e-4) / JOBS
            )


def test_the_expected_half_width_alone_would_promise_too_much_with_borrowed_noise() -> None:
    """By chance reruns contradict their family, and the interval widens: that is in the chances."""
    design = Design(
        level=3.3,
        planned_steps=5000,
        baseline_recipe="fp8",
        candidate_recipe="mxfp8",
        baseline_runs=2,
        candidate_runs=2,
    )
    outlook = chances(design, policy_from_mapping({"margin": "0.1%"}), BOTH)
    at_expected = 0.5 * math.erfc(-(0.0033 - outlook.half_width) / outlook.se / math.sqrt(2.0))
    assert outlook.passes(0.0, 0.0033) < at_expected - 0.05


@pytest.mark.parametrize("df", [1, 3, 12])
def test_nodes_have_the_moments_of_chi_squared(df: int) -> None:
    values, weights = (np.array(part) for part in zip(*chi_squared(df, 6), strict=True))
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ values == pytest.approx(df)
    assert weights @ values**2 == pytest.approx(df * (df + 2))


def test_one_run_per_arm_has_one_half_width() -> None:
    outlook = chances(Design(level=3.3, planned_steps=5000), policy_from_mapping({"margin": "1%"}))
    assert outlook.half_widths.tolist() == [outlook.half_width]


@pytest.mark.parametrize("runs", [(1, 1), (2, 2), (4, 4), (1, 4), (16, 16)])
@pytest.mark.parametrize(("share", "noise_families"), [(0.0025, NO_FAMILIES), (0.001, BOTH)])
def test_rough_chances_are_near_enough_to_choose_what_to_look_at(
    runs: tuple[int, int], share: float, noise_families: NoiseFamilies
) -> None:
    """What `search` relies on: at most 0.10 too low, at most 0.20 too high."""
    design = Design(level=3.3, planned_steps=5000, baseline_recipe="fp8", candidate_recipe="mxfp8")
    design = dataclasses.replace(design, baseline_runs=runs[0], candidate_runs=runs[1])
    policy, margin = policy_from_mapping({"margin": f"{100 * share}%"}), 3.3 * share
    exact, rough = (
        chances(design, policy, noise_families, rough=rough).passes(0.0, margin)
        for rough in (False, True)
    )
    assert -0.10 < rough - exact < 0.20


@pytest.mark.parametrize(
    ("n", "rho", "share"),
    [(12, 0.0, 0.0011), (12, 0.6, 0.0011), (20, 0.6, 0.004), (60, 0.0, 0.004), (150, 0.6, 0.004)],
)
def test_chances_of_few_points_are_those_of_the_judge(n: int, rho: float, share: float) -> None:
    """Within 5 points: one run per arm, logged every 10 steps, gap series judged by `noise.mean_se`
    and `capped`.
    """
    design = Design(
        planned_steps=50 * n, log_every=10, level=1.0, pair_sd=share, autocorrelation=rho, **NEAREST
    )
    policy = policy_from_mapping({"margin": "0.45%"})
    outlook, margin, drawn = chances(design, policy), 0.0045, drawing(design, policy)
    term = run_term(*drawn.noises((0.0, 0.0)))
    rng = np.random.default_rng(4)
    passes = fails = 0
    for _ in range(jobs := some(2000)):
        noise = rng.standard_normal(n)
        for at in range(1, n):
            noise[at] = rho * noise[at - 1] + math.sqrt(1.0 - rho**2) * noise[at]
        gap = math.hypot(*drawn.taus) * rng.standard_normal() + share * noise
        lo, hi = robust_interval(
            gap, interval(float(gap.mean()), mean_se(gap), term), Unlogged(), ([], [])
        ).bounds(0.95)
        passes += bool(hi < margin and (hi > 0.0 or gap.mean() > -margin))
        fails += lo + 2.0 * margin > margin
    assert outlook.passes(0.0, margin) == pytest.approx(passes / jobs, abs=0.05)
    assert outlook.fails(2.0 * margin, margin) == pytest.approx(fails / jobs, abs=0.05)
