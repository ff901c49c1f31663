"""Steps that are missing: a golden's in a run, and a run's in its own log."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from parity.frozen import frozen
from parity.judging.curves.curve import IntArray

# A lost line or two hide little; three in a row may hide a spike. All are conventions: of the
# public pairs none lacks a step in between.
MOST_SHARE, MOST_IN_A_ROW = 0.02, 2
NEIGHBOURS = 4  # intervals on each side that show what is regular; a log may change its interval


@frozen
class MissingSteps:
    """How many of `total` steps are missing (`count`), and the longest row of them: `in_a_row`
    steps from `first` to `last`.
    """

    count: int
    total: int
    in_a_row: int = 0
    first: int = 0
    last: int = 0

    @property
    def are_many(self) -> bool:
        """The rest decides nothing: 3 in a row are missing, or more than one and 2 %."""
        return self.in_a_row > MOST_IN_A_ROW or self.count > max(1.0, MOST_SHARE * self.total)


def missing_steps(expected: IntArray, steps: IntArray) -> MissingSteps:
    """Which of the `expected` steps (n,), ascending, are not among `steps` (m,)."""
    missing = ~np.isin(expected, steps)
    if not missing.any():
        return MissingSteps(count=0, total=len(expected))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missing.astype(np.int8), [0]])))
    starts, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - starts))
    start, end = int(starts[longest]), int(ends[longest])
    return MissingSteps(
        count=int(missing.sum()),
        total=len(expected),
        in_a_row=end - start,
        first=int(expected[start]),
        last=int(expected[end - 1]),
    )


def first_gap(steps: IntArray) -> tuple[int, int] | None:
    """The steps before and after the first gap of ascending `steps` (n,): an interval that lacks
    more than two of the steps that the intervals around it would have. None without a gap.
    """
    if len(steps) < 2:
        return None
    intervals = np.diff(steps).astype(float)
    padded = np.pad(intervals, NEIGHBOURS, constant_values=np.nan)
    regular = np.nanmedian(sliding_window_view(padded, 2 * NEIGHBOURS + 1), axis=1)
    gaps = np.flatnonzero(intervals > (MOST_IN_A_ROW + 1) * regular)
    return (int(steps[gaps[0]]), int(steps[gaps[0] + 1])) if len(gaps) else None
