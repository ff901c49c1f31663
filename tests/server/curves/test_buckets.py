"""Buckets against the slow way, and against their laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.curves.buckets import cut, reduce_ranges, series
from server.json_numbers import number


def slow(steps, values, points):
    """Every bucket by a plain loop."""
    if len(steps) <= points:
        groups = [[i] for i in range(len(steps))]
    else:
        width = (steps[-1] - steps[0]) // points + 1
        by_bucket = {}
        for i, step in enumerate(steps):
            by_bucket.setdefault((step - steps[0]) // width, []).append(i)
        groups = list(by_bucket.values())
    rows = []
    for group in groups:
        finite = [values[i] for i in group if math.isfinite(values[i])]
        rows.append(
            (
                steps[group[0]],
                steps[group[-1]],
                min(finite, default=None),
                max(finite, default=None),
            )
        )
    return rows


@given(
    steps=st.lists(st.integers(0, 10**6), unique=True, max_size=60).map(sorted),
    points=st.integers(1, 70),
    data=st.data(),
)
def test_equal_to_the_slow_way(steps, points, data):
    values = data.draw(
        st.lists(
            st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]),
            min_size=len(steps),
            max_size=len(steps),
        )
    )
    result = series("loss", np.array(steps, np.int64), np.array(values, np.float64), points)
    assert list(
        zip(result.first_step, result.last_step, result.minimum, result.maximum, strict=True)
    ) == slow(steps, values, points)
    assert len(result.mean) <= points
    assert result.nonfinite_count == sum(not math.isfinite(value) for value in values)
    for low, mean, high in zip(result.minimum, result.mean, result.maximum, strict=True):
        assert (low is None) == (mean is None)
        assert mean is None or low - 1e-6 <= mean <= high + 1e-6


@given(
    values=st.lists(
        st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=40
    ).map(np.array),
    places=st.lists(st.integers(0, 40), max_size=20),
)
def test_cut_agrees_with_a_loop_over_the_buckets(values, places):
    values = values.astype(np.float64)
    starts = np.array(sorted(min(place, len(values)) for place in places), np.int64)
    buckets = cut(values, starts)
    ends = [*starts[1:].tolist(), len(values)][: len(starts)]
    for i, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        finite = [value for value in values[start:end].tolist() if math.isfinite(value)]
        assert buckets.count[i] == len(finite)
        assert buckets.minimum(values)[i] == min(finite, default=math.inf)
        assert buckets.maximum(values)[i] == max(finite, default=-math.inf)
        assert buckets.mean(values)[i] == pytest.approx(
            math.fsum(finite) / max(len(finite), 1), rel=1e-9, abs=1e-6
        )


def test_an_empty_range_is_the_neutral_value_wherever_it_lies():
    values = np.array([1.0, 2.0, 4.0])
    assert reduce_ranges(np.add, values, np.array([0, 0, 2, 2, 3, 3]), 0.0).tolist() == [
        0.0,
        3.0,
        0.0,
        4.0,
        0.0,
        0.0,
    ]
    assert reduce_ranges(np.minimum, np.empty(0), np.array([0, 0]), np.inf).tolist() == [
        math.inf,
        math.inf,
    ]


def test_two_runs_of_one_range_have_the_same_edges():
    steps = np.arange(10_000)
    one, other = (series("loss", steps, np.full(10_000, value), 128) for value in (1.0, 2.0))
    assert one.first_step == other.first_step
    assert one.aggregation == "minmaxmean"


def test_nonfinite_values_are_words():
    assert [number(value) for value in (1.5, math.nan, math.inf, -math.inf)] == [
        1.5,
        "nan",
        "inf",
        "-inf",
    ]
    result = series("loss", np.arange(3), np.array([1.0, math.nan, -math.inf]), 10)
    assert [(bad.step, bad.kind) for bad in result.nonfinite] == [(1, "nan"), (2, "-inf")]
    assert result.mean == [1.0, None, None]
