"""The rules of the decision about held-out losses: a function a code, None where it does not hold.

A gap that is surely above the margin fails at any point of the training. A pass needs more: a
finished training, arms that share their conditions, and nothing that one point hides. Rules that
only keep back a pass hold only where the interval is within the margin; they use means without
their noise, so that a worse candidate never passes where a better one did not. What can fail: what
happens between two evaluations, or before the last fifth of the steps.
"""

import numpy as np

from parity.frozen import frozen
from parity.judging.codes import (
    BETTER_THAN_BASELINE,
    CI_STRADDLES_MARGIN,
    GAP_EXCEEDS_MARGIN,
    WITHIN_MARGIN,
    ReasonCode,
)
from parity.judging.curves.context import without_assumed_noise
from parity.judging.curves.mismatch import BITS
from parity.judging.curves.outside_plan import MAX_BEYOND
from parity.judging.curves.window import COMPLETE_SHARE
from parity.judging.evaluations.measured import LATE_SHARE, MeasuredEvaluations
from parity.judging.evaluations.question import EvaluationQuestion, Ground
from parity.judging.evaluations.side import clustered, judged, side
from parity.judging.gap.interval import Interval
from parity.judging.gap.margin import Margin
from parity.judging.gap.window_statistics import MIN_MEASURED_DF
from parity.judging.policy import WIDE_MARGIN
from parity.judging.rules.comparability import contradiction
from parity.judging.rules.inputs import no_relative_margin
from parity.judging.rules.margin import MIN_PRINTED_STEPS, few_digits
from parity.judging.rules.noise import ANOTHER_LOSS, noise_unknown_sentence
from parity.judging.rules.stability import rolled_back_sentence
from parity.wording import count, first_few, interval_words, level_percent, percent, signed

MAX_HOLE = 1.5  # of a run's own interval between evaluations
VALUES_SHOWN = 3
BITS_WITHIN = 0.02  # of 1 / ln 2
_LIES = {
    GAP_EXCEEDS_MARGIN: "above",
    BETTER_THAN_BASELINE: "below zero by more than",
    WITHIN_MARGIN: "within",
    CI_STRADDLES_MARGIN: "on both sides of",
}


@frozen(eq=False)
class EvaluationEvidence:
    """What a rule looks at: what was measured, what is asked, and what is on record."""

    measured: MeasuredEvaluations
    question: EvaluationQuestion
    grounds: tuple[Ground, ...]

    @property
    def against_margin(self) -> tuple[Interval, Margin, ReasonCode] | None:
        """The gap that decides, the margin, and the code of its side; None where one is unknown."""
        gap, margin = judged(self.measured, self.question), self.question.margin
        if gap is None or margin is None:
            return None
        return gap, margin, side(gap, margin.nats, self.question)

    @property
    def is_within(self) -> bool:
        """Whether the interval alone would pass."""
        return self.against_margin is not None and self.against_margin[2] is WITHIN_MARGIN

    @property
    def margin_nats(self) -> float:
        """The margin, NaN where there is none: nothing is above or below it then."""
        return self.question.margin.nats if self.question.margin else float("nan")


def baseline_invalid(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.invalid[0]:
        return None
    return (
        f"{evidence.question.names[0]} has a loss that is not finite: "
        f"{evidence.measured.invalid[0]}."
    )


def nonfinite_candidate(evidence: EvaluationEvidence) -> str | None:
    if evidence.measured.invalid[0] or not evidence.measured.invalid[1]:
        return None
    return (
        f"{evidence.question.names[1]} has a loss that is not finite: "
        f"{evidence.measured.invalid[1]}."
    )


def arms_identical(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.arms_alike:
        return None
    return f"Runs of both arms are equal but for a constant: {evidence.measured.arms_alike}."


def arms_share_start(evidence: EvaluationEvidence) -> str | None:
    if evidence.measured.arms_alike or not evidence.measured.arms_share_start:
        return None
    return (
        "Runs of both arms have equal losses at their first evaluations: "
        f"{evidence.measured.arms_share_start}."
    )


def not_nats(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.points or evidence.question.policy.is_absolute:
        return None
    level = float(evidence.measured.baseline.mean())
    why = no_relative_margin(level, evidence.question.policy)
    if not why:
        return None
    base, cand = evidence.question.names
    return (
        f"{base} is at {level:.4g} and {cand} at {float(evidence.measured.candidate.mean()):.4g}; "
        f"{why}."
    )


def loss_scaled(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.points or not_nats(evidence):
        return None
    levels = float(evidence.measured.baseline.mean()), float(evidence.measured.candidate.mean())
    if not levels[0] or not any(
        _has_ratio(evidence.measured, ratio) for ratio in (BITS, 1.0 / BITS)
    ):
        return None
    base, cand = evidence.question.names
    return (
        f"The losses of {cand} are {levels[1] / levels[0]:.3f} times those of {base}, which is the "
        "ratio of bits and nats."
    )


def _has_ratio(measurements: MeasuredEvaluations, ratio: float) -> bool:
    """Whether the arms' losses have this ratio at every common point: a candidate that diverges has
    it at one of them at most.
    """
    if measurements.bands:
        points = (measurements.bands.baseline, measurements.bands.candidate)
    else:
        points = (
            measurements.baseline.mean(keepdims=True),
            measurements.candidate.mean(keepdims=True),
        )
    return bool((np.abs(points[1] / ratio - points[0]) < BITS_WITHIN * np.abs(points[0])).all())


def no_common_steps(evidence: EvaluationEvidence) -> str | None:
    if len(evidence.measured.steps):
        return None
    return "No point has an evaluation of every run of both arms."


def no_pair(evidence: EvaluationEvidence) -> str | None:
    if evidence.measured.pairs != 0:
        return None
    return "No seed has a run in both arms, so there is no pair of runs to compare."


def clusters_unusable(evidence: EvaluationEvidence) -> str | None:
    if (
        not evidence.question.cluster
        or not len(evidence.measured.steps)
        or evidence.measured.over_clusters is not None
    ):
        return None
    return f"Each arm has one {evidence.question.cluster}, so its part in the gap is unknown."


def noise_unknown(evidence: EvaluationEvidence) -> str | None:
    """What the record says of models whose run-to-run noise nobody may assume, where the policy
    declares none and the runs do not show it.
    """
    record = without_assumed_noise([run for arm in evidence.measured.runs for run in arm])
    declared = None not in evidence.question.policy.declared_noise
    shown = (
        sum(len(arm) - 1 for arm in evidence.measured.runs) >= MIN_MEASURED_DF
        and not evidence.measured.single
    )
    if record is None or declared or shown or not evidence.measured.points:
        return None
    return noise_unknown_sentence(record)


def gap_exceeds(evidence: EvaluationEvidence) -> str | None:
    return _lies(evidence, GAP_EXCEEDS_MARGIN)


def better(evidence: EvaluationEvidence) -> str | None:
    return _lies(evidence, BETTER_THAN_BASELINE)


def within_margin(evidence: EvaluationEvidence) -> str | None:
    return _lies(evidence, WITHIN_MARGIN)


def straddles(evidence: EvaluationEvidence) -> str | None:
    return _lies(evidence, CI_STRADDLES_MARGIN)


def _lies(evidence: EvaluationEvidence, code: ReasonCode) -> str | None:
    """On which side of the margin the interval lies, where that is the side of the code."""
    if evidence.against_margin is None:
        return None
    gap, margin, found = evidence.against_margin
    if found is not code:
        return None
    where = f" over {evidence.question.cluster}s" if evidence.question.cluster else ""
    ends = interval_words(*gap.bounds(evidence.question.confidence), 4)
    return (
        f"The gap's interval{where}, {ends} nats, lies {_LIES[code]} the margin of "
        f"{margin.nats:.4f}."
    )


def confounded(evidence: EvaluationEvidence) -> str | None:
    apart = [
        ground
        for ground in evidence.grounds
        if ground.confounded and ground.key != evidence.question.cluster
    ]
    if not apart:
        return None
    return " ".join(_confounded(ground, evidence.question) for ground in apart)


def _confounded(ground: Ground, question: EvaluationQuestion) -> str:
    sides = zip(question.names, (ground.baseline, ground.candidate), strict=True)
    values = "; ".join(f"{name}: {first_few(shown, VALUES_SHOWN)}" for name, shown in sides)
    return (
        f"The arms share no {ground.key} ({values}), so the gap may be that of the recipe or of "
        "this."
    )


def margin_undetermined(evidence: EvaluationEvidence) -> str | None:
    if evidence.question.margin is not None:
        return None
    return (
        "The noise-floor margin needs 4 or more baseline runs and must be at most 1 % of the "
        "loss; state a margin instead."
    )


def end_differs(evidence: EvaluationEvidence) -> str | None:
    """A late blow-up, or a last point that is better than all before it: g_i >= M at some common
    evaluation of the last fifth of the steps.
    """
    if not evidence.is_within or evidence.measured.bands is None:
        return None
    late = evidence.measured.steps >= (1.0 - LATE_SHARE) * evidence.measured.steps[-1]
    gap = evidence.measured.bands.gap[late]
    worst = int(np.argmax(gap))
    if gap[worst] < evidence.margin_nats:
        return None
    return (
        f"At step {int(evidence.measured.steps[late][worst]):,} the gap is "
        f"{signed(float(gap[worst]), 4)} "
        f"nats, above the margin of {evidence.margin_nats:.4f}."
    )


def gap_growing(evidence: EvaluationEvidence) -> str | None:
    """The gap would reach the margin if it went on: g_last > g(0.8) and 2 g_last - g(0.8) >= M, g
    linear between evaluations.
    """
    if not evidence.is_within or evidence.measured.bands is None:
        return None
    start = (1.0 - LATE_SHARE) * evidence.measured.steps[-1]
    last = float(evidence.measured.bands.gap[-1])
    rise = last - float(np.interp(start, evidence.measured.steps, evidence.measured.bands.gap))
    if not (rise > 0.0 and last + rise >= evidence.margin_nats):
        return None
    return (
        f"The gap grows by {rise:.4f} nats over the last fifth of the steps, to "
        f"{signed(last, 4)}; the margin is {evidence.margin_nats:.4f}."
    )


def baseline_rises(evidence: EvaluationEvidence) -> str | None:
    """An accuracy, or a broken training: the mean rises by more than M from the first common
    evaluation to the last.
    """
    if not evidence.is_within or evidence.measured.bands is None:
        return None
    first, last = evidence.measured.bands.baseline[0], evidence.measured.bands.baseline[-1]
    if not last - first > evidence.margin_nats:
        return None
    return (
        f"The baseline rises from {first:.4g} to {last:.4g}; expected a loss, which training "
        "lowers."
    )


def late_hole(evidence: EvaluationEvidence) -> str | None:
    measurements = evidence.measured
    if not evidence.is_within:
        return None
    runs = [run for arm in measurements.runs for run in arm]
    every = np.unique(np.concatenate([run.steps for run in runs]))
    for run in runs:
        ends, stride = run.steps[1:], run.completeness.stride or 1
        wide = (np.diff(run.steps) > MAX_HOLE * stride) & (
            ends > (1.0 - LATE_SHARE) * measurements.steps[-1]
        )
        for index in np.flatnonzero(wide):
            first, last = int(run.steps[index]), int(run.steps[index + 1])
            if ((every > first) & (every < last)).any():
                return (
                    f"{run.label or 'A run'} has no evaluation between {first:,} and {last:,}, "
                    "where other runs have one."
                )
    return None


def without_partner(evidence: EvaluationEvidence) -> str | None:
    if not evidence.is_within or evidence.measured.pairs is None:
        return None
    seeds = {run.seed for run in evidence.measured.runs[0]}
    alone = sum(run.seed not in seeds for run in evidence.measured.runs[1])
    if not alone:
        return None
    return (
        f"{count(alone, 'run')} of the candidate without a partner in the baseline: the gap over "
        "pairs leaves such runs out."
    )


def beyond_plan(evidence: EvaluationEvidence) -> str | None:
    """A run goes on by more than 5 % of the plan that was stated: then the plan is not its own."""
    planned = evidence.question.planned_steps
    if not evidence.is_within or planned is None:
        return None
    longest = max(int(run.steps[-1]) for arm in evidence.measured.runs for run in arm)
    if longest <= (1.0 + MAX_BEYOND) * planned:
        return None
    return (
        f"A run goes on to step {longest:,}, but the plan is {planned:,} steps; state the length "
        "that was planned."
    )


def recipe_contradicted(evidence: EvaluationEvidence) -> str | None:
    if not evidence.is_within:
        return None
    return contradiction(*zip(evidence.question.arms, evidence.measured.runs, strict=True))


def rolled_back(evidence: EvaluationEvidence) -> str | None:
    if not evidence.is_within:
        return None
    return rolled_back_sentence(
        evidence.question.names[1],
        evidence.measured.runs[1],
        float(evidence.measured.baseline.mean()),
    )


def margin_of_few_digits(evidence: EvaluationEvidence) -> str | None:
    printed, margin = max(evidence.measured.steps_printed), evidence.question.margin
    if not evidence.is_within or margin is None or evidence.question.policy.is_absolute:
        return None
    if margin.nats >= MIN_PRINTED_STEPS * printed:
        return None
    return few_digits(margin, printed)


def margin_wide(evidence: EvaluationEvidence) -> str | None:
    margin = evidence.question.margin
    if not evidence.is_within or margin is None or evidence.question.policy.wide_margin == "accept":
        return None
    if margin.rel <= WIDE_MARGIN:
        return None
    return f"The margin of {margin.nats:.4f} is {percent(margin.rel)} of the loss."


def single_runs_of_another_loss(evidence: EvaluationEvidence) -> str | None:
    if (
        not evidence.is_within
        or not evidence.measured.single
        or evidence.question.policy.loss_unit != "other"
    ):
        return None
    return ANOTHER_LOSS


def noise_rejected(evidence: EvaluationEvidence) -> str | None:
    if (
        not evidence.is_within
        or not evidence.measured.single
        or evidence.question.policy.assumed_noise != "reject"
    ):
        return None
    return noise_assumed_sentence(evidence.measured, evidence.question)


def numbers_alone(evidence: EvaluationEvidence) -> str | None:
    return numbers_sentence(evidence) if evidence.is_within else None


def numbers_sentence(evidence: EvaluationEvidence) -> str | None:
    """What is not known of losses that are numbers without runs."""
    if not evidence.measured.typed:
        return None
    if not evidence.measured.single:
        return (
            "As the final losses of these runs stand, with the noise that they show. Not known: "
            "whether the runs read the same batches, whether their software and evaluation agree, "
            "and where their schedules stood."
        )
    return (
        "As these numbers stand, with assumed run-to-run noise. Not known: whether the runs read "
        "the same batches, whether their software and evaluation agree, and where their schedules "
        "stood."
    )


def passes_as_of(evidence: EvaluationEvidence) -> str | None:
    if judged(evidence.measured, evidence.question) is None:
        return as_of_sentence(evidence)
    if not evidence.is_within or evidence.question.policy.as_of == "accept":
        return None
    return as_of_sentence(evidence)


def as_of_sentence(evidence: EvaluationEvidence) -> str | None:
    """The gap as of a point before the training's end, and why it is none of a finished one."""
    why = _unfinished(evidence.measured, evidence.question) if evidence.measured.points else None
    if why is None:
        return None
    gap = _as_of(evidence.measured, evidence.question)
    return f"{gap}; {why}, so this is no verdict on a finished training."


def _as_of(measurements: MeasuredEvaluations, question: EvaluationQuestion) -> str:
    base, cand = question.names
    if len(measurements.points) == 1:
        at = question.point(measurements.points[-1])
    else:
        at = (
            f"{question.point(measurements.points[0])} to {question.point(measurements.points[-1])}"
        )
    gap = judged(measurements, question) or measurements.over_runs
    mean = gap.mean if gap else float(measurements.candidate.mean() - measurements.baseline.mean())
    level = float(measurements.baseline.mean())
    if not level:
        return f"As of {at} {base} has a loss of 0{_aside(measurements, question, mean)}"
    share = 100.0 * mean / level
    side = f"{share:+.2f} % above" if share >= 0.0 else f"{-share:.2f} % below"
    return f"As of {at} {cand} is {side} {base}{_aside(measurements, question, mean)}"


def _aside(measurements: MeasuredEvaluations, question: EvaluationQuestion, mean: float) -> str:
    """The gap in nats with its interval over runs and, where asked for, over clusters."""
    intervals = []
    if measurements.over_runs is not None:
        intervals.append(
            (
                measurements.over_runs,
                f"{sum(map(len, measurements.runs))} runs"
                if measurements.pairs is None
                else f"{measurements.pairs} pairs of runs",
            )
        )
    if measurements.over_clusters is not None:
        over = measurements.over_clusters
        number = over.clusters[0] if over.crossed else sum(over.clusters)
        intervals.append(
            (clustered(measurements, over), count(number, question.cluster or "cluster"))
        )
    confidence = question.confidence
    words = [f"{interval_words(*gap.bounds(confidence), 4)} over {unit}" for gap, unit in intervals]
    return (
        f" (gap {signed(mean, 4)} "
        f"nats{f', {level_percent(confidence)} CI ' if words else ''}{', '.join(words)})"
    )


def _unfinished(measurements: MeasuredEvaluations, question: EvaluationQuestion) -> str | None:
    last = int(measurements.steps[-1])
    if not points_are_last(measurements):
        return (
            f"other points were declared than {question.point(last)}, the last that all runs "
            "reached"
        )
    if not measurements.schedule.finished:
        return measurements.schedule.why
    end = question.planned_steps or max(
        int(run.steps[-1]) for arm in measurements.runs for run in arm
    )
    if last < COMPLETE_SHARE * end:
        return (
            f"{question.point(last)}, the last that all runs have, is {percent(last / end)} of "
            f"{question.point(end)}"
        )
    return None


def points_are_last(measurements: MeasuredEvaluations) -> bool:
    """Whether the points compared, of which there is at least one, are the last common ones."""
    last: tuple[int, ...] = tuple(measurements.steps[-len(measurements.points) :].tolist())
    return measurements.points[-1] == last[-1] and (
        len(measurements.points) == 1 or measurements.points == last
    )


def noise_assumed_sentence(measurements: MeasuredEvaluations, question: EvaluationQuestion) -> str:
    """How much run-to-run noise was assumed for which arm."""
    level = abs(float(measurements.baseline.mean()))
    shares = [
        f"{percent(prior.tau / level)} of the loss for {name}"
        for name, prior, runs in zip(
            question.names, measurements.priors, measurements.runs, strict=True
        )
        if level and len(runs) == 1
    ]
    return f"Run-to-run noise was assumed ({' and '.join(shares)}), not measured."


def clusters_widen(evidence: EvaluationEvidence) -> str | None:
    """Runs of one cluster are no independent evidence, and their interval would decide
    otherwise.
    """
    if (
        evidence.against_margin is None
        or not evidence.question.cluster
        or evidence.measured.over_runs is None
    ):
        return None
    _, margin, code = evidence.against_margin
    other = side(evidence.measured.over_runs, margin.nats, evidence.question)
    if other is code:
        return None
    lo, hi = evidence.measured.over_runs.bounds(evidence.question.confidence)
    return (
        f"Over runs alone the interval is {interval_words(lo, hi, 4)} nats and lies {_LIES[other]} "
        f"the margin; runs of one {evidence.question.cluster} are not independent evidence."
    )


def noise_assumed(evidence: EvaluationEvidence) -> str | None:
    if (
        not evidence.measured.single
        or not evidence.measured.points
        or evidence.question.policy.assumed_noise == "reject"
    ):
        return None
    return noise_assumed_sentence(evidence.measured, evidence.question)


def schedule_stated(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.schedule.stated:
        return None
    return "That the runs came to the end of their schedule is stated, not recorded."


def copies_left_out(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.copies:
        return None
    copies = f"{count(len(evidence.measured.copies), 'copy', 'copies')} of other runs"
    return (
        f"Not counted: {copies}, equal to them but for a constant: "
        f"{first_few(evidence.measured.copies, VALUES_SHOWN)}."
    )


def forks_left_out(evidence: EvaluationEvidence) -> str | None:
    if not evidence.measured.forks:
        return None
    forks = f"{count(len(evidence.measured.forks), 'run')} with the start of another"
    return f"Not counted: {forks}: {first_few(evidence.measured.forks, VALUES_SHOWN)}."


def runs_truncated(evidence: EvaluationEvidence) -> str | None:
    ends = {int(run.steps[-1]) for arm in evidence.measured.runs for run in arm if len(run.steps)}
    if len(ends) < 2 or not evidence.measured.points:
        return None
    point = evidence.question.point
    return (
        f"Runs end between {point(min(ends))} and {point(max(ends))}; all of them reached "
        f"{point(int(evidence.measured.steps[-1]))}."
    )
