"""Points that one arm alone lacks: of its own grid of logged steps, where the other arm has a loss.

A logger that skips the steps at which a run spiked makes such a log. What was not logged is not
known, so for a pass each such point counts as the highest that the arm shows: its highest residual
over its trend in the window, for the candidate, or its lowest, for the baseline. Different
intervals of logging lack nothing: each arm has its own grid.

Before the window a NaN would block a pass, too, so a hole counts there: a distance of steps that is
far longer than those around it, as one interval of logging that follows another is not.
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import Curve, FloatArray, IntArray, completeness_of, mean
from parity.judging.curves.spikes import stretches
from parity.judging.curves.window import Window, detrended

MOST_MISSING = 10  # of the points that are there
_AROUND = 5  # distances on each side of one, which show what is usual there
_FAR_LONGER = 4.0  # than the usual distance


@frozen
class Lacking:
    """What one arm alone lacks in the window: how many `points`, and how many of them follow each
    other at most.
    """

    points: int = 0
    longest: int = 0


@frozen
class EarlyHole:
    """The longest hole of one arm alone that begins before the window: how many `points` the other
    arm has there, after which step, and their share of all its points up to the window's end.
    """

    points: int = 0
    after: int = 0
    share: float = 0.0


def early_hole(runs: Sequence[Curve], others: Sequence[Curve], window: Window) -> EarlyHole:
    """The longest hole of the runs of one arm before the window, in points that all `others`
    have.
    """
    holes = [(begins, ends) for begins, ends in _far_apart(runs, window) if len(begins)]
    if not holes:
        return EarlyHole()
    begins, ends = (np.concatenate(sides) for sides in zip(*holes, strict=True))
    there = reduce(np.intersect1d, [run.steps for run in others])
    there = there[: int(np.searchsorted(there, window.last, side="right"))]
    numbers = np.searchsorted(there, ends) - np.searchsorted(there, begins, side="right")
    at = int(np.argmax(numbers))
    points = int(numbers[at])
    if points <= 0:
        return EarlyHole()
    return EarlyHole(points=points, after=int(begins[at]), share=points / len(there))


def _far_apart(runs: Sequence[Curve], window: Window) -> Iterator[tuple[IntArray, IntArray]]:
    """Of each run the steps (h,) before the window after which the next ones (h,) are far."""
    for run in runs:
        distances = np.diff(run.steps)
        early = distances[: int(np.searchsorted(run.steps[:-1], window.first))]
        if not len(early):
            continue
        long = np.flatnonzero(early > _FAR_LONGER * distances.min()).tolist()
        far = [at for at in long if distances[at] > _FAR_LONGER * _usual_around(distances, at)]
        yield run.steps[far], run.steps[[at + 1 for at in far]]


def _usual_around(distances: IntArray, at: int) -> float:
    """The usual one of the distances on either side of one, the longer of the two sides."""
    sides = (distances[max(0, at - _AROUND) : at], distances[at + 1 : at + 1 + _AROUND])
    return max(float(np.median(side)) for side in sides if len(side))


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
