"""The late window, registered before the run starts, and the vetoes that say a curve is not ready
to be judged.

window: the last 20 % of the planned steps, never searched for; of a schedule that starts to decay
inside it, the decay phase. C2 drift g: least-squares change of the gap over the window, SE(g) from
the long-run variance of u_t e_t

Flatness can't prove convergence (power laws never flatten; no threshold separates finished runs
from runs cut short), so the window comes from the plan, and whether a run was finished from its
learning rate (`schedule.state`). Source: docs/method.md.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from parity.frozen import frozen
from parity.judging.curves.curve import (
    Curve,
    FloatArray,
    IntArray,
    between,
    dot,
    mean,
)
from parity.judging.curves.step_noise import mean_se
from parity.wording import percent

PlanSource = Literal["declared", "assumed complete", "unknown"]

COMPLETE_SHARE = 0.95
MISSING_SHARE = 0.005  # of the plan, or one logging interval: an end that is as good as reached
LEARNING_RATE, CONSTANT_RATE_TOLERANCE, MIN_CONSTANT_SHARE = "learning_rate", 1e-3, 0.05
SENSITIVITY_FRACTIONS = (0.10, 0.20, 0.30, 0.50)


@frozen
class Window:
    """First and last step of the window (inclusive), from `planned_steps` counted from `origin` (0
    or 1).

    `decay_from` is set where the learning rate began to decay inside the window: only the decay
    phase is judged then. Where a run ended before its plan, `unreached` says so, and the window is
    that of the steps that every run reached.
    """

    first: int
    last: int
    fraction: float
    origin: int
    planned_steps: int
    plan: PlanSource
    decay_from: int | None = None
    unreached: str = ""

    @property
    def rule(self) -> str:
        """The rule in words."""
        decay = (
            f", its decay phase from step {self.decay_from}" if self.decay_from is not None else ""
        )
        reached = self.last - self.origin + 1
        if self.unreached:
            steps = f"{reached} steps (of {self.planned_steps}, {self.plan})"
        else:
            steps = f"{self.planned_steps} steps ({self.plan})"
        return f"last {100 * self.fraction:g} % of {steps}{decay}"

    def part(self, steps: IntArray) -> slice:
        """The window's part of sorted steps (n,)."""
        return between(steps, self.first, self.last)

    @property
    def at_plan(self) -> "Window":
        """The window at the end of the plan, whether or not it was reached."""
        return make_window(self.planned_steps, self.origin, self.fraction, self.plan)

    def at(self, fraction: float) -> "Window":
        """The window of another fraction of the same plan."""
        points = max(1, round(fraction * (self.last - self.origin + 1)))
        return dataclasses.replace(
            self, first=self.last - points + 1, fraction=fraction, decay_from=None
        )


def make_window(
    planned_steps: int,
    origin: int,
    fraction: float,
    plan: PlanSource,
    last: int | None = None,
    unreached: str = "",
) -> Window:
    """The last `fraction` of `planned_steps` steps that are numbered from `origin`, or of those up
    to the step `last`.
    """
    last = origin + planned_steps - 1 if last is None else last
    points = max(1, round(fraction * (last - origin + 1)))
    return Window(
        first=last - points + 1,
        last=last,
        fraction=fraction,
        origin=origin,
        planned_steps=planned_steps,
        plan=plan,
        unreached=unreached,
    )


def plan_window(
    runs: Sequence[Curve], planned_steps: int | None, assume_complete: bool, fraction: float
) -> Window:
    """The window of a comparison: the end of the plan, or of what every run reached of it.

    Without a plan the longest run counts as one, and is marked `unknown` unless it is assumed to be
    complete.
    """
    spans = [(int(run.steps[0]), int(run.steps[-1])) for run in runs if len(run.steps)]
    origin = min(1, min((first for first, _ in spans), default=0))
    plan: PlanSource = "declared"
    if planned_steps is None:
        plan = "assumed complete" if assume_complete else "unknown"
        planned_steps = max(max((last for _, last in spans), default=0) - origin + 1, 1)
    end = origin + planned_steps - 1
    shortest = min((last for _, last in spans), default=end)
    stride = max((run.completeness.stride or 1 for run in runs), default=1)
    if not ends_early(shortest, end, stride, planned_steps):
        return make_window(planned_steps, origin, fraction, plan)
    share = max(shortest - origin + 1, 0) / planned_steps
    words = f"a run stops at step {shortest:,} of {planned_steps:,} ({percent(share)} of the plan)"
    return make_window(planned_steps, origin, fraction, plan, max(shortest, origin), words)


def ends_early(last: int, end: int, stride: int, steps: int) -> bool:
    """Whether a log whose last step is `last`, logged every `stride` steps, ends before `end` by
    more than what counts as reached, of a training of so many steps.
    """
    return end - last > max(stride, MISSING_SHARE * steps)


def decay_phase(window: Window, run: Curve, min_points: int) -> Window:
    """The window without its constant-rate part, where the run's learning rate starts to decay
    inside it (warm-up, stable, decay).

    Nothing changes without a `learning_rate` column, where the rate falls from the window's start
    on (cosine), or where the decay phase has fewer than `min_points` points.
    """
    part = window.part(run.steps)
    rate = run.columns.get(LEARNING_RATE, np.empty(0))[part]
    if len(rate) == 0 or not np.isfinite(rate).all() or rate[0] <= 0.0:
        return window
    falling = rate < (1.0 - CONSTANT_RATE_TOLERANCE) * rate[0]
    start = int(np.argmax(falling))
    if (
        not falling.any()
        or start < MIN_CONSTANT_SHARE * len(rate)
        or len(rate) - start < min_points
    ):
        return window
    first = int(run.steps[part][start])
    return dataclasses.replace(window, first=first, decay_from=first)


def planned_share(runs: Sequence[Curve], window: Window) -> float:
    """Share of the plan that the shortest run has reached."""
    last = min(int(run.steps[-1]) if len(run.steps) else window.origin - 1 for run in runs)
    return (last - window.origin + 1) / window.planned_steps


def ols_change(series: FloatArray, steps: IntArray) -> float:
    """Least-squares change of (n,) values from the first to the last of (n,) steps."""
    u = _unit_steps(steps)
    power = dot(u, u)
    if power > 0.0:
        return dot(u, series - mean(series)) / power
    return 0.0


def detrended(series: FloatArray, steps: IntArray) -> FloatArray:
    """The (n,) values at (n,) steps without their least-squares trend; their mean stays."""
    return series - _unit_steps(steps) * ols_change(series, steps)


def drift(gap: FloatArray, steps: IntArray) -> tuple[float, float]:
    """C2: change g of the gap (n,) over the window and its standard error, both in nats."""
    u = _unit_steps(steps)
    power = dot(u, u)
    if len(gap) < 8 or power == 0.0:
        return 0.0, 0.0
    centred = gap - mean(gap)
    change = dot(u, centred) / power
    score = mean_se(u * (centred - change * u))
    return change, score.value * len(gap) / power


def _unit_steps(steps: IntArray) -> FloatArray:
    """Steps as positions from -0.5 to 0.5, demeaned."""
    span = float(steps[-1] - steps[0]) if len(steps) > 1 else 0.0
    if span == 0.0:
        return np.zeros(len(steps))
    u = (steps - steps[0]) / span
    centred: FloatArray = u - mean(u)
    return centred
