"""Rules about how much of the training is there: the plan, the window and where logs begin."""

from parity.judging.curves import outside_plan
from parity.judging.measurements import Measurements
from parity.judging.rules.margin import within_margin
from parity.judging.rules.warnings import as_of, goes_beyond_plan
from parity.wording import count

NEAR_WINDOW = 0.5  # of the window's length before it


def too_few(measurements: Measurements) -> str | None:
    points = measurements.statistics.n if measurements.statistics else 0
    if points >= measurements.policy.min_points:
        return None
    strides = [
        max(run.completeness.stride or 1 for run in arm.runs) for arm in measurements.arms.both
    ]
    if strides[0] != strides[1]:
        every = f"the arms are logged every {strides[0]:,} and {strides[1]:,} steps"
        return (
            f"The window has {count(points, 'common step')}: {every}. Log both at the same steps."
        )
    whole = round(measurements.policy.min_points / measurements.policy.window_fraction)
    return (
        f"The window has {count(points, 'common step')}; a pass needs "
        f"{measurements.policy.min_points}, so "
        f"about {whole:,} logged steps in all."
    )


def beyond_plan(measurements: Measurements) -> str | None:
    beyond, s = (
        outside_plan.beyond_plan(*measurements.arms.both_runs, measurements.window),
        measurements.statistics,
    )
    if beyond is None or s is None:
        return None
    worse = s.margin is not None and beyond.is_worse(s.candidate.level, s.margin.nats, s.sigma_step)
    longer = beyond.share > outside_plan.MAX_BEYOND and not measurements.window.unreached
    if worse or longer:
        return goes_beyond_plan(measurements)
    return None


def starts_near_the_window(measurements: Measurements) -> str | None:
    """A run that went on from the other arm's checkpoint near the window shows little of its own
    recipe.
    """
    first = max((int(run.steps[0]) for run in measurements.arms.runs if len(run.steps)), default=0)
    if first > measurements.window.first - NEAR_WINDOW * (
        measurements.window.last - measurements.window.first + 1
    ):
        window = f"the window, which begins at {measurements.window.first:,}"
        return (
            f"A log begins at step {first:,}, near {window}: a run that went on from the other's "
            "checkpoint looks so."
        )
    if measurements.parts_late:
        return (
            f"Both logs begin late, at step {first:,}, with nearly equal losses, and part from "
            "there, as a fork of one run does."
        )
    return None


def passes_as_of(measurements: Measurements) -> str | None:
    would_pass = measurements.identical is not None or within_margin(measurements) is not None
    if measurements.policy.as_of != "accept" and would_pass:
        return as_of(measurements)
    return None
