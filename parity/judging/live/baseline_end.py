"""What will the baseline's loss be at the planned end? Margins and run-to-run noise in percent
follow it, and today's loss still falls.

so far  mean loss of the trailing window
at end  so far + s (ln(1 - w/2) - mean of ln(share) over the trailing window), s the least-squares
        slope of the loss on ln(share of the plan) over the last half of what is trained, w the
        policy's window; never above "so far", and at most 25 % below it

Measured from 25 % of the plan on: 3 emulated runs with a cosine 1 to 3 % off (so far: 1 to 35 % too
high), 7 runs of 124 M with a late decay -2 to +4 % (2 to 16), 3 of 15 B -5 to 0 % (0 to 13), at 25
% of the plan -9 %. Can fail: a schedule whose decay comes late falls more.
"""

import math

import numpy as np

from parity.judging.curves.curve import FloatArray, dot

# of the loss so far: at 10 % of the plan the line through the last half is up to 40 % too steep
MOST_FALL = 0.25


def level_at_end(
    so_far: float, shares: FloatArray, losses: FloatArray, trailing: int, fraction: float
) -> float:
    """The mean loss (nats) of the last `fraction` of the plan, from (n,) losses at ascending shares
    of it (0 to 1).

    `so_far` is the mean of the last `trailing` of them.
    """
    late = shares >= 0.5 * shares[-1]
    x = np.log(shares[late])
    ahead = math.log(1.0 - 0.5 * fraction) - float(np.log(shares[-trailing:]).mean())
    x -= x.mean()
    power = dot(x, x)
    if ahead <= 0.0 or power == 0.0:
        return so_far
    slope = dot(x, losses[late] - losses[late].mean()) / power
    return so_far - min(max(-slope * ahead, 0.0), MOST_FALL * abs(so_far))
