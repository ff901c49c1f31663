"""What was recorded outside the plan: steps after its last one, and a log that begins long after
its first.

Beyond the plan the candidate may not be worse than inside it. A pass is blocked by a loss that is
not finite, by a mean gap over the common steps beyond the plan above the margin, and by a mean loss
there that is above the candidate's own level in the window by more than the margin and 4 standard
errors of the step noise. Runs that reach the plan's end and go on by more than 5 % of it block a
pass, too: then the plan is not theirs.

A record keeps a quarter of the plan more than the plan: from a log of up to every fifth of it, the
judge sees that a run goes on.
"""

import math
from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.alignment import align
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    all_usable,
    usable,
)
from parity.judging.curves.window import Window

MAX_BEYOND, MAX_LATE, RECORDED_BEYOND = 0.05, 0.05, 0.25  # of the plan
NOISE_SES = 4.0


def last_recorded(planned_steps: int) -> int:
    """The last step that is recorded of a run with such a plan; one step more than the plan at
    least.
    """
    return planned_steps + max(1, int(RECORDED_BEYOND * planned_steps))


@frozen
class BeyondPlan:
    """Steps after the planned last one: the last recorded, how far they go on as share of the plan,
    and what the losses there are.

    `nonfinite_step` is the first with a NaN or infinite loss of the candidate, `gap` the mean gap
    over common steps (nats), `level` the candidate's mean loss over its `points` finite ones
    (nats); None where there is none.
    """

    last: int
    share: float
    nonfinite_step: int | None
    gap: float | None
    level: float | None
    points: int

    def is_worse(self, level: float, margin: float, sigma_step: float) -> bool:
        """Whether the candidate is worse there than its `level` inside the plan allows; all in
        nats.
        """
        if self.nonfinite_step is not None or (self.gap is not None and self.gap > margin):
            return True
        return (
            self.level is not None
            and self.level - level > margin + NOISE_SES * sigma_step / math.sqrt(self.points)
        )


def beyond_plan(
    baseline: Sequence[Curve], candidate: Sequence[Curve], window: Window
) -> BeyondPlan | None:
    """What the runs of both arms recorded after the window's last step; None where nothing was."""
    runs = (*baseline, *candidate)
    last = max((int(run.steps[-1]) for run in runs if len(run.steps)), default=0)
    if last <= window.last:
        return None
    later = [_points_after(run, window.last) for run in candidate]
    bad = [
        int(steps[int(np.argmax(~usable(loss)))]) for steps, loss in later if not all_usable(loss)
    ]
    finite = np.concatenate([loss[usable(loss)] for _, loss in later])
    pair = align(baseline, candidate)
    beyond = pair.steps > window.last
    gap = pair.candidate[:, beyond].mean(axis=0) - pair.baseline[:, beyond].mean(axis=0)
    return BeyondPlan(
        last=last,
        share=(last - window.last) / window.planned_steps,
        nonfinite_step=min(bad, default=None),
        gap=float(gap.mean()) if len(gap) else None,
        level=float(finite.mean()) if len(finite) else None,
        points=len(finite),
    )


def late_start(runs: Sequence[Curve], window: Window) -> int | None:
    """The latest first step of any run, where it is more than 5 % of the plan after the plan's
    first; else None.
    """
    first = max((int(run.steps[0]) for run in runs if len(run.steps)), default=0)
    if first - window.origin > MAX_LATE * window.planned_steps:
        return first
    return None


def _points_after(run: Curve, last: int) -> tuple[IntArray, FloatArray]:
    """Steps and losses after a step."""
    start = int(np.searchsorted(run.steps, last, side="right"))
    return run.steps[start:], run.loss[start:]
