"""Rules about what was given: whether the numbers are the losses of a training, and all of them."""

from parity.judging.curves.reading import (
    cut_last_line,
    different_meanings,
    in_bits,
    second_loss,
    unread_lines,
    without_losses,
)
from parity.judging.curves.resolution import MAX_HOLE, MAX_LAG_SHARE, MIN_COVERAGE, SMOOTHED_WEIGHT
from parity.judging.measurements import Measurements
from parity.judging.policy import Policy
from parity.wording import count, percent

MAX_COUNTED = 10**15  # beyond the tokens of any training, and far beyond its steps

# below, the noise is no share of the loss any more; above ln of any vocabulary
MIN_LEVEL_NATS, MAX_LEVEL_NATS = 0.3, 20.0

# Points that one arm alone lacks, as shares of the window's points (in a row, and in all) and as a
# number; before the window in a row alone, as a share of the run's points. Fewer missing points are
# no reason by themselves, and in the window they widen the interval.
HOLE_IN_ONE_ARM, LACKING_IN_ONE_ARM, FEWEST_LACKING = 0.015, 0.03, 3
EARLY_HOLE_IN_ONE_ARM = 0.05  # of the run: a resume may lose fewer


def empty(measurements: Measurements) -> str | None:
    for arm in measurements.arms.both:
        for number, run in enumerate(arm.runs, 1):
            if len(run.steps) == 0:
                return f"Run {run.label or number} of {arm.name} has no steps."
    return None


def losses_differ(measurements: Measurements) -> str | None:
    arms = [(arm.name, arm.runs) for arm in measurements.arms.both]
    return different_meanings(arms) or second_loss(arms)


def no_common_steps(measurements: Measurements) -> str | None:
    if measurements.common_logged_steps:
        return None
    spans = [
        f"{run.completeness.first} to {run.completeness.last} every {run.completeness.stride or 1}"
        for run in measurements.arms.runs
    ]
    return f"The runs have no step in common: {'; '.join(dict.fromkeys(spans))}."


def not_nats(measurements: Measurements) -> str | None:
    if (
        measurements.policy.loss_unit == "nats"
        and (run := in_bits(measurements.arms.runs)) is not None
    ):
        return (
            f"The losses of {run.label or 'a run'} are bits, as the perplexities or the column's "
            "name show; expected nats (bits x 0.6931)."
        )
    if measurements.statistics is None:
        return None
    level = measurements.statistics.baseline.level
    absolute = measurements.statistics.margin is not None and measurements.policy.is_absolute
    words = None if absolute else no_relative_margin(level, measurements.policy)
    if not words:
        return None
    return f"The baseline's loss in the window is {level:.4g}; {words}."


def no_relative_margin(level: float, policy: Policy) -> str | None:
    """Why no share of a loss at this level says how good a model is; None where one does."""
    if policy.loss_unit == "other":
        if level > 0.0:
            return None
        return "expected a loss above 0, of which a margin can be a share"
    if MIN_LEVEL_NATS <= level <= MAX_LEVEL_NATS:
        return None
    return (
        f"expected a cross-entropy in nats, {MIN_LEVEL_NATS:g} to {MAX_LEVEL_NATS:g}, of which "
        "margin and run-to-run noise can be shares"
    )


def constant(measurements: Measurements) -> str | None:
    part = measurements.window.part(measurements.aligned.steps)
    if part.stop - part.start < 2:
        return None
    for arm, losses in (
        (measurements.arms.baseline, measurements.aligned.baseline),
        (measurements.arms.candidate, measurements.aligned.candidate),
    ):
        for run in losses[:, part]:
            if run.min() == run.max():
                return (
                    f"The loss of {arm.name} is {run[0]:.6g} at every step of the window; a "
                    "training loss varies from step to step."
                )
    return None


def steps_too_large(measurements: Measurements) -> str | None:
    last = max((int(run.steps[-1]) for run in measurements.arms.runs if len(run.steps)), default=0)
    if last <= MAX_COUNTED:
        return None
    return (
        f"A run's last step is {last:,}; no training counts beyond {MAX_COUNTED:,}, in steps or in "
        "tokens."
    )


def arms_identical(measurements: Measurements) -> str | None:
    if measurements.resemblance is None:
        return None
    resemblance = (
        f"The losses of {measurements.arms.candidate.name} and {measurements.arms.baseline.name} "
        f"are {measurements.resemblance}"
    )
    recipes = {measurements.arms.baseline.recipe, measurements.arms.candidate.recipe}
    if len(recipes - {None}) == 1:
        return (
            f"{resemblance}: one of two equal recipes may be a copy of the other, or both trained "
            "alike."
        )
    return f"{resemblance}; runs of two recipes part at the first step."


def downsampled(measurements: Measurements) -> str | None:
    if measurements.resolution.coverage >= MIN_COVERAGE:
        if measurements.resolution.hole <= MAX_HOLE:
            return None
        return (
            f"A log has a hole of {percent(measurements.resolution.hole)} of the window: what is "
            "not logged "
            "can't be compared."
        )
    return (
        "A series is a sample of its run: the window has "
        f"{percent(measurements.resolution.coverage)} of the "
        "steps that its logging interval gives."
    )


def points_in_one_arm(measurements: Measurements) -> str | None:
    part = measurements.window.part(measurements.aligned.steps)
    for arm, lacking in zip(measurements.arms.both, measurements.lacking, strict=True):
        grid = part.stop - part.start + lacking.points
        if lacking.longest >= max(FEWEST_LACKING, HOLE_IN_ONE_ARM * grid):
            points = f"{count(lacking.longest, 'point')} that follow each other"
        elif lacking.points >= max(FEWEST_LACKING, LACKING_IN_ONE_ARM * grid):
            points = count(lacking.points, "point")
        else:
            continue
        return (
            f"The log of {arm.name} alone lacks {points} in the window: what happened there is not "
            "known."
        )
    for arm, hole in zip(measurements.arms.both, measurements.early_holes, strict=True):
        if hole.points >= FEWEST_LACKING and hole.share >= EARLY_HOLE_IN_ONE_ARM:
            return (
                f"The log of {arm.name} alone lacks {count(hole.points, 'point')} after step "
                f"{hole.after:,}: what happened there is not known."
            )
    return None


def losses_not_logged(measurements: Measurements) -> str | None:
    return without_losses([(arm.name, arm.runs) for arm in measurements.arms.both])


def lines_unread(measurements: Measurements) -> str | None:
    arms = [(arm.name, arm.runs) for arm in measurements.arms.both]
    return unread_lines(arms) or cut_last_line(arms)


def smoothed(measurements: Measurements) -> str | None:
    if (
        measurements.resolution.smoothing < SMOOTHED_WEIGHT
        or measurements.resolution.memory_share <= MAX_LAG_SHARE
    ):
        return None
    return (
        f"A series is smoothed (weight about {measurements.resolution.smoothing:.2f}) over more "
        "than 5 % of "
        "the window. Use the raw loss."
    )
