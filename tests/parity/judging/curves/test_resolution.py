from pathlib import Path

import numpy as np
import pytest

from parity.judging.curves.alignment import align
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.resolution import (
    memory_steps,
    noise_ratio,
    resolution,
    rounding_step,
    smoothing_weight,
)
from parity.judging.curves.window import plan_window
from parity.readers import read_runs


def noisy(n: int = 2000, level: float = 3.3) -> np.ndarray:
    return level + np.random.default_rng(0).normal(0, 0.08, n)


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_decimals_are_seen(digits: int, dtype: type) -> None:
    loss = np.round(noisy(), digits).astype(dtype).astype(np.float64)
    assert rounding_step(loss) == pytest.approx(10.0**-digits)


def test_bf16_is_seen_and_float32_is_not_called_rounded() -> None:
    single = noisy().astype(np.float32)
    assert rounding_step(single.astype(np.float64)) == 0.0
    assert rounding_step(noisy()) == 0.0
    bf16 = (single.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)
    assert rounding_step(bf16) == 2.0**-6


def test_constants_are_not_called_rounded() -> None:
    assert rounding_step(np.full(300, 3.0)) == 0.0
    assert rounding_step(np.empty(0)) == 0.0


@pytest.mark.parametrize("weight", [0.0, 0.6, 0.9, 0.99])
def test_exponential_smoothing_is_seen(weight: float) -> None:
    x = noisy(8000)
    for i in range(1, len(x)):
        x[i] = weight * x[i - 1] + (1 - weight) * x[i]
    assert smoothing_weight(x[2000:]) == pytest.approx(weight, abs=0.05)


@pytest.mark.parametrize("width", [1, 10, 100])
def test_the_memory_of_a_moving_mean_is_its_width(width: int) -> None:
    x = np.convolve(noisy(8000), np.full(width, 1 / width), mode="valid")
    assert memory_steps(x) == pytest.approx(width, rel=0.25)


def test_real_losses_are_not_called_smoothed(reruns: tuple[Curve, ...], data: Path) -> None:
    for run in (*reruns, *read_runs(str(data / "megatron_15b_every_25th.npz"))):
        assert smoothing_weight(run.loss[-400:]) < 0.3


def test_a_trend_or_no_noise_is_not_smoothing() -> None:
    assert smoothing_weight(noisy(2000) + np.linspace(1, 0, 2000)) < 0.2
    assert smoothing_weight(np.linspace(3.1, 3.0, 400)) == 0.0
    assert smoothing_weight(np.full(400, 3.0)) == 0.0


def test_samples_of_a_run_are_told_from_regular_logging() -> None:
    n = 10_000
    steps, loss = np.arange(n), noisy(n)
    whole = curve_from_arrays(steps, loss)
    window = plan_window([whole], n, False, 0.2)
    sample = np.sort(np.random.default_rng(1).choice(n, 4000, replace=False))
    spread = np.linspace(0, n - 1, 1500).astype(int)
    assert resolution([whole], [curve_from_arrays(steps[::10], loss[::10])], window).coverage == 1.0
    assert (
        resolution([whole], [curve_from_arrays(steps[sample], loss[sample])], window).coverage < 0.5
    )
    assert (
        resolution([whole], [curve_from_arrays(steps[spread], loss[spread])], window).coverage < 0.9
    )


def test_one_log_of_averages_shows_in_the_noise_of_the_arms() -> None:
    rng = np.random.default_rng(0)
    steps, batches = np.arange(2000), rng.normal(3.3, 0.08, 2000)
    base, cand = (
        curve_from_arrays(steps, batches + rng.normal(0.0, 0.004, 2000)) for _ in range(2)
    )
    means = [
        curve_from_arrays(steps[9::10], run.loss.reshape(-1, 10).mean(axis=1))
        for run in (base, cand)
    ]
    every = [curve_from_arrays(run.steps[9::10], run.loss[9::10]) for run in (base, cand)]
    for arms, low, high in (
        ((base, cand), 0.9, 1.1),
        (means, 0.8, 1.25),
        ((every[0], means[1]), 0.1, 0.5),
        ((means[0], every[1]), 2.0, 10.0),
    ):
        ratio = noise_ratio(align([arms[0]], [arms[1]]), 0.0, same_batches=True)
        assert ratio is not None
        assert low < ratio < high


def test_the_noise_of_arms_is_not_compared_where_rounding_or_few_points_make_it() -> None:
    both = align(*([curve_from_arrays(np.arange(100), np.round(noisy(100), 1))] for _ in range(2)))
    assert noise_ratio(both, 0.1, same_batches=True) is None
    short = align(*([curve_from_arrays(np.arange(100), noisy(100))] for _ in range(2)))
    assert noise_ratio(short, 0.0, same_batches=True) == 1.0
    assert noise_ratio(short, 0.0, same_batches=False) is None
    flat = align(*([curve_from_arrays(np.arange(100), np.full(100, 2.0))] for _ in range(2)))
    assert noise_ratio(flat, 0.0, same_batches=True) is None
