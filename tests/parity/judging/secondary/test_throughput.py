import math

import numpy as np
import pytest

from parity.judging.curve import Curve, curve_from_arrays
from parity.judging.secondary.throughput import Ratio, net_speedup, throughput
from parity.judging.secondary.token_tax import TokenTax


def timed(seconds: float, seed: int, n: int = 1000, sd: float = 0.05) -> Curve:
    rng = np.random.default_rng(seed)
    times = seconds * np.exp(rng.normal(0, sd, n))
    times[:20] = 30.0  # compilation
    return curve_from_arrays(np.arange(n), np.ones(n), columns={"step_seconds": times})


def test_the_ratio_ignores_compilation_and_covers_the_truth() -> None:
    hits = 0
    for seed in range(100):
        speed = throughput([timed(1.4, 2 * seed)], [timed(1.0, 2 * seed + 1)], 0.95)
        assert speed is not None
        hits += speed.ratio.lo <= 1.4 <= speed.ratio.hi
    assert hits >= 88
    assert speed.ratio.value == pytest.approx(1.4, rel=0.02)
    assert speed.baseline_step_seconds == pytest.approx(1.4, rel=0.02)


def test_runs_that_differ_widen_the_interval() -> None:
    one = throughput([timed(1.0, 0)], [timed(1.0, 1)], 0.95)
    two = throughput([timed(1.0, 0), timed(1.2, 2)], [timed(1.0, 1), timed(1.0, 3)], 0.95)
    assert one is not None
    assert two is not None
    assert two.ratio.hi / two.ratio.lo > 5 * one.ratio.hi / one.ratio.lo
    runs = (timed(1.0, 0), timed(1.2, 2), timed(1.0, 1), timed(1.0, 3))
    assert two.run_hours == pytest.approx(sum(run.columns["step_seconds"].sum() for run in runs) / 3600)


def test_missing_or_useless_times_give_nothing() -> None:
    bare = curve_from_arrays(np.arange(100), np.ones(100))
    assert throughput([timed(1.0, 0)], [bare], 0.95) is None
    nan = curve_from_arrays(np.arange(100), np.ones(100), columns={"step_seconds": np.full(100, np.nan)})
    assert throughput([nan], [timed(1.0, 0)], 0.95) is None
    constant = curve_from_arrays(np.arange(100), np.ones(100), columns={"step_seconds": np.ones(100)})
    assert throughput([constant], [constant], 0.95).ratio == Ratio(value=1.0, lo=1.0, hi=1.0)


def test_a_fast_format_with_a_high_tax_is_worth_little() -> None:
    """1.4 x as fast with 36 % more tokens is worth 1.03 x."""
    tax = TokenTax(estimate=0.36, lo=0.30, hi=0.42, caveat="")
    speedup = net_speedup(Ratio(value=1.4, lo=1.38, hi=1.42), tax)
    assert speedup is not None
    assert speedup.value == pytest.approx(1.03, abs=0.005)
    assert speedup.lo == pytest.approx(speedup.value * math.exp(-math.hypot(math.log(1.4 / 1.38), math.log(1.42 / 1.36))))
    assert speedup.lo < 1.0 < speedup.hi
    assert net_speedup(Ratio(value=1.4, lo=1.4, hi=1.4), TokenTax(estimate=0.1, lo=0.0, hi=float("inf"), caveat="")) is None


def test_rates_of_a_device_are_medians_without_the_start() -> None:
    columns = {"step_seconds": np.ones(100), "tflops": np.where(np.arange(100) < 10, 0.0, 400.0)}
    with_rate = curve_from_arrays(np.arange(100), np.ones(100), columns=columns)
    speed = throughput([with_rate], [timed(1.0, 0)], 0.95)
    assert speed is not None
    assert speed.tflops == (400.0, None)
    assert speed.tokens_per_second == (None, None)
