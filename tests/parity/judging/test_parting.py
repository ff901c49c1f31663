"""When are two logs that begin late from nearly equal losses seen as forks?"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.verdict.verdict import Verdict

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
PLAN = 2000


@pytest.mark.parametrize(
    ("points", "share"),
    [(4, 0.025), (8, 0.12), (16, 0.28)],
)
def test_logs_that_part_from_equal_losses_are_seen(
    points: int, share: float, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """By the mean square of their first gaps against that of the last half; later ones are as
    large as those."""
    first = 600
    late = make_run()
    base = curve_from_arrays(late.steps[first:], late.loss[first:], rounding="nearest")
    for beyond, parts in ((0.999, True), (1.001, False)):
        gap = 0.004 * np.resize([1.0, -1.0], PLAN - first)
        gap[:points] *= math.sqrt(share * beyond)
        cand = curve_from_arrays(base.steps, base.loss + gap, rounding="nearest")
        found = judge_pair(base, cand, planned_steps=PLAN).measurements
        assert found.parts_late == parts
