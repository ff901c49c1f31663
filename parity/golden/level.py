"""The level of a run against its golden, at the end and before: the mean difference over some rows,
in % of the loss.
"""

from itertools import pairwise

import numpy as np

from parity.frozen import frozen
from parity.golden.common_steps import Common

# The 99 % quantile of |gap| of 572 pairs of Megatron-LM golden files with the same start and the
# same batches is 0.29 %.
LIMIT_PCT = 0.3
# Where a run shares its batches but not the rest of its noise (q of 0.25 and more: other dropout
# masks, other initial weights), |gap| reaches 0.64 % in 127 such pairs: up to this nothing is
# blamed.
PARTLY_SHARED_Q, PARTLY_SHARED_PCT = 0.25, 0.65
# Runs that part from step to step part in their level, too: three reruns of 5,000 steps of the
# project's trainer, with 512 tokens a step, differ by 1.77 % (deviation) from step to step and by
# 0.32 % (root mean square) in their level, of which this is 2.8 times.
STEP_SHARE = 0.5
STANDARD_ERRORS = 3.0  # a convention
UNDECIDED_PCT = 3.0  # a limit above this decides nothing (a convention)
# A level that comes back before the end: of 394 public pairs that are fine the farthest is at 1.48
# of the limits of the level at the end.
EARLIER_FACTOR, EARLIER_ROWS = 2.0, 8
LAST_FIFTH, LAST_THIRD, MANY_ROWS, MIN_ROWS = 5, 3, 20, 4


@frozen
class Level:
    """The mean difference over the last `rows`, from `first_step` on: `pct` and its standard error
    `se_pct`, % of the golden's loss.
    """

    pct: float
    se_pct: float
    rows: int
    first_step: int

    @property
    def parting_pct(self) -> float:
        """By how much runs that differ this much from step to step may differ in level, %."""
        return STEP_SHARE * self.se_pct * float(np.sqrt(self.rows))


def level(common: Common, first_row: int = 0) -> Level:
    """The level over the last fifth of n rows (the last third below 20; at least 4 rows), no
    earlier than `first_row`, where the runs begin to differ.
    """
    n = len(common.steps)
    rows = max(MIN_ROWS, -(-n // (LAST_FIFTH if n >= MANY_ROWS else LAST_THIRD)))
    start = min(max(n - rows, first_row), n - MIN_ROWS)
    return _level_of(common, start, n)


def earlier_levels(common: Common) -> list[Level]:
    """The levels of the second to the fourth fifth of n rows; none where these have fewer than 8
    rows.
    """
    n = len(common.steps)
    if n < LAST_FIFTH * EARLIER_ROWS:
        return []
    borders = [n * part // LAST_FIFTH for part in range(1, LAST_FIFTH)]
    return [_level_of(common, start, end) for start, end in pairwise(borders)]


def _level_of(common: Common, start: int, end: int) -> Level:
    """The level over the rows from `start` to `end` (exclusive)."""
    window = common.percent[start:end]
    return Level(
        pct=float(window.mean()),
        se_pct=float(np.std(window, ddof=1)) / len(window) ** 0.5,
        rows=len(window),
        first_step=int(common.steps[start]),
    )
