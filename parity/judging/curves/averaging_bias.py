"""By how much can averages alone raise the losses of a log? They lag behind a curve that falls.

q     the noise ratio, over the memory of the baseline's log where that is smoothed itself
lag   at most the smaller of 1/(2 q^2) and sqrt(s)/q points of the baseline's log, s the candidate's
      logging interval in these points: w losses that are averaged lag by w/2 and have 1/sqrt(w) of
      the noise of one where no two means share a loss, or, seen through second differences,
      sqrt(0.67 s)/w where they do. An exponential average lags by 0.8/q, averages of averages by
      less. Four times that counts, since q is a ratio of two medians
bias  an exponential average with that lag, begun at the first loss, of the baseline's own curve,
      minus that curve. Of all averages with one lag this one takes most from a steep start

Can fail: a log that is delayed and not averaged.
"""

import numpy as np

from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    usable,
)
from parity.judging.curves.resolution import (
    RESOLUTION_SAMPLE,
    SMOOTHED_WEIGHT,
    finite,
    memory_steps,
    smoothing_weight,
)
from parity.judging.curves.window import Window

LAG_ALLOWED = 4.0
BIAS_SAMPLE = 4_096  # stretches of a run, each with its mean, show how it falls


def smoothing_bias(run: Curve, steps: IntArray, ratio: float, window: Window) -> FloatArray:
    """By how much averages logged at (n,) steps of a run, which leave `ratio` of its batch noise,
    would raise its losses; nats (n,).
    """
    finite = usable(run.loss)
    loss = run.loss[finite]
    thin = 1 + len(loss) // BIAS_SAMPLE
    curve = loss[: len(loss) // thin * thin].reshape(-1, thin).mean(axis=1)
    lag = LAG_ALLOWED * _lag(run, steps, ratio, window) / thin
    keep = lag / (1.0 + lag)
    averaged, value = np.empty(len(curve)), float(curve[0])
    for i, point in enumerate(curve.tolist()):
        value = keep * value + (1.0 - keep) * point
        averaged[i] = value
    at = np.minimum(np.searchsorted(run.steps[finite], steps) // thin, len(curve) - 1)
    bias: FloatArray = (averaged - curve)[at]
    return bias


def _lag(run: Curve, steps: IntArray, ratio: float, window: Window) -> float:
    """How many points of a run averages lag at most that are logged at (n,) of its steps and leave
    `ratio` of its noise.
    """
    inside = finite(run.loss[window.part(run.steps)])[-RESOLUTION_SAMPLE:]
    memory = memory_steps(inside) if smoothing_weight(inside) >= SMOOTHED_WEIGHT else 1.0
    noise = max(ratio / memory, 1e-9)
    interval = (
        float(np.median(np.diff(steps))) / (run.completeness.stride or 1) if len(steps) > 1 else 1.0
    )
    return float(min(0.5 / noise**2, max(interval, 1.0) ** 0.5 / noise))
