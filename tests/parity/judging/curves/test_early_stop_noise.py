import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.early_stop_noise import (
    RATIO_SD_LOG,
    EarlySpread,
    early_df,
    helmert_squares,
    prefix_window,
)
from parity.judging.curves.step_noise import StandardError
from parity.judging.curves.window import make_window
from parity.judging.gap.interval import interval
from parity.judging.noise.arm_noise import ArmNoise, Prior, arm_noise, own_spread, run_term

PRIOR = Prior(tau=0.0008, df=4.0, basis="assumed")
OTHER = Prior(tau=0.0030, df=4.0, basis="assumed for stochastic rounding")
NO_WITHIN = StandardError(value=0.0, df=12.0)
SHARES = st.floats(0.9, 1.1)


def spread(share: float, runs: int) -> EarlySpread:
    return EarlySpread(squares=runs * share**2, runs=runs, stop=0.5, first=300, last=499)


def noise_of(
    early: EarlySpread | None, prior: Prior = PRIOR, means: tuple[float, ...] = (1.0,)
) -> ArmNoise:
    return arm_noise(prior, np.array(means), [0] * len(means), None, early)


@pytest.mark.parametrize(
    ("last", "origin", "first", "points"),
    [
        (499, 0, 300, 200),
        (500, 1, 301, 200),
        (399, 0, 300, 100),
        (599, 0, 400, 200),
        (899, 0, 700, 200),
    ],
)
def test_the_window_is_a_fifth_of_the_plan_and_never_before_30_percent(
    last: int, origin: int, first: int, points: int
) -> None:
    window = make_window(1000, origin, 0.2, "declared")
    assert prefix_window(window, last) == (first, last)
    assert last - first + 1 == points


@given(st.lists(SHARES, min_size=1, max_size=5), st.lists(SHARES, min_size=1, max_size=5))
def test_what_reruns_add_completes_the_spread_of_all_runs(
    full: list[float], early: list[float]
) -> None:
    """SS of the full runs plus SS of the reruns is SS of all of them: nothing is counted twice."""
    added = helmert_squares(np.array(full), [0] * len(full), np.array(early), [0] * len(early))
    together, _ = own_spread(np.array(full + early), [0] * (len(full) + len(early)))
    alone, _ = own_spread(np.array(full), [0] * len(full))
    assert added == pytest.approx(together - alone, abs=1e-12)


def test_seeds_are_kept_apart() -> None:
    full, early = np.array([1.0, 2.0, 9.0]), np.array([1.5, 9.5])
    by_hand = helmert_squares(full[:2], [0, 0], early[:1], [0]) + helmert_squares(
        full[2:], [7], early[1:], [7]
    )
    assert helmert_squares(full, [0, 0, 7], early, [0, 7]) == pytest.approx(by_hand)
    assert by_hand == pytest.approx(0.125)


def test_degrees_of_freedom_fall_with_the_unknown_ratio_and_never_pass_6() -> None:
    assert early_df(0) == 0.0
    assert early_df(1) == pytest.approx(1.0 / 1.18)
    assert early_df(3) == pytest.approx(1.0 / (1.0 / 3.0 + 0.18))
    assert early_df(10**9) < 1.0 / (2.0 * RATIO_SD_LOG**2) == pytest.approx(1.0 / 0.18)


def test_the_noise_weighs_prior_replicates_and_reruns() -> None:
    early, means = spread(0.002, 3), (1.0, 1.004)
    noise = noise_of(early, means=means)
    squares, df = own_spread(np.array(means), [0, 0])
    expected = (4 * PRIOR.tau**2 + squares + early.df * (0.002 * 1.002) ** 2) / (4 + df + early.df)
    assert noise.tau == pytest.approx(math.sqrt(expected))
    assert noise.df == pytest.approx(4 + 1 + early.df)
    assert (noise.measured_df, noise.runs) == (1, 2)
    assert noise.measured == pytest.approx(0.004 / math.sqrt(2.0))
    assert noise.source == "replicates and early-stopped reruns"
    assert noise_of(early).source == "early-stopped reruns"
    assert noise_of(None).early_df == 0.0


def test_both_arms_share_what_is_not_known_of_the_ratio() -> None:
    """Two arms with equal reruns and priors of their own: never more than the reruns of both arms
    are worth together.
    """
    many = spread(0.0008, 10**6)
    free = Prior(tau=0.0008, df=1e-9, basis="a"), Prior(tau=0.0008, df=1e-9, basis="b")
    joint = run_term(noise_of(many, free[0]), noise_of(many, free[1]))
    assert joint.df == pytest.approx(1.0 / (2.0 * RATIO_SD_LOG**2), rel=1e-3)
    few = spread(0.0008, 3)
    assert run_term(noise_of(few, free[0]), noise_of(few, free[1])).df == pytest.approx(
        early_df(6), rel=1e-6
    )
    one, bare = noise_of(few, PRIOR), noise_of(None, OTHER)
    a, b = one.tau**2, bare.tau**2
    # Welch: only one arm has reruns
    assert run_term(one, bare).df == pytest.approx((a + b) ** 2 / (a**2 / one.df + b**2 / bare.df))


@given(st.integers(1, 64), st.integers(1, 64))
def test_reruns_that_agree_exactly_narrow_no_more_than_their_degrees_of_freedom_allow(
    base: int, cand: int
) -> None:
    """tau^2 keeps at least nu0 / (nu0 + 5.6) of the prior, and no number of reruns takes the
    half-width below a third of the prior's.
    """
    noises = noise_of(spread(0.0, base)), noise_of(spread(0.0, cand))
    for noise in noises:
        assert noise.tau**2 >= PRIOR.tau**2 * 4.0 / 9.6
    width = interval(0.0, NO_WITHIN, run_term(*noises)).half_width(0.95)
    assumed = interval(0.0, NO_WITHIN, run_term(noise_of(None), noise_of(None))).half_width(0.95)
    assert assumed / 3.0 < width < assumed


@given(st.floats(0.0009, 0.05), st.integers(1, 16))
def test_noisier_reruns_widen_the_noise(share: float, runs: int) -> None:
    assert noise_of(spread(share, runs)).tau > PRIOR.tau


def test_simulated_arms_are_covered() -> None:
    """Ratios whose logs scatter by 0.3, one run and three reruns an arm: at least 94 % without any
    prior, and more than the prior alone.

    The true tau of 0.15 % is twice the assumed one.
    """
    rng = np.random.default_rng(17)
    tau, pairs = 0.0015, 2000
    none = Prior(tau=tau, df=1e-9, basis="none")
    hits = {"prior alone": 0, "prior and reruns": 0, "reruns alone": 0}
    for _ in range(pairs):
        ratio = math.exp(RATIO_SD_LOG * rng.normal())
        arms = [ratio * tau * rng.normal(size=4) for _ in range(2)]
        squares = [helmert_squares(offsets[:1], [0], offsets[1:], [0] * 3) for offsets in arms]
        early = [EarlySpread(squares=one, runs=3, stop=0.5, first=0, last=0) for one in squares]
        gap = tau * (rng.normal() - rng.normal())
        noises = {
            "prior alone": [noise_of(None)] * 2,
            "prior and reruns": [noise_of(spread) for spread in early],
            "reruns alone": [noise_of(spread, none) for spread in early],
        }
        for name, pair in noises.items():
            lo, hi = interval(gap, NO_WITHIN, run_term(*pair)).bounds(0.95)
            hits[name] += lo <= 0.0 <= hi
    assert hits["reruns alone"] / pairs > 0.94
    assert hits["prior and reruns"] > hits["prior alone"] + 0.03 * pairs


def test_a_sum_of_squares_has_the_bits_of_numpys():
    generator = np.random.default_rng(0)
    for size in range(1, 12):
        for scale in (1e-9, 1e-3, 1.0):
            group = (1.4 + generator.normal(0, scale, size)).tolist()
            assert own_spread(np.array(group), [0] * size)[0] == float(
                np.sum((np.array(group) - np.mean(group)) ** 2)
            )
