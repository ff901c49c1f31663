import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma, polygamma

from parity.judging.noise.family_spread import MAX_DF, FamilyNoise, fit_family, inverse_trigamma
from parity.judging.noise.noise_table import RerunGroup
from tests.conftest import some

MakeGroup = Callable[..., RerunGroup]
families = st.lists(st.tuples(st.floats(1e-4, 1e-3), st.integers(5, 40)), min_size=3, max_size=12)


def groups_of(pairs: list[tuple[float, int]], scale: float = 1.0) -> list[RerunGroup]:
    return [
        RerunGroup(
            family="f",
            group=f"g{number}",
            runs=runs,
            mean_loss=2.0,
            sd=2.0 * scale * share,
            rounding="nearest",
            varies="",
            source="",
            licence="",
        )
        for number, (share, runs) in enumerate(pairs)
    ]


def slow_fit(pairs: list[tuple[float, int]]) -> tuple[float, float, float]:
    """The formulas of the head, written with loops and bisection: share, df, d0."""

    def bisect(value: float) -> float:
        if value <= 0:
            return math.inf
        low, high = 1e-9, 1e12
        for _ in range(400):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if float(polygamma(1, middle)) > value else (low, middle)
        return low

    def median(values: list[float]) -> float:
        ordered, half = sorted(values), len(values) // 2
        return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2

    def moments(logs: list[float], errors: list[float]) -> tuple[float, float]:
        total = sum(1 / error for error in errors)
        weights = [1 / error / total for error in errors]
        mean = sum(weight * log for weight, log in zip(weights, logs, strict=True))
        spread = sum(weight * (log - mean) ** 2 for weight, log in zip(weights, logs, strict=True))
        within = sum(
            weight * (1 - weight) * error for weight, error in zip(weights, errors, strict=True)
        )
        return mean, (spread - within) / (1 - sum(weight**2 for weight in weights))

    halves = [(runs - 1) / 2 for _, runs in pairs]
    errors = [float(polygamma(1, half)) for half in halves]
    logs = [
        math.log(share**2) - float(digamma(half)) + math.log(half)
        for (share, _), half in zip(pairs, halves, strict=True)
    ]
    centre = median(logs)
    between = max(0.0, (1.4826 * median([abs(log - centre) for log in logs])) ** 2 - median(errors))
    reaches = [2.5 * math.sqrt(between + error) for error in errors]
    logs = [
        min(max(log, centre - reach), centre + reach)
        for log, reach in zip(logs, reaches, strict=True)
    ]
    mean, between = moments(logs, errors)
    n = len(logs)
    left = [moments(logs[:i] + logs[i + 1 :], errors[:i] + errors[i + 1 :])[1] for i in range(n)]
    se = math.sqrt((n - 1) / n * sum((value - sum(left) / n) ** 2 for value in left))
    from scipy.stats import t

    df = 1 / (
        1 / min(30.0, 2 * bisect(between + t.ppf(0.975, n - 1) * se))
        + 1 / sum(runs - 1 for _, runs in pairs)
    )
    d0 = 2 * bisect(between)
    bias = 0.0 if math.isinf(d0) else float(digamma(d0 / 2)) - math.log(d0 / 2)
    return math.exp((mean + bias) / 2), df, d0


@settings(max_examples=some(60))
@given(families)
def test_the_fit_is_its_formulas(pairs: list[tuple[float, int]]) -> None:
    fitted, (share, df, d0) = fit_family(groups_of(pairs)), slow_fit(pairs)
    assert fitted.share == pytest.approx(share, rel=1e-6)
    assert fitted.df == pytest.approx(df, rel=1e-5)
    assert fitted.estimated_df == pytest.approx(d0, rel=1e-5) or min(fitted.estimated_df, d0) > 1e5
    assert fitted.df <= min(MAX_DF, fitted.estimated_df * (1 + 1e-9))


@settings(max_examples=some(60))
@given(families, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(
    pairs: list[tuple[float, int]], order: random.Random
) -> None:
    groups = groups_of(pairs)
    mixed = list(groups)
    order.shuffle(mixed)
    assert fit_family(mixed) == fit_family(groups)


@settings(max_examples=some(60))
@given(families, st.floats(0.1, 10.0))
def test_scaling_every_sd_scales_the_noise_alone(
    pairs: list[tuple[float, int]], factor: float
) -> None:
    plain, scaled = fit_family(groups_of(pairs)), fit_family(groups_of(pairs, factor))
    assert scaled.share == pytest.approx(factor * plain.share, rel=1e-6)
    assert scaled.df == pytest.approx(plain.df, rel=1e-5)


def test_groups_alike_are_worth_the_most_and_groups_apart_less() -> None:
    alike = fit_family(groups_of([(0.0005, 10)] * 12))
    assert alike.share == pytest.approx(0.0005, rel=0.1)
    assert alike.df == pytest.approx(1 / (1 / MAX_DF + 1 / 108))
    assert alike.estimated_df == math.inf
    apart = fit_family(groups_of([(0.0005 * 2 ** (number % 3), 10) for number in range(12)]))
    assert apart.df < 12


def test_a_few_small_groups_that_are_alike_by_chance_are_worth_less_than_their_own_runs() -> None:
    assert fit_family(groups_of([(0.0005, 4)] * 3)).df < 9.0


def test_the_truth_is_recovered_from_the_model_itself() -> None:
    rng = np.random.default_rng(17)
    d0, s0, d = 12.0, 0.0004, 9
    fitted = []
    for _ in range(40):
        variances = s0**2 * d0 / rng.chisquare(d0, 60)
        sds = np.sqrt(variances * rng.chisquare(d, 60) / d)
        fitted.append(fit_family(groups_of([(float(sd), d + 1) for sd in sds])))
    assert np.median([fit.share for fit in fitted]) == pytest.approx(s0, rel=0.05)
    assert 8.0 < np.median([fit.estimated_df for fit in fitted]) < 22.0
    assert np.mean([fit.df < d0 for fit in fitted]) > 0.8  # the fit is a bound from below


def test_one_outlying_group_is_named_and_barely_moves_the_noise() -> None:
    rng = np.random.default_rng(3)
    pairs = [(float(0.0004 * math.sqrt(rng.chisquare(9) / 9)), 10) for _ in range(20)]
    plain, spoilt = fit_family(groups_of(pairs)), fit_family(groups_of([*pairs, (0.02, 10)]))
    assert "g20" in spoilt.outliers
    assert "g20" not in plain.outliers
    assert spoilt.share == pytest.approx(plain.share, rel=0.1)


@pytest.mark.parametrize("pairs", [[(0.0005, 40)], [(0.0005, 40)] * 2, [(0.0005, 3)] * 3])
def test_too_little_evidence_is_refused(pairs: list[tuple[float, int]]) -> None:
    with pytest.raises(ValueError, match="expected at least"):
        fit_family(groups_of(pairs))


@given(st.floats(1e-9, 1e9))
def test_the_inverse_of_trigamma(value: float) -> None:
    assert float(polygamma(1, inverse_trigamma(value))) == pytest.approx(
        value, rel=2e-4 if value > 1e6 else 1e-6
    )


def test_the_inverse_of_trigamma_has_an_end() -> None:
    assert inverse_trigamma(0.0) == inverse_trigamma(-1.0) == math.inf


def test_a_fit_is_a_value(make_group: MakeGroup) -> None:
    groups = [make_group(0.0005, name=name) for name in "abcd"]
    assert isinstance(fit_family(groups), FamilyNoise)
    assert (fit_family(groups).groups, fit_family(groups).runs) == (4, 20)
