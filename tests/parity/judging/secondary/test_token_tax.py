import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from parity.judging.secondary.token_tax import MAX_SHIFT, PowerLaw, fit_law, token_tax

TRUE = PowerLaw(floor=2.0, scale=8.0, power=0.35)


def taxed(n: int, tax: float, seed: int) -> float:
    """The estimate for a candidate that follows the baseline's law on 1 + tax times as many tokens,
    with shared batch noise.
    """
    rng = np.random.default_rng(seed)
    steps = np.arange(n)
    t = steps + 1.0
    batch = rng.normal(0, 0.08, n)
    base = TRUE.at(t) + batch + rng.normal(0, 0.003, n)
    cand = TRUE.at(t / (1 + tax)) + batch + rng.normal(0, 0.003, n)
    window = steps[int(0.8 * n) :]
    gap = float((cand - base)[window].mean())
    law = fit_law(steps, base)
    assert law is not None
    return token_tax(law, window, 0, gap, gap - 0.002, gap + 0.002, constant_rate=True).estimate


@pytest.mark.parametrize("tax", [0.0, 0.05, 0.15, 0.36])
def test_a11_bias_and_spread(tax: float) -> None:
    taxes = np.array([taxed(2000, tax, seed) for seed in range(20)])
    assert abs(taxes.mean() - tax) <= 0.02
    assert taxes.std() <= 0.04


def test_an_exact_law_gives_the_exact_tax() -> None:
    t = np.arange(1.0, 5001.0)
    window = np.arange(4001, 5000)
    gap = float(np.mean(TRUE.at(t[window] / 1.25) - TRUE.at(t[window])))
    tax = token_tax(TRUE, window, 0, gap, 0.0, 2 * gap, constant_rate=False)
    assert tax.estimate == pytest.approx(0.25, abs=1e-6)
    assert tax.lo == pytest.approx(0.0, abs=1e-6)
    assert tax.hi > 0.5
    assert "equal-loss shift" in tax.caveat


@given(st.floats(0.02, 3.0), st.floats(1e-3, 1e3), st.floats(-4.0, 4.0))
def test_the_tax_is_the_root_that_a_search_finds(power: float, scale: float, log_s: float) -> None:
    law, window = PowerLaw(floor=0.0, scale=scale, power=power), np.arange(400, 500)
    t = window + 1.0

    def gap_at(log_s: float) -> float:
        return float(np.mean(law.at(t / np.exp(log_s))) - np.mean(law.at(t)))

    tax = token_tax(law, window, 0, gap_at(log_s), 0.0, 0.0, constant_rate=True).estimate
    if abs(log_s) > np.log(MAX_SHIFT):
        assert tax == (np.inf if log_s > 0 else -1.0)
    else:
        root = np.exp(brentq(lambda at: gap_at(at) - gap_at(log_s), -5.0, 5.0, xtol=1e-12))
        assert 1.0 + tax == pytest.approx(root, rel=1e-6)


def test_a_gap_that_no_shift_explains_is_unbounded() -> None:
    window = np.arange(4000, 5000)
    tax = token_tax(TRUE, window, 0, 50.0, -50.0, 50.0, constant_rate=True)
    assert (tax.estimate, tax.lo) == (float("inf"), -1.0)


def test_without_a_decline_or_points_there_is_no_law() -> None:
    assert fit_law(np.arange(50), np.ones(50)) is None
    assert fit_law(np.arange(500), np.ones(500)) is None
    assert fit_law(np.arange(500), np.linspace(1, 2, 500)) is None


def test_the_fit_finds_the_law_it_came_from() -> None:
    t = np.arange(1.0, 20_001.0)
    law = fit_law(np.arange(20_000), TRUE.at(t))
    assert law is not None
    assert np.abs(law.at(t[400:]) - TRUE.at(t[400:])).max() < 1e-3
