import itertools
from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.alignment import align
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.data_order import (
    is_proven_somewhere,
    pair_correlation,
    worst_correlation,
)
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from parity.readers import read_runs


def test_real_reruns_share_their_batches(reruns: tuple[Curve, ...]) -> None:
    for a, b in itertools.combinations(reruns, 2):
        assert pair_correlation(a.loss, b.loss) > 0.99


def test_real_versions_with_another_data_order_do_not(data: Path) -> None:
    runs = {run.label: run for run in read_runs(str(data / "megatron_15b_every_25th.npz"))}
    for other, low, high in (("megatron_0.8.0", -0.1, 0.1), ("megatron_0.11.0", 0.99, 1.0)):
        pair = align([runs["megatron_0.10.0"]], [runs[other]])
        assert low < pair_correlation(pair.baseline[0], pair.candidate[0]) < high


def test_twin_without_clipping() -> None:
    rng = np.random.default_rng(0)
    batch = rng.normal(0, 0.08, 400)
    a, b = batch + rng.normal(0, 0.02, 400), batch + rng.normal(0, 0.02, 400)
    half_a, half_b = a[200:], b[200:]
    c_a = [half_a[i] - 2 * half_a[i + 1] + half_a[i + 2] for i in range(198)]
    c_b = [half_b[i] - 2 * half_b[i + 1] + half_b[i + 2] for i in range(198)]
    assert pair_correlation(a, b) == pytest.approx(np.corrcoef(c_a, c_b)[0, 1], abs=0.01)


def test_a_spike_in_one_arm_does_not_hide_the_pairing() -> None:
    rng = np.random.default_rng(0)
    batch = rng.normal(0, 0.08, 2000)
    spiked = batch + rng.normal(0, 0.004, 2000)
    spiked[1500:1520] += 3.0
    assert pair_correlation(batch, spiked) > 0.9


def test_noiseless_curves_are_exempt_and_half_noiseless_ones_are_not() -> None:
    smooth = 2.0 + np.arange(1.0, 1001.0) ** -0.5
    noisy = smooth + np.random.default_rng(0).normal(0, 0.05, 1000)
    assert pair_correlation(np.full(1000, 2.0), np.full(1000, 2.04)) is None
    assert abs(pair_correlation(np.full(1000, 2.0), noisy)) < 0.3
    assert pair_correlation(smooth[:10], smooth[:10]) is None


def test_smooth_curves_that_differ_by_a_constant_are_not_called_unpaired() -> None:
    smooth = 2.0 + np.arange(1.0, 2001.0) ** -0.5
    correlation = pair_correlation(smooth, smooth + 0.04)
    assert correlation is None or correlation > 0.9


def _clipped(block: np.ndarray, sds: float) -> np.ndarray:
    middle = np.median(block)
    limit = sds * 1.482602218505602 * np.median([abs(value - middle) for value in block])
    return np.array([min(max(value, -limit), limit) for value in block])


def _slow_correlation(one: np.ndarray, other: np.ndarray, sds: float) -> float:
    return float(np.corrcoef(_clipped(one, sds), _clipped(other, sds))[0, 1])


@pytest.mark.parametrize("points", [2000, 4523])
def test_twin_of_the_worst_block(points: int) -> None:
    """Of the whole last half and of its blocks of 200 points or more, the smallest; here where a
    stretch has batches of its own.
    """
    rng = np.random.default_rng(points)
    batch = rng.normal(0, 0.08, points)
    a, b = (batch + rng.normal(0, 0.02, points) for _ in range(2))
    b[-260:] = rng.normal(0, 0.08, 260)
    runs = [curve_from_arrays(np.arange(points), loss) for loss in (a, b)]
    changes = [
        np.array([x[i] - 2 * x[i + 1] + x[i + 2] for i in range(points // 2, points - 2)])
        for x in (a, b)
    ]
    count = min(20, len(changes[0]) // 200)
    slow = [_slow_correlation(changes[0], changes[1], 6.0)]
    blocks = zip(*(np.array_split(each, count) for each in changes), strict=True)
    slow += [_slow_correlation(one, other, 1.5) for one, other in blocks]
    assert min(slow[1:]) < 0.5 < slow[0]
    assert worst_correlation(align(runs[:1], runs[1:]), runs[:1], runs[1:]) == pytest.approx(
        min(slow), abs=1e-9
    )


def worse_late(rng_seed: int, *, own_batches: bool, n: int = 400) -> tuple[Curve, Curve]:
    """A candidate that breaks over the last 30 %: 25 % worse, with more noise of its own than the
    batches have; or one on other batches.
    """
    rng = np.random.default_rng(rng_seed)
    batches, steps = rng.normal(0.0, 0.1, n), np.arange(n)
    late = steps >= 0.7 * n
    read = rng.normal(0.0, 0.1, n) if own_batches else batches
    base, cand = (
        2.0 + batches,
        2.0 + read + rng.normal(0.0, 0.005, n) + late * (0.5 + rng.normal(0.0, 0.4, n)),
    )
    return curve_from_arrays(steps, base, rounding="nearest"), curve_from_arrays(
        steps, cand, rounding="nearest"
    )


@pytest.mark.parametrize("every", [1, 5])
def test_a_candidate_that_breaks_late_is_recognised_and_other_batches_never_are(every: int) -> None:
    """Rule 9: a pass needs r >= 0.5 in the worst part, a fail in some half or quarter."""
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    for rng_seed in range(10):
        for own_batches in (False, True):
            base, cand = worse_late(rng_seed, own_batches=own_batches, n=400 * every)
            at = slice(every - 1, None, every)
            base, cand = (
                curve_from_arrays(run.steps[at], run.loss[at], rounding="nearest")
                for run in (base, cand)
            )
            both = align([base], [cand])
            worst = worst_correlation(both, [base], [cand])
            assert worst is not None
            assert worst < 0.5
            assert is_proven_somewhere(both) != own_batches
            (verdict,) = judge([base], {"c": [cand]}, policy, planned_steps=int(base.steps[-1]) + 1)
            assert verdict.verdict == ("inconclusive" if own_batches else "fail"), verdict.codes
            assert (verdict.codes[0] in ("DATA_ORDER_MISMATCH", "ARM_AVERAGED")) == own_batches
