"""The constants of a forecast by its formula, and the limits at which it says something else."""

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm
from scipy.stats import t as student

from parity.judging.curves.step_noise import StandardError
from parity.judging.gap.interval import interval
from parity.judging.live.baseline_end import level_at_end
from parity.judging.live.offsets import change_variance, combine, correlation, spread
from parity.judging.live.pair_sums import BLOCKS, PairProgress, begin, observe
from parity.judging.live.prediction import Prediction, predict, trailing
from parity.judging.live.run_noise import LiveArm, run_noise
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import policy_from_mapping

NATS = policy_from_mapping(
    {"margin": "0.03 nats", "baseline_run_noise": "1e-9 nats", "candidate_run_noise": "1e-9 nats"}
)
PERCENT = policy_from_mapping({"schedule": "decayed", "margin": "1%"})
NEAREST = LiveArm(rounding="nearest")
ARMS = (NEAREST, NEAREST)
LEVEL = 3.0


def state(gap: np.ndarray | float, blocks: int = BLOCKS, planned: int = BLOCKS) -> PairProgress:
    """One step a block: so many blocks of the plan are trained, with this gap in each."""
    steps = np.arange(1, blocks + 1)
    gaps = np.broadcast_to(gap, planned)[:blocks]
    return observe(begin(planned), steps, np.full(blocks, LEVEL), LEVEL + gaps)


def predicted(gap: np.ndarray | float, blocks: int, policy: object = NATS) -> Prediction:
    made = predict([(state(gap, blocks), blocks == BLOCKS)], 1, ARMS, policy)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("share", "r", "q", "c"),
    [
        (0.0, 0.0, 1.3, 1.5),
        (0.25, 0.4, 1.3, 1.5),
        (0.3, 0.46, 1.3, 1.5),
        (0.32, 0.484, 1.295, 1.5),
        (0.5, 0.7, 1.25, 1.5),
        (0.7, 0.86, 1.146, 1.5),
        (0.75, 0.9, 1.12, 1.5 - 0.05 / 0.3),
        (0.9, 0.97, 1.03, 0.5 + 0.1 / 0.3),
        (1.0, 1.0, 1.0, 0.5),
    ],
)
def test_what_is_declared_of_a_runs_offset(share: float, r: float, q: float, c: float) -> None:
    assert correlation(share) == pytest.approx(r)
    assert spread(share) == pytest.approx(q)
    assert change_variance(share) == pytest.approx(c)


@pytest.mark.parametrize(
    ("done", "fraction", "first"),
    [(80, 0.2, 64), (80, 0.01, 75), (26, 0.2, 21), (28, 0.2, 22), (4, 0.2, 0)],
)
def test_the_trailing_window_is_the_policys_share_and_five_blocks_at_least(
    done: int, fraction: float, first: int
) -> None:
    assert trailing(done, fraction) == slice(first, done)


@pytest.mark.parametrize(("filled", "seen"), [(2, False), (3, True)])
def test_a_pair_is_seen_with_three_trailing_blocks(filled: int, seen: bool) -> None:
    steps = np.arange(41 - filled, 41)
    made = observe(begin(BLOCKS), steps, np.full(filled, LEVEL), np.full(filled, LEVEL))
    assert (predict([(made, False)], 1, ARMS, NATS) is not None) == seen


def alternating(size: float) -> np.ndarray:
    return size * np.resize([1.0, -1.0], BLOCKS)


@pytest.mark.parametrize("candidates", [1, 12])
def test_the_half_width_at_the_end_has_the_noise_of_blocks_on_twelve_degrees(
    candidates: int,
) -> None:
    """Run-to-run noise of nothing leaves the blocks: 1.5 of their variance over 16 of them."""
    level = Multiplicity(candidates=candidates).confidence(0.95)
    made = predict([(state(alternating(0.01)), True)], 1, ARMS, NATS, confidence=level)
    variance = float(np.var(alternating(0.01)[:16], ddof=1))
    half = float(student.ppf(0.5 + level / 2, 12.0)) * math.sqrt(1.5 * variance / 16)
    assert made.half_width == pytest.approx(half, rel=1e-6)
    assert made.gap_half_width == pytest.approx(half, rel=1e-6)


def test_the_half_width_of_a_gap_so_far_is_that_of_its_own_blocks() -> None:
    made = predicted(alternating(0.01), 40)
    gaps = alternating(0.01)[32:40]
    weight = combine([0.5], 1).weights[0]
    within = math.sqrt(weight**2 * 1.5 * float(gaps.var(ddof=1)) / 8)
    assert made.gap_half_width == pytest.approx(float(student.ppf(0.975, 12.0)) * within, rel=1e-6)


def test_the_half_width_is_the_judges_own() -> None:
    """Both terms, each with its own degrees of freedom."""
    made = predicted(alternating(0.01), BLOCKS, PERCENT)
    noise = run_noise(ARMS, PERCENT, LEVEL)
    within = math.sqrt(1.5 * float(np.var(alternating(0.01)[:16], ddof=1)) / 16)
    judged = interval(0.0, StandardError(value=within, df=12.0), noise.end)
    assert made.half_width == pytest.approx(judged.half_width(0.95), rel=1e-9)


def test_a_gap_may_change_by_a_quarter_of_itself_for_what_is_to_come() -> None:
    """Without noise, half of the way: a standard deviation of 0.25 x 0.5 of the gap."""
    made = predicted(0.02, 40)
    gap = made.gap
    for z in (-2.0, 1.0, 2.0):
        assert made.stays.below(gap + z * 0.125 * gap) == pytest.approx(float(norm.cdf(z)), 1e-4)
    assert np.ptp(predicted(0.02, BLOCKS).quantiles([0.05, 0.95])) < 1e-6


def test_a_drift_goes_on_by_three_quarters_of_its_line() -> None:
    """A gap that rises on a line of which noise explains nothing."""
    rising = np.linspace(0.0, 0.05, BLOCKS)
    made = predicted(rising, 40)
    assert made.drift_weight == pytest.approx(1.0, abs=1e-6)
    change = float(rising[32:40].mean() - rising[16:24].mean())
    weight = combine([0.5], 1).weights[0]
    line = weight * 0.9 * 0.5 / (0.4 * 0.5) * change
    noise = 1.5 * 2.0 * float(rising[32:40].var(ddof=1)) / 8 * (weight * 2.25) ** 2
    kept = (weight * 2.25 * 0.03) ** 2
    kept /= kept + noise
    assert made.drifts.mean - made.gap == pytest.approx(0.75 * kept * line, rel=1e-6)
    own = made.drifts.variances - made.stays.variances
    expected = (0.75**2 + 0.5**2) * kept * noise + (0.5 * kept * line) ** 2
    assert own == pytest.approx(np.full(len(own), expected), rel=1e-6)


def test_a_drift_has_a_prior_of_a_twentieth() -> None:
    """A gap that did not change at all: only the wider prior speaks against a drift."""
    made = predicted(alternating(0.01), 40)
    weight = combine([0.5], 1).weights[0]
    reach = weight * 0.9 * 0.5 / (0.4 * 0.5)
    variance = float(alternating(0.01)[32:40].var(ddof=1))
    noise = reach**2 * 1.5 * 2.0 * variance / 8
    ratio = (reach * 0.03) ** 2 / noise
    odds = 0.05 / 0.95 / math.sqrt(1.0 + ratio)
    assert made.drift_weight == pytest.approx(odds / (1.0 + odds), rel=1e-3)


@pytest.mark.parametrize(("size", "left_out"), [(7.9, False), (8.1, True)])
def test_a_block_eight_deviations_away_is_a_spike(size: float, left_out: bool) -> None:
    gaps = alternating(0.01)
    gaps[[70, 71]] = size * 1.4826 * 0.01, -0.01
    made = predicted(gaps, BLOCKS)
    kept = np.delete(gaps[64:], 6) if left_out else gaps[64:]
    assert made.gap == pytest.approx(float(kept.mean()), abs=1e-9)


def test_run_to_run_noise_is_known_on_four_degrees() -> None:
    """A scaled chi-squared of the assumed degrees of freedom, by its mean and a tail."""
    made = predicted(0.0, 40, PERCENT)
    scales = made.stays.variances / made.stays.variances.min()
    assert made.stays.weights.sum() == pytest.approx(1.0)
    noise = run_noise(ARMS, PERCENT, LEVEL)
    run = noise.pair_variance * combine([0.5], 1).error
    inverse = float((made.stays.weights / made.stays.variances).sum())
    assert noise.df == 4.0
    assert inverse * run == pytest.approx(1.0, rel=1e-6)  # the mean of chi2(nu)/nu
    assert scales.max() > float(chi2.ppf(0.99, 4.0) / chi2.ppf(0.01, 4.0))


@pytest.mark.parametrize(("slope", "share"), [(-0.9, 0.75), (-0.01, None), (0.5, 1.0)])
def test_a_loss_falls_by_a_quarter_at_most(slope: float, share: float | None) -> None:
    shares = np.linspace(0.01, 0.1, 50)
    losses = LEVEL + slope * LEVEL * np.log(shares / shares[-1])
    so_far = float(losses[-5:].mean())
    made = level_at_end(so_far, shares, losses, 5, 0.2)
    if share is None:
        ahead = math.log(0.9) - float(np.log(shares[-5:]).mean())
        assert made == pytest.approx(so_far + slope * LEVEL * ahead)
    else:
        assert made == pytest.approx(share * so_far)


def test_the_slope_of_a_level_is_that_of_the_last_half() -> None:
    """What was trained before half of the way counts for nothing."""
    shares = np.linspace(0.01, 0.5, 50)
    losses = np.where(shares < 0.25, 9.0, LEVEL - 0.1 * np.log(shares))
    made = level_at_end(float(losses[-5:].mean()), shares, losses, 5, 0.2)
    assert made == pytest.approx(LEVEL - 0.1 * math.log(0.9))


def z(p: float) -> float:
    return float(norm.isf(p))
