"""At which point of the training does a comparison speak: at its end, or as of a step before it?

finished  every run reached the plan but for one logging interval or 0.5 % of it, and the learning
          rates that both arms recorded fell to 20 % of their peak or below without a cut; or the
          owner states the decay (`schedule: decayed`) and no recorded rate contradicts. A plan
          alone, and the assumption that the runs are complete, say nothing of the schedule
slope s   least squares of the baseline's loss on ln(step) from 20 % of its last step on, as a share
          of L per e-fold: runs of one recipe get to a loss at different times, and an unfinished
          run shows that difference times the slope; twice that where the log begins later; 20 %
          where a log from the start (5 %) begins below 1.3 L and has fallen since: then it may be
          cut from a longer run, unless trained weights were loaded (`start: loaded`)

Can fail: a schedule that somebody states. Source: 7 families of unfinished runs, tau/|s| 0.5 to
2.2 %.
"""

from collections.abc import Sequence

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    dot,
)
from parity.judging.curves.decline import falls_as_before
from parity.judging.curves.learning_rates import contradicting_rate, not_at_end, recorded_rates
from parity.judging.curves.window import Window
from parity.judging.policy import Policy

SLOPE_FROM, STARTS_EARLY, LATE_FACTOR = 0.2, 0.05, 2.0  # shares of the last step
FROM_SCRATCH, UNKNOWN_SLOPE, FIRST_PART = 1.3, 0.20, 10


@frozen
class ScheduleState:
    """Where in its training a comparison stands: the last common `step`, whether the training was
    `finished` there (`stated`: as the owner says, without recorded rates), else `why` not, and the
    baseline's `slope` as a share of its loss per e-fold of the steps.
    """

    step: int
    finished: bool
    stated: bool
    why: str
    slope: float

    @property
    def assumed_slope(self) -> float | None:
        """The slope that the assumed run-to-run noise has to follow; None for a finished run."""
        return None if self.finished else self.slope


def schedule_state(
    arms: tuple[Sequence[Curve], Sequence[Curve]], window: Window, policy: Policy, slope: float
) -> ScheduleState:
    """The state of the schedule of the runs of both arms in their window."""
    runs = (*arms[0], *arms[1])
    recorded = all(any(recorded_rates(run) is not None for run in arm) for arm in arms)
    stated = policy.schedule == "decayed"
    if window.unreached and window.plan != "unknown":
        why = window.unreached
    elif stated:
        why = (
            contradicting_rate(runs, cut_counts=window.plan != "declared")
            or _contradicting_loss(arms[0])
            or ""
        )
    elif window.plan == "unknown":
        why = "the planned length of the runs is not known"
    elif recorded:
        why = not_at_end([run for run in runs if recorded_rates(run) is not None]) or ""
    else:
        why = (
            "no learning rates of both arms are on record, and nobody stated that they had decayed"
        )
    return ScheduleState(
        step=window.last,
        finished=not why,
        stated=stated and not recorded and not why,
        why=why,
        slope=slope,
    )


def _contradicting_loss(baseline: Sequence[Curve]) -> str | None:
    """Why losses contradict that the rate had decayed, where no rates are on record that show it;
    None where they don't.

    A candidate's may bend for a reason of its own.
    """
    for run in baseline:
        if not_at_end([run]) is not None and falls_as_before(run):
            return (
                f"the loss of {run.label or 'a run'} falls at its end as before a decay, so its "
                "learning rate had not decayed"
            )
    return None


def log_slope(steps: IntArray, loss: FloatArray, *, loaded: bool) -> float:
    """s of (n,) losses at (n,) steps: a share of their late level per e-fold, as large as the log
    leaves it open.
    """
    last = int(steps[-1]) if len(steps) else 0
    late = steps >= max(SLOPE_FROM * last, 1)
    if int(late.sum()) < 3:
        return UNKNOWN_SLOPE
    level = float(loss[steps >= (1.0 - SLOPE_FROM) * last].mean())
    x = np.log(steps[late].astype(np.float64))
    x -= x.mean()
    power = dot(x, x)
    if level <= 0.0 or power == 0.0:
        return UNKNOWN_SLOPE
    slope = abs(dot(x, loss[late] - loss[late].mean()) / power / level)
    first = int(steps[0])
    if first > SLOPE_FROM * last:
        return LATE_FACTOR * slope
    beginning = float(loss[: max(1, len(loss) // FIRST_PART)].mean())
    cut = (
        first <= STARTS_EARLY * last and float(loss[0]) < FROM_SCRATCH * level and beginning > level
    )
    if cut and not loaded:
        return max(slope, UNKNOWN_SLOPE)
    return slope
