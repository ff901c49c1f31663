"""The limits of downstream accuracy: what just passes, what is open, and what just fails."""

import dataclasses
import math

import pytest
from scipy.stats import t as student

from parity.judging.gap.margin import Margin
from parity.judging.policy import Policy
from parity.judging.secondary.accuracy import (
    EvaluationError,
    TaskResult,
    accuracy_gap,
    paired_accuracy,
)
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.tasks import compare_tasks
from parity.judging.verdict.checks import checks

MARGIN = Margin(nats=0.03, rel=0.01, source="1 %")


def state(name: str, **measured: object) -> str | None:
    """What a check that is on the policy's list says of what was measured."""
    policy = Policy(margin="1%", checks=("loss", name))
    made = {one["name"]: one for one in checks(Advisory(**measured), MARGIN, policy)}
    assert {one["role"] for other, one in made.items() if other != name} == {"advises"}
    assert made[name]["role"] == "decides"
    return made[name]["state"]


def task(correct: int, items: int = 1000, choices: int | None = 0) -> dict[str, TaskResult]:
    return {"own": TaskResult(correct=correct, items=items, choices=choices)}


def test_the_choices_of_a_task_are_two_to_a_thousand_or_none() -> None:
    for choices in (0, 2, 1000, None):
        assert TaskResult(correct=1, items=2, choices=choices).choices == choices
    for choices in (-1, 1, 1001):
        with pytest.raises(EvaluationError, match="choices"):
            TaskResult(correct=1, items=2, choices=choices)
    for correct, items in ((0, 1), (1, 1)):
        assert TaskResult(correct=correct, items=items).items == 1
    for correct, items in ((0, 0), (2, 1), (-1, 1)):
        with pytest.raises(EvaluationError, match="correct"):
            TaskResult(correct=correct, items=items)


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_run_to_run_noise_of_an_accuracy_is_assumed(confidence: float) -> None:
    """0.4 points a run, on 4 degrees of freedom, next to the noise of the items."""
    made = compare_tasks(task(700), task(690), 2.0, confidence)[0]
    items = accuracy_gap((700, 1000), (690, 1000), confidence)
    t = float(student.ppf(0.5 + confidence / 2, 4.0))
    run = t * 0.4 * math.sqrt(2.0)
    lo, hi = 100.0 * (items.gap - items.lo), 100.0 * (items.hi - items.gap)
    assert made["gap_points"] - made["lo_points"] == pytest.approx(math.hypot(lo, run))
    assert made["hi_points"] - made["gap_points"] == pytest.approx(math.hypot(hi, run))


@pytest.mark.parametrize(
    ("correct", "choices", "at_chance"),
    [
        (100, 0, False),
        (99, 0, True),
        (325, 4, False),
        (324, 4, True),
        (550, 2, False),
        (549, 2, True),
    ],
)
def test_a_baseline_a_tenth_above_guessing_is_judged(
    correct: int, choices: int, at_chance: bool
) -> None:
    made = compare_tasks(task(correct, choices=choices), task(correct, choices=choices), 50.0, 0.95)
    assert made[0]["at_chance"] == at_chance
    assert made[0]["state"] == ("inconclusive" if at_chance else "pass")


def test_an_accuracy_is_held_against_its_margin() -> None:
    base, cand = task(70_000, 100_000), task(66_000, 100_000)
    made = compare_tasks(base, cand, 2.0, 0.95)[0]
    for margin, expected in (
        (-made["lo_points"] + 1e-9, "pass"),
        (-made["lo_points"] - 1e-9, "inconclusive"),
        (-made["hi_points"] + 1e-9, "inconclusive"),
        (-made["hi_points"] - 1e-9, "fail"),
    ):
        assert compare_tasks(base, cand, margin, 0.95)[0]["state"] == expected
    own, other = ({"own": dataclasses.replace(arm["own"], choices=None)} for arm in (base, cand))
    assert compare_tasks(own, other, -made["hi_points"] - 1e-9, 0.95)[0]["state"] == "inconclusive"
    tasks = (compare_tasks(base, cand, 2.0, 0.95)[0],)
    assert state("accuracy", downstream=tasks) == tasks[0]["state"]


def test_paired_items_have_half_a_count_more_in_each_cell() -> None:
    """Of 100 items with 3 better and 1 worse, by the formula."""
    base = [True] + [False] * 3 + [True] * 96
    cand = [False] + [True] * 3 + [True] * 96
    made = paired_accuracy(base, cand, 0.95)
    b, w, n = 3.5, 1.5, 102.0
    half = 1.959963984540054 * math.sqrt((b + w) - (b - w) ** 2 / n) / n
    assert made.gap == pytest.approx(0.02)
    assert made.n == 100
    assert (made.lo, made.hi) == pytest.approx(((b - w) / n - half, (b - w) / n + half))
