"""Points that one arm alone lacks: of its own grid of logged steps, where the other arm has a loss.

A logger that skips the steps at which a run spiked makes such a log. What was not logged is not
known, so for a pass each such point counts as the highest that the arm shows: its highest residual
over its trend in the window, for the candidate, or its lowest, for the baseline. Different
intervals of logging lack nothing: each arm has its own grid.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, FloatArray, IntArray, completeness_of, mean
from parity.judging.curves.spikes import stretches
from parity.judging.curves.window import Window, detrended

MOST_MISSING = 10  # of the points that are there


@frozen
class Lacking:
    """What one arm alone lacks in the window: how many `points`, and how many of them follow each
    other at most.
    """

    points: int = 0
    longest: int = 0


def lacking_points(runs: Sequence[Curve], others: Sequence[Curve], window: Window) -> Lacking:
    """What the runs of one arm lack of their grids in the window, at steps that all `others`
    have.
    """
    missing = [steps for run in runs if len(steps := missing_steps(run.steps, window))]
    if not missing:
        return Lacking()
    there = reduce(np.intersect1d, [run.steps[window.part(run.steps)] for run in others])
    lacking = np.intersect1d(np.unique(np.concatenate(missing)), there)
    if not len(lacking):
        return Lacking()
    grid = np.union1d(runs[0].steps[window.part(runs[0].steps)], lacking)
    starts, ends = stretches(np.isin(grid, lacking))
    return Lacking(points=len(lacking), longest=int((ends - starts).max()))


def missing_steps(steps: IntArray, window: Window) -> IntArray:
    """The steps of the window on the grid of (n,) increasing steps that are not among them; none
    where they show no grid.
    """
    part = steps[window.part(steps)]
    stride = completeness_of(part).stride
    if (
        stride is None
        or len(part) < 3
        or (window.last - window.first) // stride > MOST_MISSING * len(part)
    ):
        return np.empty(0, dtype=np.int64)  # no grid: most of it would be missing
    first, last = int(part[0]), int(part[-1])
    if (
        (last - first) // stride + 1 == len(part)
        and first - window.first < stride
        and window.last - last < stride
    ):
        return np.empty(0, dtype=np.int64)
    phases, counts = np.unique(part % stride, return_counts=True)
    phase = int(phases[np.argmax(counts)])
    begin = window.first + (phase - window.first) % stride
    return np.setdiff1d(np.arange(begin, window.last + 1, stride), part)


def highest_residual(curve: FloatArray, steps: IntArray) -> float:
    """By how much the highest of (n,) losses at (n,) steps is above their straight line, nats; 0.0
    without a loss.
    """
    if not len(curve):
        return 0.0
    flat = detrended(curve, steps)
    return float(flat.max()) - mean(flat)
