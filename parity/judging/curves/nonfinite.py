"""NaN and infinite losses of one arm: how many, and whether they are enough to block a pass or to
decide.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, all_usable, between, usable

# a share of a run's points, and two numbers of points: one NaN of few is no divergence
NONFINITE_SHARE, NONFINITE_BLOCKS, NONFINITE_FAILS = 0.01, 2, 3


@frozen
class Nonfinite:
    """NaN and infinite losses of one arm (or above 1e6): count, the worst run's share, the first
    such step, and in how many runs the last loss is one.

    `blocks` and `fails`: a run has at least 2, or 3, and at least 1 % of its points, over the run
    or its window, or ends in one.
    """

    count: int
    worst_share: float
    first_step: int | None
    ending: int
    blocks: bool
    fails: bool

    @property
    def at_end(self) -> bool:
        """Whether a run ends in one."""
        return self.ending > 0


def nonfinite(runs: Sequence[Curve], first_step: int, last_step: int) -> Nonfinite:
    """Count NaN and infinity up to `last_step`; the share is the larger of the whole run's and the
    window's (from `first_step`).
    """
    count, share, firsts, ending, most = (
        0,
        0.0,
        [],
        0,
        dict.fromkeys((NONFINITE_BLOCKS, NONFINITE_FAILS), False),
    )
    for run in runs:
        window = between(run.steps, first_step, last_step)
        start, end = window.start, window.stop
        if all_usable(run.loss[:end]):
            continue
        bad = ~usable(run.loss[:end])
        count += int(bad.sum())
        firsts.append(int(run.steps[int(np.argmax(bad))]))
        in_window = float(bad[start:].mean()) if start < end else 0.0
        share = max(share, float(bad.mean()), in_window)
        ending += bool(bad[-1])
        for least in most:
            most[least] |= any(
                part.sum() >= max(least, NONFINITE_SHARE * len(part)) for part in (bad, bad[start:])
            )
    return Nonfinite(
        count=count,
        worst_share=share,
        first_step=min(firsts, default=None),
        ending=ending,
        blocks=ending > 0 or most[NONFINITE_BLOCKS],
        fails=ending > 0 or most[NONFINITE_FAILS],
    )
