"""Do two runs count the same thing? A step column may hold optimizer steps in one file and tokens
or samples in another.

Other unit: strides that differ 50-fold while hardly a step is common (a run that logs every 100th
step has all its steps in common with one that logs each). In one file: a step that jumps to more
than 50 times its number, with a stride 50 times as wide from there on.
"""

import numpy as np

from parity.judging.curves.curve import Curve, IntArray

RATIO = 50  # logging intervals of one unit seldom differ so much; tokens and steps do
MIN_COMMON_SHARE = 0.05
MIN_POINTS = 20  # on each side: some runs log their first few steps one by one


def other_unit(left: Curve, right: Curve) -> bool:
    """Whether two runs' steps can't be of one unit."""
    narrow, wide = sorted((left.completeness.stride or 0, right.completeness.stride or 0))
    if narrow == 0 or wide < RATIO * narrow:
        return False
    common = len(np.intersect1d(left.steps, right.steps, assume_unique=True))
    return common < MIN_COMMON_SHARE * min(len(left.steps), len(right.steps))


def unit_change(steps: IntArray) -> tuple[int, int, int, int] | None:
    """Last step and stride before, first step and stride after a change of unit in (n,) increasing
    steps; None if there is none.
    """
    if len(steps) < 2 * MIN_POINTS:
        return None
    at = int(np.argmax(steps[1:] / np.maximum(steps[:-1], RATIO))) + 1
    before, after = np.diff(steps[:at]), np.diff(steps[at:])
    if steps[at] < RATIO * max(steps[at - 1], RATIO) or min(len(before), len(after)) < MIN_POINTS:
        return None
    strides = int(np.median(before)), int(np.median(after))
    if strides[1] >= RATIO * strides[0]:
        return int(steps[at - 1]), strides[0], int(steps[at]), strides[1]
    return None
