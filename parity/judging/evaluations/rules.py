"""The decision about two arms of evaluations: the first rule that holds decides, what else holds follows.

A pass or a fail needs a finished training: a stated plan that every run reached, and a loss that no longer falls by more than the judge's
late-phase limit. Otherwise the gap stands as of a point and the verdict is inconclusive. The interval over clusters decides where one was
asked for: it is the one that says something about other systems.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from parity.judging.criteria import Criteria
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS, Decision, Reason, ReasonCode, State
from parity.judging.evaluation_codes import AS_OF, CLUSTERS_UNUSABLE, CLUSTERS_WIDEN, RUNS_TRUNCATED, TOO_FEW_RUNS
from parity.judging.evaluations.blocks import blocks_of_pass
from parity.judging.evaluations.measured import LATE_SHARE, MIN_POINTS, MIN_RUNS, Measured
from parity.judging.evaluations.welch import Estimate
from parity.judging.inputs.mismatch import BITS
from parity.judging.margin import Margin
from parity.judging.reasons import BY_CODE, MAX_LEVEL_NATS
from parity.judging.window import COMPLETE_SHARE
from parity.wording import count, interval_words, level_percent, percent, signed

Row = tuple[State | None, ReasonCode, str]
VALUES_SHOWN = 3
BITS_WITHIN = 0.02  # of 1 / ln 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What an arm's runs have on record under one key: the values of the baseline's runs and of the candidate's."""

    key: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]

    @property
    def confounded(self) -> bool:
        """Whether the arms share no value, so that a difference between them may be this one."""
        return not set(self.baseline) & set(self.candidate)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """What is asked about two arms: names as a report says them, the policy, the plan, the cluster's key, and how points are named.

    `confidence` is that of the gap's interval: the policy's, shared by the candidates and looks of the comparison.
    """

    names: tuple[str, str]
    criteria: Criteria
    confidence: float
    margin: Margin | None
    planned_steps: int | None
    cluster: str | None
    tokens_per_step: float | None

    def point(self, step: int) -> str:
        """A point as a report says it: tokens where their number is known, else the step."""
        return tokens_words(step * self.tokens_per_step) if self.tokens_per_step else f"step {step:,}"


def tokens_words(tokens: float) -> str:
    """ "1.3 B tokens", "512 M tokens", "12,000 tokens"."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if tokens >= size:
            return f"{tokens / size:.2g} {unit} tokens" if tokens < 10 * size else f"{tokens / size:,.0f} {unit} tokens"
    return f"{tokens:,.0f} tokens"


def decide(m: Measured, question: Question, grounds: tuple[Ground, ...]) -> Decision:
    """Apply the rules to what was measured."""
    rows = list(_rows(m, question, grounds))
    (state, entry, sentence), *further = rows
    others = tuple(Reason(code=other.code, sentence=text) for other_state, other, text in further if other_state in (INCONCLUSIVE, None))
    return Decision(state=state or INCONCLUSIVE, deciding=Reason(code=entry.code, sentence=sentence), others=others)


def judged(m: Measured, question: Question) -> Estimate | None:
    """The gap that decides: over clusters where they were asked for, else over runs."""
    if question.cluster:
        return m.over_clusters.estimate if m.over_clusters else None
    return m.over_runs


def _rows(m: Measured, question: Question, grounds: tuple[Ground, ...]) -> Iterator[Row]:
    yield from _unusable(m, question)
    yield from _too_few(m, question)
    if m.points and (why := _unfinished(m, question)):
        yield INCONCLUSIVE, AS_OF, f"{_as_of(m, question)}; {why}, so this is no verdict on a finished training."
    if confounded := [ground for ground in grounds if ground.confounded and ground.key != question.cluster]:
        yield INCONCLUSIVE, BY_CODE["CONFOUNDED"], " ".join(_confounded(ground, question) for ground in confounded)
    yield from _against_margin(m, question)
    yield from _warnings(m, question)


def _unusable(m: Measured, question: Question) -> Iterator[Row]:
    base, cand = question.names
    if m.invalid[0]:
        yield INCONCLUSIVE, BY_CODE["BASELINE_INVALID"], f"{base} has a loss that is not finite: {m.invalid[0]}."
    elif m.invalid[1]:
        yield FAIL, BY_CODE["NONFINITE_CAND"], f"{cand} has a loss that is not finite: {m.invalid[1]}."
    if m.arms_alike:
        yield INCONCLUSIVE, BY_CODE["ARMS_IDENTICAL"], f"Runs of both arms are equal but for a constant: {m.arms_alike}."
    elif m.arms_share_start:
        words = f"Runs of both arms have equal losses at their first evaluations: {m.arms_share_start}."
        yield INCONCLUSIVE, BY_CODE["ARMS_SHARE_START"], words
    if m.points:
        yield from _not_nats(m, question)


def _too_few(m: Measured, question: Question) -> Iterator[Row]:
    base, cand = question.names
    if len(m.steps) == 0:
        yield INCONCLUSIVE, BY_CODE["NO_COMMON_STEPS"], "No point has an evaluation of every run of both arms."
    elif len(m.steps) < MIN_POINTS:
        words = f"Every run has an evaluation at {count(len(m.steps), 'point')} only; expected at least {MIN_POINTS}."
        yield INCONCLUSIVE, BY_CODE["TOO_FEW_STEPS"], words
    runs = tuple(map(len, m.runs))
    if min(runs) < MIN_RUNS or (m.pairs is not None and m.pairs < MIN_RUNS):
        pairs = "" if m.pairs is None else f", with {count(m.pairs, 'pair')} of one seed"
        words = f"{base} has {count(runs[0], 'run')} and {cand} {count(runs[1], 'run')}{pairs}; at least {MIN_RUNS} are needed."
        yield INCONCLUSIVE, TOO_FEW_RUNS, words
    if question.cluster and len(m.steps) and m.over_clusters is None:
        yield INCONCLUSIVE, CLUSTERS_UNUSABLE, f"Each arm has one {question.cluster}, so its part in the gap is unknown."


def _warnings(m: Measured, question: Question) -> Iterator[Row]:
    if m.copies:
        copies = f"{count(len(m.copies), 'copy', 'copies')} of other runs"
        yield None, BY_CODE["REPLICATES_IDENTICAL"], f"Not counted: {copies}, equal to them but for a constant: {_listed(m.copies)}."
    if m.forks:
        forks = f"{count(len(m.forks), 'run')} with the start of another"
        yield None, BY_CODE["REPLICATES_DEPENDENT"], f"Not counted: {forks}: {_listed(m.forks)}."
    ends = {int(run.steps[-1]) for arm in m.runs for run in arm if len(run.steps)}
    if len(ends) > 1 and m.points:
        at = question.point(int(m.steps[-1]))
        words = f"Runs end between {question.point(min(ends))} and {question.point(max(ends))}; all of them reached {at}."
        yield None, RUNS_TRUNCATED, words


def _not_nats(m: Measured, question: Question) -> Iterator[Row]:
    base, cand = question.names
    levels = float(m.baseline.mean()), float(m.candidate.mean())
    if max(levels) > MAX_LEVEL_NATS or min(levels) <= 0.0:
        words = f"{base} is at {levels[0]:.4g} and {cand} at {levels[1]:.4g}; expected nats, between 0 and {MAX_LEVEL_NATS:g}."
        yield INCONCLUSIVE, BY_CODE["LOSS_NOT_NATS"], words
    elif any(abs(levels[1] / levels[0] / ratio - 1.0) < BITS_WITHIN for ratio in (BITS, 1.0 / BITS)):
        words = f"The losses of {cand} are {levels[1] / levels[0]:.3f} times those of {base}, which is the ratio of bits and nats."
        yield INCONCLUSIVE, BY_CODE["LOSS_SCALED"], words


def _as_of(m: Measured, question: Question) -> str:
    base, cand = question.names
    at = question.point(m.points[-1]) if len(m.points) == 1 else f"{question.point(m.points[0])} to {question.point(m.points[-1])}"
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
        intervals.append((m.over_runs, f"{sum(map(len, m.runs))} runs" if m.pairs is None else f"{m.pairs} pairs of runs"))
    if m.over_clusters is not None:
        over = m.over_clusters
        number = over.clusters[0] if over.crossed else sum(over.clusters)
        intervals.append((over.estimate, count(number, question.cluster or "cluster")))
    confidence = question.confidence
    words = [f"{interval_words(*gap.bounds(confidence), 4)} over {unit}" for gap, unit in intervals]
    return f" (gap {signed(mean, 4)} nats{f', {level_percent(confidence)} CI ' if words else ''}{', '.join(words)})"


def _unfinished(m: Measured, question: Question) -> str | None:
    last = int(m.steps[-1])
    if m.points != (last,):
        return f"other points were declared than {question.point(last)}, the last that all runs reached"
    if m.steps[0] > (1.0 - LATE_SHARE) * last:
        return f"the evaluations begin at {question.point(int(m.steps[0]))}, too late to see whether the loss still falls"
    if m.decline > m.decline_limit:
        return f"the loss still falls, by {m.decline:.3f} nats over the last fifth of the steps"
    if question.planned_steps is None:
        return "no planned end is stated"
    if last < COMPLETE_SHARE * question.planned_steps:
        return f"{question.point(last)} is {percent(last / question.planned_steps)} of the plan"
    return None


def _confounded(ground: Ground, question: Question) -> str:
    base, cand = question.names
    return (
        f"The arms share no {ground.key} ({base}: {_listed(ground.baseline)}; {cand}: {_listed(ground.candidate)}), "
        "so the gap may be that of the recipe or of this."
    )


def _against_margin(m: Measured, question: Question) -> Iterator[Row]:
    gap, margin = judged(m, question), question.margin
    if gap is None or margin is None:
        if margin is None:
            words = "The noise-floor margin needs 4 or more baseline runs and must be at most 1 % of the loss; state a margin instead."
            yield INCONCLUSIVE, BY_CODE["MARGIN_UNDETERMINED"], words
        return
    state, code = side(gap, margin.nats, question)
    lo, hi = gap.bounds(question.confidence)
    if state == PASS and question.planned_steps is not None:
        yield from blocks_of_pass(m, upper=hi, margin=margin.nats, planned_steps=question.planned_steps)
    where = f" over {question.cluster}s" if question.cluster else ""
    yield (
        state,
        BY_CODE[code],
        f"The gap's interval{where}, {interval_words(lo, hi, 4)} nats, lies {_LIES[code]} the margin of {margin.nats:.4f}.",
    )
    if question.cluster and m.over_runs is not None:
        _, other_code = side(m.over_runs, margin.nats, question)
        if other_code != code:
            lo, hi = m.over_runs.bounds(question.confidence)
            words = f"Over runs alone the interval is {interval_words(lo, hi, 4)} nats and lies {_LIES[other_code]} the margin"
            yield None, CLUSTERS_WIDEN, f"{words}; runs of one {question.cluster} are not independent evidence."


_LIES = {
    "GAP_EXCEEDS_MARGIN": "above",
    "BETTER_THAN_BASELINE": "below zero by more than",
    "WITHIN_MARGIN": "within",
    "CI_STRADDLES_MARGIN": "on both sides of",
}


def side(gap: Estimate, margin: float, question: Question) -> tuple[State, str]:
    """The verdict and the reason code that an interval alone gives against a margin in nats."""
    lo, hi = gap.bounds(question.confidence)
    if lo > margin:
        return FAIL, "GAP_EXCEEDS_MARGIN"
    if gap.bounds(question.criteria.confidence)[1] < -margin:  # a veto: further candidates must not make it harder to reach
        return INCONCLUSIVE, "BETTER_THAN_BASELINE"
    if hi < margin and (lo > -margin or not question.criteria.two_sided):
        return PASS, "WITHIN_MARGIN"
    return INCONCLUSIVE, "CI_STRADDLES_MARGIN"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:VALUES_SHOWN])
    return shown + (f" and {len(names) - VALUES_SHOWN} more" if len(names) > VALUES_SHOWN else "")
