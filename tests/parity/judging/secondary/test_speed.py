import math

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.document_types import EstimateDocument, ThroughputDocument
from parity.judging.secondary.conditions import NotComparable
from parity.judging.secondary.speed import net_speedup, throughput
from parity.judging.secondary.token_tax import TokenTax


def timed(
    seconds: float,
    seed: int,
    n: int = 1000,
    sd: float = 0.05,
    *,
    start: float = 1.7e9,
    load: np.ndarray | None = None,
    **context: str,
) -> Curve:
    """A run of n steps that began at a moment (Unix seconds); `load` (n,) multiplies its step
    times.
    """
    rng = np.random.default_rng(seed)
    times = seconds * np.exp(rng.normal(0, sd, n)) * (1.0 if load is None else load)
    times[:20] = 30.0  # compilation
    columns = {"step_seconds": times, "unix_seconds": start + np.cumsum(times)}
    return curve_from_arrays(
        np.arange(n), np.ones(n), columns=columns, context={"device_class": "h100", **context}
    )


def measured(baseline: list[Curve], candidate: list[Curve]) -> ThroughputDocument:
    speed = throughput(baseline, candidate, 0.95)
    assert speed is not None
    assert not isinstance(speed, NotComparable)
    return speed


def test_the_ratio_ignores_compilation_and_covers_the_truth() -> None:
    hits = 0
    for seed in range(100):
        speed = measured([timed(1.4, 2 * seed)], [timed(1.0, 2 * seed + 1)])
        hits += speed["ratio"]["lo"] <= 1.4 <= speed["ratio"]["hi"]
    assert hits >= 88
    assert speed["ratio"]["value"] == pytest.approx(1.4, rel=0.02)
    assert speed["ratio"]["hi"] / speed["ratio"]["lo"] < 1.1
    assert speed["baseline_step_seconds"] == pytest.approx(1.4, rel=0.02)


def test_runs_that_differ_widen_the_interval() -> None:
    one = measured([timed(1.0, 0)], [timed(1.0, 1)])
    two = measured([timed(1.0, 0), timed(1.2, 2)], [timed(1.0, 1), timed(1.0, 3)])
    assert two["ratio"]["hi"] / two["ratio"]["lo"] > 5 * one["ratio"]["hi"] / one["ratio"]["lo"]
    runs = (timed(1.0, 0), timed(1.2, 2), timed(1.0, 1), timed(1.0, 3))
    assert two["run_hours"] == pytest.approx(
        sum(run.columns["step_seconds"].sum() for run in runs) / 3600
    )


def test_a_machine_whose_speed_drifts_decides_nothing() -> None:
    """Equal recipes on two devices of a busy machine, each slowed by its own slow load: rarely
    called different.
    """
    wrong, n = 0, 1000
    for seed in range(200):
        rng = np.random.default_rng(seed)
        loads = [np.exp(0.3 * np.cumsum(rng.normal(0, n**-0.5, n))) for _ in range(2)]
        speed = measured(
            [timed(1.0, seed, load=loads[0])], [timed(1.0, seed + 1000, load=loads[1])]
        )
        wrong += not speed["ratio"]["lo"] <= 1.0 <= speed["ratio"]["hi"]
    assert wrong <= 30


def test_missing_or_useless_times_give_nothing() -> None:
    bare = curve_from_arrays(np.arange(100), np.ones(100))
    assert throughput([timed(1.0, 0)], [bare], 0.95) is None
    nan = curve_from_arrays(
        np.arange(100), np.ones(100), columns={"step_seconds": np.full(100, np.nan)}
    )
    assert throughput([nan], [timed(1.0, 0)], 0.95) is None
    constant = timed(1.0, 0, sd=0.0)
    assert measured([constant], [constant])["ratio"] == EstimateDocument(value=1.0, lo=1.0, hi=1.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e308, 5e-324, np.inf, np.nan])
def test_absurd_times_give_nothing(seconds: float) -> None:
    columns = {"step_seconds": np.full(1000, seconds), "unix_seconds": 1.7e9 + np.arange(1000)}
    absurd = curve_from_arrays(
        np.arange(1000), np.ones(1000), columns=columns, context={"device_class": "h100"}
    )
    assert throughput([absurd], [timed(1.0, 0)], 0.95) is None
    assert throughput([timed(1.0, 0)], [absurd], 0.95) is None


def test_only_the_common_time_of_single_runs_counts() -> None:
    """Both slow down by half at the same moment; the candidate began later."""
    slow = np.where(np.arange(1000) < 500, 1.0, 2.0)
    late = np.where(np.arange(1000) < 250, 1.0, 2.0)
    base, cand = timed(1.0, 0, load=slow), timed(1.0, 1, load=late, start=1.7e9 + 250)
    assert measured([base], [cand])["ratio"]["value"] == pytest.approx(1.0, rel=0.05)


def test_a_short_common_time_gives_a_reason() -> None:
    base, cand = timed(1.0, 0), timed(1.0, 1, n=60, start=1.7e9)
    speed = throughput([base], [cand], 0.95)
    assert isinstance(speed, NotComparable)
    assert "fewer than 40 timed steps" in speed.reason


def test_a_fast_format_with_a_high_tax_is_worth_little() -> None:
    """1.4 x as fast with 36 % more tokens is worth 1.03 x."""
    tax = TokenTax(estimate=0.36, lo=0.30, hi=0.42, caveat="")
    speedup = net_speedup(EstimateDocument(value=1.4, lo=1.38, hi=1.42), tax)
    assert speedup is not None
    assert speedup["value"] == pytest.approx(1.03, abs=0.005)
    assert speedup["lo"] == pytest.approx(
        speedup["value"] * math.exp(-math.hypot(math.log(1.4 / 1.38), math.log(1.42 / 1.36)))
    )
    assert speedup["lo"] < 1.0 < speedup["hi"]
    assert (
        net_speedup(
            EstimateDocument(value=1.4, lo=1.4, hi=1.4),
            TokenTax(estimate=0.1, lo=0.0, hi=float("inf"), caveat=""),
        )
        is None
    )


def test_rates_of_a_device_are_medians_without_the_start() -> None:
    run = timed(1.0, 1)
    rates = {**run.columns, "tflops": np.where(np.arange(1000) < 100, 0.0, 400.0)}
    with_rate = curve_from_arrays(run.steps, run.loss, columns=rates, context=run.context)
    speed = measured([with_rate], [timed(1.0, 0)])
    assert speed["tflops"] == [400.0, None]
    assert speed["tokens_per_second"] == [None, None]
