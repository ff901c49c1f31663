import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval, t_quantile
from parity.judging.noise.arm_noise import (
    ArmNoise,
    Prior,
    arm_noise,
    assume_stochastic,
    one_apart,
    prior_for,
    run_term,
    run_term_over_seeds,
)
from parity.judging.policy import Amount, policy_from_mapping

PRIOR = Prior(tau=0.0008, df=4.0, basis="assumed")
NO_WITHIN = StandardError(value=0.0, df=12.0)


def noise_of(
    means: list[float],
    prior: Prior = PRIOR,
    seeds: list[int] | None = None,
    controls: list[float] | None = None,
) -> ArmNoise:
    return arm_noise(
        prior, np.array(means), seeds or [0] * len(means), np.array(controls) if controls else None
    )


@pytest.mark.parametrize(
    ("recipe", "stochastic"),
    [
        ("nvfp4", True),
        ("nvfp4_no_rht", True),
        ("te_nvfp4", True),
        ("NVFP4", True),
        ("mxfp4-sr", True),
        ("fp4", True),
        ("nvpf4", True),
        ("mxfp4", True),
        ("nvfp4_no_sr", True),
        ("mxfp8+stochastic_rounding", True),
        ("other:fp8_no_sr", True),
        (None, True),
        ("", True),
        ("fp8_current", False),
        ("mxfp8", False),
        ("bf16", False),
    ],
)
def test_only_a_recipe_that_always_rounds_to_nearest_narrows(
    recipe: str | None, stochastic: bool
) -> None:
    assert assume_stochastic(recipe) is stochastic


@pytest.mark.parametrize("recipe", ["nvfp4", "nvfp4_no_sr", "fp8_current", None])
def test_what_is_on_record_counts_more_than_a_name(recipe: str | None) -> None:
    policy = policy_from_mapping({"margin": "1%"})
    assert assume_stochastic(recipe, "stochastic")
    assert not assume_stochastic(recipe, "nearest")
    assert prior_for(recipe, None, policy, 2.0, "stochastic").tau == pytest.approx(0.0027)
    assert prior_for(recipe, None, policy, 2.0, "nearest").tau == pytest.approx(0.0018)


def test_priors_by_recipe_and_by_policy() -> None:
    policy = policy_from_mapping({"margin": "1%"})
    assert prior_for("fp8_current", None, policy, 2.0).tau == pytest.approx(0.0018)
    assert prior_for(None, None, policy, 2.0).tau == pytest.approx(0.0027)
    assert prior_for("nvfp4", None, policy, 2.0).tau == pytest.approx(0.0027)
    assert prior_for("fp8", None, policy, 2.0, slope=0.0).tau == pytest.approx(0.0030)
    assert prior_for("fp8", None, policy, 2.0, slope=0.25).tau == pytest.approx(0.0060)
    assert prior_for(None, None, policy, 2.0, slope=0.25).tau == pytest.approx(0.0090)
    declared = policy_from_mapping({"margin": "1%", "run_noise_evidence": "8 reruns at 1 B"})
    prior = prior_for("nvfp4", Amount(value=0.001, unit="relative"), declared, 2.0)
    assert prior.tau == pytest.approx(0.002)
    assert "8 reruns at 1 B" in prior.basis


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_shrinkage_twin(means: list[float]) -> None:
    mean = sum(means) / len(means)
    squares = sum((value - mean) ** 2 for value in means)
    expected = math.sqrt((4 * PRIOR.tau**2 + squares) / (4 + len(means) - 1))
    noise = noise_of(means)
    assert noise.tau == pytest.approx(expected, rel=1e-9)
    assert noise.df == 4 + len(means) - 1
    assert noise.source == ("prior" if len(means) == 1 else "replicates")


def test_controls_join_the_baselines_first_seed() -> None:
    noise = noise_of([1.0, 2.0, 5.0], seeds=[0, 0, 7], controls=[3.0])
    assert noise.measured_df == 2
    assert noise.measured == pytest.approx(1.0)
    assert noise.source == "replicates and controls"
    assert noise_of([1.0], controls=[3.0]).source == "controls"
    assert noise_of([1.0, 9.0], seeds=[0, 1]).source == "prior"


def test_half_widths_of_the_specification() -> None:
    """tau 0.08 % in both arms, no within-pair error: h/L = 0.314, 0.196, 0.151, 0.126, 0.084 % at K
    = 1, 2, 3, 4, 8, within 3 %.
    """
    for runs, expected in ((1, 0.00314), (2, 0.00196), (3, 0.00151), (4, 0.00126), (8, 0.00084)):
        spread = (
            PRIOR.tau * math.sqrt((runs - 1) / runs) * np.array([1.0, -1.0] * 8)[:runs]
            if runs > 1
            else np.zeros(1)
        )
        scale = PRIOR.tau / spread.std(ddof=1) if runs > 1 else 1.0
        arm = noise_of((spread * scale).tolist())
        assert arm.tau == pytest.approx(PRIOR.tau)
        assert interval(0.0, NO_WITHIN, run_term(arm, arm)).half_width(0.95) == pytest.approx(
            expected, rel=0.03
        )


def test_one_guess_used_twice_counts_once_and_two_guesses_are_welch() -> None:
    same = run_term(noise_of([1.0]), noise_of([1.0]))
    assert same.df == pytest.approx(4.0)
    stochastic = noise_of([1.0], Prior(tau=0.0030, df=4.0, basis="assumed for stochastic rounding"))
    different = run_term(noise_of([1.0]), stochastic)
    a, b = 0.0008**2, 0.0030**2
    assert different.df == pytest.approx((a + b) ** 2 / (a**2 / 4 + b**2 / 4))


def test_nvidias_example() -> None:
    """+0.026 at L = 3.9, prior only: +.014 to +.038 with two deterministic arms, -.006 to +.058
    with NVFP4's own prior.
    """
    fp8 = noise_of([3.9], Prior(tau=0.0008 * 3.9, df=4.0, basis="a"))
    nvfp4 = noise_of([3.926], Prior(tau=0.0030 * 3.9, df=4.0, basis="b"))
    assert interval(0.026, NO_WITHIN, run_term(fp8, fp8)).bounds(0.95) == pytest.approx(
        (0.014, 0.038), abs=5e-4
    )
    assert interval(0.026, NO_WITHIN, run_term(fp8, nvfp4)).bounds(0.95) == pytest.approx(
        (-0.006, 0.058), abs=7e-4
    )


def test_several_seeds_use_the_spread_of_their_gaps() -> None:
    gaps = np.array([0.010, 0.014, 0.003])
    arm = noise_of([1.0, 1.1, 1.2], seeds=[0, 1, 2])
    term = run_term_over_seeds(gaps, arm, arm)
    squares = float(((gaps - gaps.mean()) ** 2).sum())
    assert term.df == 6
    assert term.variance == pytest.approx((4 * 2 * PRIOR.tau**2 + squares) / 6 / 3)


def test_df_joins_the_terms_by_satterthwaite() -> None:
    run = run_term(noise_of([1.0]), noise_of([1.0]))
    joined = interval(0.1, StandardError(value=0.001, df=12.0), run)
    v, w = run.variance, 0.001**2
    assert joined.df == pytest.approx((v + w) ** 2 / (v**2 / 4 + w**2 / 12))
    expected = math.hypot(
        t_quantile(0.95, 4.0) * math.sqrt(v), t_quantile(0.95, 12.0) * math.sqrt(w)
    )
    assert joined.half_width(0.95) == pytest.approx(expected)


def test_t_quantile_against_scipys_distribution() -> None:
    from scipy.stats import t

    for confidence in (0.9, 0.95):
        for df in (4, 4.57, 12, 300):
            assert t_quantile(confidence, df) == pytest.approx(
                t.ppf(0.5 + confidence / 2, df), rel=1e-10
            )


def test_arms_without_any_noise_give_a_point() -> None:
    still = Prior(tau=0.0, df=4.0, basis="declared")
    joined = interval(0.2, NO_WITHIN, run_term(noise_of([1.0], still), noise_of([1.0], still)))
    assert joined.bounds(0.95) == (0.2, 0.2)


def test_the_degrees_of_freedom_do_not_depend_on_the_unit() -> None:
    """Also where the squares of the variances are below the smallest float."""
    policy = policy_from_mapping({"margin": "1%"})
    terms = []
    for level in (1.0, 1e-134):
        noises = [
            arm_noise(prior_for(None, None, policy, level), np.array([level]), [0])
            for _ in range(2)
        ]
        terms.append(run_term(*noises))
    assert terms[1].df == pytest.approx(terms[0].df)
    assert terms[1].df > 0


def test_what_is_assumed_of_both_arms_is_one_guess() -> None:
    """Also where one of them rounds stochastically: the term has the guess's 4 degrees of freedom,
    not 8 or what Welch would give it.
    """
    policy = policy_from_mapping({"margin": "1%"})
    noises = [
        arm_noise(prior_for(recipe, None, policy, 3.0), np.array([3.0]), [0])
        for recipe in ("fp8", "nvfp4")
    ]
    assert run_term(*noises).df == pytest.approx(4.0)


def test_a_run_that_lies_apart_is_seen_with_one_false_alarm_in_a_hundred() -> None:
    rng = np.random.default_rng(0)
    for runs in (4, 6, 12):
        alarms = np.mean([one_apart([rng.normal(size=runs).tolist()]) for _ in range(3000)])
        assert 0.004 <= alarms <= 0.017
    assert one_apart([[0.0, 0.1, -0.1, 0.05, 9.0]])
    assert not one_apart([[0.0, 0.1, 9.0]])
    assert not one_apart([[0.0] * 5])
    assert one_apart([[0.0, 0.1], [3.0, 3.1], [5.0, 5.1], [7.0, 16.0]])


def test_a_run_apart_is_looked_for_within_its_seed() -> None:
    means, seeds = [1.0, 1.01, 0.99, 5.0, 5.01, 4.99], [0, 0, 0, 1, 1, 1]
    assert not noise_of(means, seeds=seeds).one_apart
    assert noise_of([*means[:5], 5.5], seeds=seeds, controls=[1.0, 1.005, 0.995]).one_apart


def apart(others: list[float], by: float) -> bool:
    return one_apart([[*others, sum(others) / len(others) + by]])


def test_a_run_lies_apart_by_one_false_alarm_in_a_hundred() -> None:
    others = [1.0, 2.0, 3.0, 2.0]
    spread = math.sqrt(2.0 / 3.0 * (1.0 + 1.0 / 4.0))
    limit = float(student.ppf(1.0 - 0.01 / (2 * 5), 3)) * spread
    assert not apart(others, limit * (1.0 - 1e-9))
    assert apart(others, limit * (1.0 + 1e-9))
    assert apart(others, -limit * (1.0 + 1e-9))


def test_a_run_apart_needs_two_degrees_of_freedom_without_it() -> None:
    assert not apart([1.0, 2.0], 1e9)
    assert apart([1.0, 2.0, 3.0], 1e9)
