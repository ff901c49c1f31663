import dataclasses

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.live.offsets import change_variance, combine
from parity.judging.live.pair_sums import BLOCKS, PairProgress, begin, observe
from parity.judging.live.prediction import DRIFT_PRIOR, GOES_ON, GOES_ON_SD, Prediction, predict
from parity.judging.live.run_noise import LiveArm, run_noise
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import judge

POLICY = policy_from_mapping({"schedule": "decayed", "margin": "1%"})
NATS = policy_from_mapping(
    {"margin": "0.03 nats", "baseline_run_noise": "0.003 nats", "candidate_run_noise": "0.003 nats"}
)
NEAREST = LiveArm(rounding="nearest")
ARMS = (NEAREST, NEAREST)


def state(
    gap: float | np.ndarray,
    reached: int = BLOCKS,
    level: float = 3.0,
    noise: float = 0.0,
    seed: int = 0,
) -> PairProgress:
    rng = np.random.default_rng(seed)
    steps = np.arange(1, 10 * reached + 1)
    gaps = np.resize(np.broadcast_to(gap, 10 * BLOCKS), len(steps)) + noise * rng.normal(
        size=len(steps)
    )
    base = np.full(len(steps), level)
    return observe(begin(10 * BLOCKS), steps, base, base + gaps)


def predicted(
    gap: float | np.ndarray,
    reached: int,
    policy: Policy = POLICY,
    arms: tuple[LiveArm, LiveArm] = ARMS,
    **kwargs: float,
) -> Prediction:
    made = predict([(state(gap, reached, **kwargs), reached == BLOCKS)], 1, arms, policy)
    assert made is not None
    return made


def width(made: Prediction) -> float:
    """Of the middle 90 %."""
    return float(np.ptp(made.quantiles([0.05, 0.95])))


def test_slow_twin_by_simulation() -> None:
    """The mixture against draws of tau, of the offset, of step noise, of the allowance and of the
    drift.
    """
    made = predicted(0.02, 32, noise=0.01)
    rng = np.random.default_rng(1)
    n = 400_000
    scale = 4.0 / rng.chisquare(4.0, n)  # both arms rest on one assumed noise: 4 degrees of freedom
    variance = 2.0 * (0.0009 * 3.0) ** 2
    (gaps, _), (before, _) = (
        state(0.02, 32, noise=0.01).means(part) for part in (slice(26, 32), slice(13, 19))
    )
    block = gaps.var(ddof=1)
    steps = 1.5 * block / len(gaps) + 1.5 * block / 16
    late = 0.25 * 0.6 * gaps.mean()
    stays = gaps.mean() + rng.normal(size=n) * np.sqrt(
        variance * combine([0.4], 1).error * scale + steps + late**2
    )
    reach = 0.9 * 0.6 / (0.4 * 0.4)
    noise = reach**2 * (
        change_variance(0.4) * variance + 1.5 * (block / 6 + max(block, before.var(ddof=1)) / 6)
    )
    prior = (reach * 0.03) ** 2
    change = reach * (gaps.mean() - before.mean())
    kept = prior / (prior + noise)
    goes_on = rng.normal(GOES_ON, GOES_ON_SD, n)
    drifts = stays + goes_on * (kept * change + np.sqrt(kept * noise) * rng.normal(size=n))
    odds = (
        np.exp(-0.5 * change**2 / (noise + prior))
        / np.sqrt(noise + prior)
        / (np.exp(-0.5 * change**2 / noise) / np.sqrt(noise))
    )
    weight = DRIFT_PRIOR * odds / (DRIFT_PRIOR * odds + 1.0 - DRIFT_PRIOR)
    assert made.drift_weight == pytest.approx(weight)
    drawn = np.where(rng.random(n) < weight, drifts, stays)
    for probability in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert made.below(float(np.quantile(drawn, probability))) == pytest.approx(
            probability, abs=0.01
        )
        assert made.below(float(made.quantiles([probability])[0])) == pytest.approx(
            probability, abs=1e-6
        )
    half = float(student.ppf(0.975, 4.0)) * np.sqrt(variance)
    assert made.half_width == pytest.approx(half, rel=0.2)
    assert made.passes == pytest.approx(float(np.mean(drawn < 0.03 - made.half_width)), abs=0.01)
    assert made.fails == pytest.approx(float(np.mean(drawn > 0.03 + made.half_width)), abs=0.01)


def test_run_noise_alone_is_a_t_distribution() -> None:
    made = predicted(0.0, 32)
    spread = np.sqrt(2.0 * combine([0.4], 1).error) * 0.0009 * 3.0
    for away in (0.5, 2.0, 6.0):
        assert made.stays.below(-away * spread) == pytest.approx(student.cdf(-away, 4.0), rel=0.02)


def test_at_the_end_nothing_is_uncertain_and_the_half_width_is_the_judges() -> None:
    rng = np.random.default_rng(2)
    steps = np.arange(1, 2001)
    base = 3.0 + rng.normal(0, 0.05, 2000)
    cand = base + rng.normal(0.012, 0.003, 2000)
    verdict = judge(
        [curve_from_arrays(steps, base, rounding="nearest")],
        {"c": [curve_from_arrays(steps, cand, rounding="nearest")]},
        POLICY,
        planned_steps=2000,
    )[0]
    made = predict([(observe(begin(2000), steps, base, cand), True)], 1, ARMS, POLICY)
    assert made is not None
    lo, hi = verdict.gap.bounds(0.95)
    assert made.gap == pytest.approx(verdict.gap.mean, abs=1e-4)
    assert width(made) < 1e-6
    assert made.half_width == pytest.approx((hi - lo) / 2, rel=0.05)
    assert made.gap_half_width == pytest.approx((hi - lo) / 2, rel=0.05)


def test_the_interval_of_a_gap_so_far_shrinks_to_that_of_the_verdict() -> None:
    of_seeds = [
        [predicted(0.02, reached, noise=0.3, seed=seed).gap_half_width for seed in range(20)]
        for reached in (10, 40, BLOCKS)
    ]
    widths = [float(np.median(each)) for each in of_seeds]
    assert widths[0] > widths[1] > widths[2]
    assert of_seeds[2][0] == pytest.approx(predicted(0.02, BLOCKS, noise=0.3).half_width)
    # run-to-run noise alone
    assert predicted(0.02, 10).gap_half_width == pytest.approx(
        predicted(0.02, BLOCKS).gap_half_width
    )


def test_a_constant_in_both_arms_changes_nothing() -> None:
    first, second = (
        predicted(0.02, 30, NATS, noise=0.01),
        predicted(0.02, 30, NATS, level=5.0, noise=0.01),
    )
    for name in ("gap", "half_width", "margin", "drift_weight"):
        assert getattr(first, name) == pytest.approx(getattr(second, name))
    assert first.below(0.01) == pytest.approx(second.below(0.01))


def test_the_forecast_narrows_as_the_plan_is_done() -> None:
    widths = [width(made) for made in (predicted(0.01, reached) for reached in range(10, 81, 10))]
    assert widths == sorted(widths, reverse=True)


def test_a_gap_that_falls_is_forecast_lower_and_wider() -> None:
    falling = predicted(np.linspace(0.16, -0.3, 800), 24)
    steady = predicted(falling.gap, 24)
    assert falling.drift_weight > 0.9 > steady.drift_weight
    assert falling.drifts.mean < falling.gap
    assert falling.passes > steady.passes


def test_a_spiked_block_changes_nothing_that_matters() -> None:
    gaps = np.full(800, 0.01) + 0.001 * np.random.default_rng(3).normal(size=800)
    spiked = gaps.copy()
    spiked[300:306] += 5.0
    assert predicted(spiked, 32).gap == pytest.approx(predicted(gaps, 32).gap, abs=5e-4)


def test_replicates_narrow_the_forecast_and_a_pair_ahead_counts_more() -> None:
    arms = (dataclasses.replace(NEAREST, runs=2), dataclasses.replace(NEAREST, runs=2))
    one = predicted(0.01, 40)
    both = predict([(state(0.01, 40), False), (state(0.01, 40), False)], 2, arms, POLICY)
    ahead = predict([(state(0.0, 80), True), (state(0.02, 10), False)], 2, arms, POLICY)
    assert both is not None
    assert ahead is not None
    assert width(both) < 0.8 * (width(one))
    assert both.half_width < one.half_width
    assert ahead.gap < 0.01
    assert ahead.share == pytest.approx(0.5625)


def test_reruns_that_ended_measure_the_noise() -> None:
    loud = dataclasses.replace(NEAREST, runs=4, means=(3.0, 3.1, 2.9, 3.05), seeds=(0, 0, 0, 0))
    quiet = dataclasses.replace(loud, means=(3.0, 3.001, 2.999, 3.0))
    assert (
        run_noise((loud, loud), POLICY, 3.0).pair_variance
        > 100 * run_noise((quiet, quiet), POLICY, 3.0).pair_variance
    )
    assert run_noise((quiet, quiet), POLICY, 3.0).end.df > run_noise(ARMS, POLICY, 3.0).end.df


def test_unstated_rounding_counts_as_stochastic_and_seeds_add_degrees_of_freedom() -> None:
    assert (
        run_noise((NEAREST, LiveArm()), POLICY, 3.0).pair_variance
        > 1.5 * run_noise(ARMS, POLICY, 3.0).pair_variance
    )
    two = dataclasses.replace(NEAREST, runs=2)
    assert run_noise((two, two), POLICY, 3.0, seeds=2).end.df == pytest.approx(5.0)


@pytest.mark.parametrize("reached", [0, 1, 2])
def test_too_little_gives_no_prediction(reached: int) -> None:
    assert predict([(state(0.01, reached), False)], 1, ARMS, POLICY) is None


def test_no_margin_or_no_loss_gives_no_prediction() -> None:
    assert (
        predict(
            [(state(0.01, 40), False)], 1, ARMS, policy_from_mapping({"profile": "noise-floor"})
        )
        is None
    )
    assert predict([(state(0.01, 40, level=-1.0), False)], 1, ARMS, POLICY) is None
    assert predict([], 1, ARMS, POLICY) is None


def test_two_sided_and_much_better_candidates_do_not_pass() -> None:
    assert predicted(-0.2, 60).passes == pytest.approx(0.0, abs=0.01)
    strict = policy_from_mapping({"margin": "1%", "two_sided": True})
    assert predicted(-0.028, 60, strict).passes < 0.05 < predicted(-0.028, 60).passes
