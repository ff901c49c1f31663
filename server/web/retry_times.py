"""When refused clients are to try again."""

import math
import random

RETRIES_A_SECOND, LONGEST_RETRY_SECONDS = 20, 30
"""How many refused clients are told to try again in the same second, and the longest that one is
told to wait.

A refusal costs about a quarter of an answer. If all tried again after two seconds, an overloaded
server would mostly refuse.
"""


class RetryTimes:
    """When refused clients are to try again: RETRIES_A_SECOND of them, one after another."""

    def __init__(self) -> None:
        self._last = 0.0

    def seconds(self, now: float) -> int:
        """Whole seconds from `now` for the next client, at least 2; once the longest is reached, at
        random from half of it on.
        """
        self._last = max(now + 1.0, self._last + 1.0 / RETRIES_A_SECOND)
        longest = now + LONGEST_RETRY_SECONDS
        if self._last <= longest:
            return max(2, math.ceil(self._last - now))
        self._last = longest
        return random.randint(LONGEST_RETRY_SECONDS // 2, LONGEST_RETRY_SECONDS)  # noqa: S311
