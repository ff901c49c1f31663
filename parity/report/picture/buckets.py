"""The losses of a run in buckets of steps, for a drawing."""

import numpy as np

from parity.judging.curves.curve import Curve, FloatArray, IntArray, usable

LOSS_BUCKETS = 120  # so few that the candidate's dashes are seen


def reduced(values: FloatArray, starts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, least and largest (b,) of finite values (n,) from each start (b,) to the next."""
    mean = np.add.reduceat(values, starts) / np.diff(starts, append=len(values))
    return mean, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


def loss_buckets(run: Curve) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Middle step, mean, least and largest finite loss of up to 120 buckets of a run."""
    finite = usable(run.loss)
    steps, loss = run.steps[finite], run.loss[finite]
    if len(steps) == 0:
        return (np.empty(0),) * 4
    starts = np.unique(np.linspace(0, len(steps), LOSS_BUCKETS + 1)[:-1].astype(int))
    last = np.append(starts[1:], len(steps)) - 1
    return (steps[starts] + steps[last]) / 2, *reduced(loss, starts)
