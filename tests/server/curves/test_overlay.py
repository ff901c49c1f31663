"""Runs on common edges."""

import numpy as np
import pytest

from server.curves.overlay import RAW_STEPS, RecordedColumn, overlay


def _by_hand(run, first, last, reduce):
    chosen = [
        run.values[(run.steps >= a) & (run.steps <= b) & np.isfinite(run.values)]
        for a, b in zip(first, last, strict=True)
    ]
    return [float(reduce(values)) if len(values) else None for values in chosen]


@pytest.fixture
def long_pair():
    generator = np.random.default_rng(3)
    steps = np.arange(50_000)
    values = generator.normal(2.0, 0.1, len(steps))
    values[[7, 40_001]] = np.nan, np.inf
    return RecordedColumn(steps=steps, values=values), RecordedColumn(
        steps=steps[:30_000:3] + 1, values=values[:30_000:3]
    )


def test_buckets_agree_with_a_slow_count(long_pair):
    chart = overlay(long_pair, 700)
    assert chart.aggregation == "minmaxmean"
    assert chart.steps_in_range == 50_000
    assert len(chart.first_step) <= 700
    for run, line in zip(long_pair, chart.lines, strict=True):
        for values, reduce in (
            (line.mean, np.mean),
            (line.minimum, np.min),
            (line.maximum, np.max),
        ):
            wanted = _by_hand(run, chart.first_step, chart.last_step, reduce)
            assert [value is None for value in values] == [value is None for value in wanted]
            np.testing.assert_allclose(np.array(values, float), np.array(wanted, float), rtol=1e-6)
    assert [(one.step, one.kind) for one in chart.lines[0].nonfinite] == [
        (7, "nan"),
        (40_001, "inf"),
    ]


def test_few_steps_come_as_they_are(long_pair):
    first = RecordedColumn(
        steps=long_pair[0].steps[:RAW_STEPS], values=long_pair[0].values[:RAW_STEPS]
    )
    chart = overlay([first], 10)
    assert chart.aggregation == "none"
    assert chart.first_step == chart.last_step == list(range(RAW_STEPS))
    assert chart.lines[0].minimum is None
    assert chart.lines[0].mean[7] is None


def test_nothing_recorded_is_no_error():
    empty = RecordedColumn(steps=np.empty(0, np.int64), values=np.empty(0))
    assert overlay([empty], 5).lines[0].mean == []
    assert overlay([], 5).first_step == []


def test_values_of_any_size_keep_seven_digits():
    values = np.array([1.23456789e-8, -123456.789, 0.0, 1e300, 1e-320])
    means = overlay([RecordedColumn(steps=np.arange(5), values=values)], 5).lines[0].mean
    assert means == pytest.approx([1.234568e-8, -123456.8, 0.0, 1e300, 0.0], rel=1e-12, abs=1e-300)


def test_log_buckets_are_narrow_at_the_start_and_hold_every_step(long_pair):
    chart = overlay(long_pair[:1], 300, log=True)
    width = np.array(chart.last_step) - np.array(chart.first_step) + 1
    assert (width[0], len(width) <= 300) == (1, True)
    assert width[-1] > 1000
    assert width.sum() == 50_000


def test_many_runs_share_the_steps_that_are_sent_raw():
    runs = [RecordedColumn(steps=np.arange(3000), values=np.ones(3000))] * 31
    assert (overlay(runs[:20], 100).aggregation, overlay(runs, 100).aggregation) == (
        "none",
        "minmaxmean",
    )


def test_a_chart_of_several_jobs_shares_the_steps_that_are_sent_raw():
    runs = [RecordedColumn(steps=np.arange(3000), values=np.ones(3000))] * 2
    raw, reduced = (overlay(runs, 100, raw_values=most) for most in (6000, 5999))
    assert (raw.aggregation, len(raw.first_step)) == ("none", 3000)
    assert (reduced.aggregation, len(reduced.first_step)) == ("minmaxmean", 100)
