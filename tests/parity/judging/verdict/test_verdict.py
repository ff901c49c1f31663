"""The decision table on curves with a known truth, up to the edges of what can be judged."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def changed(run: Curve, loss: np.ndarray, steps: np.ndarray | None = None) -> Curve:
    return curve_from_arrays(run.steps if steps is None else steps, loss, label="changed")


def test_an_arm_without_a_run_is_refused(make_run: MakeRun, one_percent: Policy) -> None:
    with pytest.raises(ValueError, match="the baseline has no run"):
        judge([], {"c": [make_run()]}, one_percent)
    for candidates in ({}, {"c": []}):
        with pytest.raises(ValueError, match="expected at least one name"):
            judge([make_run()], candidates, one_percent)
    with pytest.raises(ValueError, match="planned_steps is 0"):
        judge([make_run()], {"c": [make_run()]}, one_percent, planned_steps=0)


def test_one_verdict_a_candidate_in_order(make_run: MakeRun, one_percent: Policy) -> None:
    candidates = {"good": [make_run(seed=2)], "bad": [make_run(seed=3, gap=0.1)]}
    verdicts = judge([make_run()], candidates, one_percent, planned_steps=2000)
    assert [(verdict.candidate, verdict.verdict) for verdict in verdicts] == [
        ("good", "pass"),
        ("bad", "fail"),
    ]


def test_identical_arms_are_never_a_pass(make_run: MakeRun, judge_pair: JudgePair) -> None:
    verdict = judge_pair(make_run(), make_run())
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "ARMS_IDENTICAL")


def test_constant_series_are_no_training(judge_pair: JudgePair) -> None:
    flat = curve_from_arrays(np.arange(2000), np.full(2000, 3.0))
    assert judge_pair(flat, changed(flat, np.full(2000, 3.001))).codes[0] == "LOSS_CONSTANT"


@pytest.mark.parametrize("noise", ["noisy", "smooth"])
def test_constant_plus_two_percent_fails(
    noise: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base = make_run(
        batch_sd=0.08 if noise == "noisy" else 0.0, pair_sd=0.004 if noise == "noisy" else 0.0
    )
    verdict = judge_pair(base, changed(base, base.loss * 1.02))
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")


def test_a_nan_tail_fails(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand = make_run(seed=2)
    verdict = judge_pair(make_run(), changed(cand, np.where(cand.steps >= 1900, np.nan, cand.loss)))
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "NONFINITE_CAND")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_candidate_that_stops_at_its_first_nan_fails(
    value: float, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    verdict = judge_pair(
        make_run(), curve_from_arrays(cand.steps[:700], np.append(cand.loss[:699], value))
    )
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "NONFINITE_CAND")


def test_two_isolated_nan_steps_pass_and_are_counted(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    loss = cand.loss.copy()
    loss[[1200, 1800]] = np.nan
    verdict = judge_pair(make_run(), changed(cand, loss))
    document = verdict.document()
    assert verdict.verdict == "pass"
    assert document["nonfinite"]["candidate"] == {
        "at_end": False,
        "count": 2,
        "first_step": 1200,
        "worst_share": 0.0025,
    }
    assert document["window"]["n"] == 399


def test_more_than_one_percent_nan_fails_even_if_all_of_it_is_early(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    loss = cand.loss.copy()
    loss[100:125] = np.nan
    assert judge_pair(make_run(), changed(cand, loss)).codes[0] == "NONFINITE_CAND"


def test_an_infinite_baseline_is_inconclusive_whatever_the_candidate_did(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base = changed(make_run(), np.where(np.arange(2000) >= 1990, np.inf, make_run().loss))
    for cand in (make_run(seed=2), changed(base, np.full(2000, np.nan))):
        assert judge_pair(base, cand).codes[0] == "BASELINE_INVALID"


def test_every_fifth_step_is_enough_on_the_common_grid(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(5000, seed=2)
    verdict = judge_pair(make_run(5000), curve_from_arrays(cand.steps[::5], cand.loss[::5]))
    assert (verdict.verdict, verdict.document()["window"]["n"]) == ("pass", 200)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], "EMPTY"),
        (range(5000, 5300), "NO_COMMON_STEPS"),
        (range(30), "TOO_FEW_STEPS"),
        (range(0, 2000, 50), "TOO_FEW_STEPS"),
    ],
)
def test_too_little_is_inconclusive(
    steps: range, code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    whole = make_run(6000, seed=2)
    cand = curve_from_arrays(list(steps), whole.loss[list(steps)])
    verdict = judge_pair(make_run(), cand)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", code)


def test_a_restart_overwrites_what_it_repeats(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand = make_run(seed=2)
    steps = np.concatenate([cand.steps[:1700], cand.steps[1500:]])
    loss = np.concatenate([cand.loss[:1500], make_run(seed=3).loss[1500:1700], cand.loss[1500:]])
    verdict = judge_pair(make_run(), curve_from_arrays(steps, loss, rounding="nearest"))
    assert verdict.verdict == "pass"
    assert verdict.document()["inputs"]["candidate"][0]["completeness"]["duplicates"] == 200


def test_a_ramp_of_four_nats_at_the_end_is_a_divergence(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    for start in (1800, 1920):
        ramp = np.where(cand.steps >= start, (cand.steps - start) * 4.0 / (2000 - start), 0.0)
        verdict = judge_pair(make_run(), changed(cand, cand.loss + ramp))
        assert (verdict.verdict, verdict.codes[0]) == ("fail", "DIVERGED")


def test_losses_with_a_huge_offset_are_no_nats(make_run: MakeRun, judge_pair: JudgePair) -> None:
    base, cand = make_run(), make_run(seed=2, gap=0.5)
    for offset in (1000.0, -10.0):
        verdict = judge_pair(changed(base, base.loss + offset), changed(cand, cand.loss + offset))
        assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "LOSS_NOT_NATS")


def test_a_share_of_a_loss_near_zero_means_nothing(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """At 0.2 nats neither pass nor fail by a relative margin; absolute amounts decide, and 0.4 nats
    are a loss like any other.
    """
    for gap in (0.0, 0.05):
        arms = [
            changed(run, run.loss - run.loss[-400:].mean() + 0.2 + own)
            for run, own in ((make_run(), 0.0), (make_run(seed=2), gap))
        ]
        verdict = judge_pair(arms[0], arms[1])
        assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "LOSS_NOT_NATS")
        amounts = {
            "margin": "0.02 nats",
            "wide_margin": "accept",
            "baseline_run_noise": "0.002 nats",
            "candidate_run_noise": "0.002 nats",
        }
        absolute = policy_from_mapping({"schedule": "decayed", **amounts})
        assert judge_pair(arms[0], arms[1], absolute).verdict == ("fail" if gap else "pass")
    arms = [
        changed(run, run.loss - run.loss[-400:].mean() + 0.4)
        for run in (make_run(), make_run(seed=2))
    ]
    assert "LOSS_NOT_NATS" not in judge_pair(arms[0], arms[1]).codes


def test_a_loss_that_is_no_cross_entropy_needs_two_runs_an_arm_to_pass(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    mse = policy_from_mapping({"schedule": "decayed", "margin": "1%", "loss_unit": "other"})
    base, cand = make_run(), make_run(seed=2)
    verdict = judge_pair(base, cand, mse)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "TOO_FEW_RUNS")
    noises = [
        own.measurements.statistics.noises[0].prior.tau
        for own in (judge_pair(base, cand), verdict)
        if own.measurements.statistics
    ]
    # that of an unfinished run
    assert noises[1] / noises[0] == pytest.approx(0.15 / 0.09, rel=0.01)
    arms = [
        [
            dataclasses.replace(make_run(seed=seed), seed=0, replicate=n)
            for n, seed in enumerate(seeds)
        ]
        for seeds in ((1, 3), (2, 4))
    ]
    assert judge_pair(arms[0], arms[1], mse).verdict == "pass"
    assert judge_pair(base, make_run(seed=2, gap=0.1), mse).verdict == "fail"


@pytest.mark.parametrize(
    ("sd", "verdict", "code"), [(0.08, "pass", "WITHIN_MARGIN"), (0.004, "inconclusive", "ROUNDED")]
)
def test_a_margin_of_few_printed_steps_is_no_share_unless_batch_noise_averages_them(
    sd: float, verdict: str, code: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    arms = [make_run(batch_sd=sd, pair_sd=sd / 4, seed=seed) for seed in (1, 2)]
    printed = [changed(run, np.round(run.loss / 0.01) * 0.01) for run in arms]
    judged = judge_pair(printed[0], printed[1])
    assert (judged.verdict, judged.codes[0]) == (verdict, code)


def test_astronomic_losses_are_no_crash(make_run: MakeRun, judge_pair: JudgePair) -> None:
    for value in (1e308, -1e308, 1e200):
        cand = make_run(seed=2)
        loss = cand.loss.copy()
        loss[500::3] = value
        for verdict in (
            judge_pair(make_run(), changed(cand, loss)),
            judge_pair(changed(cand, loss), make_run()),
        ):
            assert verdict.verdict != "pass"
            verdict.document()
