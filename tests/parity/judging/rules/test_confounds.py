"""What makes a pass invalid makes a blame invalid: a difference that could explain a gap is told
before the gap.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

import parity
from parity.judging.curves.curve import Curve
from parity.judging.curves.decline import falls_as_before
from parity.judging.policy import Policy
from parity.judging.verdict.sign_offs import why_not_acceptable
from parity.judging.verdict.verdict import Verdict
from parity.readers import read_runs

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]
PLAN = 2000
AT = np.arange(PLAN)
COSINE = 2e-3 * (0.5 + 0.5 * np.cos(np.pi * AT / PLAN))


def warmed(rates: np.ndarray, steps: int) -> np.ndarray:
    return rates * np.minimum((AT + 1) / steps, 1.0)


def judged(make_run: MakeRun, rates: np.ndarray, gap: float = 0.2, **candidate: object) -> Verdict:
    base = make_run(columns={"learning_rate": COSINE})
    cand = make_run(seed=2, gap=gap, columns={"learning_rate": rates}, **candidate)
    policy = parity.Policy(margin="1%")
    (verdict,) = parity.judge([base], {"cand": [cand]}, policy, planned_steps=PLAN)
    return verdict


def test_another_learning_rate_is_no_verdict_on_the_format(make_run: MakeRun) -> None:
    verdict = judged(make_run, 1.5 * COSINE)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "LEARNING_RATES_DIFFER")
    assert "GAP_EXCEEDS_MARGIN" in verdict.codes
    assert verdict.document()["advice"]["sentences"][0].startswith(
        "Train all runs with one schedule"
    )


@pytest.mark.parametrize(
    "rates",
    [
        COSINE,
        COSINE * (1 + 1e-7),
        np.float32(COSINE).astype(float),
        warmed(COSINE, 100),
        np.roll(COSINE, 1),
        1.004 * COSINE,
    ],
    ids=["equal", "last digit", "float32", "warm-up alone", "a step late", "0.4 %"],
)
def test_a_fail_stays_a_fail_where_the_rates_could_not_explain_it(
    rates: np.ndarray, make_run: MakeRun
) -> None:
    verdict = judged(make_run, rates)
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "GAP_EXCEEDS_MARGIN")


def test_a_candidate_that_broke_by_itself_fails_with_the_confound_named(make_run: MakeRun) -> None:
    base = make_run(columns={"learning_rate": COSINE})
    cand = make_run(seed=2, columns={"learning_rate": 1.5 * COSINE})
    broken = dataclasses.replace(cand, loss=np.where(AT > 1900, np.nan, cand.loss))
    (verdict,) = parity.judge(
        [base], {"cand": [broken]}, parity.Policy(margin="1%"), planned_steps=PLAN
    )
    assert (verdict.verdict, verdict.codes[0]) == ("fail", "NONFINITE_CAND")
    assert "LEARNING_RATES_DIFFER" in verdict.codes


def test_a_rate_that_may_differ_leaves_the_fail(make_run: MakeRun) -> None:
    base = make_run(columns={"learning_rate": COSINE})
    cand = make_run(seed=2, gap=0.2, columns={"learning_rate": 1.5 * COSINE})
    policy = parity.Policy(margin="1%", may_differ=("learning_rate",))
    assert parity.judge([base], {"cand": [cand]}, policy, planned_steps=PLAN)[0].verdict == "fail"


@pytest.mark.parametrize(
    ("key", "deciding"),
    [
        ("data_digest", "CONFOUNDED"),
        ("batch_size", "CONFOUNDED"),
        ("parameters", "CONFOUNDED"),
        ("engine", "GAP_EXCEEDS_MARGIN"),
        ("version.jax", "GAP_EXCEEDS_MARGIN"),
        ("device_class", "GAP_EXCEEDS_MARGIN"),
    ],
)
def test_only_what_could_explain_a_gap_comes_before_it(
    key: str, deciding: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    verdict = judge_pair(
        make_run(context={key: "20000000"}), make_run(seed=2, gap=0.2, context={key: "40000000"})
    )
    assert (verdict.codes[0], "CONFOUNDED" in verdict.codes) == (deciding, True)
    assert verdict.verdict == ("fail" if deciding == "GAP_EXCEEDS_MARGIN" else "inconclusive")
    assert why_not_acceptable(verdict.document()) is not None


def test_a_candidate_that_began_behind_and_caught_up_is_not_blamed(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    behind = make_run(seed=2)
    behind = dataclasses.replace(behind, loss=behind.loss + 0.06 + 0.9 * np.exp(-AT / 400))
    verdict = judge_pair(make_run(), behind)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "START_DIFFERS")


def test_a_candidate_that_is_as_much_worse_throughout_fails(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    assert judge_pair(make_run(), make_run(seed=2, gap=0.2)).codes[0] == "GAP_EXCEEDS_MARGIN"


@pytest.mark.parametrize("candidates", [1, 2, 12])
@pytest.mark.parametrize("looks", [1, 5])
def test_candidates_and_looks_take_no_fail_back(
    candidates: int, looks: int, make_run: MakeRun
) -> None:
    """An end above the margin is one at the policy's own confidence, however many intervals share
    the error of a pass.
    """
    base, cand = make_run(), make_run(seed=2)
    late = dataclasses.replace(cand, loss=cand.loss + np.where(AT > 1800, 0.066, 0.0))
    policy = parity.Policy(margin="1%", schedule="decayed", looks=looks)
    named = {f"cand {number}": [late] for number in range(candidates)}
    codes = {
        verdict.codes[0] for verdict in parity.judge([base], named, policy, planned_steps=PLAN)
    }
    assert codes == {"ENDS_ABOVE_MARGIN"}


def test_spikes_are_no_smoothing(make_run: MakeRun, judge_pair: JudgePair) -> None:
    """Three spikes that decay over some steps each, in a log of single steps."""
    base, cand = make_run(), make_run(seed=2)
    spikes = sum(
        8.0 * np.exp(-np.maximum(AT - at, 0) / 6.0) * (at <= AT) for at in (1650, 1760, 1870)
    )
    verdict = judge_pair(base, dataclasses.replace(cand, loss=cand.loss + spikes))
    assert "SMOOTHED" not in verdict.codes
    averaged = lfilter([0.02], [1.0, -0.98], cand.loss - cand.loss[0]) + cand.loss[0]
    assert "SMOOTHED" in judge_pair(base, dataclasses.replace(cand, loss=averaged)).codes


def large_batches(make_run: MakeRun, one: int, other: int, gap: float = 0.0) -> tuple[Curve, Curve]:
    """A pair whose batch noise is as small as its own, so that it correlates 0.4."""
    return (
        make_run(seed=one, batch_sd=0.006, pair_sd=0.0104),
        make_run(seed=other, batch_sd=0.006, pair_sd=0.0104, gap=gap),
    )


def test_an_order_that_cannot_be_shown_is_no_mismatch_and_may_be_stated(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = large_batches(make_run, 1, 2)
    verdict = judge_pair(base, cand)
    assert verdict.measurements.r_pair < 0.5
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "ORDER_UNSHOWN")
    stated = Policy(margin="1%", schedule="decayed", pairing="stated")
    assert judge_pair(base, cand, stated).verdict == "pass"
    assert judge_pair(base, large_batches(make_run, 1, 3, gap=0.2)[1], stated).verdict == "fail"


def test_a_stated_order_that_the_batches_refute_does_not_count(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    stated = Policy(margin="1%", schedule="decayed", pairing="stated")
    assert (
        judge_pair(make_run(), make_run(seed=2, batch_seed=9), stated).codes[0]
        == "DATA_ORDER_MISMATCH"
    )


def test_a_better_candidate_is_asked_for_swapped_arms_and_told_what_agrees(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    facts = {"engine": "maxtext", "data_digest": "a"}
    verdict = judge_pair(make_run(context=facts), make_run(seed=2, gap=-0.2, context=facts))
    assert verdict.codes[0] == "BETTER_THAN_BASELINE"
    sentence = verdict.decision.deciding.sentence
    assert ("swapped" in sentence, "2 recorded facts agree" in sentence) == (True, True)


def test_equal_runs_of_one_recipe_are_not_called_two_recipes(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    equal = judge_pair(make_run(recipe="bf16"), make_run(recipe="bf16"))
    assert equal.codes[0] == "ARMS_IDENTICAL"
    assert "two recipes" not in equal.decision.deciding.sentence


@pytest.mark.parametrize("power", [0.2, 0.35, 0.5, 0.7])
def test_a_power_law_contradicts_no_stated_schedule(power: float, make_run: MakeRun) -> None:
    run = dataclasses.replace(
        make_run(),
        loss=2.0 + 6.0 * (AT + 1.0) ** -power + np.random.default_rng(0).normal(0, 0.05, PLAN),
    )
    assert not falls_as_before(run)


def test_a_loss_that_falls_as_before_a_decay_contradicts_that_its_rate_had_decayed(
    data: Path, reruns: tuple[Curve, ...]
) -> None:
    """A 15 B model's first 50,860 steps, far from its end, against seven finished runs of 124 M
    parameters.
    """
    runs = [
        run
        for run in read_runs(str(data / "megatron_15b_every_25th.npz"))
        if run.label != "megatron_0.8.0"
    ]
    policy = Policy(margin="1%", schedule="decayed")
    (verdict,) = parity.judge([runs[0]], {"c": [runs[1]]}, policy, assume_complete=True)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "AS_OF")
    assert not any(map(falls_as_before, reruns))
