"""Buckets against the slow way, and against their laws."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.curves.buckets import number, series


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
        rows.append((steps[group[0]], steps[group[-1]], min(finite, default=None), max(finite, default=None)))
    return rows


@given(
    steps=st.lists(st.integers(0, 10**6), unique=True, max_size=60).map(sorted),
    points=st.integers(1, 70),
    data=st.data(),
)
def test_equal_to_the_slow_way(steps, points, data):
    values = data.draw(
        st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), min_size=len(steps), max_size=len(steps))
    )
    found = series("loss", np.array(steps, np.int64), np.array(values, np.float64), points)
    assert list(zip(found.first_step, found.last_step, found.minimum, found.maximum, strict=True)) == slow(steps, values, points)
    assert len(found.mean) <= points
    assert found.nonfinite_count == sum(not math.isfinite(value) for value in values)
    for low, mean, high in zip(found.minimum, found.mean, found.maximum, strict=True):
        assert (low is None) == (mean is None)
        assert mean is None or low - 1e-6 <= mean <= high + 1e-6


def test_two_runs_of_one_range_have_the_same_edges():
    steps = np.arange(10_000)
    one, other = (series("loss", steps, np.full(10_000, value), 128) for value in (1.0, 2.0))
    assert one.first_step == other.first_step
    assert one.aggregation == "minmaxmean"


def test_nonfinite_values_are_words():
    assert [number(value) for value in (1.5, math.nan, math.inf, -math.inf)] == [1.5, "nan", "inf", "-inf"]
    found = series("loss", np.arange(3), np.array([1.0, math.nan, -math.inf]), 10)
    assert [(bad.step, bad.kind) for bad in found.nonfinite] == [(1, "nan"), (2, "-inf")]
    assert found.mean == [1.0, None, None]
