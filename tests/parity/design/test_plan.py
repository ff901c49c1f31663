"""What a design can decide, as a whole: answer, cheapest design, budget."""

import dataclasses
from functools import partial

import numpy as np
import pytest

import parity
from parity.design import plan_words as sentences
from parity.design.budget import parse_budget
from parity.design.experiment import Design, run_steps
from parity.design.plan import NATS, SHARE, plan
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.noise.noise_table import ANY_DECODER
from parity.judging.noise.public_table import public_noise_table
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

ONE = policy_from_mapping({"margin": "1%"})
NEAREST = {"baseline_rounding": "nearest", "candidate_rounding": "nearest"}
TRACK3 = "modded-nanogpt-124M/track3"
BOTH = NoiseFamilies(public_noise_table(), {"baseline": TRACK3, "candidate": TRACK3})


def test_where_the_policy_forbids_a_pass_its_chance_is_0() -> None:
    """Few points forbid a pass, very few a fail too; so does assumed noise where the policy rejects
    it.
    """
    few = plan(
        Design(level=3.34, planned_steps=50, baseline_runs=8, candidate_runs=8, **NEAREST), ONE
    )
    assert [power.pass_chance for power in few.power] == [0.0] * 5
    assert few.power[-1].fail_chance > 0.9
    assert few.no_pass in sentences.headline(few)
    very_few = plan(
        Design(level=3.34, planned_steps=30, baseline_runs=8, candidate_runs=8, **NEAREST), ONE
    )
    assert [power.inconclusive_chance for power in very_few.power] == [1.0] * 5
    reject = policy_from_mapping({"margin": "1%", "assumed_noise": "reject"})
    outlook = plan(Design(level=3.34, planned_steps=2000, baseline_runs=5, **NEAREST), reject)
    assert (outlook.power[0].pass_chance, outlook.decides, bool(outlook.no_pass)) == (
        0.0,
        False,
        True,
    )
    assert outlook.cheapest is not None
    best = outlook.cheapest
    assert (best.baseline_runs, best.candidate_runs, best.short_reruns, best.stop_at) == (
        2,
        2,
        2,
        0.4,
    )
    assert plan(best, reject).decides
    assert run_steps(best) < 6 * 2000
    six = plan(dataclasses.replace(outlook.design, baseline_runs=3, candidate_runs=3), reject)
    assert (six.decides, six.early_stops.replicates_half_width < six.early_stops.half_width) == (
        True,
        True,
    )


@pytest.mark.parametrize("recipe", ["mxfp8", "nvfp4"])
def test_full_runs_beat_reruns_that_stop_early_at_equal_cost_and_the_plan_says_so(
    recipe: str,
) -> None:
    design = Design(
        planned_steps=10_000, baseline_recipe="fp8", candidate_recipe=recipe, short_reruns=3
    )
    for outlook in (plan(design, ONE), plan(dataclasses.replace(design, short_reruns=0), ONE)):
        both = outlook.early_stops
        assert (both.design.short_reruns, both.replicates.short_reruns) == (3, 0)
        assert run_steps(both.replicates) <= run_steps(both.design) == 50_000
        assert both.replicates_half_width < both.half_width
        assert "do not pay" in sentences.early_stops(outlook)
        assert all(
            sentences.amount(outlook, half) in sentences.early_stops(outlook)
            for half in (both.half_width, both.replicates_half_width)
        )
    assert plan(design, ONE).half_width == pytest.approx(plan(design, ONE).early_stops.half_width)


def test_reruns_that_stop_early_are_offered_where_they_cost_less_than_full_runs_that_decide() -> (
    None
):
    """Below a whole further run per pair, for noise that is known on few degrees of freedom."""
    general = NoiseFamilies(
        public_noise_table(), {"baseline": ANY_DECODER, "candidate": ANY_DECODER}
    )
    pair = Design(planned_steps=10_000, **NEAREST)
    policy = policy_from_mapping({"margin": "0.22%"})
    (outlook, more) = (
        plan(pair, policy, general),
        plan(dataclasses.replace(pair, candidate_runs=2), policy, general),
    )
    assert (outlook.decides, more.decides) == (False, True)
    assert outlook.cheapest is not None
    assert (outlook.cheapest.short_reruns, run_steps(outlook.cheapest)) == (1, 28_000)
    cheapest = plan(outlook.cheapest, policy, general)
    assert cheapest.decides
    for about in (outlook, cheapest):
        words = sentences.early_stops(about)
        assert ("1 rerun per arm that stops at 40 % pays" in words, "not pay" in words) == (
            True,
            False,
        ), "the plan that is advised is not called a waste"
    inside = plan(pair, policy, general, parse_budget("29000 steps"))
    assert (inside.decides, inside.design) == (True, outlook.cheapest)


def test_a_family_counts_as_data_where_assumed_noise_is_rejected() -> None:
    reject = policy_from_mapping({"margin": "1%", "assumed_noise": "reject"})
    outlook = plan(Design(level=3.28, planned_steps=2000, **NEAREST), reject, BOTH)
    assert (outlook.decides, outlook.noise_basis, outlook.no_pass) == (True, "borrowed", "")


def test_one_nvfp4_run_with_the_assumed_noise_is_not_blessed_at_half_a_percent() -> None:
    half = policy_from_mapping({"margin": "0.5%"})
    outlook = plan(
        Design(
            level=3.9, planned_steps=10_000, baseline_recipe="fp8_current", candidate_recipe="nvfp4"
        ),
        half,
    )
    assert not outlook.decides
    assert outlook.largest_gap_that_passes / 3.9 == pytest.approx(0.0005, abs=1e-4)
    assert f" {100 * outlook.power[0].pass_chance:.0f} %" in sentences.headline(outlook)
    assert outlook.cheapest is not None
    assert plan(outlook.cheapest, half).decides


def test_deterministic_recipes_decide_at_one_percent_with_one_run() -> None:
    outlook = plan(Design(level=3.34, planned_steps=1530, **NEAREST), ONE)
    assert outlook.decides
    assert outlook.cheapest == outlook.design
    assert outlook.half_width / 3.34 == pytest.approx(0.00354, rel=0.02)


def test_borrowed_noise_decides_what_the_assumed_one_cannot() -> None:
    design, quarter = (
        Design(level=3.28, planned_steps=5000, **NEAREST),
        policy_from_mapping({"margin": "0.25%"}),
    )
    assert plan(design, quarter).power[0].pass_chance < 0.35
    borrowed = plan(design, quarter, BOTH)
    assert borrowed.power[0].pass_chance > 0.95
    assert [(arm.basis, arm.family_unused) for arm in borrowed.run_noise] == [
        (f"borrowed from {TRACK3}", "")
    ] * 2


def test_a_family_that_is_not_usable_leaves_the_assumed_noise_and_its_reason() -> None:
    """An arm that rounds stochastically, and a loss that is far from the family's."""
    design = Design(
        level=3.28, planned_steps=5000, baseline_rounding="nearest", candidate_recipe="nvfp4"
    )
    baseline, candidate = plan(design, ONE, BOTH).run_noise
    assert (baseline.family_unused, candidate.basis) == ("", "assumed")
    assert "stochastic" in candidate.family_unused
    far = plan(Design(level=2.0, planned_steps=5000, **NEAREST), ONE, BOTH)
    assert all(
        arm.basis == "assumed" and "more than a tenth away" in arm.family_unused
        for arm in far.run_noise
    )
    assert far.half_width == plan(Design(level=2.0, planned_steps=5000, **NEAREST), ONE).half_width


def test_a_model_of_no_family_is_planned_as_the_judge_would_take_it() -> None:
    any_decoder = NoiseFamilies(
        public_noise_table(), {"baseline": ANY_DECODER, "candidate": ANY_DECODER}
    )
    outlook = plan(
        Design(planned_steps=5000, baseline_recipe="fp8", candidate_recipe="nvfp4"),
        ONE,
        any_decoder,
    )
    assert (outlook.unit, outlook.noise_basis) == (SHARE, "assumed")
    baseline, candidate = outlook.run_noise
    assert candidate.share == pytest.approx(1.5 * baseline.share)
    assert outlook.half_width == pytest.approx(0.0025, abs=2e-4)
    assert "finish their schedule" in sentences.noise(outlook)
    assert ANY_DECODER in sentences.noise(outlook)


def test_noise_that_the_policy_declares_counts_more_than_a_family() -> None:
    declared = policy_from_mapping(
        {"margin": "1%", "baseline_run_noise": "0.2%", "run_noise_evidence": "6 reruns"}
    )
    baseline, candidate = plan(
        Design(level=3.28, planned_steps=5000, **NEAREST), declared, BOTH
    ).run_noise
    assert (baseline.basis, candidate.basis) == (
        "declared by the policy",
        f"borrowed from {TRACK3}",
    )
    assert baseline.share == pytest.approx(0.002)


def test_without_a_loss_everything_is_a_share_of_it() -> None:
    shares, nats = (
        plan(Design(planned_steps=5000, **NEAREST), ONE),
        plan(Design(level=2.5, planned_steps=5000, **NEAREST), ONE),
    )
    assert (shares.unit, nats.unit, shares.margin) == (SHARE, NATS, 0.01)
    assert shares.half_width == pytest.approx(nats.half_width / 2.5)
    assert [power.pass_chance for power in shares.power] == pytest.approx(
        [power.pass_chance for power in nats.power]
    )
    assert "nats" not in sentences.headline(shares) + sentences.errors(shares)


def test_without_a_loss_that_of_the_family_is_taken() -> None:
    outlook = plan(Design(planned_steps=5000, **NEAREST), ONE, BOTH)
    assert outlook.unit == NATS
    assert outlook.design.level == pytest.approx(3.28, abs=0.02)


@pytest.mark.parametrize(
    ("design", "policy"),
    [
        ({}, {"margin": "0.01 nats"}),
        ({}, {"profile": "bf16-bar"}),
        ({"pair_sd": 0.004}, {"margin": "1%"}),
    ],
)
def test_nats_without_a_loss_are_refused(design: dict[str, float], policy: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="level is missing; expected"):
        plan(Design(planned_steps=5000, **design), policy_from_mapping(policy))  # type: ignore[arg-type]


def test_an_impossible_margin_is_refused_with_what_would_help() -> None:
    outlook = plan(
        Design(level=3.0, planned_steps=5000, candidate_recipe="nvfp4"),
        policy_from_mapping({"margin": "0.05%"}),
    )
    assert not outlook.decides
    assert outlook.cheapest is None
    assert 0.0 < outlook.power[0].pass_chance < 0.5
    assert f" {100 * outlook.power[0].pass_chance:.0f} %" in sentences.headline(outlook)
    assert outlook.no_pass == ""
    assert "wider margin" in sentences.advice(outlook)


def test_the_smallest_margin_is_the_one_that_is_decided() -> None:
    outlook = plan(Design(planned_steps=5000, candidate_recipe="nvfp4"), ONE)
    assert outlook.smallest_margin is not None
    for factor, decides in ((1.01, True), (0.99, False)):
        policy = policy_from_mapping({"margin": f"{100 * factor * outlook.smallest_margin}%"})
        assert plan(Design(planned_steps=5000, candidate_recipe="nvfp4"), policy).decides is decides


def test_chances_agree_with_the_judge_on_simulated_reruns() -> None:
    """Half a margin at K = 1: the plan's chance of a pass against 150 judged pairs with the assumed
    run-to-run noise.
    """
    expected = (
        plan(
            Design(level=3.34, planned_steps=1000, pair_sd=0.0038, **NEAREST),
            policy_from_mapping({"margin": "0.6%"}),
        )
        .power[2]
        .pass_chance
    )
    rng, policy, passes = (
        np.random.default_rng(0),
        policy_from_mapping({"schedule": "decayed", "margin": "0.6%"}),
        0,
    )
    law = 3.34 - 8 / np.sqrt(1000) + 8 / np.sqrt(np.arange(1, 1001))
    for _ in range(150):
        batch = rng.normal(0, 0.08, 1000)
        base, cand = (
            law + batch + 0.0009 * 3.34 * rng.normal() + rng.normal(0, 0.0038 / np.sqrt(2), 1000)
            for _ in range(2)
        )
        arms = [
            curve_from_arrays(np.arange(1000), loss)
            for loss in (base, cand + 0.003 * base[800:].mean())
        ]
        passes += (
            judge([arms[0]], {"c": [arms[1]]}, policy, planned_steps=1000)[0].verdict == "pass"
        )
    assert passes / 150 == pytest.approx(expected, abs=0.10)


def test_a_margin_that_the_runs_measure_cannot_be_planned_with() -> None:
    with pytest.raises(ValueError, match="noise-floor margin"):
        plan(Design(level=3.0, planned_steps=1000), policy_from_mapping({"profile": "noise-floor"}))


def test_chances_add_up() -> None:
    outlook = plan(Design(level=3.0, planned_steps=1000), ONE)
    assert [power.gap_in_margins for power in outlook.power] == [0.0, 0.25, 0.5, 1.0, 2.0]
    for power in outlook.power:
        assert power.pass_chance + power.inconclusive_chance + power.fail_chance == pytest.approx(
            1.0
        )


def test_a_window_of_too_few_steps_needs_a_longer_run() -> None:
    """50 steps leave 10 in the window and 12 are needed: 60 steps are the least, whatever the
    runs.
    """
    outlook = plan(
        Design(
            level=3.34,
            planned_steps=50,
            step_seconds=3.6,
            baseline_runs=8,
            candidate_runs=8,
            **NEAREST,
        ),
        ONE,
    )
    assert not outlook.decides
    assert "its window holds 10 logged steps and 12 are needed" in sentences.headline(outlook)
    assert outlook.cheapest is not None
    assert outlook.cheapest.planned_steps >= 60


def test_a_run_that_is_logged_every_tenth_step_has_a_tenth_of_the_points() -> None:
    dense, thin, too_thin = (
        plan(Design(level=3.34, planned_steps=1000, log_every=every, **NEAREST), ONE)
        for every in (1, 10, 20)
    )
    assert dense.within_se < thin.within_se
    assert (dense.decides, thin.decides, too_thin.decides) == (True, True, False)
    assert (
        "its window holds 10 logged steps (every 20 steps) and 12 are needed"
        in sentences.headline(too_thin)
    )
    assert too_thin.cheapest is not None
    assert too_thin.cheapest.planned_steps == 1200


def test_more_steps_shrink_only_the_within_pair_term() -> None:
    short, long = (plan(Design(level=3.0, planned_steps=steps), ONE) for steps in (1000, 4000))
    assert long.run_se == short.run_se
    assert long.within_se == pytest.approx(short.within_se / 2.0)
    assert "More steps shrink only the within-pair error" in sentences.errors(long)


def test_a_design_with_runs_to_spare_is_told_the_cheaper_one() -> None:
    outlook = plan(
        Design(level=3.34, planned_steps=2000, baseline_runs=4, candidate_runs=4, **NEAREST), ONE
    )
    assert outlook.decides
    assert (
        "A cheaper one decides too: 1 baseline run and 1 candidate run of 2,000 steps"
        in sentences.advice(outlook)
    )


def test_a_budget_that_is_enough_gives_the_cheapest_design() -> None:
    design = Design(
        planned_steps=10_000,
        baseline_recipe="fp8",
        candidate_recipe="nvfp4",
        step_seconds=2.0,
        devices=8,
    )
    outlook = plan(design, ONE, budget=parse_budget("200 hours"))
    assert outlook.decides
    assert outlook.design == outlook.cheapest
    assert outlook.gpu_hours is not None
    assert outlook.gpu_hours <= 200.0
    assert sentences.headline(outlook).startswith("200 device hours decide")


def test_a_budget_that_is_too_small_gives_the_best_inside_and_what_is_missing() -> None:
    half = policy_from_mapping({"margin": "0.5%"})
    design = Design(planned_steps=10_000, baseline_recipe="fp8", candidate_recipe="nvfp4")
    outlook = plan(design, half, budget=parse_budget("20000 steps"))
    assert (outlook.decides, outlook.run_steps) == (False, 20_000)
    assert (outlook.design.baseline_runs, outlook.design.candidate_runs) == (1, 1)
    assert outlook.cheapest is not None
    assert run_steps(outlook.cheapest) > 20_000
    assert "candidate run" in sentences.advice(outlook)


def test_the_line_before_a_job_has_its_condition() -> None:
    outlook = plan(
        Design(planned_steps=10_000, baseline_recipe="fp8", candidate_recipe="nvfp4"),
        policy_from_mapping({"margin": "0.5%"}),
    )
    line = sentences.one_line(outlook)
    assert f" {100 * outlook.pass_chance:.0f} %" in line
    assert "margin 0.5 %, one run per arm, assumed run-to-run noise 0.14 %" in line
    few = sentences.one_line(plan(Design(planned_steps=50), ONE))
    assert "cannot pass" in few
    assert "12 are needed" in few


def test_the_margin_that_is_decided_never_reads_like_the_one_that_is_not() -> None:
    outlook = plan(
        Design(
            planned_steps=10_000, baseline_recipe="fp8", candidate_recipe="nvfp4", short_reruns=3
        ),
        policy_from_mapping({"margin": "0.54%"}),
    )
    assert outlook.smallest_margin is not None
    assert sentences.share_words(outlook, outlook.smallest_margin) == sentences.margin_words(
        outlook
    )
    assert "cannot decide a margin of" in sentences.headline(outlook)
    assert sentences.headline(outlook).endswith("They decide a margin of 0.542 %.")
