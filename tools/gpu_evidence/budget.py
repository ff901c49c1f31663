"""The time of a session: how much is left, and whether a step may begin."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

CLOSING_SECONDS = 30.0
"""Kept for the end: running steps are stopped and the summary is written."""


class SessionBudget:
    """Minutes from the start of the session to its end."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.seconds = minutes * 60
        self._closing = min(CLOSING_SECONDS, self.seconds / 4)

    def passed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    def left(self) -> float:
        """Seconds in which a step can still run."""
        return max(0.0, self.seconds - self._closing - self.passed())


def minutes(text: str) -> float:
    """The value of --minutes; ValueError unless it is a positive number of at most a day."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 24 * 60:
        raise ValueError(
            f"--minutes is {text!r}, expected a number above 0 and at most 1440, such as 25"
        )
    return value
