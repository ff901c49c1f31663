import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from parity.judging.evaluations.hardware_speed import speeds
from parity.judging.evaluations.run_times import RunTimes


def times(
    hardware: str | None, *seconds: float | None, to_target: float | None = 100.0
) -> list[RunTimes]:
    return [
        RunTimes(
            arm="x", run=str(i), hardware=hardware, step_seconds=own, seconds_to_target=to_target
        )
        for i, own in enumerate(seconds)
    ]


def test_ratio_twin() -> None:
    slow, fast = (0.30, 0.31, 0.305), (0.25, 0.26)
    (got,) = speeds(times("b200", *slow), times("b200", *fast), 0.95)
    low, high = stats.ttest_ind(np.log(slow), np.log(fast), equal_var=False).confidence_interval(
        0.95
    )
    assert got.step is not None
    assert got.runs == (3, 2)
    assert (got.step["lo"], got.step["hi"]) == pytest.approx((math.exp(low), math.exp(high)))
    assert got.net is not None
    assert got.net["value"] == 1.0


def test_only_equal_hardware_is_compared() -> None:
    baseline = [*times("b200", 0.3, 0.3), *times("b300", 0.2, 0.2), *times(None, 0.1, 0.1)]
    candidate = [*times("b200", 0.2, 0.2), *times("gb300", 0.1, 0.1), *times(None, 0.3, 0.3)]
    assert [speed.hardware for speed in speeds(baseline, candidate, 0.95)] == ["b200"]
    assert speeds(times("b200", 0.3), times("b200", 0.2, 0.2), 0.95) == ()


@pytest.mark.parametrize("missing", [None, math.nan, 0.0, math.inf])
def test_a_missing_time_gives_no_ratio(missing: float | None) -> None:
    (got,) = speeds(times("b200", 0.3, 0.3), times("b200", 0.2, missing), 0.95)
    assert got.step is None
    assert got.net is not None


def on(hardware: str, seconds: Sequence[float], arm: str) -> list[RunTimes]:
    return [
        RunTimes(arm=arm, run=f"{arm}{k}", hardware=hardware, step_seconds=s, seconds_to_target=s)
        for k, s in enumerate(seconds)
    ]


@pytest.mark.parametrize(("runs", "known"), [(1, 0), (2, 1)])
def test_a_speed_is_known_of_two_runs_an_arm(runs: int, known: int) -> None:
    base, cand = on("h", [2.0, 2.1], "b"), on("h", [1.0, 1.1][:runs], "c")
    assert len(speeds(base, cand, 0.95)) == known
    assert len(speeds(cand, base, 0.95)) == known
