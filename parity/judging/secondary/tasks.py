"""Downstream evaluations of two arms, task by task: accuracy, its difference with interval,
non-inferior or not (formulas: `evaluations`).

Paired items where both arms give results by item, else two proportions. Advice, unless the policy's
`checks` names `accuracy`; then every task must be non-inferior for a pass (no correction is needed
for that) and one task that is surely worse fails.

end = gap -+ hypot(end of the items' interval - gap, t(4) 0.4 sqrt(2) points) run-to-run noise of
one evaluation of one run an arm, assumed at chance: (p - p0) / (1 - p0) < 0.1 of the baseline, p0 =
1 / choices the accuracy of guessing, 0 for free answers: there models whose losses differ by
several percent are apart by nothing but noise, so the task is not judged; where p0 is not known, no
task fails

A public task is known by the first words of its name: "arc_challenge acc_norm, 25 shots" is ARC,
"mmlu_pro" is not MMLU. Tasks whose items have different numbers of choices (TruthfulQA mc1,
BIG-bench, AGIEval) are left out. Source: the tasks' papers; lm-evaluation-harness 0.4.

Can fail: 0.4 points, which 10 recipes of one 8B model have on HellaSwag (sd 0.60 with 0.47 of the
items); tasks of few items vary more.
"""

import math
import re
from collections.abc import Collection, Mapping

from parity.judging.decision import state_of
from parity.judging.document_types import (
    TaskDocument,
)
from parity.judging.gap.interval import t_quantile
from parity.judging.policy import Policy
from parity.judging.secondary.accuracy import (
    EvaluationError,
    TaskResult,
    accuracy_gap,
    paired_accuracy,
)
from parity.wording import count

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
