"""Rules about runs that break: losses that are not finite, spikes, divergences, gaps that grow."""

from collections.abc import Sequence

from parity.judging.curves.arms import Arm
from parity.judging.curves.curve import Curve
from parity.judging.curves.reading import losses_not_finite, said_not_finite
from parity.judging.curves.spikes import MAX_MASKED_SHARE, diverged_late
from parity.judging.gap.margin import Margin
from parity.judging.gap.window_statistics import WindowStatistics
from parity.judging.measurements import Measurements
from parity.judging.rules.comparability import data_order, order_unshown
from parity.judging.rules.inputs import MAX_LEVEL_NATS
from parity.judging.rules.margin import (
    deciding_bounds,
    decimals_of,
    nats_words,
    nominal_bounds,
    within_margin,
    without_averages,
)
from parity.judging.rules.with_margin import with_margin
from parity.judging.secondary.gradients import GRAD_NORM, norm_ratio
from parity.wording import count, nats_decimals, percent, signed

DRIFT_Z, DRIFT_REACH = 1.96, 1.5

# of the loss; other batches after a restart move a mean of 3 points by 2 % (124 M model)
ROLLED_BACK = 0.05

NORMS_APART = 10.0  # 0.9 to 2.9 on GB200, 2.9 at the first step from loaded weights


def baseline_invalid(measurements: Measurements) -> str | None:
    return _nonfinite(measurements, baseline=True)


def nonfinite_candidate(measurements: Measurements) -> str | None:
    return _nonfinite(measurements, baseline=False)


def _nonfinite(measurements: Measurements, *, baseline: bool) -> str | None:
    arm = measurements.arms.baseline if baseline else measurements.arms.candidate
    bad = arm.nonfinite
    if not bad.fails:
        return None
    losses = count(bad.count, "NaN, infinite or blank loss", "NaN, infinite or blank losses")
    return f"{arm.name} has {losses}{_place_of_nonfinite(arm)}."


def _place_of_nonfinite(arm: Arm) -> str:
    """Where they begin, and whether a run ends with one, else how many of its steps they are."""
    bad, runs = arm.nonfinite, len(arm.given)
    if bad.at_end and runs == 1:
        if bad.count == 1:
            return f": the last one, at step {bad.first_step:,}"
        return f", the first at step {bad.first_step:,} and the last at the end of its run"
    first = f" at step {bad.first_step:,}"
    if bad.count > 1:
        first = f", the first{first}"
    if bad.at_end:
        end = "ends" if bad.ending == 1 else "end"
        return f"{first}; {bad.ending:,} of its {runs:,} runs {end} with one"
    return f"{first}; they are up to {percent(bad.worst_share)} of a run's steps"


@with_margin
def diverged(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not diverged_late(s.spikes.masked_gap, margin.nats):
        return None
    if (
        data_order(measurements) is not None
        or order_unshown(measurements) is not None
        or (not s.end.above and s.end.rise <= s.end.limit)
    ):  # other batches, or noise alone, can do that
        return None
    if not diverged_late(without_averages(measurements, s), margin.nats):
        return None
    return (
        f"{measurements.arms.candidate.name} diverges late: over the last tenth of the window its "
        "gap is "
        f"above 3 x {nats_words(measurements, margin)} nats."
    )


@with_margin
def candidate_unstable(
    measurements: Measurements, s: WindowStatistics, margin: Margin
) -> str | None:
    if s.spikes.masked_share <= MAX_MASKED_SHARE or not s.spikes.candidate_alone:
        return None
    with_spikes = nominal_bounds(measurements)[0] + s.raw_gap_candidate - s.interval.mean
    if with_spikes <= margin.nats:  # bumps with a small mean effect block a pass: UNSTABLE
        return None
    spikes = (
        f"{measurements.arms.candidate.name} has {count(s.spikes.candidate, 'spike')}, "
        f"{measurements.arms.baseline.name} "
        f"{s.spikes.baseline}"
    )
    return f"{spikes}; they cover {percent(s.spikes.masked_share)} of the window."


def unstable(measurements: Measurements) -> str | None:
    if (
        measurements.statistics is None
        or measurements.statistics.spikes.masked_share <= MAX_MASKED_SHARE
    ):
        return None
    s = measurements.statistics.spikes
    return (
        f"Spikes cover {percent(s.masked_share)} of the window (baseline {s.baseline}, candidate "
        f"{s.candidate}); 10 % at most."
    )


@with_margin
def end_differs(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.end is None or not s.end.differs:
        return None
    end, decimals = s.end, decimals_of(measurements, margin)
    if abs(end.rise) <= end.limit:
        return (
            f"The gap ends at the margin of {nats_words(measurements, margin)} nats or above it, "
            "although its "
            "mean over the window is below."
        )
    if end.rise > 0.0:
        what = "an unfinished spike or a divergence"
    else:
        what = f"a spike or divergence of {measurements.arms.baseline.name}, or a sudden gain"
    steps = "last point" if end.points == 1 else f"last {end.points:,} points"
    return (
        f"Over the {steps} the gap is {signed(end.gap, decimals)} nats, "
        f"{signed(end.rise, decimals)} from the window before it "
        f"(noise allows {end.limit:.{decimals}f}): {what}."
    )


def run_above(measurements: Measurements) -> str | None:
    if measurements.worst_run is None or not measurements.worst_run.is_above:
        return None
    worst, decimals = measurements.worst_run, nats_decimals(measurements.worst_run.limit)
    run = f"Run {worst.label} of {measurements.arms.candidate.name}"
    return (
        f"{run} alone is {worst.gap:.{decimals}f} nats worse; margin and noise allow "
        f"{worst.limit:.{decimals}f}."
    )


def rolled_back(measurements: Measurements) -> str | None:
    if not measurements.statistics:
        return None
    return rolled_back_sentence(
        measurements.arms.candidate.name,
        measurements.arms.candidate.runs,
        measurements.statistics.baseline.level,
    )


def rolled_back_sentence(candidate: str, runs: Sequence[Curve], level: float) -> str | None:
    """How much higher losses were that a run of the candidate overwrote, where that is much of the
    baseline's `level`; else None.
    """
    risen = max(run.completeness.rolled_back for run in runs)
    if risen <= ROLLED_BACK * abs(level):
        return None
    if risen > MAX_LEVEL_NATS:
        height = "NaN, infinite or above 1,000,000"
    else:
        height = f"{risen:.3f} nats above those that replaced them"
    return (
        f"A run of {candidate} went back to an earlier step; the losses that it overwrote are "
        f"{height}."
    )


def grad_norm_apart(measurements: Measurements) -> str | None:
    if GRAD_NORM in measurements.policy.may_differ:
        return None
    ratio = norm_ratio(
        *measurements.arms.both_runs,
        measurements.aligned.steps[measurements.window.part(measurements.aligned.steps)],
    )
    if ratio is None or 1.0 / NORMS_APART < ratio < NORMS_APART:
        return None
    return (
        f"The gradient norm of {measurements.arms.candidate.name} is {ratio:.3g} times that of "
        f"{measurements.arms.baseline.name} over the window."
    )


def short_rerun_diverged(measurements: Measurements) -> str | None:
    diverged = [label for early in measurements.early for label in early.diverged]
    if not diverged:
        return None
    return f"{count(len(diverged), 'short rerun')} diverged: {'; '.join(diverged)}."


@with_margin
def gap_growing(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if (
        not s.drift - DRIFT_Z * s.drift_se > 0.0
        or not s.interval.mean + DRIFT_REACH * s.drift > margin.nats
    ):
        return None
    where = "and is above" if s.interval.mean > margin.nats else "toward"
    decimals = decimals_of(measurements, margin)
    return (
        f"Over the judged steps the gap grows by {s.drift:.{decimals}f} nats (noise allows "
        f"{DRIFT_Z * s.drift_se:.{decimals}f}), {where} the margin of "
        f"{nats_words(measurements, margin)}."
    )


def nonfinite_dropped(measurements: Measurements) -> str | None:
    bad, name = measurements.arms.candidate.nonfinite, measurements.arms.candidate.name
    if not bad.blocks:
        baseline, candidate = ((arm.name, arm.runs) for arm in measurements.arms.both)
        return said_not_finite([baseline, candidate]) or losses_not_finite(baseline, candidate)
    return (
        f"A run of {name} has NaN or infinite losses at {percent(bad.worst_share)} of its points, "
        f"from step {bad.first_step:,} on."
    )


@with_margin
def spikes_hide(measurements: Measurements, s: WindowStatistics, margin: Margin) -> str | None:
    if s.spikes.masked_share == 0.0 or within_margin(measurements) is None:
        return None
    _, hi = deciding_bounds(measurements)
    spikes = s.raw_gap_candidate - s.interval.mean
    if hi + spikes < margin.nats:
        return None
    decimals = decimals_of(measurements, margin)
    return (
        f"The spikes of {measurements.arms.candidate.name} add {spikes:.{decimals}f} nats to the "
        "gap: with "
        f"them the interval reaches {signed(hi + spikes, decimals)}, across the margin."
    )
