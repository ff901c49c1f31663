"""Downstream evaluations of two arms, task by task: accuracy, its difference with interval, non-inferior or not. Advises, never decides.

Paired items where both files give results by item, else two proportions (`evaluations` has the formulas). One evaluation of one run says
nothing about the noise between runs, and several tasks are several tests: so no task is a gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from parity.decision import State
from parity.evaluations import accuracy_gap, paired_accuracy
from parity.readers.accuracy import TaskResult
from parity.wording import count

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


def compare_tasks(
    baseline: Mapping[str, TaskResult], candidate: Mapping[str, TaskResult], margin_points: float, confidence: float
) -> tuple[TaskGap, ...]:
    """Every task that both arms have, in the baseline's order; raises ValueError where there is none, or where items don't match."""
    tasks = [task for task in baseline if task in candidate]
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
        found = paired_accuracy(results[0], results[1], margin_points / 100.0, confidence)
    else:
        counts = [(arm.correct, arm.items) for arm in (baseline, candidate)]
        found = accuracy_gap(counts[0], counts[1], margin_points / 100.0, confidence)
    gap, lo, hi = (100.0 * value for value in (found.gap, found.lo, found.hi))
    accuracies = baseline.correct / baseline.items, candidate.correct / candidate.items
    return TaskGap(
        task=task,
        baseline=accuracies[0],
        candidate=accuracies[1],
        gap_points=gap,
        lo_points=lo,
        hi_points=hi,
        items=found.n,
        paired=paired,
        margin_points=margin_points,
        state=found.state,
        sentence=(
            f"{task} {100 * accuracies[1]:.1f} % against {100 * accuracies[0]:.1f} %: {gap:+.1f} points ({lo:+.1f} to {hi:+.1f}, "
            f"{count(found.n, 'paired item' if paired else 'item')}), {_SAYS[found.state]} {margin_points:g} points"
        ),
    )
