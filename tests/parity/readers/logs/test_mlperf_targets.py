"""Targets of MLPerf benchmarks, each from its better side."""

import math

import pytest

from parity.readers.logs.mlperf import BENCHMARKS_IN_NATS
from parity.readers.logs.mlperf_targets import TARGETS


@pytest.mark.parametrize("benchmark", BENCHMARKS_IN_NATS)
def test_a_loss_falls_to_its_target(benchmark):
    target = TARGETS[benchmark]
    values = (target.value - 0.01, target.value, target.value + 0.01)
    assert [target.is_reached(value) for value in values] == [True, True, False]


@pytest.mark.parametrize("benchmark", ["bert", "dlrm_dcnv2", "gnn", "resnet", "rgat"])
def test_an_accuracy_rises_to_its_target(benchmark):
    target = TARGETS[benchmark]
    values = (target.value - 0.01, target.value, target.value + 0.01, 1.0)
    assert [target.is_reached(value) for value in values] == [False, True, True, True]


@pytest.mark.parametrize("benchmark", TARGETS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0, 100.0])
def test_what_is_no_loss_or_share_reaches_no_target(benchmark, value):
    assert not TARGETS[benchmark].is_reached(value)


@pytest.mark.parametrize(
    ("value", "stated"), [(3.3, True), (3.3000000000000003, True), (3.31, False), (math.nan, False)]
)
def test_the_target_that_a_run_states(value, stated):
    assert TARGETS["llama31_8b"].is_stated(value) == stated
