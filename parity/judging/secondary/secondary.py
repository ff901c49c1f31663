"""What is measured besides the training loss: gradients, validation, downstream tasks, candidates
against each other.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

import numpy as np

from parity.judging import special
from parity.judging.curves.curve import Curve, FloatArray, IntArray, between, median
from parity.judging.curves.data_order import SAME_ORDER
from parity.judging.curves.schedule import constant_rate
from parity.judging.curves.spikes import spikes_over_run
from parity.judging.curves.step_noise import mean_se
from parity.judging.curves.window import Window
from parity.judging.decision import state_of
from parity.judging.document_types import (
    EstimateDocument,
    GradNormDocument,
    GradNormState,
    PeerDocument,
    RunSpikesDocument,
    TaskDocument,
    ThroughputDocument,
)
from parity.judging.gap.interval import TokenSlope, t_quantile
from parity.judging.measurements import Compared, Measurements, measure
from parity.judging.noise.lending import Lenders
from parity.judging.noise.run_floor import RunTerm
from parity.judging.policy import Policy, pairs_confidence
from parity.judging.secondary.speed import (
    NotComparable,
    TokenTax,
    fit_law,
    net_speedup,
    tax_of_slope,
    throughput,
    token_tax,
)
from parity.structure import frozen
from parity.wording import count, interval_words, level_percent, signed

# Do both arms train with gradients of the same size? Mean log-ratio of the gradient norms in the
# window, and the ratio of their tails.
#
# r_t = ln ||g||_candidate - ln ||g||_baseline; interval of mean r inside -+ ln 1.10 is parity; p99
# ratio = p99(candidate) / p99(baseline) clipped share = steps of the window whose norm after
# clipping is below the norm before, over all steps that have both The run term is the spread of the
# runs' own mean logs where both arms have 2 or more, else 0 (said in `basis`).
#
# Can fail: norms recorded after clipping are all 1; no public gradient norms were at hand, so this
# advises unless the policy says otherwise.

GRAD_NORM, CLIPPED_GRAD_NORM = "grad_norm", "clipped_grad_norm"
CLIPPED_BELOW = 1.0 - 1e-5  # of the norm before clipping: both may be stored as float32
LIMIT = math.log(1.10)
MIN_POINTS, FEWEST_POINTS = 50, 8


def gradient_parity(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], steps: IntArray, confidence: float
) -> GradNormDocument | None:
    """Compare the gradient norms at the window's (n,) steps; None where a run has none, or fewer
    than 50 usable steps are common.
    """
    if not all(GRAD_NORM in run.columns for run in (*baseline, *candidate)):
        return None
    logs = [np.array([_log_norm(run, steps) for run in arm]) for arm in (baseline, candidate)]
    good = np.isfinite(np.concatenate(logs)).all(axis=0)
    if int(good.sum()) < MIN_POINTS:
        return None
    left, right = (arm[:, good] for arm in logs)
    ratio = right.mean(axis=0) - left.mean(axis=0)
    mean, within = float(ratio.mean()), mean_se(ratio)
    run_variance, df, basis = _between_runs(left, right, within.df)
    half = t_quantile(confidence, df) * math.hypot(within.value, math.sqrt(run_variance))
    lo, hi = mean - half, mean + half
    state: GradNormState = "open"
    if lo > LIMIT or hi < -LIMIT:
        state = "outside"
    elif lo > -LIMIT and hi < LIMIT:
        state = "inside"
    p99 = [float(np.exp(np.quantile(arm, 0.99))) for arm in (left, right)]
    return GradNormDocument(
        ratio=math.exp(mean),
        lo=math.exp(lo),
        hi=math.exp(hi),
        p99_ratio=p99[1] / p99[0],
        n=int(good.sum()),
        state=state,
        basis=basis,
        clipped_share=[_clipped_share(baseline, steps), _clipped_share(candidate, steps)],
    )


def norm_ratio(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], steps: IntArray
) -> float | None:
    """Median ratio of the gradient norms (candidate / baseline) at (n,) steps; None where a run has
    none, or fewer than 8 are usable.
    """
    if not all(GRAD_NORM in run.columns for run in (*baseline, *candidate)):
        return None
    ratio = np.mean([_log_norm(run, steps) for run in candidate], axis=0) - np.mean(
        [_log_norm(run, steps) for run in baseline], axis=0
    )
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) >= FEWEST_POINTS:
        return float(np.exp(median(ratio)))
    return None


def _clipped_share(arm: tuple[Curve, ...], steps: IntArray) -> float | None:
    """Share of clipped steps over all runs of an arm at (n,) steps."""
    if not all(CLIPPED_GRAD_NORM in run.columns for run in arm):
        return None
    before, after = (
        np.concatenate([run.columns[name][np.searchsorted(run.steps, steps)] for run in arm])
        for name in (GRAD_NORM, CLIPPED_GRAD_NORM)
    )
    both = np.isfinite(before) & np.isfinite(after)
    if not both.any():
        return None
    return float(np.mean(after[both] < CLIPPED_BELOW * before[both]))


def _between_runs(
    left: FloatArray, right: FloatArray, within_df: float
) -> tuple[float, float, str]:
    if len(left) < 2 or len(right) < 2:
        return 0.0, within_df, "one run in an arm: run-to-run noise is not in the interval"
    parts = [float(arm.mean(axis=1).var(ddof=1)) / len(arm) for arm in (left, right)]
    return sum(parts), float(min(len(left), len(right)) - 1), "spread of the runs"


def _log_norm(run: Curve, steps: IntArray) -> FloatArray:
    """ln of the gradient norm at (n,) steps that the run has; NaN where it is not positive and
    finite.
    """
    values = run.columns[GRAD_NORM][np.searchsorted(run.steps, steps)]
    usable = np.isfinite(values) & (values > 0.0)
    log: FloatArray = np.log(np.where(usable, values, 1.0))
    return np.where(usable, log, np.nan)


# The gap in validation loss over the window, as advice: few points, so the between-run term of the
# training loss does most of the work.
#
# gap = mean over the window's evaluations of candidate minus baseline; SE^2 = SE_run^2 (of the
# training loss) + var(d)/n
#
# Can fail: run-to-run noise of validation losses may differ from that of training losses; with one
# evaluation the second term is 0.

VALIDATION_LOSS = "validation_loss"


@frozen
class ValidationGap:
    """Mean gap in validation loss (nats, + = candidate worse), its interval, and the number of
    evaluations.

    `last_lo` is the lower end at the last evaluation alone, `infinite` whether the candidate's
    validation loss is infinite anywhere.
    """

    mean: float
    lo: float
    hi: float
    n: int
    last_lo: float
    infinite: bool


def validation_gap(
    baseline: tuple[Curve, ...],
    candidate: tuple[Curve, ...],
    window: Window,
    run: RunTerm,
    confidence: float,
) -> ValidationGap | None:
    """Compare the `validation_loss` columns (NaN between evaluations) inside the window; None where
    no evaluation is common to all runs.
    """
    steps, gap = _common_gap(baseline, candidate, (window.first, window.last))
    if len(steps) == 0:
        return None
    variance = float(gap.var(ddof=1)) if len(gap) > 1 else 0.0
    half = t_quantile(confidence, run.df) * math.sqrt(run.variance + variance / len(gap))
    mean = float(gap.mean())
    infinite = any(np.isinf(item.columns[VALIDATION_LOSS]).any() for item in candidate)
    return ValidationGap(
        mean=mean,
        lo=mean - half,
        hi=mean + half,
        n=len(gap),
        last_lo=_last_lo(gap, run, confidence),
        infinite=infinite,
    )


def gap_before_window(
    baseline: tuple[Curve, ...],
    candidate: tuple[Curve, ...],
    window: Window,
    run: RunTerm,
    confidence: float,
) -> tuple[int, float] | None:
    """Step of the last common evaluation before the window, and the lower end of its gap (nats),
    where the window has none.
    """
    if len(_common_gap(baseline, candidate, (window.first, window.last))[0]):
        return None
    steps, gap = _common_gap(baseline, candidate, (0, window.first - 1))
    if len(steps) == 0:
        return None
    return int(steps[-1]), _last_lo(gap, run, confidence)


def _last_lo(gap: FloatArray, run: RunTerm, confidence: float) -> float:
    """The lower end of the last of (n,) gaps, whose noise is the spread of those before it."""
    variance = float(gap[:-1].var(ddof=1)) if len(gap) > 2 else 0.0
    return float(gap[-1]) - t_quantile(confidence, run.df) * math.sqrt(run.variance + variance)


def _common_gap(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], span: tuple[int, int]
) -> tuple[IntArray, FloatArray]:
    """Steps (n,) within a span at which all runs evaluated, and the arms' mean gap there (n,),
    nats.
    """
    if not all(is_evaluated(item) for item in (*baseline, *candidate)):
        return np.empty(0, dtype=np.int64), np.empty(0)
    series = [[_evaluations(item, span) for item in arm] for arm in (baseline, candidate)]
    steps = series[0][0][0]
    for arm in series:
        for own, _ in arm:
            steps = np.intersect1d(steps, own, assume_unique=True)
    means = [
        np.mean([loss[np.searchsorted(own, steps)] for own, loss in arm], axis=0) for arm in series
    ]
    gap: FloatArray = means[1] - means[0]
    return steps, gap


def is_evaluated(run: Curve) -> bool:
    """Whether a run recorded a validation loss."""
    return VALIDATION_LOSS in run.columns and not np.isnan(run.columns[VALIDATION_LOSS]).all()


def evaluated_apart(
    baseline: tuple[Curve, ...], candidate: tuple[Curve, ...], window: Window
) -> bool:
    """Whether all runs have validation losses, some of them in the window, but at no common step of
    it.
    """
    if not all(is_evaluated(item) for item in (*baseline, *candidate)):
        return False
    span = (window.first, window.last)
    some = any(len(_evaluations(item, span)[0]) for item in (*baseline, *candidate))
    return some and len(_common_gap(baseline, candidate, span)[0]) == 0


def _evaluations(run: Curve, span: tuple[int, int]) -> tuple[IntArray, FloatArray]:
    """Steps and values of the finite validation losses within a span of steps (inclusive)."""
    part = between(run.steps, *span)
    values = run.columns[VALIDATION_LOSS][part]
    finite = np.isfinite(values)
    return run.steps[part][finite], values[finite]


# Candidate against candidate, as advice: is one candidate's extra (a Hadamard transform, more
# blocks in bf16) worth its step time?


def compare_peers(
    names: tuple[str, str],
    first: Sequence[Curve],
    second: Sequence[Curve],
    policy: Policy,
    window: Window,
    lenders: Lenders,
    candidates: int = 2,
) -> PeerDocument:
    """Compare the second candidate with the first, with the same window, noises and run-to-run
    noise as a verdict.

    The intervals of all pairs of `candidates` hold together at the policy's confidence, whatever
    the number of looks.
    """
    m = measure(Compared(*names), first, second, policy, window, lenders)
    measured = throughput(*m.arms.both_runs, policy.confidence)
    ratio = None if measured is None or isinstance(measured, NotComparable) else measured["ratio"]
    paired = (
        policy.pairing == "unpaired"
        or m.r_pair is None
        or m.r_pair >= SAME_ORDER
        or m.same_data_recorded
    )
    if ratio:
        faster = f", step speed {ratio['value']:.3f} x ({ratio['lo']:.3f} to {ratio['hi']:.3f})"
    else:
        faster = ""
    if m.statistics is None or not paired:
        sentence = f"{names[1]} and {names[0]} have no common late window of one data order{faster}"
        return PeerDocument(
            name=names[0], gap=None, lo=None, hi=None, speed=ratio, sentence=f"{sentence}."
        )
    confidence = pairs_confidence(policy.confidence, candidates)
    lo, hi = m.statistics.interval.bounds(confidence)
    words = "differ" if lo > 0.0 or hi < 0.0 else "are indistinguishable"
    if confidence == policy.confidence:
        together = ""
    else:
        together = f", {level_percent(confidence)} each so that all pairs hold together"
    gap = (
        f"gap {signed(m.statistics.interval.mean, 4)} nats ({interval_words(lo, hi, 4)}{together})"
    )
    sentence = f"{names[1]} and {names[0]} {words}: {gap}{faster}."
    return PeerDocument(
        name=names[0], gap=m.statistics.interval.mean, lo=lo, hi=hi, speed=ratio, sentence=sentence
    )


# Downstream accuracy: is the candidate worse by less than a margin in points? Paired items where
# they are given, else two proportions.
#
# paired: d_i = correct_candidate(i) - correct_baseline(i), mean d -+ z sd(d)/sqrt(n) (the
# McNemar-type interval of a difference) unpaired: p_c - p_b with Newcombe's hybrid score interval
# (Wilson limits of each proportion)
#
# Can fail: items that share a passage are not independent, and one evaluation of one run says
# nothing about run-to-run noise. Source: Newcombe 1998, methods 10 (unpaired); Agresti and Min 2005
# (paired, Wald with 1/2 pseudo-count).

MAX_CHOICES = 1000


class EvaluationError(ValueError):
    """Evaluations that can't be compared; the message names the arms or the task and what was
    expected.
    """


@frozen
class TaskResult:
    """One task of one arm: correct items of all, and the results by item where they are known
    (empty for counts alone).

    `choices` is the number of choices of an item as stated, 0 for free answers, None where nobody
    stated it.
    """

    correct: int
    items: int
    by_item: Mapping[str, bool] = field(default_factory=dict)
    choices: int | None = None

    def __post_init__(self) -> None:
        if self.choices is not None and not (
            0 <= self.choices <= MAX_CHOICES and self.choices != 1
        ):
            raise EvaluationError(
                f"choices is {self.choices}; expected 2 to {MAX_CHOICES:,}, or 0 for free answers"
            )
        if not (self.items > 0 and 0 <= self.correct <= self.items):
            raise EvaluationError(
                f"{self.correct} correct of {self.items} items; expected 0 <= correct <= items and "
                "at least one item"
            )
        if self.by_item and (len(self.by_item), sum(self.by_item.values())) != (
            self.items,
            self.correct,
        ):
            raise EvaluationError(
                f"{self.correct} correct of {self.items} items, but the results by item say "
                "otherwise; expected both to agree"
            )


@frozen
class AccuracyGap:
    """Accuracy of the candidate minus the baseline's, in points (0.01 = one percentage point), with
    its interval, of `n` items.
    """

    gap: float
    lo: float
    hi: float
    n: int


def paired_accuracy(
    baseline: Sequence[bool], candidate: Sequence[bool], confidence: float = 0.95
) -> AccuracyGap:
    """Compare item results (n,) of both arms on the same items; raises ValueError for unequal or no
    items.
    """
    if len(baseline) != len(candidate) or len(baseline) == 0:
        raise ValueError(
            f"{len(baseline)} and {len(candidate)} item results; expected the same items, at least "
            "one"
        )
    left, right = np.asarray(baseline, dtype=bool), np.asarray(candidate, dtype=bool)
    n = len(left)
    better, worse = int((right & ~left).sum()), int((left & ~right).sum())
    gap = (better - worse) / n
    # half a count in each cell keeps the interval open where the arms agree on all items
    b, w, total = better + 0.5, worse + 0.5, n + 2.0
    half = _z(confidence) * math.sqrt((b + w) - (b - w) ** 2 / total) / total
    middle = (b - w) / total
    return AccuracyGap(gap=gap, lo=middle - half, hi=middle + half, n=n)


def accuracy_gap(
    baseline: tuple[int, int], candidate: tuple[int, int], confidence: float = 0.95
) -> AccuracyGap:
    """Compare (correct, items) of both arms; raises ValueError where correct is not within 0 and
    items.
    """
    for correct, items in (baseline, candidate):
        if not (items > 0 and 0 <= correct <= items):
            raise ValueError(
                f"{correct} correct of {items} items; expected 0 <= correct <= items and at least "
                "one item"
            )
    (p, p_lo, p_hi), (q, q_lo, q_hi) = (
        _wilson(correct, items, _z(confidence)) for correct, items in (baseline, candidate)
    )
    gap = q - p
    lo = gap - math.hypot(q - q_lo, p_hi - p)
    hi = gap + math.hypot(q_hi - q, p - p_lo)
    return AccuracyGap(gap=gap, lo=lo, hi=hi, n=min(baseline[1], candidate[1]))


def _wilson(correct: int, items: int, z: float) -> tuple[float, float, float]:
    """Proportion and its Wilson limits."""
    p = correct / items
    centre = (p + z * z / (2 * items)) / (1 + z * z / items)
    half = z * math.sqrt(p * (1 - p) / items + z * z / (4 * items * items)) / (1 + z * z / items)
    return p, centre - half, centre + half


def _z(confidence: float) -> float:
    return float(special.ndtri(0.5 + confidence / 2.0))


# Downstream evaluations of two arms, task by task: accuracy, its difference with interval,
# non-inferior or not (formulas: `evaluations`).
#
# Paired items where both arms give results by item, else two proportions. Advice, unless the
# policy's `checks` names `accuracy`; then every task must be non-inferior for a pass (no correction
# is needed for that) and one task that is surely worse fails.
#
# end = gap -+ hypot(end of the items' interval - gap, t(4) 0.4 sqrt(2) points) run-to-run noise of
# one evaluation of one run an arm, assumed at chance: (p - p0) / (1 - p0) < 0.1 of the baseline, p0
# = 1 / choices the accuracy of guessing, 0 for free answers: there models whose losses differ by
# several percent are apart by nothing but noise, so the task is not judged; where p0 is not known,
# no task fails
#
# A public task is known by the first words of its name: "arc_challenge acc_norm, 25 shots" is ARC,
# "mmlu_pro" is not MMLU. Tasks whose items have different numbers of choices (TruthfulQA mc1,
# BIG-bench, AGIEval) are left out. Source: the tasks' papers; lm-evaluation-harness 0.4.
#
# Can fail: 0.4 points, which 10 recipes of one 8B model have on HellaSwag (sd 0.60 with 0.47 of the
# items); tasks of few items vary more.

Evaluations = Mapping[str, Mapping[str, TaskResult]]  # arm -> task -> result

RUN_NOISE_POINTS, RUN_NOISE_DF = 0.4, 4.0
AT_CHANCE = 0.1  # of the way from guessing to all items right

FREE_ANSWERS = 0  # choices of a task without any
_PUBLIC: Mapping[int, str] = {
    2: "boolq cola copa mrpc multirc piqa qnli qqp rte sst2 storycloze wic winogrande winograd "
    "wnli wsc wsc273 xcopa xstorycloze xwinograd",
    3: "anli cb mnli pubmedqa siqa social_iqa snli xnli",
    4: "arc belebele ceval cmmlu cosmosqa gpqa hellaswag logiqa medmcqa mmlu obqa openbookqa "
    "prost race sciq swag",
    5: "aqua_rat commonsense_qa commonsenseqa csqa mathqa",
    10: "mmlu_pro",
    FREE_ANSWERS: "drop gsm8k hendrycks_math humaneval lambada mbpp mgsm minerva_math "
    "natural_questions nq_open squad svamp triviaqa webqs",
}
_CHOICES = {
    tuple(name.split("_")): choices for choices, names in _PUBLIC.items() for name in names.split()
}
_MOST_WORDS = max(map(len, _CHOICES))

_SAYS = {"pass": "not worse by", "fail": "worse by more than", "inconclusive": "open against"}


def check_arms(evaluations: Evaluations, baseline: str, candidates: Collection[str]) -> None:
    """Raise EvaluationError where an arm is unknown or named twice, or where there is nothing to
    compare.
    """
    if not evaluations:
        return
    for arm in evaluations:
        if arm not in (baseline, *candidates):
            raise EvaluationError(
                f"an evaluation was given for {arm!r}; the arms are "
                f"{', '.join((baseline, *candidates))}"
            )
    if baseline in candidates:
        raise EvaluationError(
            f"baseline and candidate are both named {baseline!r}; expected different names where "
            "evaluations are given"
        )
    if baseline not in evaluations or len(evaluations) < 2:
        given = ", ".join(evaluations)
        raise EvaluationError(
            f"an evaluation was given for {given}; expected {baseline} and at least one of "
            f"{', '.join(candidates)}"
        )


def downstream_gaps(
    evaluations: Evaluations, baseline: str, candidate: str, policy: Policy
) -> tuple[TaskDocument, ...]:
    """Every common task of two arms; nothing where the candidate was not evaluated. Raises
    EvaluationError that names the arms.
    """
    if candidate not in evaluations:
        return ()
    try:
        return compare_tasks(
            evaluations[baseline],
            evaluations[candidate],
            policy.accuracy_margin_points,
            policy.confidence,
        )
    except ValueError as error:
        raise EvaluationError(f"evaluations of {baseline} and {candidate}: {error}") from None


def compare_tasks(
    baseline: Mapping[str, TaskResult],
    candidate: Mapping[str, TaskResult],
    margin_points: float,
    confidence: float,
) -> tuple[TaskDocument, ...]:
    """Every task that both arms have, by name; raises ValueError if they share none, or where items
    don't match.
    """
    tasks = sorted(baseline.keys() & candidate.keys())
    if not tasks:
        raise ValueError(f"no task in common: {', '.join(baseline)} and {', '.join(candidate)}")
    return tuple(
        _compare(task, baseline[task], candidate[task], margin_points, confidence) for task in tasks
    )


def _compare(
    task: str, baseline: TaskResult, candidate: TaskResult, margin_points: float, confidence: float
) -> TaskDocument:
    paired = bool(baseline.by_item and candidate.by_item)
    if paired:
        if odd := baseline.by_item.keys() ^ candidate.by_item.keys():
            raise ValueError(
                f"task {task}: item {min(odd)!r} is in one file only; expected the same items in "
                "both"
            )
        items = list(baseline.by_item)
        results = [[arm.by_item[item] for item in items] for arm in (baseline, candidate)]
        accuracy = paired_accuracy(results[0], results[1], confidence)
    else:
        counts = [(arm.correct, arm.items) for arm in (baseline, candidate)]
        accuracy = accuracy_gap(counts[0], counts[1], confidence)
    accuracies = baseline.correct / baseline.items, candidate.correct / candidate.items
    gap, items_lo, items_hi = (100.0 * value for value in (accuracy.gap, accuracy.lo, accuracy.hi))
    run = t_quantile(confidence, RUN_NOISE_DF) * RUN_NOISE_POINTS * math.sqrt(2.0)
    lo, hi = gap - math.hypot(gap - items_lo, run), gap + math.hypot(items_hi - gap, run)
    chance = chance_level(_choices(task, baseline, candidate))
    at_chance = chance is not None and accuracies[0] - chance < AT_CHANCE * (1.0 - chance)
    state = state_of(passes=lo > -margin_points, fails=hi < -margin_points and chance is not None)
    if at_chance and chance is not None:
        judged = f"not judged: the baseline is at chance ({100 * chance:.0f} %)"
    else:
        judged = f"{_SAYS[state]} {margin_points:g} {'point' if margin_points == 1 else 'points'}"
    if chance is None and hi < -margin_points:
        judged += " (the number of choices is not known: state it)"
    return TaskDocument(
        task=task,
        baseline=accuracies[0],
        candidate=accuracies[1],
        gap_points=gap,
        lo_points=lo,
        hi_points=hi,
        items=accuracy.n,
        paired=paired,
        margin_points=margin_points,
        chance=chance,
        at_chance=at_chance,
        state="inconclusive" if at_chance else state,
        sentence=(
            f"{task} {100 * accuracies[1]:.1f} % against {100 * accuracies[0]:.1f} %: {gap:+.1f} "
            f"points ({lo:+.1f} to {hi:+.1f}, "
            f"{count(accuracy.n, 'paired item' if paired else 'item')}), {judged}"
        ),
    )


def _choices(task: str, baseline: TaskResult, candidate: TaskResult) -> int | None:
    """The number of choices of an item: as either arm states it, else of the public task; raises
    ValueError where the arms differ.
    """
    stated = {arm.choices for arm in (baseline, candidate)} - {None}
    if len(stated) > 1:
        raise ValueError(
            f"task {task}: the arms state {' and '.join(map(str, sorted(stated, key=str)))} "
            "choices; expected one number"
        )
    return stated.pop() if stated else public_choices(task)


def public_choices(task: str) -> int | None:
    """The number of choices of a public task, 0 for free answers; None for a task that is not
    known.
    """
    words = tuple(word for word in re.split(r"[^a-z0-9]+", task.lower()) if word)
    return next(
        (
            _CHOICES[words[:length]]
            for length in range(_MOST_WORDS, 0, -1)
            if words[:length] in _CHOICES
        ),
        None,
    )


def chance_level(choices: int | None) -> float | None:
    """The accuracy of guessing among so many choices (0: free answers, which nobody guesses); None
    where their number is not known.
    """
    if choices is None:
        return None
    return 1.0 / choices if choices else 0.0


# What is measured in addition to the loss: gradient norms, validation loss, downstream tasks, token
# tax, throughput, net speed-up, spikes.
#
# All of it advises; `checks` says which of it the policy lets decide.


@frozen
class Advisory:
    """Measures that advise; None where the columns they need were not given.

    `speed_reason` says why step times that were recorded give no speed ratio: part of a sentence.
    """

    grad_norm: GradNormDocument | None = None
    token_tax: TokenTax | None = None
    throughput: ThroughputDocument | None = None
    speed_reason: str | None = None
    net_speedup: EstimateDocument | None = None
    validation: ValidationGap | None = None
    run_spikes: RunSpikesDocument | None = None
    downstream: tuple[TaskDocument, ...] = ()


def measure_advisory(m: Measurements, downstream: tuple[TaskDocument, ...] = ()) -> Advisory:
    """Everything that the runs' columns allow, with the downstream tasks that were compared
    already.
    """
    measured = throughput(*m.arms.both_runs, m.policy.confidence)
    speed, reason = (
        (None, measured.reason) if isinstance(measured, NotComparable) else (measured, None)
    )
    statistics = m.statistics
    if statistics is None:
        return Advisory(throughput=speed, speed_reason=reason, downstream=downstream)
    window = m.aligned.steps[m.window.part(m.aligned.steps)]
    curves = m.aligned.arm_means()
    gap = statistics.interval.mean, *statistics.interval.bounds(*m.levels)
    tax = None
    if isinstance(statistics.token_slope, TokenSlope):
        tax = tax_of_slope(statistics.token_slope, *gap)
    elif (law := fit_law(m.aligned.steps, curves[0])) is not None:
        tax = token_tax(
            law, window, int(m.aligned.steps[0]), *gap, constant_rate=constant_rate(m.arms.runs)
        )
    return Advisory(
        grad_norm=gradient_parity(*m.arms.both_runs, window, m.policy.confidence),
        token_tax=tax,
        throughput=speed,
        speed_reason=reason,
        net_speedup=net_speedup(speed["ratio"], tax)
        if speed is not None and tax is not None
        else None,
        validation=validation_gap(
            *m.arms.both_runs, m.window, statistics.interval.run, m.policy.confidence
        ),
        run_spikes=spikes_over_run(
            curves[1] - curves[0], m.aligned.steps, statistics.baseline.level, m.resolution.quantum
        ),
        downstream=downstream,
    )
