"""The run-to-run noise that reruns show which were stopped early: trained from step 0 under the
full schedule, and never judged as runs.

window  the last 20 % of the planned steps before the earliest stop of the arm's reruns, but nothing
        before 30 %
x_i     mean loss of run i there / the mean of the arm's full runs there: K full runs with their own
        prefix, N reruns
SS      SS(x of K + N runs) - SS(x of the K full runs), per seed, on N degrees of freedom (Helmert)
tau     sqrt(SS / N) x late loss / r0
r       spread in the window over that of the last 20 %, log-normal about r0
nu      1/nu = 1/N + 2 sd_log^2, Satterthwaite on the log: one unknown r for all reruns, so
        nu < 1 / (2 sd_log^2) = 5.6

SS is independent of what the full runs say among themselves, so `arm_noise` may add it to theirs.
It does depend on the gap itself: a full run that is far off spreads its arm, which widens the
interval just where the gap is wrong. Few points only add noise to x, and so widen.

r0 = 1, sd_log = 0.3: stopped at 50 %, r is 1.2 on average over 19 groups (0.3 to 3 M and 124 M
parameters), 1.0 and 1.2 at 8 B; in seven groups of 7 to 12 runs it is 0.7 to 1.6, its logs 0.28
about 0 (docs/design/noise.md#reruns-that-stop-early). Dividing by 1 leaves the noise a little too
wide on average. Before 30 % of the steps, where the loss still falls steeply, r was 0.3 to 0.6 on
models of 0.1 M. Can fail: a recipe whose noise comes late in the schedule, such as a switch of
precision near the end, shows too little of it here.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    FloatArray,
)
from parity.judging.curves.window import Window

MIN_STOP = 0.4  # share of the planned steps
PREFIX, NOT_BEFORE = 0.2, 0.3  # shares of the planned steps
RATIO_SD_LOG = 0.3
SHARED_VARIANCE = 2.0 * RATIO_SD_LOG**2  # of log tau^2 over 2: what no number of reruns removes


@frozen
class EarlySpread:
    """What `runs` reruns of an arm show, stopped at the share `stop` of the plan: `squares` is SS,
    as a share of the loss, squared.
    """

    squares: float
    runs: int
    stop: float
    first: int
    last: int

    @property
    def share(self) -> float:
        """tau as a share of the loss."""
        return math.sqrt(self.squares / self.runs)

    @property
    def df(self) -> float:
        """nu, the degrees of freedom that it is worth."""
        return early_df(self.runs)


def early_df(runs: int) -> float:
    """nu of N reruns, of one arm or of both together; 0 without any."""
    if not runs:
        return 0.0
    return 1.0 / (1.0 / runs + SHARED_VARIANCE)


def prefix_window(window: Window, last: int) -> tuple[int, int]:
    """First and last step of the window before the stop at step `last`."""
    done = last - window.origin + 1
    first = max(
        done - round(PREFIX * window.planned_steps), round(NOT_BEFORE * window.planned_steps)
    )
    return window.origin + first, last


def helmert_squares(
    full: FloatArray, full_seeds: Sequence[int], early: FloatArray, early_seeds: Sequence[int]
) -> float:
    """SS of the shares x of K full runs (K,) and N reruns (N,), whose seeds are all among those of
    the full runs.
    """
    total = 0.0
    for seed in sorted(set(early_seeds)):
        same_seed = full[[index for index, other in enumerate(full_seeds) if other == seed]]
        both = np.append(
            same_seed, early[[index for index, other in enumerate(early_seeds) if other == seed]]
        )
        total += _squares(both) - _squares(same_seed)
    return max(total, 0.0)


def _squares(values: FloatArray) -> float:
    return float(np.sum((values - values.mean()) ** 2))
