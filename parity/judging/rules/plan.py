"""Rules about how much of the training is there: the plan, the window and where logs begin."""

from parity.judging.curves import outside_plan
from parity.judging.measurements import Measurements
from parity.judging.rules.margin import within_margin
from parity.judging.rules.warnings import as_of, goes_beyond_plan
from parity.wording import count

NEAR_WINDOW = 0.5  # of the window's length before it


def too_few(m: Measurements) -> str | None:
    points = m.statistics.n if m.statistics else 0
    if points >= m.policy.min_points:
        return None
    strides = [max(run.completeness.stride or 1 for run in arm.runs) for arm in m.arms.both]
    if strides[0] != strides[1]:
        every = f"the arms are logged every {strides[0]:,} and {strides[1]:,} steps"
        return (
            f"The window has {count(points, 'common step')}: {every}. Log both at the same steps."
        )
    whole = round(m.policy.min_points / m.policy.window_fraction)
    return (
        f"The window has {count(points, 'common step')}; a pass needs {m.policy.min_points}, so "
        f"about {whole:,} logged steps in all."
    )


def beyond_plan(m: Measurements) -> str | None:
    beyond, s = outside_plan.beyond_plan(*m.arms.both_runs, m.window), m.statistics
    if beyond is None or s is None:
        return None
    worse = s.margin is not None and beyond.is_worse(s.candidate.level, s.margin.nats, s.sigma_step)
    longer = beyond.share > outside_plan.MAX_BEYOND and not m.window.unreached
    if worse or longer:
        return goes_beyond_plan(m)
    return None


def starts_near_the_window(m: Measurements) -> str | None:
    """A run that went on from the other arm's checkpoint near the window shows little of its own
    recipe.
    """
    first = max((int(run.steps[0]) for run in m.arms.runs if len(run.steps)), default=0)
    if first > m.window.first - NEAR_WINDOW * (m.window.last - m.window.first + 1):
        window = f"the window, which begins at {m.window.first:,}"
        return (
            f"A log begins at step {first:,}, near {window}: a run that went on from the other's "
            "checkpoint looks so."
        )
    if m.parts_late:
        return (
            f"Both logs begin late, at step {first:,}, with nearly equal losses, and part from "
            "there, as a fork of one run does."
        )
    return None


def passes_as_of(m: Measurements) -> str | None:
    would_pass = m.identical is not None or within_margin(m) is not None
    if m.policy.as_of != "accept" and would_pass:
        return as_of(m)
    return None
