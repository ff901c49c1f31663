"""Does a loss fall as before a decay? Against ln(step) the loss of a decaying schedule falls faster
and faster, and ends below the straight line through 25 to 60 % of the run; at a rate that has not
begun to decay the line bends the other way.

excess e   median loss of the last tenth minus the line there, in shares of the loss; se from the
           line's and the mean's own errors
slope s    least squares of the loss on ln(step) over the last half, a share of the loss per e-fold
as before  e - 4 se > 0.35 |s|
no decay   e - 2 se > 0

e / |s|: -0.2 of finished public reruns (1,750 steps), 0.36 where they are cut at 60 %; 0.45 to 0.53
of a 15 B model that is cut; 0.16 of a power law of step^-0.5, 0.2 of a cosine that is cut at 60 %.
So it sees a run that was cut before its decay in a long log, and no more.
"""

import math
from typing import NamedTuple

import numpy as np

from parity.judging.curves.curve import (
    Curve,
    computed_once,
    median,
    usable,
)
from parity.judging.curves.learning_rates import (
    MIN_POINTS,
)

LINE_FROM, LINE_TO, LAST_PART = 0.25, 0.60, 0.9  # of the run
EXCESS_SES, EXCESS_OF_SLOPE, FEWEST_POINTS = 4.0, 0.35, 200
UNLIKELY_SES = 2.0


class _Bend(NamedTuple):
    """How a loss ends against the line through its middle: e, se and |s|, in nats."""

    excess: float
    error: float
    steepness: float


def falls_as_before(run: Curve) -> bool:
    """Whether a run's loss at its end falls as at a learning rate that has not decayed."""
    bend = _bend(run)
    if bend is None:
        return False
    return bend.excess - EXCESS_SES * bend.error > EXCESS_OF_SLOPE * bend.steepness


def shows_no_decay(run: Curve) -> bool:
    """Whether a run's loss still falls, and hardly faster than on the line. That is too weak to
    contradict a statement of its decay, and enough not to suggest one.
    """
    bend = _bend(run)
    return bend is not None and bend.excess > UNLIKELY_SES * bend.error


@computed_once
def _bend(run: Curve) -> _Bend | None:
    """None where the loss does not fall, or the log is too short to tell."""
    good = usable(run.loss)
    steps, loss = run.steps[good].astype(np.float64), run.loss[good]
    if len(steps) < FEWEST_POINTS:
        return None
    at = (steps - steps[0] + 1.0) / (steps[-1] - steps[0] + 1.0)
    line, end, half = (at > LINE_FROM) & (at <= LINE_TO), at > LAST_PART, at > 0.5
    if min(np.count_nonzero(part) for part in (line, end)) < MIN_POINTS:
        return None
    x, y = np.log(at[line]), loss[line]
    centred, power = x - x.mean(), float(((x - x.mean()) ** 2).sum())
    slope = float((centred * y).sum()) / power
    noise = float(((y - y.mean() - slope * centred) ** 2).sum()) / (len(y) - 2)
    ahead = float(np.log(at[end]).mean() - x.mean())
    level = median(loss[end])
    excess = level - float(y.mean()) - slope * ahead
    error = math.sqrt(
        noise * (1.0 / len(y) + ahead**2 / power)
        + 0.5 * math.pi * float(loss[end].var()) / int(end.sum())
    )
    late = np.log(at[half])
    steepness = float(((late - late.mean()) * loss[half]).sum()) / float(
        ((late - late.mean()) ** 2).sum()
    )
    if not steepness < 0.0:
        return None
    return _Bend(excess, error, -steepness)
