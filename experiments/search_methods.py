"""Search methods that are compared: the product's, greedy by full runs, and rankings by scores at
the cost of the product's.

    search     `parity_lab.search.ask` until it ends
    greedy     one run of each assignment that takes back one more switch; the best gain of loss for
               the time lost; until the target is met
    a ranking  switches are taken back by score for the time lost; the place to stop is found by
               bisection with full runs, as many as the
               search's forks and pilots cost

All confirm in the same way, at most twice; greedy and rankings take one more switch back after a
confirmation that does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.search_world import STEPS, World
from parity.judging.curve import FloatArray
from parity_lab.assignments import Assignment
from parity_lab.belief import Evaluation, Outcome
from parity_lab.search import Setting, ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a method ended: the assignment that passed, or None; the assignments that it confirmed;
    its cost in steps before the first of them.
    """

    assignment: Assignment | None
    tried: tuple[Assignment, ...]
    steps: int
    reason: str = ""


def search(setting: Setting, world: World) -> Found:
    """The product's search."""
    results, tried, before = [], [], 0
    while True:
        step = ask(setting, results)
        if isinstance(step, Outcome):
            return Found(
                assignment=step.assignment,
                tried=tuple(tried),
                steps=before if tried else world.steps,
                reason=step.reason,
            )
        if step[0].kind == "confirmation":
            before = before or world.steps
            tried.append(step[0].assignment)
        results += [world(evaluation) for evaluation in step]


def greedy(setting: Setting, world: World) -> Found:
    """One at a time, by full runs of every assignment with one more switch taken back."""
    assignment, loss = "1" * setting.size, _given(setting, "1")
    path = [assignment]
    number = 0
    while "1" in assignment:
        nexts = [
            assignment[:at] + "0" + assignment[at + 1 :]
            for at, bit in enumerate(assignment)
            if bit == "1"
        ]
        losses = [
            world(Evaluation(kind="run", assignment=each, number=number)).value for each in nexts
        ]
        lost = [setting.times[int(each, 2)] - setting.times[int(assignment, 2)] for each in nexts]
        best = int(np.argmax([(loss - own) / time for own, time in zip(losses, lost, strict=True)]))
        assignment, loss = nexts[best], losses[best]
        path.append(assignment)
        if loss - _given(setting, "0") <= setting.target:
            break
        number += 1
    rest = [assignment]
    while "1" in rest[-1]:
        rest.append(rest[-1].replace("1", "0", 1))
    return _confirmed(setting, world, rest)


def ranking(scores: FloatArray, budget: int) -> Callable[[Setting, World], Found]:
    """A method that takes switches back by score, with this many steps of full runs to find where
    to stop.
    """

    def method(setting: Setting, world: World) -> Found:
        lost = [
            setting.times[int("1" * at + "0" + "1" * (setting.size - at - 1), 2)]
            - setting.times[-1]
            for at in range(setting.size)
        ]
        order = sorted(range(setting.size), key=lambda at: -scores[at] / lost[at])
        path = ["1" * setting.size]
        for at in order:
            path.append(path[-1][:at] + "0" + path[-1][at + 1 :])
        probes = int(np.ceil(np.log2(setting.size)))
        runs = max(1, budget // (probes * STEPS))
        low, high = 0, setting.size  # the candidate is too far off, the baseline is not
        while high - low > 1:
            middle = (low + high) // 2
            losses = [
                world(Evaluation(kind="run", assignment=path[middle], number=100 + at)).value
                for at in range(runs)
            ]
            low, high = (
                (low, middle)
                if np.mean(losses) - _given(setting, "0") <= setting.target
                else (middle, high)
            )
        return _confirmed(setting, world, path[high:])

    return method


def _given(setting: Setting, bit: str) -> float:
    """The mean loss of the given runs of the baseline (0) or the candidate (1)."""
    return float(
        np.mean(
            [
                each.value
                for each in setting.given
                if each.evaluation.assignment == bit * setting.size
            ]
        )
    )


def _confirmed(setting: Setting, world: World, path: Sequence[Assignment]) -> Found:
    """Confirm the assignments of a path, one after the other, until one passes; the baseline itself
    is no assignment to confirm.
    """
    steps = world.steps
    tried: list[Assignment] = []
    for assignment in path[: setting.confirmation.most]:
        if "1" in assignment:
            tried.append(assignment)
            if world(
                Evaluation(kind="confirmation", assignment=assignment, number=len(tried) - 1)
            ).passed:
                return Found(assignment=assignment, tried=tuple(tried), steps=steps)
    return Found(assignment=None, tried=tuple(tried), steps=steps)
