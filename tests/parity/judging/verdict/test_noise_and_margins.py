"""What run-to-run noise, margins and control runs change in a whole verdict."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity.judging.curves.curve import Curve
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from parity.readers import read_runs
from tests.conftest import some

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def changed(run: Curve, loss: np.ndarray, steps: np.ndarray | None = None) -> Curve:
    return curve_from_arrays(run.steps if steps is None else steps, loss, label="changed")


def test_a5_without_the_between_run_term_reruns_look_different(
    reruns: tuple[Curve, ...], one_percent: Policy
) -> None:
    """The mutation test of finding 1: with the term no rerun is called different, without it most
    are.
    """
    with_term = without = 0
    for base, cand in itertools.permutations(reruns, 2):
        (verdict,) = judge([base], {"c": [cand]}, one_percent, planned_steps=1750)
        gap = verdict.gap
        assert gap is not None
        lo, hi = gap.bounds(0.95)
        with_term += not lo <= 0 <= hi
        without += abs(gap.mean) > 2.18 * gap.within.value
    assert with_term / 42 < 0.15
    assert without / 42 > 0.7


@pytest.mark.parametrize("margin", ["1.0%", "0.5%", "0.25%"])
def test_a2_real_reruns(margin: str, reruns: tuple[Curve, ...]) -> None:
    policy = policy_from_mapping({"schedule": "decayed", "margin": margin})
    states: Counter[str] = Counter()
    covered = 0
    for base, cand in itertools.permutations(reruns, 2):
        (verdict,) = judge([base], {"c": [cand]}, policy, planned_steps=1750)
        states[verdict.verdict] += 1
        lo, hi = verdict.gap.bounds(0.95)
        covered += lo <= 0 <= hi
    assert covered >= 38
    assert states["fail"] == 0
    if margin == "1.0%":
        assert states["pass"] == 42


def test_real_versions(data, one_percent: Policy) -> None:
    """Megatron 0.10.0 and 0.11.0 read the same data in the same order; 0.8.0 read another. Their
    losses fall as before a decay.
    """
    as_of_the_end = dataclasses.replace(one_percent, schedule="unstated", as_of="accept")
    runs = {
        run.label: dataclasses.replace(run, rounding="nearest")
        for run in read_runs(str(data / "megatron_15b_every_25th.npz"))
    }
    for base, cand in itertools.permutations(runs, 2):
        (verdict,) = judge([runs[base]], {cand: [runs[cand]]}, one_percent, assume_complete=True)
        if "megatron_0.8.0" in (base, cand):
            assert verdict.codes[0] == "DATA_ORDER_MISMATCH"
        else:
            assert verdict.codes[0] == "AS_OF"
            (as_of,) = judge(
                [runs[base]], {cand: [runs[cand]]}, as_of_the_end, assume_complete=True
            )
            assert as_of.verdict == "pass"


def test_a4_a_gap_of_exactly_the_margin_is_seldom_decided(
    reruns: tuple[Curve, ...], one_percent: Policy
) -> None:
    states: Counter[str] = Counter()
    double: Counter[str] = Counter()
    for base, cand in itertools.permutations(reruns, 2):
        level = base.loss[1400:].mean()
        for factor, counter in ((0.01, states), (0.02, double)):
            (verdict,) = judge(
                [base],
                {"c": [changed(cand, cand.loss + factor * level)]},
                one_percent,
                planned_steps=1750,
            )
            counter[verdict.verdict] += 1
    assert states["inconclusive"] >= 0.9 * 42
    assert double["fail"] == 42


def test_the_recipe_sets_the_assumed_noise(make_run: MakeRun, judge_pair: JudgePair) -> None:
    for recipe, share in (
        ("nvfp4", 0.00135),
        ("nvfp4_no_rht", 0.00135),
        ("nvfp4_no_sr", 0.00135),
        ("other:mine", 0.00135),
        ("mxfp8", 0.0009),
        (None, 0.00135),
    ):
        verdict = judge_pair(make_run(recipe="fp8_current"), make_run(seed=2, recipe=recipe))
        document = verdict.document()
        assert document["tau"]["candidate"]["rel"] == pytest.approx(share, rel=0.01)
        assert document["tau"]["baseline"]["rel"] == pytest.approx(0.0009, rel=0.01)


def test_one_nvfp4_run_passes_only_far_below_the_margin(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base = make_run(recipe="fp8_current")
    assert judge_pair(base, make_run(seed=2, recipe="nvfp4", gap=0.0)).verdict == "pass"
    assert (
        judge_pair(base, make_run(seed=2, recipe="nvfp4", gap=0.7 * 0.0269)).verdict
        == "inconclusive"
    )


def test_controls_measure_the_baseline_only(make_run: MakeRun, judge_pair: JudgePair) -> None:
    controls = [make_run(seed=seed, offset_sd=0.01) for seed in (5, 6, 7)]
    verdict = judge_pair(make_run(), make_run(seed=2), controls=controls)
    tau = verdict.document()["tau"]
    assert tau["baseline"]["source"] == "controls"
    assert tau["baseline"]["measured_df"] == 3
    assert tau["candidate"]["source"] == "prior"
    assert verdict.gap.mean == judge_pair(make_run(), make_run(seed=2)).gap.mean


def test_controls_that_are_no_reruns_are_left_out_by_name(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    other, short = (
        make_run(seed=5, batch_seed=99),
        curve_from_arrays(np.arange(100), np.ones(100), label="short"),
    )
    verdict = judge_pair(make_run(), make_run(seed=2), controls=[other, short])
    assert verdict.document()["tau"]["baseline"]["source"] == "prior"
    sentence = next(
        reason["sentence"]
        for reason in verdict.document()["reasons"]
        if reason["code"] == "CONTROLS_LEFT_OUT"
    )
    assert "run5: other data order" in sentence
    assert "short: 0 points" in sentence


@pytest.mark.parametrize(
    ("what", "base", "control"),
    [("recipe", "nvfp4", "fp8_current"), ("rounding", "stochastic", "nearest")],
)
def test_controls_of_another_arithmetic_are_left_out(
    make_run: MakeRun, judge_pair: JudgePair, what: str, base: str, control: str
) -> None:
    controls = [make_run(seed=seed, offset_sd=0.01, **{what: control}) for seed in (5, 6, 7)]
    document = judge_pair(make_run(**{what: base}), make_run(seed=2), controls=controls).document()
    assert document["tau"]["baseline"]["source"] == "prior"
    sentence = next(
        reason["sentence"]
        for reason in document["reasons"]
        if reason["code"] == "CONTROLS_LEFT_OUT"
    )
    assert f"{what} {control}" in sentence


def test_the_noise_floor_margin_needs_a_measured_baseline(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = policy_from_mapping({"schedule": "decayed", "profile": "noise-floor"})
    assert judge_pair(make_run(), make_run(seed=2), policy).codes[0] == "MARGIN_UNDETERMINED"
    controls = [make_run(seed=seed, offset_sd=0.004) for seed in range(5, 12)]
    verdict = judge_pair(make_run(offset_sd=0.004), make_run(seed=2), policy, controls=controls)
    measured = verdict.document()["tau"]["baseline"]["measured"]
    assert verdict.margin.nats == pytest.approx(3 * np.sqrt(2) * measured)


def test_the_smallest_margin_decides(make_run: MakeRun, judge_pair: JudgePair) -> None:
    both = judge_pair(
        make_run(),
        make_run(seed=2),
        policy_from_mapping({"schedule": "decayed", "profile": "nvfp4", "margin": "0.012 nats"}),
    )
    assert both.margin.nats == 0.012
    assert both.document()["profile"] == "nvfp4"


def test_two_sided_is_stricter(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand = make_run(seed=2, gap=-0.022)
    assert judge_pair(make_run(), cand).verdict == "pass"
    two_sided = policy_from_mapping({"schedule": "decayed", "margin": "1%", "two_sided": True})
    assert judge_pair(make_run(), cand, two_sided).codes[0] == "CI_STRADDLES_MARGIN"
    assert judge_pair(make_run(), make_run(seed=2), two_sided).verdict == "pass"


def test_the_chance_of_parity_is_that_of_one_look_and_of_both_margins(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = {"schedule": "decayed", "margin": "1%"}
    verdict = judge_pair(
        make_run(), make_run(seed=2, gap=-0.022), policy_from_mapping({**policy, "two_sided": True})
    )
    margin, gap = verdict.margin.nats, verdict.gap
    assert verdict.document()["chance_of_parity"] == pytest.approx(
        gap.chance_below(margin) - gap.chance_below(-margin)
    )
    near = make_run(), make_run(seed=2, gap=0.0195)
    once, often = (
        judge_pair(*near, policy_from_mapping({**policy, "looks": looks})).document()
        for looks in (1, 5)
    )
    assert once["chance_of_parity"] == often["chance_of_parity"]


def test_runs_that_cannot_be_compared_have_no_chance_of_parity(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    verdict = judge_pair(make_run(), make_run(seed=2, batch_seed=5))
    assert verdict.codes[0] == "DATA_ORDER_MISMATCH"
    assert "chance_of_parity" not in verdict.document()


def test_several_seeds_are_paired_gaps(make_run: MakeRun, judge_pair: JudgePair) -> None:
    base = [make_run(seed=1, batch_seed=s) for s in range(3)]
    cand = [make_run(seed=2, batch_seed=s) for s in range(3)]
    base, cand = (
        [curve_from_arrays(r.steps, r.loss, seed=s) for s, r in enumerate(arm)]
        for arm in (base, cand)
    )
    verdict = judge_pair(base, cand)
    assert verdict.verdict == "pass"
    assert verdict.document()["se_parts"]["seeds"] == 3
    partly = judge_pair(base[:2], cand[1:])
    assert partly.document()["se_parts"]["seeds"] == 1
    assert "RUNS_UNPAIRED" in partly.codes


def test_advice_adds_the_runs_that_decide(make_run: MakeRun, judge_pair: JudgePair) -> None:
    verdict = judge_pair(make_run(), make_run(seed=2, gap=0.0195))
    document = verdict.document()
    assert verdict.codes[0] == "CI_STRADDLES_MARGIN"
    add = document["advice"]["add_baseline_runs"], document["advice"]["add_candidate_runs"]
    assert sum(add) >= 1
    assert "more steps won't help" in document["advice"]["sentences"][0]
    assert document["advice"]["margin_to_pass"] == pytest.approx(document["gap"]["hi"])
    assert document["advice"]["minimum_detectable_gap"] == pytest.approx(
        verdict.margin.nats - verdict.gap.half_width(0.95)
    )


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a12_a_stochastic_candidate_is_covered(
    runs: int, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """A12 in short: run-to-run noise 0.07 % in the baseline, 0.12 % in the candidate, gap 0 and 2
    margins; the benchmark runs 400 each.
    """
    covered = wrong = 0
    level = 2.68
    for trial in range(some(60)):
        for gap, forbidden in ((0.0, "fail"), (0.02 * level, "pass")):
            first = 1000 * trial
            base = [
                make_run(1000, seed=first + k, offset_sd=0.0007 * level, recipe="fp8_current")
                for k in range(runs)
            ]
            cand = [
                make_run(
                    1000, seed=first + 500 + k, offset_sd=0.0012 * level, gap=gap, recipe="nvfp4"
                )
                for k in range(runs)
            ]
            verdict = judge_pair(base, cand)
            lo, hi = verdict.gap.bounds(0.95)
            covered += lo <= gap <= hi
            wrong += verdict.verdict == forbidden
    assert covered / (2 * some(60)) >= 0.93
    assert wrong == 0


def test_a9_a_million_steps_are_judged_as_few_are(one_percent: Policy) -> None:
    """How long that takes is measured in benchmarks/judge.py."""
    n, rng = 1_000_000, np.random.default_rng(0)
    base = curve_from_arrays(
        np.arange(n), 2.0 + 6.0 * (np.arange(n) + 1.0) ** -0.3 + rng.normal(0, 0.08, n)
    )
    cand = curve_from_arrays(base.steps, base.loss + rng.normal(0, 0.004, n))
    assert judge([base], {"c": [cand]}, one_percent, planned_steps=n)[0].verdict == "pass"


def test_a_failing_gap_is_not_said_to_be_hidden_by_spikes(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    cand = make_run(seed=2, gap=0.1)
    loss = cand.loss.copy()
    loss[1700:1703] += 2.0
    verdict = judge_pair(make_run(), changed(cand, loss))
    assert verdict.codes[0] == "GAP_EXCEEDS_MARGIN"
    assert "SPIKES_HIDE_GAP" not in verdict.codes
