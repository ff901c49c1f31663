"""Rules that hold only where the window could be measured and the margin is known."""

import functools
from collections.abc import Callable

from parity.judging.gap.margin import Margin
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.measurements import Measurements

TrainingRule = Callable[[Measurements], str | None]
MarginRule = Callable[[Measurements, WindowStatistics, Margin], str | None]


def with_margin(rule: MarginRule) -> TrainingRule:
    """A rule that holds only where the window could be measured and the margin is known, which it
    takes too.
    """

    @functools.wraps(rule)
    def measured(measurements: Measurements) -> str | None:
        s = measurements.statistics
        if s is None or s.margin is None:
            return None
        return rule(measurements, s, s.margin)

    return measured
