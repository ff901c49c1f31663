"""What blocks a pass although the interval at the point compared is within the margin: one point says nothing about the points before it.

late    the common evaluations of the last fifth of the steps; g_i the gap at each, g(0.8) the gap where it begins, linear between points
ends    some g_i >= M                                                  a late blow-up, or a last point better than all before it
grows   g_last > g(0.8) and 2 g_last - g(0.8) >= M                     the gap would reach the margin if it went on
hole    a run has no evaluation for more than 1.5 of its own intervals, late, where another run has one
rises   the baseline's mean rises by more than M from the first common evaluation to the last: an accuracy, or a broken training
beyond  a run goes on by more than 5 % of the plan that was stated: then the plan is not its own

All use means without their noise, so that a worse candidate never passes where a better one did not. Can fail: what happens between two
evaluations, or before the last fifth of the steps.
"""

from collections.abc import Iterator

import numpy as np

from parity.judging.decision import INCONCLUSIVE, State
from parity.judging.evaluations.measured import LATE_SHARE, Measured
from parity.judging.schedule.outside_plan import MAX_BEYOND
from parity.wording import count, signed

MAX_HOLE = 1.5  # of a run's own interval between evaluations


def blocks_of_pass(m: Measured, *, margin: float, planned_steps: int | None) -> Iterator[tuple[State, str, str]]:
    """The rows that a pass must not meet."""
    yield from _late_gap(m, margin)
    if m.bands is not None and m.bands.baseline[-1] - m.bands.baseline[0] > margin:
        words = f"The baseline rises from {m.bands.baseline[0]:.4g} to {m.bands.baseline[-1]:.4g}; expected a loss, which training lowers."
        yield INCONCLUSIVE, "LOSS_NOT_NATS", words
    if hole := _hole(m):
        yield INCONCLUSIVE, "DOWNSAMPLED", hole
    if alone := _without_partner(m):
        words = f"{count(alone, 'run')} of the candidate without a partner in the baseline: the gap over pairs leaves such runs out."
        yield INCONCLUSIVE, "RUNS_UNPAIRED", words
    longest = max(int(run.steps[-1]) for arm in m.runs for run in arm)
    if planned_steps is not None and longest > (1.0 + MAX_BEYOND) * planned_steps:
        words = f"A run goes on to step {longest:,}, but the plan is {planned_steps:,} steps; state the length that was planned."
        yield INCONCLUSIVE, "BEYOND_PLAN", words


def _late_gap(m: Measured, margin: float) -> Iterator[tuple[State, str, str]]:
    if m.bands is None:
        return
    start = (1.0 - LATE_SHARE) * m.steps[-1]
    late = m.steps >= start
    gap = m.bands.gap[late]
    worst = int(np.argmax(gap))
    if gap[worst] >= margin:
        words = f"At step {int(m.steps[late][worst]):,} the gap is {signed(float(gap[worst]), 4)} nats, above the margin of {margin:.4f}."
        yield INCONCLUSIVE, "END_DIFFERS", words
    last = float(gap[-1])
    rise = last - float(np.interp(start, m.steps, m.bands.gap))
    if rise > 0.0 and last + rise >= margin:
        words = f"The gap grows by {rise:.4f} nats over the last fifth of the steps, to {signed(last, 4)}; the margin is {margin:.4f}."
        yield INCONCLUSIVE, "GAP_GROWING", words


def _hole(m: Measured) -> str | None:
    """The late hole in a run's evaluations, in words."""
    runs = [run for arm in m.runs for run in arm]
    every = np.unique(np.concatenate([run.steps for run in runs]))
    for run in runs:
        ends, stride = run.steps[1:], run.completeness.stride or 1
        wide = (np.diff(run.steps) > MAX_HOLE * stride) & (ends > (1.0 - LATE_SHARE) * m.steps[-1])
        for index in np.flatnonzero(wide):
            first, last = int(run.steps[index]), int(run.steps[index + 1])
            if ((every > first) & (every < last)).any():
                return f"{run.label or 'A run'} has no evaluation between {first:,} and {last:,}, where other runs have one."
    return None


def _without_partner(m: Measured) -> int:
    """How many runs of the candidate have no run of the baseline of their seed; 0 where runs are not paired."""
    if m.pairs is None:
        return 0
    seeds = {run.seed for run in m.runs[0]}
    return sum(run.seed not in seeds for run in m.runs[1])
