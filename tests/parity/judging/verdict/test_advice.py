import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.judging.bundles.verification import verify
from parity.judging.bundles.write_bundle import bundle_bytes
from parity.judging.case import Case
from parity.judging.codes import BY_CODE, ReasonCode
from parity.judging.curves.curve import Curve
from parity.judging.multiplicity import Multiplicity
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.advice import (
    NO_LOOK_LEFT,
    SLOPE_NEEDED,
    named_change,
    predicted,
    runs_that_decide,
    sparse_log_that_decides,
    steps_that_decide,
)
from parity.judging.verdict.layer_statistics import worst_layers
from parity.judging.verdict.verdict import Verdict, judge
from tests.parity.judging.precedence.pair import Pair, kept, run

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
JudgePair = Callable[..., Verdict]


def test_after_a_fail_an_arms_name_says_nothing_about_its_recipe(
    make_run: MakeRun, one_percent: Policy
) -> None:
    """Named nvfp4_no_rht and without a recipe: general advice, which says so. Named run-b and
    stated as nvfp4: advice for nvfp4.
    """
    bad, nvfp4 = make_run(seed=2, gap=0.3), make_run(seed=2, gap=0.3, recipe="nvfp4")
    first, second = parity.judge(
        [make_run()], {"nvfp4_no_rht": [bad], "run-b": [nvfp4]}, one_percent, planned_steps=2000
    )
    unstated, stated = (verdict.document()["advice"]["sentences"] for verdict in (first, second))
    assert "Hadamard" not in " ".join(unstated)
    assert "first step" in unstated[0]
    assert "--recipe nvfp4_no_rht=RECIPE" in unstated[1]
    (blank,) = parity.judge([make_run()], {"my run": [bad]}, one_percent, planned_steps=2000)
    assert "--recipe 'my run=RECIPE'" in blank.document()["advice"]["sentences"][1]
    assert "mlp_only" in stated[0]
    assert "--recipe" not in " ".join(stated)


def test_added_runs_decide_and_fewer_do_not(make_run: MakeRun, judge_pair: JudgePair) -> None:
    verdict = judge_pair(make_run(), make_run(seed=2, gap=0.0205))
    m, statistics = verdict.measurements, verdict.measurements.statistics
    runs = runs_that_decide(m, statistics)
    assert runs is not None
    distance = statistics.margin.nats - statistics.interval.mean
    assert predicted(statistics.interval, statistics.noises, *runs, 1.0).half_width(0.95) < distance
    total = sum(runs)
    for base, cand in itertools.product(range(total), repeat=2):
        if base + cand == total - 1:
            assert (
                predicted(statistics.interval, statistics.noises, base, cand, 1.0).half_width(0.95)
                >= distance
            )


def test_steps_help_only_where_step_noise_dominates(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = (make_run(seed=seed, batch_sd=0.5, pair_sd=0.25) for seed in (1, 2))
    gap = float((cand.loss - base.loss)[1600:].mean())
    noisy = judge_pair(base, curve_from_arrays(cand.steps, cand.loss - gap + 0.010))
    assert noisy.codes[0] == "CI_STRADDLES_MARGIN"
    assert steps_that_decide(noisy.measurements, noisy.measurements.statistics) is not None
    assert "steps longer" in noisy.document()["advice"]["sentences"][0]
    runs = judge_pair(make_run(), make_run(seed=2, gap=0.0205))
    assert steps_that_decide(runs.measurements, runs.measurements.statistics) is None
    assert "more steps won't help" in runs.document()["advice"]["sentences"][0]


def test_a_sparse_log_is_told_to_log_every_step_where_that_decides(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Every 10th step of a pair with much batch noise; its honest twin, the whole log, decides, and
    a pair with little is not told so.
    """
    base, cand = (make_run(seed=seed, batch_sd=0.5, pair_sd=0.08) for seed in (1, 2))
    cand = curve_from_arrays(
        cand.steps, cand.loss - float((cand.loss - base.loss)[1600::10].mean()) + 0.004
    )
    sparse = judge_pair(
        *(curve_from_arrays(run.steps[::10], run.loss[::10]) for run in (base, cand))
    )
    assert sparse.codes[0] == "CI_STRADDLES_MARGIN"
    assert sparse_log_that_decides(sparse.measurements, sparse.measurements.statistics) == 10
    exists, trained = sparse.document()["advice"]["sentences"][:2]
    assert "every 10?" in exists
    assert "log every step instead of every 10" in trained
    dense = judge_pair(
        base,
        curve_from_arrays(
            cand.steps, cand.loss - float((cand.loss - base.loss)[1600:].mean()) + 0.004
        ),
    )
    assert dense.verdict == "pass"
    few = judge_pair(
        *(
            curve_from_arrays(run.steps[::10], run.loss[::10])
            for run in (make_run(), make_run(seed=2, gap=0.0205))
        )
    )
    assert sparse_log_that_decides(few.measurements, few.measurements.statistics) is None


def test_a_gap_at_the_margin_is_not_promised_a_decision(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = make_run(), make_run(seed=2)
    verdict = judge_pair(base, cand)
    at_margin = cand.loss + verdict.margin.nats - verdict.gap.mean
    advice = judge_pair(base, curve_from_arrays(cand.steps, at_margin)).document()["advice"]
    assert advice["add_candidate_runs"] is None
    assert "so near the margin" in advice["sentences"][0]


@pytest.mark.parametrize(
    ("recipe", "policy", "has", "lacks"),
    [
        ("nvfp4", None, "mlp_only", "Hadamard"),
        ("nvfp4", "mlp_only", "bf16 late", "mlp_only"),
        ("nvfp4_no_rht", "all_linears", "Hadamard", "first step"),
        ("mxfp8", None, "first step", "Hadamard"),
    ],
)
def test_after_a_fail_the_next_experiments(
    recipe: str, policy: str | None, has: str, lacks: str, make_run: MakeRun, judge_pair: JudgePair
) -> None:
    verdict = judge_pair(make_run(), make_run(seed=2, gap=0.3, recipe=recipe), layer_policy=policy)
    (sentence,) = verdict.document()["advice"]["sentences"]
    assert verdict.verdict == "fail"
    assert has in sentence
    assert lacks not in sentence


def test_the_arms_without_reruns_are_named(make_run: MakeRun, judge_pair: JudgePair) -> None:
    rejects = policy_from_mapping(
        {"margin": "1%", "schedule": "decayed", "assumed_noise": "reject"}
    )
    runs = [make_run(), make_run(seed=3)]
    verdict = judge_pair(runs, make_run(seed=2), rejects, baseline_name="FP8")
    assert verdict.document()["advice"]["sentences"][0].startswith("Add 3 replicates of cand (")


def test_hours_of_added_runs_come_from_step_times(make_run: MakeRun, judge_pair: JudgePair) -> None:
    cand = make_run(seed=2, gap=0.0205)
    timed = curve_from_arrays(cand.steps, cand.loss, columns={"step_seconds": np.full(2000, 3.6)})
    advice = judge_pair(make_run(), timed).document()["advice"]
    assert f"(about {2 * advice['add_candidate_runs']} hours of training)" in advice["sentences"][0]


def test_the_cheapest_way_to_decide_stands_first_with_its_device_hours(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """Where step noise dominates, longer runs decide: finished ones are trained again, on a longer
    schedule; others go on.
    """
    base, cand = (make_run(seed=seed, batch_sd=0.5, pair_sd=0.25) for seed in (1, 2))
    gap = float((cand.loss - base.loss)[1600:].mean())
    about = {"columns": {"step_seconds": np.full(2000, 3.6)}, "context": {"devices": "8"}}
    runs = [
        curve_from_arrays(base.steps, base.loss, **about),
        curve_from_arrays(cand.steps, cand.loss - gap + 0.010, **about),
    ]
    advice = judge_pair(*runs).document()["advice"]
    again = 2 * (2000 + advice["add_steps"]) * 8 / 1000
    assert (
        f"runs that are {advice['add_steps']:,} steps longer (about {again:.3g} device hours)"
        in advice["sentences"][0]
    )
    added = advice["add_baseline_runs"]
    assert added is None or (2 * added * 16 <= again) == advice["sentences"][0].startswith(
        "Ask a new question that has " + str(added)
    )
    unfinished = judge_pair(
        *runs, policy_from_mapping({"margin": "1 %", "as_of": "accept"})
    ).document()["advice"]
    assert unfinished["add_steps"] is None or "longer" not in unfinished["sentences"][0]


def test_a_job_is_advised_in_its_own_words(make_run: MakeRun) -> None:
    """Options of the command line help nobody whose runs are on a server."""

    def sentences(registered: bool, **about: object) -> str:
        base, cand = (
            make_run(),
            dataclasses.replace(make_run(seed=2), rounding=None, recipe="other:mine", **about),
        )
        looks = Multiplicity(registered=registered)
        policy = policy_from_mapping({"margin": "1 %", "assumed_noise": "reject"})
        (verdict,) = judge([base], {"cand": [cand]}, policy, planned_steps=2000, multiplicity=looks)
        return " ".join(verdict.advice.sentences)

    assert "--rounding cand=nearest" in sentences(False)
    assert "--schedule decayed" in sentences(False)
    assert "--" not in sentences(True).replace("--reason TEXT", "")  # of the operator's command
    assert "state it on the job's page (rounding of cand: nearest)" in sentences(True)
    assert "`schedule: decayed` under `policy:`" in sentences(True)
    assert "parity new-question JOB" in sentences(True)
    assert "new-question" not in sentences(False)


@pytest.mark.parametrize(
    "reason",
    [reason for reason in BY_CODE.values() if "--" in (reason.next_step or "")],
    ids=lambda one: one.code,
)
def test_every_step_that_names_an_option_has_words_for_jobs(reason: ReasonCode) -> None:
    # a job's runs have seeds; the step of AS_OF is made to fit
    if reason.code in {"SEEDS_UNSTATED", "AS_OF"}:
        return
    assert "--" not in (reason.next_for(job=True) or "--")
    assert reason.next_for(job=False) == reason.next_step


def test_a_margin_in_tokens_without_a_slope_asks_for_one_and_for_nothing_else(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    policy = {"margin": "5% tokens", "schedule": "decayed"}
    verdict = judge_pair(make_run(), make_run(seed=2), policy_from_mapping(policy))
    assert verdict.codes[0] == "MARGIN_UNDETERMINED"
    assert verdict.advice.sentences[0] == SLOPE_NEEDED
    assert (
        SLOPE_NEEDED
        not in judge_pair(
            make_run(), make_run(seed=2), policy_from_mapping({**policy, "margin": "1 %"})
        ).advice.sentences
    )


SNR = {
    ("block.3.mlp", "wgrad"): 9.14,
    ("block.3.mlp", "fprop"): 17.0,
    ("block.0.attn", "dgrad"): 12.0,
    ("block.1.mlp", "fprop"): 11.0,
    ("block.2.mlp", "fprop"): 16.0,
    ("block.4.mlp", "fprop"): float("nan"),
}


def test_the_worst_layers_are_named_once_each_lowest_first() -> None:
    (sentence,) = worst_layers(SNR)
    assert sentence.endswith(
        "block.3.mlp (wgrad, 9.1 dB), block.1.mlp (fprop, 11.0 dB), block.0.attn (dgrad, 12.0 dB)."
    )
    assert worst_layers({}) == ()
    assert worst_layers({("a", "fprop"): float("nan")}) == ()


def test_worst_layers_stand_after_a_fail_only_and_survive_the_bundle(
    make_run: MakeRun, judge_pair: JudgePair, tmp_path: Path
) -> None:
    failed = judge_pair(make_run(), make_run(seed=2, gap=0.1), layer_snr_db={"cand": SNR})
    assert "block.3.mlp (wgrad, 9.1 dB)" in failed.document()["advice"]["sentences"][1]
    assert "dB" not in " ".join(
        judge_pair(make_run(), make_run(seed=2), layer_snr_db={"cand": SNR}).advice.sentences
    )
    assert "dB" not in " ".join(judge_pair(make_run(), make_run(seed=2, gap=0.1)).advice.sentences)
    other = judge_pair(make_run(), make_run(seed=2, gap=0.1), layer_snr_db={"another": SNR})
    assert "dB" not in " ".join(other.advice.sentences)
    case = Case(
        baseline=[make_run()],
        candidates={"cand": [make_run(seed=2, gap=0.1)]},
        policy=policy_from_mapping({"schedule": "decayed", "margin": "1%"}),
        planned_steps=2000,
        layer_snr_db={"cand": SNR},
    )
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle_bytes(case, case.documents()))
    assert verify(str(path)).differences == ()


def test_added_runs_are_judged_at_the_next_look(make_run: MakeRun) -> None:
    """The runs that would decide are those at the level of the look to come; without one left the
    advice says so.
    """
    base, candidate = [make_run()], {"c": [make_run(seed=2, gap=0.0205)]}
    runs = {}
    for looks, look in ((1, 1), (2, 1), (2, 2), (4, 1)):
        policy, shared = (
            Policy(schedule="decayed", margin="1%", looks=looks),
            Multiplicity(look=look, looks=looks),
        )
        (verdict,) = parity.judge(base, candidate, policy, planned_steps=2000, multiplicity=shared)
        assert verdict.codes[0] == "CI_STRADDLES_MARGIN"
        runs[looks, look] = (verdict.advice.add_baseline_runs or 0) + (
            verdict.advice.add_candidate_runs or 0
        )
        assert (NO_LOOK_LEFT in verdict.advice.sentences) == (look == looks)
        assert any(
            f"(look {look + 1} of {looks})" in sentence for sentence in verdict.advice.sentences
        ) == (look < looks)
    assert 0 < runs[1, 1] <= runs[2, 1] <= runs[4, 1]


def test_what_was_stated_already_is_not_asked_for(make_run: MakeRun, judge_pair: JudgePair) -> None:
    unstated = policy_from_mapping({"margin": "1%"})
    planned, unplanned = (
        judge_pair(make_run(), make_run(seed=2), unstated, planned_steps=steps)
        for steps in (2000, None)
    )
    short = judge_pair(make_run(), make_run(seed=2), unstated, planned_steps=4000)
    said = [" ".join(verdict.advice.sentences) for verdict in (planned, unplanned, short)]
    assert [verdict.codes[0] for verdict in (planned, unplanned, short)] == ["AS_OF"] * 3
    assert ["--schedule decayed" in words for words in said] == [True, True, False]
    assert "to its planned last step, 3,999" in said[2]


def test_logs_with_other_intervals_are_told_to_log_the_same_steps(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    base, cand = (
        curve_from_arrays(run.steps[::every], run.loss[::every])
        for run, every in ((make_run(), 10), (make_run(seed=2), 25))
    )
    verdict = judge_pair(base, cand)
    assert verdict.codes[0] == "TOO_FEW_STEPS"
    assert "their intervals are 10 and 25 steps" in " ".join(verdict.advice.sentences)
    assert "Log the loss more often" not in " ".join(verdict.advice.sentences)


def test_noise_is_to_be_measured_where_that_decides_and_neither_after_a_pass_nor_before_the_end(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    """All three assume it. A pass needs nothing but the size on which the assumption rests, and a
    training that is not finished has something else to do first.
    """
    passed, decides, unfinished = (
        judge_pair(make_run(), make_run(seed=2), policy_from_mapping({"margin": "1%", **extra}))
        for extra in (
            {"schedule": "decayed"},
            {"schedule": "decayed", "assumed_noise": "reject"},
            {"schedule": "unstated"},
        )
    )
    verdicts = (passed, decides, unfinished)
    assert [one.codes[0] for one in verdicts] == ["WITHIN_MARGIN", "RUN_NOISE_ASSUMED", "AS_OF"]
    assert all("RUN_NOISE_ASSUMED" in one.codes for one in verdicts)
    replicates = ["replicate" in " ".join(one.advice.sentences) for one in verdicts]
    assert replicates == [False, True, False]
    (size,) = passed.advice.sentences
    assert "--parameters" in size


def test_after_a_pass_with_its_size_on_record_nothing_is_left_to_do(
    make_run: MakeRun, judge_pair: JudgePair
) -> None:
    runs = [make_run(seed=seed, context={"parameters": "8e9"}) for seed in (1, 2)]
    verdict = judge_pair(*runs)
    assert verdict.verdict == "pass"
    assert verdict.advice.sentences == ()


def _fail(make_run: MakeRun, recipes: tuple[str | None, str | None], **about: object) -> Verdict:
    """A candidate that is 0.1 nats worse, with what is recorded of it alone."""
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    (verdict,) = judge(
        [make_run(recipe=recipes[0])],
        {"cand": [make_run(seed=2, gap=0.1, recipe=recipes[1], **about)]},
        policy,
        planned_steps=2000,
        baseline_name="base",
    )
    assert verdict.verdict == "fail"
    return verdict


@pytest.mark.parametrize(
    ("recipes", "layers"),
    [
        (("bf16", "nvfp4"), True),
        (("bf16", "mxfp8"), True),
        (("nvfp4", "nvfp4"), False),
        (("bf16", "bf16"), False),
        (("fp8", "bf16"), False),
        (("bf16", None), False),
    ],
)
def test_layers_are_named_only_where_a_quantized_candidate_fails_against_another_recipe(
    recipes: tuple[str | None, str | None], layers: bool, make_run: MakeRun
) -> None:
    verdict = _fail(make_run, recipes)
    advice = " ".join(verdict.advice.sentences)
    assert ("blocks" in advice) is layers
    assert ("weights at the first step" in advice) is (not layers and recipes[1] is not None)
    assert (named_change(verdict.document(), None) is not None) is layers


def test_another_cause_on_record_is_the_step_and_no_layer_is_blamed(make_run: MakeRun) -> None:
    """Another driver explains no gap of this size, so it fails; the step is about it. Its twin
    ran on one.
    """
    confounded = _fail(make_run, ("bf16", "nvfp4"), context={"version.driver": "580"})
    assert "CONFOUNDED" not in confounded.codes  # the baseline recorded nothing
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    base = make_run(recipe="bf16", context={"version.driver": "570"})

    def judged(driver: str) -> Verdict:
        cand = make_run(seed=2, gap=0.1, recipe="nvfp4", context={"version.driver": driver})
        (verdict,) = judge([base], {"cand": [cand]}, policy, planned_steps=2000)
        return verdict

    other, same = judged("580"), judged("570")
    assert (other.verdict, same.verdict) == ("fail", "fail")
    assert "CONFOUNDED" in other.codes
    assert "blocks" not in " ".join(other.advice.sentences)
    assert other.advice.sentences == (BY_CODE["CONFOUNDED"].next_step,)
    assert "blocks" in " ".join(same.advice.sentences)


@pytest.mark.parametrize(("recipe", "layers"), [("nvfp4", True), ("bf16", False), (None, False)])
def test_after_nan_the_step_is_about_the_first_of_them(
    recipe: str | None, layers: bool, make_run: MakeRun
) -> None:
    cand = make_run(seed=2, recipe=recipe)
    loss = cand.loss.copy()
    loss[-30:] = np.nan
    cand = dataclasses.replace(cand, loss=loss)
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    (verdict,) = judge([make_run(recipe="fp8")], {"cand": [cand]}, policy, planned_steps=2000)
    assert verdict.codes[0] == "NONFINITE_CAND"
    advice = " ".join(verdict.advice.sentences)
    assert ("layers that overflow" in advice) is layers
    assert "last blocks" not in advice
    assert named_change(verdict.document(), None) is None


def test_a_gain_blames_nothing_that_was_not_measured(make_run: MakeRun) -> None:
    """Every recorded fact agrees: what is left is a swap, or chance, which a rerun tells."""
    facts = {"engine": "maxtext", "device_class": "h100"}
    policy = policy_from_mapping({"margin": "1%", "schedule": "decayed"})
    base, cand = make_run(context=facts), make_run(seed=2, gap=-0.06, context=facts)
    (verdict,) = judge([base], {"cand": [cand]}, policy, planned_steps=2000)
    assert verdict.codes[0] == "BETTER_THAN_BASELINE"
    said = " ".join([verdict.decision.deciding.sentence, *verdict.advice.sentences])
    assert "All 2 recorded facts agree" in said
    assert "changed" not in said
    assert "rerun" in said


def test_after_a_confounded_gap_the_next_step_names_what_differs_and_no_sentence_contradicts_it(
    make_run: MakeRun, one_percent: Policy
) -> None:
    arms = [
        make_run(seed=seed, gap=gap, context={"learning_rate": rate})
        for seed, gap, rate in ((1, 0.0, "6e-4"), (2, 0.06, "3e-4"))
    ]
    (verdict,) = judge(arms[:1], {"cand": arms[1:]}, one_percent, planned_steps=2000)
    document = verdict.document()
    assert document["codes"][:3] == ["CONFOUNDED", "GAP_EXCEEDS_MARGIN", "ENDS_ABOVE_MARGIN"]
    assert "same learning_rate (run1: 6e-4, cand: 3e-4)" in document["advice"]["sentences"][0]
    ends = next(one for one in document["reasons"] if one["code"] == "ENDS_ABOVE_MARGIN")
    assert "although" not in ends["sentence"]


def test_what_differs_between_runs_of_one_arm_is_named_without_an_arm(
    make_run: MakeRun, one_percent: Policy
) -> None:
    base, cand = (
        [
            make_run(seed=first + place, gap=gap, context={"engine": engine}, replicate=place)
            for place, engine in enumerate(("a", "b"))
        ]
        for first, gap in ((1, 0.0), (5, 0.0))
    )
    (verdict,) = judge(base, {"cand": cand}, one_percent, planned_steps=2000)
    assert verdict.codes[0] == "CONFOUNDED"
    assert "same engine: a | b," in verdict.advice.sentences[0]


def test_full_runs_narrow_an_interval_more_than_short_reruns_for_their_cost() -> None:
    """The shares of docs/job-file.md, for which the advice names no short reruns."""

    def width(full: tuple[int, int], short: int) -> float:
        pair = Pair()
        for arm, number, first in ((pair.base, full[0], 20), (pair.cand, full[1], 40)):
            more = [run(first + place) for place in range(1, number + 1)]
            arm += [dataclasses.replace(one, replicate=place) for place, one in enumerate(more, 1)]
        if short:
            pair.options["short_reruns"] = {
                name: [kept(run(first + place), slice(0, 400)) for place in range(short)]
                for name, first in zip(pair.names, (60, 80), strict=True)
            }
        lo, hi = pair.measured().bounds or (0.0, 0.0)
        return hi - lo

    now = width((0, 0), 0)
    assert width((1, 1), 0) / now == pytest.approx(0.57, abs=0.005)
    assert width((0, 0), 4) / now == pytest.approx(0.68, abs=0.005)
    assert width((0, 1), 0) / now == pytest.approx(0.81, abs=0.005)
    assert width((0, 0), 1) / now == pytest.approx(0.83, abs=0.005)


@pytest.mark.parametrize(
    ("replicates", "short", "enough"), [(1, 2, True), (1, 1, False), (0, 7, False), (0, 8, True)]
)
def test_short_reruns_that_a_policy_without_assumed_noise_takes(
    replicates: int, short: int, enough: bool
) -> None:
    """In each arm: with a replicate two stand for the rest, without one eight for all."""
    pair = Pair()
    pair.policy["assumed_noise"] = "reject"
    for arm, first in ((pair.base, 20), (pair.cand, 40)):
        arm += [
            dataclasses.replace(run(first + place), replicate=place)
            for place in range(1, replicates + 1)
        ]
    pair.options["short_reruns"] = {
        name: [kept(run(first + place), slice(0, 400)) for place in range(short)]
        for name, first in zip(pair.names, (60, 80), strict=True)
    }
    statistics = pair.measured().statistics
    assert statistics is not None
    assert (not statistics.noise_is_assumed) is enough
