"""Downstream evaluations of two arms, task by task: accuracy, its difference with interval, non-inferior or not (formulas: `evaluations`).

Paired items where both arms give results by item, else two proportions. Advice, unless the policy's `gates` names `accuracy`; then every
task must be non-inferior for a pass (no correction is needed for that) and one task that is surely worse fails.

Can fail: the interval holds the noise of the items alone, since one evaluation of one run says nothing about the noise between runs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from parity.judging.criteria import Criteria
from parity.judging.decision import State
from parity.judging.secondary.evaluations import EvaluationError, TaskResult, accuracy_gap, paired_accuracy
from parity.wording import count

Evaluations = Mapping[str, Mapping[str, TaskResult]]  # arm -> task -> result

_SAYS = {"pass": "not worse by", "fail": "worse by more than", "inconclusive": "open against"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGap:
    """One task: accuracies (0 to 1), the candidate's minus the baseline's with its interval and margin in percentage points."""

    task: str
    baseline: float
    candidate: float
    gap_points: float
    lo_points: float
    hi_points: float
    items: int
    paired: bool
    margin_points: float
    state: State
    sentence: str


def check_arms(evaluations: Evaluations, baseline: str, candidates: Collection[str]) -> None:
    """Raise EvaluationError where an arm is unknown or named twice, or where there is nothing to compare."""
    if not evaluations:
        return
    for arm in evaluations:
        if arm not in (baseline, *candidates):
            raise EvaluationError(f"an evaluation was given for {arm!r}; the arms are {', '.join((baseline, *candidates))}")
    if baseline in candidates:
        raise EvaluationError(f"baseline and candidate are both named {baseline!r}; expected different names where evaluations are given")
    if baseline not in evaluations or len(evaluations) < 2:
        given = ", ".join(evaluations)
        raise EvaluationError(f"an evaluation was given for {given}; expected {baseline} and at least one of {', '.join(candidates)}")


def downstream_gaps(evaluations: Evaluations, baseline: str, candidate: str, criteria: Criteria) -> tuple[TaskGap, ...]:
    """Every common task of two arms; nothing where the candidate was not evaluated. Raises EvaluationError that names the arms."""
    if candidate not in evaluations:
        return ()
    try:
        return compare_tasks(evaluations[baseline], evaluations[candidate], criteria.accuracy_margin_points, criteria.confidence)
    except ValueError as error:
        raise EvaluationError(f"evaluations of {baseline} and {candidate}: {error}") from None


def compare_tasks(
    baseline: Mapping[str, TaskResult], candidate: Mapping[str, TaskResult], margin_points: float, confidence: float
) -> tuple[TaskGap, ...]:
    """Every task that both arms have, by name; raises ValueError if they share none, or where items don't match."""
    tasks = sorted(baseline.keys() & candidate.keys())
    if not tasks:
        raise ValueError(f"no task in common: {', '.join(baseline)} and {', '.join(candidate)}")
    return tuple(_compare(task, baseline[task], candidate[task], margin_points, confidence) for task in tasks)


def _compare(task: str, baseline: TaskResult, candidate: TaskResult, margin_points: float, confidence: float) -> TaskGap:
    paired = bool(baseline.by_item and candidate.by_item)
    if paired:
        if odd := baseline.by_item.keys() ^ candidate.by_item.keys():
            raise ValueError(f"task {task}: item {min(odd)!r} is in one file only; expected the same items in both")
        items = list(baseline.by_item)
        results = [[arm.by_item[item] for item in items] for arm in (baseline, candidate)]
        accuracy = paired_accuracy(results[0], results[1], margin_points / 100.0, confidence)
    else:
        counts = [(arm.correct, arm.items) for arm in (baseline, candidate)]
        accuracy = accuracy_gap(counts[0], counts[1], margin_points / 100.0, confidence)
    gap, lo, hi = (100.0 * value for value in (accuracy.gap, accuracy.lo, accuracy.hi))
    accuracies = baseline.correct / baseline.items, candidate.correct / candidate.items
    return TaskGap(
        task=task,
        baseline=accuracies[0],
        candidate=accuracies[1],
        gap_points=gap,
        lo_points=lo,
        hi_points=hi,
        items=accuracy.n,
        paired=paired,
        margin_points=margin_points,
        state=accuracy.state,
        sentence=(
            f"{task} {100 * accuracies[1]:.1f} % against {100 * accuracies[0]:.1f} %: {gap:+.1f} points ({lo:+.1f} to {hi:+.1f}, "
            f"{count(accuracy.n, 'paired item' if paired else 'item')}), "
            f"{_SAYS[accuracy.state]} {margin_points:g} {'point' if margin_points == 1 else 'points'}"
        ),
    )
