"""Curves with a known fault must never pass."""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from tests.conftest import some_of, some_pairs

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def changed(run: Curve, loss: np.ndarray, steps: np.ndarray | None = None) -> Curve:
    return curve_from_arrays(run.steps if steps is None else steps, loss, label="changed")


def test_a_candidate_that_stopped_early_does_not_pass(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    short = curve_from_arrays(cand.steps[:1400], cand.loss[:1400])
    for options in ({"planned_steps": 2000}, {"assume_complete": True}, {}):
        assert judge_pair(make_run(), short, **options).codes[0] == "AS_OF"
        assert judge_pair(short, make_run(seed=3), planned_steps=2000).codes[0] == "AS_OF"


@pytest.mark.parametrize("share", [0.10, 0.25, 0.5, 0.75, 0.94])
def test_both_arms_cut_at_the_same_step_do_not_pass(
    share: float, reruns: tuple[Curve, ...]
) -> None:
    """A7, prefix honesty: neither with the plan nor without one, where nobody says that they are
    finished.
    """
    unstated = policy_from_mapping({"margin": "1%"})
    cut = [
        curve_from_arrays(run.steps[: int(1750 * share)], run.loss[: int(1750 * share)])
        for run in reruns
    ]
    for (base, cand), planned in some_pairs(itertools.permutations(cut, 2), (1750, None)):
        (verdict,) = judge([base], {"c": [cand]}, unstated, planned_steps=planned)
        assert verdict.verdict == "inconclusive"
        assert "AS_OF" in verdict.codes
        assert not verdict.document()["schedule"]["finished"]


def test_a_suspiciously_better_candidate_does_not_pass(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    verdict = judge_pair(make_run(), changed(cand, cand.loss * 0.9))
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "BETTER_THAN_BASELINE")


def test_another_data_order_does_not_pass(make_run: MakeRun, judge_pair: JudgePair) -> None:
    other_order = make_run(seed=2, batch_seed=99)
    assert judge_pair(make_run(), other_order).codes[0] == "DATA_ORDER_MISMATCH"
    assert (
        judge_pair(make_run(), changed(make_run(), np.roll(make_run().loss, 1))).verdict != "pass"
    )
    assert judge_pair(make_run(), make_run(seed=2)).verdict == "pass"


def test_declared_other_seeds_do_not_pass_as_a_pair(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    other = curve_from_arrays(make_run().steps, make_run(seed=2).loss, seed=5)
    assert judge_pair(make_run(), other).codes[0] == "DATA_ORDER_MISMATCH"


def test_the_same_recorded_data_turns_a_low_correlation_into_a_warning(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base = make_run(batch_sd=0.002, pair_sd=0.01, context={"data_digest": "d1"})
    cand = make_run(batch_sd=0.002, pair_sd=0.01, seed=2, context={"data_digest": "d1"})
    unproven = judge_pair(base, cand)
    assert unproven.verdict == "pass"
    assert "PAIRING_UNPROVEN" in unproven.codes
    bare = [curve_from_arrays(run.steps, run.loss) for run in (base, cand)]
    assert judge_pair(bare[0], bare[1]).codes[0] == "DATA_ORDER_MISMATCH"


def test_arms_declared_unpaired_pay_with_their_own_noise(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = policy_from_mapping({"schedule": "decayed", "margin": "3%", "pairing": "unpaired"})
    verdict = judge_pair(make_run(), make_run(seed=2, batch_seed=99), policy)
    paired = judge_pair(make_run(), make_run(seed=2))
    assert verdict.verdict == "pass"
    assert verdict.gap.within.value > 5 * paired.gap.within.value


@pytest.mark.parametrize("key", ["engine", "device_class", "data_digest", "code_revision"])
def test_arms_on_different_grounds_do_not_pass(
    key: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = make_run(context={key: "a"}), make_run(seed=2, context={key: "b"})
    verdict = judge_pair(base, cand)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "CONFOUNDED")
    assert verdict.document()["context_differs"] == [f"{key}: a | b"]
    allowed = policy_from_mapping({"schedule": "decayed", "margin": "1%", "may_differ": [key]})
    assert judge_pair(base, cand, allowed).verdict == "pass"
    assert judge_pair(base, make_run(seed=2, context={key: "a"})).verdict == "pass"


def test_a_variable_that_one_arm_alone_has_set_confounds(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    recorded, changed = (
        {"engine": "maxtext"},
        {"engine": "maxtext", "env.NVTE_NVFP4_DISABLE_RHT": "1"},
    )
    verdict = judge_pair(make_run(context=recorded), make_run(seed=2, context=changed))
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "CONFOUNDED")
    assert verdict.document()["context_differs"] == ["env.NVTE_NVFP4_DISABLE_RHT: 1 | not set"]
    assert (
        judge_pair(make_run(context=changed), make_run(seed=2, context=changed)).verdict == "pass"
    )
    assert judge_pair(make_run(), make_run(seed=2, context=changed)).verdict == "pass"


def test_the_sentence_of_a_confounded_pair_is_short_and_the_document_complete(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    left = {"data_digest": "a1" * 32, **{f"key{number}": "x" for number in range(4)}}
    right = {"data_digest": "b2" * 32, **{f"key{number}": "y" for number in range(4)}}
    document = judge_pair(make_run(context=left), make_run(seed=2, context=right)).document()
    assert document["reasons"][0]["sentence"] == (
        "The runs differ in more than the recipe: data_digest (run1: a1a1a1a1, cand: b2b2b2b2); "
        "key0 (run1: x, cand: y); key1 (run1: x, cand: y); and 2 more."
    )
    assert document["context_differs"][0] == f"data_digest: {'a1' * 32} | {'b2' * 32}"
    assert len(document["context_differs"]) == 5


def test_a_sample_of_a_run_does_not_pass(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand, rng = make_run(4000, seed=2), np.random.default_rng(0)
    for keep in (
        np.sort(rng.choice(4000, 1600, replace=False)),
        np.append(np.linspace(0, 3998, 1500).astype(int), 3999),
    ):
        verdict = judge_pair(make_run(4000), curve_from_arrays(cand.steps[keep], cand.loss[keep]))
        assert (verdict.verdict, "DOWNSAMPLED" in verdict.codes) == ("inconclusive", True)


def test_smoothing_that_reaches_through_the_window_does_not_pass(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    from scipy.signal import lfilter

    arms = [make_run(seed=seed) for seed in (1, 2)]
    for weight, code in ((0.6, "WITHIN_MARGIN"), (0.99, "SMOOTHED")):
        smooth = [
            changed(
                run, lfilter([1 - weight], [1, -weight], run.loss, zi=[weight * run.loss[0]])[0]
            )
            for run in arms
        ]
        verdict = judge_pair(smooth[0], smooth[1])
        assert verdict.codes[0] == code
        assert "SMOOTHED" in verdict.codes


def test_rounding_does_not_carry_a_gap_across_a_margin_it_cannot_resolve(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    coarse = [changed(run, np.round(run.loss, 1)) for run in (make_run(), make_run(seed=2))]
    verdict = judge_pair(coarse[0], coarse[1])
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "ROUNDED")
    fine = [changed(run, np.round(run.loss, 3)) for run in (make_run(), make_run(seed=2))]
    verdict = judge_pair(fine[0], fine[1])
    assert verdict.verdict == "pass"
    assert "ROUNDED" in verdict.codes


def test_a_growing_gap_does_not_pass(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand = make_run(seed=2)
    growing = changed(cand, cand.loss + np.linspace(0, 1, 2000) ** 4 * 0.030)
    verdict = judge_pair(make_run(), growing)
    assert verdict.verdict == "inconclusive"
    assert "GAP_GROWING" in verdict.codes


def test_an_unfinished_schedule_does_not_pass(judge_pair: JudgePair) -> None:
    steep = 4.0 - np.arange(2000) * 0.001
    base = curve_from_arrays(np.arange(2000), steep)
    verdict = judge_pair(base, changed(base, steep + 0.001), policy_from_mapping({"margin": "1%"}))
    assert (verdict.verdict, "AS_OF" in verdict.codes) == ("inconclusive", True)
    assert judge_pair(base, changed(base, steep + 0.001)).codes[0] == "WITHIN_MARGIN"


def test_spikes_of_the_candidate_alone_fail_and_of_both_are_unstable(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    def spiked(run: Curve, starts: range) -> Curve:
        loss = run.loss.copy()
        for start in starts:
            loss[start : start + 3] += 1.0
        return changed(run, loss)

    often = range(1610, 1990, 40)
    alone = judge_pair(make_run(), spiked(make_run(seed=2), often))
    assert (alone.verdict, alone.codes[0]) == ("fail", "CANDIDATE_UNSTABLE")
    both = judge_pair(spiked(make_run(), often), spiked(make_run(seed=2), range(1630, 1990, 40)))
    assert (both.verdict, both.codes[0]) == ("inconclusive", "UNSTABLE")
    few = judge_pair(make_run(), spiked(make_run(seed=2), range(1700, 1701)))
    assert few.verdict == "pass"
    assert few.document()["spikes"]["candidate"] == 1


def test_a_gap_that_only_masking_hides_does_not_pass(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2)
    loss = cand.loss.copy()
    loss[1700:1710] += 2.0
    verdict = judge_pair(make_run(), changed(cand, loss))
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "SPIKES_HIDE_GAP")


def test_one_run_listed_eight_times_changes_nothing(
    reruns: tuple[Curve, ...], one_percent: Policy
) -> None:
    """A13: neither the verdict nor the interval; only the warning is new."""
    policy = policy_from_mapping({"schedule": "decayed", "margin": "0.25%"})
    for base, cand in some_of([*itertools.permutations(reruns, 2)], 3, 0):
        once = judge([base], {"c": [cand]}, policy, planned_steps=1750)[0]
        often = judge(
            [base] * 8, {"c": [cand] * 8}, policy, planned_steps=1750, controls=[base] * 3
        )[0]
        assert (often.verdict, often.gap) == (once.verdict, once.gap)
        assert "REPLICATES_EQUAL" in often.codes


def test_assumed_noise_is_said_and_can_be_rejected(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    assert "RUN_NOISE_ASSUMED" in judge_pair(make_run(), make_run(seed=2)).codes
    strict = policy_from_mapping({"schedule": "decayed", "margin": "1%", "assumed_noise": "reject"})
    verdict = judge_pair(make_run(), make_run(seed=2), strict)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "RUN_NOISE_ASSUMED")
    runs = [make_run(seed=seed, offset_sd=0.003) for seed in range(1, 7)]
    twice = judge_pair(runs[:2], runs[2:4], strict)
    assert (twice.verdict, twice.codes[0]) == ("inconclusive", "RUN_NOISE_ASSUMED")
    thrice = judge_pair(runs[:3], runs[3:], strict)
    assert (thrice.verdict, thrice.codes) == ("pass", ("WITHIN_MARGIN", "SCHEDULE_STATED"))
    one_sided = judge_pair(runs[:5], runs[5:], strict)
    assert (one_sided.verdict, one_sided.codes[0]) == ("inconclusive", "RUN_NOISE_ASSUMED")
