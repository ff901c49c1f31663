"""Intervals that cover, parts that add up by construction, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from parity_lab.analysis_plan import make_setup
from parity_lab.effects import ForkArm, contrast, effect, ends, fork_noise
from parity_lab.estimates import estimate, ratio
from parity_lab.gradient_error import gradient_error
from parity_lab.split import split


def test_an_estimate_is_that_of_the_t_test():
    values = np.random.default_rng(1).normal(0.3, 1, 12)
    estimated, other = estimate(values), stats.ttest_1samp(values, 0.0)
    assert estimated.p() == pytest.approx(other.pvalue)
    assert estimated.bounds(0.95) == pytest.approx(tuple(other.confidence_interval(0.95)))
    assert estimate([0.0, 0.0]).p() == 1.0
    assert estimate([1.0, 1.0]).p() == 0.0
    for bad in ([1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="at least 2"):
            estimate(bad)


def test_a_ratio_covers_its_true_value():
    random, hits = np.random.default_rng(2), 0
    for _ in range(400):
        bottom = random.uniform(1, 2, 8)
        low, high = ratio(0.5 * bottom + random.normal(0, 0.1, 8), bottom).bounds(0.95)
        hits += low <= 0.5 <= high
    assert hits / 400 == pytest.approx(0.95, abs=0.03)


def losses(interaction: float, batches: int = 16) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    off, noise = random.normal(2, 0.5, batches), lambda: random.normal(0, 1e-4, batches)
    one, two = 0.02 + noise(), -0.01 + noise()
    return {
        "off": off,
        "on": off + one + two + interaction,
        "without a": off + two,
        "without b": off + one,
        "alone a": off + one,
        "alone b": off + two,
    }


def test_parts_of_opposite_sign_are_seen_and_interactions_are_unexplained():
    plain = split(losses(0.0), ["a", "b"])
    assert plain.whole.value == pytest.approx(0.01, abs=2e-4)
    assert [part.without.value for part in plain.parts.values()] == pytest.approx(
        [0.02, -0.01], abs=2e-4
    )
    assert abs(plain.unexplained_without.value) < 1e-12
    mixed = split(losses(0.005), ["a", "b"])
    assert mixed.unexplained_alone.value == pytest.approx(0.005, abs=1e-6)
    # counted in both parts
    assert mixed.unexplained_without.value == pytest.approx(-0.005, abs=1e-6)
    with pytest.raises(ValueError, match="without c"):
        split(losses(0.0), ["a", "b", "c"])


def test_the_error_of_a_gradient():
    random = np.random.default_rng(4)
    reference = random.normal(0, 1, (6, 1000))
    gradient = 0.9 * reference + random.normal(0, 0.1, (6, 1000))
    error = gradient - reference
    products = [(reference, reference), (reference, gradient), (gradient, gradient), (error, error)]
    sums = np.stack([*((a * b).sum(1) for a, b in products), (0.01 * reference**2).sum(1)], -1)
    result = gradient_error(sums[:, None])
    assert result.bias.value == pytest.approx(-0.1, abs=0.01)
    assert result.relative_error == pytest.approx(0.02**0.5, abs=0.01)
    assert result.systematic == pytest.approx(0.1, abs=1e-6)
    assert result.cosine == pytest.approx(0.9 / 0.82**0.5, abs=0.01)
    with pytest.raises(ValueError, match="reference gradient"):
        gradient_error(np.zeros((3, 1, 5)))


def test_the_effect_between_forks_covers_its_true_value():
    random, hits = np.random.default_rng(5), 0
    for _ in range(400):
        level = random.normal(2, 0.1, 3)  # of each parent, which both arms share
        arms = [
            {f"{p}": list(level[p] + shift + random.normal(0, 0.001, n)) for p in range(3)}
            for shift, n in ((0, 4), (0.002, 2))
        ]
        noise = fork_noise(arms[:1])
        assert (noise.df, noise.parents, noise.is_enough) == (9, 3, True)
        low, high = effect(
            ForkArm(forks=arms[1], noise=noise), ForkArm(forks=arms[0], noise=noise)
        ).bounds(0.95)
        hits += low <= 0.002 <= high
    assert hits / 400 == pytest.approx(0.95, abs=0.03)


def test_forks_that_say_nothing_are_refused():
    with pytest.raises(ValueError, match="two forks of one parent"):
        fork_noise([{"a": [1.0]}])
    with pytest.raises(ValueError, match="a draw of its own"):
        fork_noise([{"a": [1.0, 1.0]}])
    noise = fork_noise([{"a": [1.0, 1.1]}])
    assert not noise.is_enough
    with pytest.raises(ValueError, match="no parent in common"):
        effect(ForkArm(forks={"a": [1.0]}, noise=noise), ForkArm(forks={"b": [1.0]}, noise=noise))


def test_the_effect_between_arms_of_unlike_noise_is_that_of_welch():
    random = np.random.default_rng(6)
    loud, quiet = random.normal(2, 0.003, 8), random.normal(2, 0.001, 5)
    arms = [
        ForkArm(forks={"a": list(values)}, noise=fork_noise([{"a": list(values)}]))
        for values in (loud, quiet)
    ]
    estimated, other = effect(*arms), stats.ttest_ind(loud, quiet, equal_var=False)
    assert estimated.p() == pytest.approx(other.pvalue)
    assert estimated.df == pytest.approx(other.df)


def test_a_contrast_with_one_noise_has_its_degrees_of_freedom():
    forks = {"a": [1.0, 1.1, 1.3], "b": [1.2, 1.0, 1.1]}
    arm = ForkArm(forks=forks, noise=fork_noise([forks]))
    one = ForkArm(forks={"a": [1.0], "b": [1.4]}, noise=arm.noise)
    estimated = contrast([(1.0, one), (-2.0, arm), (1.0, one)])
    assert estimated.df == pytest.approx(4)
    assert estimated.value == pytest.approx(2 * 1.2 - (3.4 + 3.3) / 3)
    assert estimated.se == pytest.approx(arm.noise.sd * ((2 + 2 + 4 / 3 + 4 / 3) / 4) ** 0.5)


def test_an_innocent_unit_is_tested_with_the_noise_of_the_louder_end():
    """One fork of each parent beside 6 of each end, of which one end is three times as noisy: with
    one pooled noise 13 % are named.
    """
    random, wrong = np.random.default_rng(7), 0
    for _ in range(400):
        on, off, one = (
            {f"{p}": list(2 + shift + random.normal(0, sd, n)) for p in range(3)}
            for shift, sd, n in ((0.02, 0.003, 6), (0.0, 0.001, 6), (0.02, 0.003, 1))
        )
        both = ends(on, off)
        assert both.noise is both.on.noise
        wrong += effect(both.on, both.between(one)).p() < 0.05
    assert wrong <= 33  # 20 are expected; more have a chance of 0.2 %


def test_a_plan_says_its_cost():
    units, ingredients = (tuple(map(str, range(number))) for number in (27, 4))
    setup = make_setup(
        units=units,
        ingredients=ingredients,
        parents=("a", "b", "c"),
        fork_step=100,
        run_steps=200,
        fork_steps=60,
    )
    plan = replace(
        setup, noise_draws=4, draws=2, batches=8, seeds=2, gradient_batches=2, alpha=0.05
    )
    assert plan.instant_steps == pytest.approx(8 * 60 / 3)
    assert plan.gradient_steps == 2 * (1 + 28 * 2)
    assert plan.cuts_for_one == 5
    assert plan.forks(0) == 2 * 3 * 4
    # two arms at the first cut, four at each further one
    assert plan.forks(5) == 2 * 3 * (4 + 2 * (1 + 2 * 4))
    assert plan.least_steps < plan.steps_for_one < plan.steps_for_any
    assert plan.steps_for_one == plan.least_steps + 2 * 3 * 2 * 60
    assert plan.smallest_effect(0.001) > 0.001
