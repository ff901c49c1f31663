"""The decision about two arms of held-out losses: the first rule that holds decides, blocks keep a
pass back, what else holds follows.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from parity.judging.agreement import BITS, without_assumed_floor
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, Decision, Reason, State
from parity.judging.evaluations.gap import ClusteredGap
from parity.judging.evaluations.measured import LATE_SHARE, Measured
from parity.judging.interval import Interval, Margin, interval
from parity.judging.policy import WIDE_MARGIN, Policy
from parity.judging.rules.comparability import contradiction
from parity.judging.rules.inputs import no_relative_margin
from parity.judging.rules.margin import MIN_PRINTED_STEPS, few_digits
from parity.judging.rules.noise import ANOTHER_LOSS, noise_unknown_sentence
from parity.judging.rules.stability import rolled_back_sentence
from parity.judging.run_floor import RunTerm
from parity.judging.schedule import MAX_BEYOND
from parity.judging.window import COMPLETE_SHARE, StandardError
from parity.judging.window_statistics import MIN_MEASURED_DF
from parity.structure import frozen
from parity.wording import count, first_few, interval_words, level_percent, percent, signed

# What blocks a pass although the interval at the point compared is within the margin: one point
# says nothing about the points before it.
#
# late the common evaluations of the last fifth of the steps; g_i the gap at each, g(0.8) the gap
# where it begins, linear between points ends some g_i >= M a late blow-up, or a last point better
# than all before it grows g_last > g(0.8) and 2 g_last - g(0.8) >= M the gap would reach the margin
# if it went on hole a run has no evaluation for more than 1.5 of its own intervals, late, where
# another run has one rises the baseline's mean rises by more than M from the first common
# evaluation to the last: an accuracy, or a broken training beyond a run goes on by more than 5 % of
# the plan that was stated: then the plan is not its own
#
# All use means without their noise, so that a worse candidate never passes where a better one did
# not. Can fail: what happens between two evaluations, or before the last fifth of the steps.

MAX_HOLE = 1.5  # of a run's own interval between evaluations


def blocks_of_pass(
    m: Measured, *, margin: float, planned_steps: int | None
) -> Iterator[tuple[State, str, str]]:
    """The rows that a pass must not meet."""
    yield from _late_gap(m, margin)
    if m.bands is not None and m.bands.baseline[-1] - m.bands.baseline[0] > margin:
        words = (
            f"The baseline rises from {m.bands.baseline[0]:.4g} to {m.bands.baseline[-1]:.4g}; "
            "expected a loss, which training lowers."
        )
        yield INCONCLUSIVE, "LOSS_NOT_NATS", words
    if hole := _hole(m):
        yield INCONCLUSIVE, "DOWNSAMPLED", hole
    if alone := _without_partner(m):
        words = (
            f"{count(alone, 'run')} of the candidate without a partner in the baseline: the gap "
            "over pairs leaves such runs out."
        )
        yield INCONCLUSIVE, "RUNS_UNPAIRED", words
    longest = max(int(run.steps[-1]) for arm in m.runs for run in arm)
    if planned_steps is not None and longest > (1.0 + MAX_BEYOND) * planned_steps:
        words = (
            f"A run goes on to step {longest:,}, but the plan is {planned_steps:,} steps; state "
            "the length that was planned."
        )
        yield INCONCLUSIVE, "BEYOND_PLAN", words


def _late_gap(m: Measured, margin: float) -> Iterator[tuple[State, str, str]]:
    if m.bands is None:
        return
    start = (1.0 - LATE_SHARE) * m.steps[-1]
    late = m.steps >= start
    gap = m.bands.gap[late]
    worst = int(np.argmax(gap))
    if gap[worst] >= margin:
        words = (
            f"At step {int(m.steps[late][worst]):,} the gap is {signed(float(gap[worst]), 4)} "
            f"nats, above the margin of {margin:.4f}."
        )
        yield INCONCLUSIVE, "END_DIFFERS", words
    last = float(gap[-1])
    rise = last - float(np.interp(start, m.steps, m.bands.gap))
    if rise > 0.0 and last + rise >= margin:
        words = (
            f"The gap grows by {rise:.4f} nats over the last fifth of the steps, to "
            f"{signed(last, 4)}; the margin is {margin:.4f}."
        )
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
                return (
                    f"{run.label or 'A run'} has no evaluation between {first:,} and {last:,}, "
                    "where other runs have one."
                )
    return None


def _without_partner(m: Measured) -> int:
    """How many runs of the candidate have no run of the baseline of their seed; 0 where runs are
    not paired.
    """
    if m.pairs is None:
        return 0
    seeds = {run.seed for run in m.runs[0]}
    return sum(run.seed not in seeds for run in m.runs[1])


# The decision about two arms of held-out losses: the first rule that holds decides, what else holds
# follows.
#
# A gap that is surely above the margin fails at any point of the training. A pass needs more: a
# finished training (`schedule.state`), else the gap stands as of a point and is no pass unless the
# policy accepts that; arms that share their conditions; and nothing that one point hides
# (`blocks`). The interval over clusters decides where one was asked for: it is the one that says
# something about other systems.

Row = tuple[State | None, str, str]  # the verdict where it decides, a reason code, its sentence
VALUES_SHOWN = 3
NOT_KNOWN = (
    "As these numbers stand, with assumed run-to-run noise. Not known: whether the runs read the "
    "same batches, whether their software and "
    "evaluation agree, and where their schedules stood."
)
BITS_WITHIN = 0.02  # of 1 / ln 2


@frozen
class Ground:
    """What an arm's runs have on record under one key: the values of the baseline's runs and of the
    candidate's.
    """

    key: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]

    @property
    def confounded(self) -> bool:
        """Whether the arms share no value, so that a difference between them may be this one."""
        return not set(self.baseline) & set(self.candidate)


@frozen(eq=False)
class Question:
    """What is asked about two arms: their names as given and as reports say them, the policy, the
    plan, the cluster's key, and the points.

    `confidence` is that of the gap's interval: the policy's, shared by the candidates and looks of
    the comparison. `typed`: the losses are numbers without runs.
    """

    arms: tuple[str, str]
    names: tuple[str, str]
    policy: Policy
    confidence: float
    margin: Margin | None
    planned_steps: int | None
    cluster: str | None
    tokens_per_step: float | None
    typed: bool = False

    def point(self, step: int) -> str:
        """A point as a report says it: tokens where their number is known, else the step."""
        if self.typed and not self.tokens_per_step:
            return "these numbers"
        if self.tokens_per_step:
            return tokens_words(step * self.tokens_per_step)
        return f"step {step:,}"


TOKEN_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"))


def tokens_words(tokens: float) -> str:
    """ "1.3 B tokens", "512 M tokens", "12,000 tokens"."""
    for size, unit in TOKEN_UNITS:
        if tokens >= size:
            if tokens < 10 * size:
                return f"{tokens / size:.2g} {unit} tokens"
            return f"{tokens / size:,.0f} {unit} tokens"
    return f"{tokens:,.0f} tokens"


def holding(m: Measured, question: Question, grounds: tuple[Ground, ...]) -> list[Row]:
    """The rules that hold: those that decide in their order, of which the first one does, then what
    is only said.
    """
    return sorted(_rows(m, question, grounds), key=lambda row: row[0] is None)


def decide(m: Measured, question: Question, grounds: tuple[Ground, ...]) -> Decision:
    """Apply the rules to what was measured."""
    (state, code, sentence), *further = holding(m, question, grounds)
    others = tuple(
        Reason(code=other, sentence=text)
        for other_state, other, text in further
        if other_state in (INCONCLUSIVE, None)
    )
    return Decision(
        state=state or INCONCLUSIVE, deciding=Reason(code=code, sentence=sentence), others=others
    )


def judged(m: Measured, question: Question) -> Interval | None:
    """The gap that decides: over clusters where they were asked for, else over runs."""
    if question.cluster:
        if not m.over_clusters:
            return None
        return clustered(m, m.over_clusters)
    return m.over_runs


def clustered(m: Measured, over: ClusteredGap) -> Interval:
    """The gap over clusters as an interval, with the rounding of the losses."""
    spread = RunTerm(variance=over.estimate.se**2, df=over.estimate.df, seeds=1)
    gap = interval(over.estimate.mean, StandardError(value=0.0, df=over.estimate.df), spread)
    return dataclasses.replace(gap, rounding=m.rounding)


def _rows(m: Measured, question: Question, grounds: tuple[Ground, ...]) -> Iterator[Row]:
    yield from _unusable(m, question)
    yield from _nothing_common(m, question)
    gap, margin = judged(m, question), question.margin
    code = side(gap, margin.nats, question)[1] if gap and margin else None
    why = _unfinished(m, question) if m.points else None
    if why:
        as_of = f"{_as_of(m, question)}; {why}, so this is no verdict on a finished training."
    else:
        as_of = ""
    if unknown := _noise_unknown(m, question.policy):
        yield INCONCLUSIVE, "RUN_NOISE_UNKNOWN", unknown
    if gap and margin and code == "GAP_EXCEEDS_MARGIN":
        yield _against_margin(gap, margin, question)
    if confounded := [
        ground for ground in grounds if ground.confounded and ground.key != question.cluster
    ]:
        yield (
            INCONCLUSIVE,
            "CONFOUNDED",
            " ".join(_confounded(ground, question) for ground in confounded),
        )
    if margin is None:
        words = (
            "The noise-floor margin needs 4 or more baseline runs and must be at most 1 % of the "
            "loss; state a margin instead."
        )
        yield INCONCLUSIVE, "MARGIN_UNDETERMINED", words
    if gap and margin and code == "WITHIN_MARGIN":
        yield from blocks_of_pass(m, margin=margin.nats, planned_steps=question.planned_steps)
        yield from _no_evidence_for_a_pass(m, margin, question)
    if m.typed:
        yield (INCONCLUSIVE if code == "WITHIN_MARGIN" else None), "NUMBERS_ALONE", NOT_KNOWN
    if why:
        decides = gap is None or (code == "WITHIN_MARGIN" and question.policy.as_of != "accept")
        yield (INCONCLUSIVE if decides else None), "AS_OF", as_of
    if gap and margin and code != "GAP_EXCEEDS_MARGIN":
        yield _against_margin(gap, margin, question)
    if gap and margin:
        yield from _clusters_widen(m, margin, str(code), question)
    yield from _warnings(m, question)


def _unusable(m: Measured, question: Question) -> Iterator[Row]:
    base, cand = question.names
    if m.invalid[0]:
        yield (
            INCONCLUSIVE,
            "BASELINE_INVALID",
            f"{base} has a loss that is not finite: {m.invalid[0]}.",
        )
    elif m.invalid[1]:
        yield FAIL, "NONFINITE_CAND", f"{cand} has a loss that is not finite: {m.invalid[1]}."
    if m.arms_alike:
        yield (
            INCONCLUSIVE,
            "ARMS_IDENTICAL",
            f"Runs of both arms are equal but for a constant: {m.arms_alike}.",
        )
    elif m.arms_share_start:
        words = (
            f"Runs of both arms have equal losses at their first evaluations: {m.arms_share_start}."
        )
        yield INCONCLUSIVE, "ARMS_SHARE_START", words
    if m.points:
        yield from _not_nats(m, question)


def _nothing_common(m: Measured, question: Question) -> Iterator[Row]:
    if len(m.steps) == 0:
        yield (
            INCONCLUSIVE,
            "NO_COMMON_STEPS",
            "No point has an evaluation of every run of both arms.",
        )
    if m.pairs == 0:
        yield (
            INCONCLUSIVE,
            "RUNS_UNPAIRED",
            "No seed has a run in both arms, so there is no pair of runs to compare.",
        )
    if question.cluster and len(m.steps) and m.over_clusters is None:
        yield (
            INCONCLUSIVE,
            "CLUSTERS_UNUSABLE",
            f"Each arm has one {question.cluster}, so its part in the gap is unknown.",
        )


def _no_evidence_for_a_pass(m: Measured, margin: Margin, question: Question) -> Iterator[Row]:
    policy = question.policy
    if contradicted := contradiction(*zip(question.arms, m.runs, strict=True)):
        yield INCONCLUSIVE, "RECIPE_CONTRADICTED", contradicted
    if overwrote := rolled_back_sentence(question.names[1], m.runs[1], float(m.baseline.mean())):
        yield INCONCLUSIVE, "ROLLED_BACK", overwrote
    printed = max(m.steps_printed)
    if not policy.is_absolute and margin.nats < MIN_PRINTED_STEPS * printed:
        yield INCONCLUSIVE, "ROUNDED", few_digits(margin, printed)
    if margin.rel > WIDE_MARGIN and policy.wide_margin != "accept":
        yield (
            INCONCLUSIVE,
            "MARGIN_WIDE",
            f"The margin of {margin.nats:.4f} is {percent(margin.rel)} of the loss.",
        )
    if m.single and policy.loss_unit == "other":
        yield INCONCLUSIVE, "TOO_FEW_RUNS", ANOTHER_LOSS
    if m.single and policy.assumed_noise == "reject":
        yield INCONCLUSIVE, "RUN_NOISE_ASSUMED", _noise_assumed(m, question)


def _noise_unknown(m: Measured, policy: Policy) -> str | None:
    """What the record says of models whose run-to-run noise nobody may assume, where the policy
    declares none and the runs do not show it.
    """
    declared = None not in policy.run_floors
    record = without_assumed_floor([run for arm in m.runs for run in arm])
    shown = sum(len(arm) - 1 for arm in m.runs) >= MIN_MEASURED_DF and not m.single
    if record is None or declared or shown or not m.points:
        return None
    return noise_unknown_sentence(record)


def _noise_assumed(m: Measured, question: Question) -> str:
    level = abs(float(m.baseline.mean()))
    own = [
        f"{percent(prior.tau / level)} of the loss for {name}"
        for name, prior, runs in zip(question.names, m.priors, m.runs, strict=True)
        if level and len(runs) == 1
    ]
    return f"Run-to-run noise was assumed ({' and '.join(own)}), not measured."


def _warnings(m: Measured, question: Question) -> Iterator[Row]:
    if m.single and m.points and question.policy.assumed_noise != "reject":
        yield None, "RUN_NOISE_ASSUMED", _noise_assumed(m, question)
    if m.schedule.stated:
        yield (
            None,
            "SCHEDULE_STATED",
            "That the runs came to the end of their schedule is stated, not recorded.",
        )
    if m.copies:
        copies = f"{count(len(m.copies), 'copy', 'copies')} of other runs"
        yield (
            None,
            "REPLICATES_IDENTICAL",
            (
                f"Not counted: {copies}, equal to them but for a constant: "
                f"{first_few(m.copies, VALUES_SHOWN)}."
            ),
        )
    if m.forks:
        forks = f"{count(len(m.forks), 'run')} with the start of another"
        yield (
            None,
            "REPLICATES_DEPENDENT",
            f"Not counted: {forks}: {first_few(m.forks, VALUES_SHOWN)}.",
        )
    ends = {int(run.steps[-1]) for arm in m.runs for run in arm if len(run.steps)}
    if len(ends) > 1 and m.points:
        at = question.point(int(m.steps[-1]))
        words = (
            f"Runs end between {question.point(min(ends))} and {question.point(max(ends))}; all of "
            f"them reached {at}."
        )
        yield None, "RUNS_TRUNCATED", words


def _not_nats(m: Measured, question: Question) -> Iterator[Row]:
    base, cand = question.names
    levels = float(m.baseline.mean()), float(m.candidate.mean())
    if not question.policy.is_absolute and (why := no_relative_margin(levels[0], question.policy)):
        yield (
            INCONCLUSIVE,
            "LOSS_NOT_NATS",
            f"{base} is at {levels[0]:.4g} and {cand} at {levels[1]:.4g}; {why}.",
        )
    elif levels[0] and any(_has_ratio(m, ratio) for ratio in (BITS, 1.0 / BITS)):
        words = (
            f"The losses of {cand} are {levels[1] / levels[0]:.3f} times those of {base}, which is "
            "the ratio of bits and nats."
        )
        yield INCONCLUSIVE, "LOSS_SCALED", words


def _has_ratio(m: Measured, ratio: float) -> bool:
    """Whether the arms' losses have this ratio at every common point: a candidate that diverges has
    it at one of them at most.
    """
    if m.bands:
        points = (m.bands.baseline, m.bands.candidate)
    else:
        points = (m.baseline.mean(keepdims=True), m.candidate.mean(keepdims=True))
    return bool((np.abs(points[1] / ratio - points[0]) < BITS_WITHIN * np.abs(points[0])).all())


def _as_of(m: Measured, question: Question) -> str:
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


def _aside(m: Measured, question: Question, mean: float) -> str:
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


def _unfinished(m: Measured, question: Question) -> str | None:
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


def _confounded(ground: Ground, question: Question) -> str:
    sides = zip(question.names, (ground.baseline, ground.candidate), strict=True)
    values = "; ".join(f"{name}: {first_few(own, VALUES_SHOWN)}" for name, own in sides)
    return (
        f"The arms share no {ground.key} ({values}), so the gap may be that of the recipe or of "
        "this."
    )


def _against_margin(gap: Interval, margin: Margin, question: Question) -> Row:
    state, code = side(gap, margin.nats, question)
    where = f" over {question.cluster}s" if question.cluster else ""
    ends = interval_words(*gap.bounds(question.confidence), 4)
    return (
        state,
        code,
        (
            f"The gap's interval{where}, {ends} nats, lies {_LIES[code]} the margin of "
            f"{margin.nats:.4f}."
        ),
    )


def _clusters_widen(m: Measured, margin: Margin, code: str, question: Question) -> Iterator[Row]:
    if question.cluster and m.over_runs is not None:
        _, other_code = side(m.over_runs, margin.nats, question)
        if other_code != code:
            lo, hi = m.over_runs.bounds(question.confidence)
            words = (
                f"Over runs alone the interval is {interval_words(lo, hi, 4)} nats and lies "
                f"{_LIES[other_code]} the margin"
            )
            yield (
                None,
                "CLUSTERS_WIDEN",
                f"{words}; runs of one {question.cluster} are not independent evidence.",
            )


_LIES = {
    "GAP_EXCEEDS_MARGIN": "above",
    "BETTER_THAN_BASELINE": "below zero by more than",
    "WITHIN_MARGIN": "within",
    "CI_STRADDLES_MARGIN": "on both sides of",
}


def side(gap: Interval, margin: float, question: Question) -> tuple[State, str]:
    """The verdict and the reason code that an interval alone gives against a margin in nats."""
    lo, hi = gap.bounds(question.confidence)
    # of a fail and a veto: further looks and candidates must not make them harder
    nominal = gap.bounds(question.policy.confidence)
    if nominal[0] > margin:
        return FAIL, "GAP_EXCEEDS_MARGIN"
    if nominal[1] < -margin:
        return INCONCLUSIVE, "BETTER_THAN_BASELINE"
    if hi < margin and (lo > -margin or not question.policy.two_sided):
        return PASS, "WITHIN_MARGIN"
    return INCONCLUSIVE, "CI_STRADDLES_MARGIN"
