"""The rules of the decision about held-out losses: a function a code, None where it does not hold.

A gap that is surely above the margin fails at any point of the training. A pass needs more: a
finished training, arms that share their conditions, and nothing that one point hides. Rules that
only keep back a pass hold only where the interval is within the margin; they use means without
their noise, so that a worse candidate never passes where a better one did not. What can fail: what
happens between two evaluations, or before the last fifth of the steps.
"""

from collections.abc import Callable

import numpy as np

from parity.frozen import frozen
from parity.judging.codes import (
    BETTER_THAN_BASELINE,
    CI_STRADDLES_MARGIN,
    GAP_EXCEEDS_MARGIN,
    WITHIN_MARGIN,
    ReasonCode,
)
from parity.judging.curves.context import without_assumed_floor
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
    """What a rule looks at: what was measured (`m`), what is asked, and what is on record."""

    m: MeasuredEvaluations
    question: EvaluationQuestion
    grounds: tuple[Ground, ...]

    @property
    def against_margin(self) -> tuple[Interval, Margin, ReasonCode] | None:
        """The gap that decides, the margin, and the code of its side; None where one is unknown."""
        gap, margin = judged(self.m, self.question), self.question.margin
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


Rule = Callable[[EvaluationEvidence], str | None]
"""The sentence of a reason where it holds; else None."""


def baseline_invalid(e: EvaluationEvidence) -> str | None:
    if not e.m.invalid[0]:
        return None
    return f"{e.question.names[0]} has a loss that is not finite: {e.m.invalid[0]}."


def nonfinite_candidate(e: EvaluationEvidence) -> str | None:
    if e.m.invalid[0] or not e.m.invalid[1]:
        return None
    return f"{e.question.names[1]} has a loss that is not finite: {e.m.invalid[1]}."


def arms_identical(e: EvaluationEvidence) -> str | None:
    if not e.m.arms_alike:
        return None
    return f"Runs of both arms are equal but for a constant: {e.m.arms_alike}."


def arms_share_start(e: EvaluationEvidence) -> str | None:
    if e.m.arms_alike or not e.m.arms_share_start:
        return None
    return (
        f"Runs of both arms have equal losses at their first evaluations: {e.m.arms_share_start}."
    )


def not_nats(e: EvaluationEvidence) -> str | None:
    if not e.m.points or e.question.policy.is_absolute:
        return None
    level = float(e.m.baseline.mean())
    why = no_relative_margin(level, e.question.policy)
    if not why:
        return None
    base, cand = e.question.names
    return f"{base} is at {level:.4g} and {cand} at {float(e.m.candidate.mean()):.4g}; {why}."


def loss_scaled(e: EvaluationEvidence) -> str | None:
    if not e.m.points or not_nats(e):
        return None
    levels = float(e.m.baseline.mean()), float(e.m.candidate.mean())
    if not levels[0] or not any(_has_ratio(e.m, ratio) for ratio in (BITS, 1.0 / BITS)):
        return None
    base, cand = e.question.names
    return (
        f"The losses of {cand} are {levels[1] / levels[0]:.3f} times those of {base}, which is the "
        "ratio of bits and nats."
    )


def _has_ratio(m: MeasuredEvaluations, ratio: float) -> bool:
    """Whether the arms' losses have this ratio at every common point: a candidate that diverges has
    it at one of them at most.
    """
    if m.bands:
        points = (m.bands.baseline, m.bands.candidate)
    else:
        points = (m.baseline.mean(keepdims=True), m.candidate.mean(keepdims=True))
    return bool((np.abs(points[1] / ratio - points[0]) < BITS_WITHIN * np.abs(points[0])).all())


def no_common_steps(e: EvaluationEvidence) -> str | None:
    if len(e.m.steps):
        return None
    return "No point has an evaluation of every run of both arms."


def no_pair(e: EvaluationEvidence) -> str | None:
    if e.m.pairs != 0:
        return None
    return "No seed has a run in both arms, so there is no pair of runs to compare."


def clusters_unusable(e: EvaluationEvidence) -> str | None:
    if not e.question.cluster or not len(e.m.steps) or e.m.over_clusters is not None:
        return None
    return f"Each arm has one {e.question.cluster}, so its part in the gap is unknown."


def noise_unknown(e: EvaluationEvidence) -> str | None:
    """What the record says of models whose run-to-run noise nobody may assume, where the policy
    declares none and the runs do not show it.
    """
    record = without_assumed_floor([run for arm in e.m.runs for run in arm])
    declared = None not in e.question.policy.run_floors
    shown = sum(len(arm) - 1 for arm in e.m.runs) >= MIN_MEASURED_DF and not e.m.single
    if record is None or declared or shown or not e.m.points:
        return None
    return noise_unknown_sentence(record)


def gap_exceeds(e: EvaluationEvidence) -> str | None:
    return _lies(e, GAP_EXCEEDS_MARGIN)


def better(e: EvaluationEvidence) -> str | None:
    return _lies(e, BETTER_THAN_BASELINE)


def within_margin(e: EvaluationEvidence) -> str | None:
    return _lies(e, WITHIN_MARGIN)


def straddles(e: EvaluationEvidence) -> str | None:
    return _lies(e, CI_STRADDLES_MARGIN)


def _lies(e: EvaluationEvidence, code: ReasonCode) -> str | None:
    """On which side of the margin the interval lies, where that is the side of the code."""
    if e.against_margin is None:
        return None
    gap, margin, found = e.against_margin
    if found is not code:
        return None
    where = f" over {e.question.cluster}s" if e.question.cluster else ""
    ends = interval_words(*gap.bounds(e.question.confidence), 4)
    return (
        f"The gap's interval{where}, {ends} nats, lies {_LIES[code]} the margin of "
        f"{margin.nats:.4f}."
    )


def confounded(e: EvaluationEvidence) -> str | None:
    apart = [
        ground for ground in e.grounds if ground.confounded and ground.key != e.question.cluster
    ]
    if not apart:
        return None
    return " ".join(_confounded(ground, e.question) for ground in apart)


def _confounded(ground: Ground, question: EvaluationQuestion) -> str:
    sides = zip(question.names, (ground.baseline, ground.candidate), strict=True)
    values = "; ".join(f"{name}: {first_few(shown, VALUES_SHOWN)}" for name, shown in sides)
    return (
        f"The arms share no {ground.key} ({values}), so the gap may be that of the recipe or of "
        "this."
    )


def margin_undetermined(e: EvaluationEvidence) -> str | None:
    if e.question.margin is not None:
        return None
    return (
        "The noise-floor margin needs 4 or more baseline runs and must be at most 1 % of the "
        "loss; state a margin instead."
    )


def end_differs(e: EvaluationEvidence) -> str | None:
    """A late blow-up, or a last point that is better than all before it: g_i >= M at some common
    evaluation of the last fifth of the steps.
    """
    if not e.is_within or e.m.bands is None:
        return None
    late = e.m.steps >= (1.0 - LATE_SHARE) * e.m.steps[-1]
    gap = e.m.bands.gap[late]
    worst = int(np.argmax(gap))
    if gap[worst] < e.margin_nats:
        return None
    return (
        f"At step {int(e.m.steps[late][worst]):,} the gap is {signed(float(gap[worst]), 4)} "
        f"nats, above the margin of {e.margin_nats:.4f}."
    )


def gap_growing(e: EvaluationEvidence) -> str | None:
    """The gap would reach the margin if it went on: g_last > g(0.8) and 2 g_last - g(0.8) >= M, g
    linear between evaluations.
    """
    if not e.is_within or e.m.bands is None:
        return None
    start = (1.0 - LATE_SHARE) * e.m.steps[-1]
    last = float(e.m.bands.gap[-1])
    rise = last - float(np.interp(start, e.m.steps, e.m.bands.gap))
    if not (rise > 0.0 and last + rise >= e.margin_nats):
        return None
    return (
        f"The gap grows by {rise:.4f} nats over the last fifth of the steps, to "
        f"{signed(last, 4)}; the margin is {e.margin_nats:.4f}."
    )


def baseline_rises(e: EvaluationEvidence) -> str | None:
    """An accuracy, or a broken training: the mean rises by more than M from the first common
    evaluation to the last.
    """
    if not e.is_within or e.m.bands is None:
        return None
    first, last = e.m.bands.baseline[0], e.m.bands.baseline[-1]
    if not last - first > e.margin_nats:
        return None
    return (
        f"The baseline rises from {first:.4g} to {last:.4g}; expected a loss, which training "
        "lowers."
    )


def late_hole(e: EvaluationEvidence) -> str | None:
    m = e.m
    if not e.is_within:
        return None
    runs = [run for arm in m.runs for run in arm]
    every = np.unique(np.concatenate([run.steps for run in runs]))
    for run in runs:
        ends, stride = run.steps[1:], run.completeness.stride or 1
        wide = (np.diff(run.steps) > MAX_HOLE * stride) & (ends > (1.0 - LATE_SHARE) * m.steps[-1])
        for index in np.flatnonzero(wide):
            first, last = int(run.steps[index]), int(run.steps[index + 1])
            if ((every > first) & (every < last)).any():
                return (
                    f"{run.label or 'A run'} has no evaluation between {first:,} and {last:,}, "
                    "where other runs have one."
                )
    return None


def without_partner(e: EvaluationEvidence) -> str | None:
    if not e.is_within or e.m.pairs is None:
        return None
    seeds = {run.seed for run in e.m.runs[0]}
    alone = sum(run.seed not in seeds for run in e.m.runs[1])
    if not alone:
        return None
    return (
        f"{count(alone, 'run')} of the candidate without a partner in the baseline: the gap over "
        "pairs leaves such runs out."
    )


def beyond_plan(e: EvaluationEvidence) -> str | None:
    """A run goes on by more than 5 % of the plan that was stated: then the plan is not its own."""
    planned = e.question.planned_steps
    if not e.is_within or planned is None:
        return None
    longest = max(int(run.steps[-1]) for arm in e.m.runs for run in arm)
    if longest <= (1.0 + MAX_BEYOND) * planned:
        return None
    return (
        f"A run goes on to step {longest:,}, but the plan is {planned:,} steps; state the length "
        "that was planned."
    )


def recipe_contradicted(e: EvaluationEvidence) -> str | None:
    if not e.is_within:
        return None
    return contradiction(*zip(e.question.arms, e.m.runs, strict=True))


def rolled_back(e: EvaluationEvidence) -> str | None:
    if not e.is_within:
        return None
    return rolled_back_sentence(e.question.names[1], e.m.runs[1], float(e.m.baseline.mean()))


def margin_of_few_digits(e: EvaluationEvidence) -> str | None:
    printed, margin = max(e.m.steps_printed), e.question.margin
    if not e.is_within or margin is None or e.question.policy.is_absolute:
        return None
    if margin.nats >= MIN_PRINTED_STEPS * printed:
        return None
    return few_digits(margin, printed)


def margin_wide(e: EvaluationEvidence) -> str | None:
    margin = e.question.margin
    if not e.is_within or margin is None or e.question.policy.wide_margin == "accept":
        return None
    if margin.rel <= WIDE_MARGIN:
        return None
    return f"The margin of {margin.nats:.4f} is {percent(margin.rel)} of the loss."


def single_runs_of_another_loss(e: EvaluationEvidence) -> str | None:
    if not e.is_within or not e.m.single or e.question.policy.loss_unit != "other":
        return None
    return ANOTHER_LOSS


def noise_rejected(e: EvaluationEvidence) -> str | None:
    if not e.is_within or not e.m.single or e.question.policy.assumed_noise != "reject":
        return None
    return noise_assumed_sentence(e.m, e.question)


def numbers_alone(e: EvaluationEvidence) -> str | None:
    return numbers_sentence(e) if e.is_within else None


def numbers_sentence(e: EvaluationEvidence) -> str | None:
    """What is not known of losses that are numbers without runs."""
    if not e.m.typed:
        return None
    return (
        "As these numbers stand, with assumed run-to-run noise. Not known: whether the runs read "
        "the same batches, whether their software and evaluation agree, and where their schedules "
        "stood."
    )


def passes_as_of(e: EvaluationEvidence) -> str | None:
    if judged(e.m, e.question) is None:
        return as_of_sentence(e)
    if not e.is_within or e.question.policy.as_of == "accept":
        return None
    return as_of_sentence(e)


def as_of_sentence(e: EvaluationEvidence) -> str | None:
    """The gap as of a point before the training's end, and why it is none of a finished one."""
    why = _unfinished(e.m, e.question) if e.m.points else None
    if why is None:
        return None
    gap = _as_of(e.m, e.question)
    return f"{gap}; {why}, so this is no verdict on a finished training."


def _as_of(m: MeasuredEvaluations, question: EvaluationQuestion) -> str:
    base, cand = question.names
    if len(m.points) == 1:
        at = question.point(m.points[-1])
    else:
        at = f"{question.point(m.points[0])} to {question.point(m.points[-1])}"
    gap = judged(m, question) or m.over_runs
    mean = gap.mean if gap else float(m.candidate.mean() - m.baseline.mean())
    level = float(m.baseline.mean())
    if not level:
        return f"As of {at} {base} has a loss of 0{_aside(m, question, mean)}"
    share = 100.0 * mean / level
    side = f"{share:+.2f} % above" if share >= 0.0 else f"{-share:.2f} % below"
    return f"As of {at} {cand} is {side} {base}{_aside(m, question, mean)}"


def _aside(m: MeasuredEvaluations, question: EvaluationQuestion, mean: float) -> str:
    """The gap in nats with its interval over runs and, where asked for, over clusters."""
    intervals = []
    if m.over_runs is not None:
        intervals.append(
            (
                m.over_runs,
                f"{sum(map(len, m.runs))} runs" if m.pairs is None else f"{m.pairs} pairs of runs",
            )
        )
    if m.over_clusters is not None:
        over = m.over_clusters
        number = over.clusters[0] if over.crossed else sum(over.clusters)
        intervals.append((clustered(m, over), count(number, question.cluster or "cluster")))
    confidence = question.confidence
    words = [f"{interval_words(*gap.bounds(confidence), 4)} over {unit}" for gap, unit in intervals]
    return (
        f" (gap {signed(mean, 4)} "
        f"nats{f', {level_percent(confidence)} CI ' if words else ''}{', '.join(words)})"
    )


def _unfinished(m: MeasuredEvaluations, question: EvaluationQuestion) -> str | None:
    last = int(m.steps[-1])
    if m.points[-1] != last or (
        len(m.points) > 1 and m.points != tuple(m.steps[-len(m.points) :].tolist())
    ):
        return (
            f"other points were declared than {question.point(last)}, the last that all runs "
            "reached"
        )
    if not m.schedule.finished:
        return m.schedule.why
    end = question.planned_steps or max(int(run.steps[-1]) for arm in m.runs for run in arm)
    if last < COMPLETE_SHARE * end:
        return (
            f"{question.point(last)}, the last that all runs have, is {percent(last / end)} of "
            f"{question.point(end)}"
        )
    return None


def noise_assumed_sentence(m: MeasuredEvaluations, question: EvaluationQuestion) -> str:
    """How much run-to-run noise was assumed for which arm."""
    level = abs(float(m.baseline.mean()))
    shares = [
        f"{percent(prior.tau / level)} of the loss for {name}"
        for name, prior, runs in zip(question.names, m.priors, m.runs, strict=True)
        if level and len(runs) == 1
    ]
    return f"Run-to-run noise was assumed ({' and '.join(shares)}), not measured."


def clusters_widen(e: EvaluationEvidence) -> str | None:
    """Runs of one cluster are no independent evidence, and their interval would decide
    otherwise.
    """
    if e.against_margin is None or not e.question.cluster or e.m.over_runs is None:
        return None
    _, margin, code = e.against_margin
    other = side(e.m.over_runs, margin.nats, e.question)
    if other is code:
        return None
    lo, hi = e.m.over_runs.bounds(e.question.confidence)
    return (
        f"Over runs alone the interval is {interval_words(lo, hi, 4)} nats and lies {_LIES[other]} "
        f"the margin; runs of one {e.question.cluster} are not independent evidence."
    )


def noise_assumed(e: EvaluationEvidence) -> str | None:
    if not e.m.single or not e.m.points or e.question.policy.assumed_noise == "reject":
        return None
    return noise_assumed_sentence(e.m, e.question)


def schedule_stated(e: EvaluationEvidence) -> str | None:
    if not e.m.schedule.stated:
        return None
    return "That the runs came to the end of their schedule is stated, not recorded."


def copies_left_out(e: EvaluationEvidence) -> str | None:
    if not e.m.copies:
        return None
    copies = f"{count(len(e.m.copies), 'copy', 'copies')} of other runs"
    return (
        f"Not counted: {copies}, equal to them but for a constant: "
        f"{first_few(e.m.copies, VALUES_SHOWN)}."
    )


def forks_left_out(e: EvaluationEvidence) -> str | None:
    if not e.m.forks:
        return None
    forks = f"{count(len(e.m.forks), 'run')} with the start of another"
    return f"Not counted: {forks}: {first_few(e.m.forks, VALUES_SHOWN)}."


def runs_truncated(e: EvaluationEvidence) -> str | None:
    ends = {int(run.steps[-1]) for arm in e.m.runs for run in arm if len(run.steps)}
    if len(ends) < 2 or not e.m.points:
        return None
    point = e.question.point
    return (
        f"Runs end between {point(min(ends))} and {point(max(ends))}; all of them reached "
        f"{point(int(e.m.steps[-1]))}."
    )
