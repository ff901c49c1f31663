"""The limits of the secondary checks: what just passes, what is open, and what just fails."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import t as student

from parity.judging.codes import AS_OF
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import mean_se
from parity.judging.curves.window import make_window
from parity.judging.decision import Decision, Reason
from parity.judging.gap.margin import Margin
from parity.judging.noise.run_floor import RunTerm
from parity.judging.policy import Policy
from parity.judging.secondary.accuracy import (
    EvaluationError,
    TaskResult,
    accuracy_gap,
    paired_accuracy,
)
from parity.judging.secondary.advisory import Advisory
from parity.judging.secondary.gradients import gradient_parity, norm_ratio
from parity.judging.secondary.tasks import compare_tasks
from parity.judging.secondary.validation import ValidationGap, gap_before_window, validation_gap
from parity.judging.verdict.checks import apply_checks, checks

MARGIN = Margin(nats=0.03, rel=0.01, source="1 %")
ALL = ("loss", "grad_norm", "spikes", "validation_loss", "accuracy", "net_speedup")


def just_above(value: float) -> float:
    return math.nextafter(value, math.inf)


def just_below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def state(name: str, **measured: object) -> str | None:
    """What a check that is on the policy's list says of what was measured."""
    policy = Policy(margin="1%", checks=("loss", name))
    made = {one["name"]: one for one in checks(Advisory(**measured), MARGIN, policy)}
    assert {one["role"] for other, one in made.items() if other != name} == {"advises"}
    assert made[name]["role"] == "decides"
    return made[name]["state"]


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.05, "pass"),
        (just_below(0.05), "inconclusive"),
        (0.01, "inconclusive"),
        (just_below(0.01), "fail"),
    ],
)
def test_spikes_pass_from_five_percent_on_and_fail_below_one(p: float, expected: str) -> None:
    spikes = {"baseline": 0, "candidate": 4, "p_candidate_more": p, "blocks": 2, "steps": [[], []]}
    assert state("spikes", run_spikes=spikes) == expected


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (just_above(1.0), 1.2, "pass"),
        (1.0, 1.2, "inconclusive"),
        (0.8, 1.0, "inconclusive"),
        (0.8, just_below(1.0), "fail"),
    ],
)
def test_a_net_speedup_is_a_gain_above_one(lo: float, hi: float, expected: str) -> None:
    speedup = {"value": 0.5 * (lo + hi), "lo": lo, "hi": hi}
    assert state("net_speedup", net_speedup=speedup) == expected


@pytest.mark.parametrize(
    ("lo", "hi", "last_lo", "expected"),
    [
        (-0.01, just_below(0.03), 0.03, "pass"),
        (-0.01, 0.03, 0.03, "inconclusive"),
        (0.03, 0.05, 0.03, "inconclusive"),
        (just_above(0.03), 0.05, 0.03, "fail"),
        (-0.01, 0.02, just_above(0.03), "fail"),
    ],
)
def test_a_validation_gap_is_held_against_the_margin(
    lo: float, hi: float, last_lo: float, expected: str
) -> None:
    gap = ValidationGap(mean=0.01, lo=lo, hi=hi, n=4, last_lo=last_lo, infinite=False)
    assert state("validation_loss", validation=gap) == expected
    infinite = dataclasses.replace(gap, infinite=True)
    assert state("validation_loss", validation=infinite) == "fail"


@pytest.mark.parametrize("veto", [True, False])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("code", ["WITHIN_MARGIN", AS_OF.code])
def test_a_validation_gap_above_the_margin_blocks_what_would_pass(
    code: str, listed: bool, veto: bool
) -> None:
    worse = ValidationGap(mean=0.05, lo=0.04, hi=0.06, n=4, last_lo=0.04, infinite=False)
    policy = Policy(
        margin="1%",
        checks=("loss", "validation_loss") if listed else ("loss",),
        validation="veto" if veto else "advise",
    )
    reached = "pass" if code == "WITHIN_MARGIN" else "inconclusive"
    decision = Decision(state=reached, deciding=Reason(code=code, sentence=""), others=())
    made = apply_checks(decision, checks(Advisory(validation=worse), MARGIN, policy), policy)
    if listed:
        expected = ("fail", "VALIDATION_LOSS_FAILS")
    else:
        expected = ("inconclusive", "VALIDATION_LOSS_WORSE") if veto else (reached, code)
    assert (made.state, made.deciding.code) == expected


# Gradient norms.


def normed(ratio: float, runs: int = 1, sd: float = 0.0, points: int = 50) -> tuple[Curve, ...]:
    """Runs whose gradient norms are so many times e to the 0, with noise that averages to none."""
    noise = np.resize([sd, -sd], points)
    return tuple(
        curve_from_arrays(
            np.arange(points), np.full(points, 3.0), columns={"grad_norm": ratio * np.exp(noise)}
        )
        for _ in range(runs)
    )


@pytest.mark.parametrize("confidence", [0.95, 0.99])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_gradient_norms_agree_within_ten_percent(side: float, confidence: float) -> None:
    """The whole interval inside 1/1.1 to 1.1 is parity, the whole of it outside is none."""
    base = normed(1.0)
    noisy = normed(1.0, sd=0.01)
    steps = base[0].steps
    ratio = np.log(noisy[0].columns["grad_norm"])
    error = mean_se(ratio)
    half = float(student.ppf(0.5 + confidence / 2, error.df)) * error.value
    limit = math.log(1.1)
    for at, expected in (
        (limit - half - 1e-9, "inside"),
        (limit - half + 1e-9, "open"),
        (limit + half - 1e-9, "open"),
        (limit + half + 1e-9, "outside"),
    ):
        other = normed(math.exp(side * at), sd=0.01)
        made = gradient_parity(base, other, steps, confidence)
        assert made["state"] == expected
        assert (
            state("grad_norm", grad_norm=made)
            == {
                "inside": "pass",
                "open": "inconclusive",
                "outside": "fail",
            }[expected]
        )


def test_gradient_norms_need_fifty_points_and_their_ratio_eight() -> None:
    assert gradient_parity(normed(1.0), normed(1.0), np.arange(50), 0.95)["n"] == 50
    assert gradient_parity(normed(1.0), normed(1.0), np.arange(49), 0.95) is None
    assert norm_ratio(normed(1.0), normed(2.0), np.arange(8)) == pytest.approx(2.0)
    assert norm_ratio(normed(1.0), normed(2.0), np.arange(7)) is None


def test_two_runs_an_arm_show_how_much_their_norms_differ() -> None:
    base = (*normed(1.0), *normed(1.02))
    made = gradient_parity(base, base, base[0].steps, 0.95)
    one = gradient_parity(base[:1], base, base[0].steps, 0.95)
    assert made["hi"] / made["lo"] > 1.1
    assert one["hi"] / one["lo"] == pytest.approx(1.0)


@pytest.mark.parametrize(("share", "clipped"), [(1.0 - 0.97e-5, 0.0), (1.0 - 1.03e-5, 1.0)])
def test_a_norm_is_clipped_where_it_is_a_hundred_thousandth_smaller(
    share: float, clipped: float
) -> None:
    (run,) = normed(1.0)
    columns = {**run.columns, "clipped_grad_norm": share * run.columns["grad_norm"]}
    made = gradient_parity(
        (curve_from_arrays(run.steps, run.loss, columns=columns),), normed(1.0), run.steps, 0.95
    )
    assert made["clipped_share"] == [clipped, None]


# Validation losses.

RUN = RunTerm(variance=0.002**2, df=4.0, seeds=1)
T95, T99 = (float(student.ppf(0.5 + level / 2, 4.0)) for level in (0.95, 0.99))


def validated(values: dict[int, float]) -> tuple[Curve, ...]:
    steps = np.arange(100)
    column = np.full(100, np.nan)
    for step, value in values.items():
        column[step] = value
    columns = {"validation_loss": column}
    return (curve_from_arrays(steps, np.full(100, 3.0), columns=columns),)


@pytest.mark.parametrize(("confidence", "t"), [(0.95, T95), (0.99, T99)])
def test_the_interval_of_a_validation_gap_has_the_level_of_the_policy(
    confidence: float, t: float
) -> None:
    window = make_window(100, 0, 0.2, "declared")
    base = validated(dict.fromkeys((80, 85, 90, 99), 3.0))
    cand = validated({80: 3.01, 85: 3.02, 90: 3.03, 99: 3.02})
    gap = validation_gap(base, cand, window, RUN, confidence)
    spread = float(np.var([0.01, 0.02, 0.03, 0.02], ddof=1))
    assert gap.hi - gap.mean == pytest.approx(t * math.sqrt(RUN.variance + spread / 4))
    before = float(np.var([0.01, 0.02, 0.03], ddof=1))
    assert gap.last_lo == pytest.approx(0.02 - t * math.sqrt(RUN.variance + before))


@pytest.mark.parametrize("gaps", [[0.02], [0.01, 0.02]])
def test_a_last_evaluation_of_one_or_two_has_run_to_run_noise_alone(gaps: list[float]) -> None:
    window = make_window(100, 0, 0.2, "declared")
    steps = [90, 99][-len(gaps) :]
    base = validated(dict.fromkeys(steps, 3.0))
    cand = validated({step: 3.0 + gap for step, gap in zip(steps, gaps, strict=True)})
    gap = validation_gap(base, cand, window, RUN, 0.95)
    assert gap.last_lo == pytest.approx(0.02 - T95 * 0.002)
    assert gap.n == len(gaps)


def test_the_window_has_its_first_and_last_step_and_no_other() -> None:
    window = make_window(100, 0, 0.2, "declared")
    assert (window.first, window.last) == (80, 99)
    for step, n in ((79, 0), (80, 1), (99, 1)):
        pair = validated({step: 3.0}), validated({step: 3.02})
        gap = validation_gap(*pair, window, RUN, 0.95)
        assert (0 if gap is None else gap.n) == n
        before = gap_before_window(*pair, window, RUN, 0.95)
        assert (before is None) == (n == 1)
    step, lo = gap_before_window(validated({79: 3.0}), validated({79: 3.02}), window, RUN, 0.95)
    assert step == 79
    assert lo == pytest.approx(0.02 - T95 * 0.002)


# Downstream accuracy.


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
