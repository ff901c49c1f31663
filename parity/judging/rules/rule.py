"""What a rule is: a function of the measurements that returns its sentence where it holds."""

import functools
from collections.abc import Callable

from parity.judging.gap.margin import Margin
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.measurements import Measurements

Rule = Callable[[Measurements], str | None]
"""The sentence of a reason, with its numbers, where it holds; else None."""

MarginRule = Callable[[Measurements, WindowStatistics, Margin], str | None]


def with_margin(rule: MarginRule) -> Rule:
    """A rule that holds only where the window could be measured and the margin is known, which it
    takes too.
    """

    @functools.wraps(rule)
    def measured(m: Measurements) -> str | None:
        s = m.statistics
        if s is None or s.margin is None:
            return None
        return rule(m, s, s.margin)

    return measured
