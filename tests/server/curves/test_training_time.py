"""Seconds of training of steps."""

import numpy as np

from server.curves.training_time import TrainingTime, seconds_of


def test_time_of_training_counts_the_steps_between():
    assert seconds_of(np.array([0, 10, 20]), np.array([1.0, 2.0, np.nan])).tolist() == [
        1.0,
        21.0,
        21.0,
    ]


def test_time_goes_on_from_a_step_that_was_counted_before():
    steps, seconds = np.arange(3, 300, 3), np.random.default_rng(1).uniform(0.1, 0.2, 99)
    whole = seconds_of(steps, seconds)
    clock = TrainingTime(steps=steps[9::10], passed=whole[9::10])
    assert clock.before(30) is None
    assert clock.before(31) == (30, whole[9])
    np.testing.assert_allclose(
        seconds_of(steps[40:], seconds[40:], clock.before(123)), whole[40:], rtol=1e-12
    )
    early = TrainingTime(steps=np.empty(0, np.int64), passed=np.empty(0)).updated(
        steps[:50], whole[:50], 10
    )
    late = early.updated(steps[40:], whole[40:], 10)
    assert late.steps.tolist() == clock.steps.tolist()
    assert late.passed.tolist() == clock.passed.tolist()
