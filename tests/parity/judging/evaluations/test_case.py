"""Comparisons of evaluations as a whole: what decides, what is said, and what must not pass."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.evaluations.document_types import EvaluationDocument
from parity.judging.evaluations.run_times import RunTimes
from parity.judging.policy import policy_from_mapping
from tests.conftest import some

STEPS = np.arange(1, 21) * 500
FINISHED = 3.0 + 2.0 * np.exp(-STEPS / 800.0)
FALLING = 4.2 - STEPS / 12_000.0


def arm(
    seed: int,
    runs: int,
    gap: float = 0.0,
    law: np.ndarray = FINISHED,
    sd: float = 0.004,
    **extra: Any,
) -> list[Curve]:
    """Runs whose offsets and evaluation noise are drawn, sd nats between runs."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(runs):
        loss = law + gap + rng.normal(0, sd) + rng.normal(0, sd / 4, len(law))
        made.append(curve_from_arrays(STEPS, loss, label=f"{seed}-{number}", seed=number, **extra))
    return made


def judged(
    baseline: list[Curve],
    candidate: list[Curve],
    margin: str = "1.0%",
    policy: dict[str, Any] | None = None,
    **asked: Any,
) -> EvaluationDocument:
    """The document of one comparison; the owner states that the learning rate had decayed."""
    options = {"planned_steps": 10_000, **asked}
    case = EvaluationCase(
        baseline=baseline,
        candidates={"nvfp4": candidate},
        policy=policy_from_mapping({"margin": margin, "schedule": "decayed", **(policy or {})}),
        baseline_name="fp8",
        **options,
    )
    return case.documents()[0]


def on_systems(runs: list[Curve], systems: str, key: str = "system") -> list[Curve]:
    """The runs, each with the next letter as its system."""
    return [
        dataclasses.replace(run, context={key: systems[number % len(systems)]})
        for number, run in enumerate(runs)
    ]


@pytest.mark.parametrize(
    ("gap", "margin", "verdict", "code"),
    [
        (0.0, "1.0%", "pass", "WITHIN_MARGIN"),
        (0.015, "1.0%", "pass", "WITHIN_MARGIN"),
        (0.03, "1.0%", "inconclusive", "CI_STRADDLES_MARGIN"),
        (0.06, "1.0%", "fail", "GAP_EXCEEDS_MARGIN"),
        (-0.06, "1.0%", "inconclusive", "BETTER_THAN_BASELINE"),
        (0.0, "0.02%", "inconclusive", "CI_STRADDLES_MARGIN"),
    ],
)
def test_a_finished_training_is_judged_against_the_margin(
    gap: float, margin: str, verdict: str, code: str
) -> None:
    document = judged(arm(1, 8), arm(2, 8, gap), margin)
    assert (document["verdict"], document["codes"][0]) == (verdict, code)
    over_runs = document["gap"]["over_runs"]
    assert over_runs is not None
    assert over_runs["lo"] < gap < over_runs["hi"]


@pytest.mark.parametrize(
    ("asked", "policy"),
    [
        ({}, {"schedule": "unstated"}),
        ({"planned_steps": None}, {"schedule": "unstated"}),
        ({"planned_steps": 12_000}, {}),
        ({"at": (5000,)}, {}),
        ({"at": (5000, 10_000)}, {}),
    ],
)
@pytest.mark.parametrize(
    ("gap", "expected"), [(0.0, ("inconclusive", "AS_OF")), (0.2, ("fail", "GAP_EXCEEDS_MARGIN"))]
)
def test_an_unfinished_training_can_fail_but_passes_only_as_of(
    asked: dict[str, Any], policy: dict[str, Any], gap: float, expected: tuple[str, str]
) -> None:
    document = judged(arm(1, 6), arm(2, 6, gap), policy=policy, **asked)
    assert (document["verdict"], document["codes"][0]) == expected
    assert "AS_OF" in document["codes"]
    assert not document["schedule"]["finished"] or "at" in asked


def test_the_policy_may_accept_a_pass_as_of() -> None:
    document = judged(arm(1, 6), arm(2, 6), policy={"schedule": "unstated", "as_of": "accept"})
    assert (document["verdict"], document["codes"][0]) == ("pass", "WITHIN_MARGIN")
    assert "AS_OF" in document["codes"]


def test_the_last_fifth_is_compared() -> None:
    document = judged(arm(1, 4), arm(2, 4))
    assert document["as_of"] is not None
    assert document["as_of"]["points"] == [8500, 9000, 9500, 10_000]
    last = judged(arm(1, 4), arm(2, 4), at=(10_000,))
    assert last["as_of"] is not None
    assert (last["as_of"]["points"], last["verdict"]) == ([10_000], "pass")


def test_runs_that_stop_early_are_compared_where_all_still_run() -> None:
    runs = arm(2, 5)
    short = curve_from_arrays(runs[0].steps[:12], runs[0].loss[:12], label="short")
    document = judged(arm(1, 5), [short, *runs[1:]])
    assert document["as_of"] is not None
    assert document["as_of"]["points"] == [5000, 5500, 6000]
    assert document["codes"][0] == "AS_OF"
    assert "RUNS_TRUNCATED" in document["codes"]


def test_points_in_tokens() -> None:
    document = judged(arm(1, 3), arm(2, 3), tokens_per_step=8192 * 16)
    assert document["as_of"] is not None
    assert document["as_of"]["words"] == "1.3 B tokens"


@pytest.mark.parametrize(
    ("gap", "expected"), [(0.0, "pass"), (0.06, "fail"), (0.03, "inconclusive")]
)
def test_one_run_an_arm_is_judged_with_assumed_noise(gap: float, expected: str) -> None:
    document = judged(arm(1, 1, rounding="nearest"), arm(2, 1, gap, rounding="nearest"))
    assert document["verdict"] == expected
    assert "RUN_NOISE_ASSUMED" in document["codes"]
    rejected = judged(
        arm(1, 1, rounding="nearest"),
        arm(2, 1, gap, rounding="nearest"),
        policy={"assumed_noise": "reject"},
    )
    assert rejected["verdict"] == ("fail" if gap == 0.06 else "inconclusive")


def test_an_arm_without_a_run_is_refused() -> None:
    with pytest.raises(ValueError, match="nvfp4 has no run"):
        judged(arm(1, 4), [])


def test_a_single_evaluation_an_arm_is_judged() -> None:
    """Facts of QuEST, 800 M parameters, 1 evaluation at the end: INT4 is 1.38 % worse than BF16,
    INT8 at 100 M 0.07 %.
    """
    for base, cand, expected in ((2.6843, 2.7400, "fail"), (3.0970, 3.0992, "pass")):
        arms = [
            [curve_from_arrays([9000], [loss], label=str(loss), rounding="nearest")]
            for loss in (base, cand)
        ]
        assert judged(arms[0], arms[1], planned_steps=None)["verdict"] == expected
        assert (
            judged(arms[0], arms[1], planned_steps=None, policy={"schedule": "unstated"})["verdict"]
            == "inconclusive"
        )


@pytest.mark.parametrize(
    "copied",
    [
        lambda run: run.loss,
        lambda run: run.loss + 0.003,
        lambda run: np.where(run.steps == 5000, run.loss + 2e-3, run.loss),
        lambda run: np.round(run.loss, 5),
    ],
)
def test_copies_are_no_runs(copied: Any) -> None:
    (run,) = arm(2, 1)
    copies = [
        curve_from_arrays(run.steps, copied(run), label=f"copy {number}") for number in range(3)
    ]
    document = judged(arm(1, 4), [run, *copies])
    assert {"REPLICATES_IDENTICAL", "RUN_NOISE_ASSUMED"} <= set(document["codes"])
    assert len(document["candidate"]["runs"]) == 1


def test_a_candidate_made_from_the_baseline_does_not_pass() -> None:
    baseline = arm(1, 4)
    candidate = [
        curve_from_arrays(run.steps, run.loss + 0.001, label=f"new {run.label}") for run in baseline
    ]
    assert judged(baseline, candidate)["codes"][0] == "ARMS_IDENTICAL"


def forks_of(run: Curve, seed: int, number: int, at: int) -> list[Curve]:
    """Runs that leave a run after its evaluation `at`."""
    rng = np.random.default_rng(seed)
    away = np.where(np.arange(len(STEPS)) < at, 0.0, 1.0)
    return [
        curve_from_arrays(
            STEPS, run.loss + away * rng.normal(0.002, 0.002, len(STEPS)), label=f"fork {i}"
        )
        for i in range(number)
    ]


@pytest.mark.parametrize("at", [2, 6, 12])
def test_forks_are_no_runs(at: int) -> None:
    (run,) = arm(2, 1)
    document = judged(arm(1, 4), [run, *forks_of(run, 9, 4, at)])
    assert "RUN_NOISE_ASSUMED" in document["codes"]
    assert {"REPLICATES_DEPENDENT", "REPLICATES_IDENTICAL"} & set(document["codes"])


@pytest.mark.parametrize("constant", [0.0, 0.002])
def test_a_candidate_forked_from_the_baseline_does_not_pass(constant: float) -> None:
    baseline = arm(1, 4)
    forks = [forks_of(run, number, 1, 6)[0] for number, run in enumerate(baseline)]
    candidate = [
        curve_from_arrays(run.steps, run.loss + constant, label=run.label) for run in forks
    ]
    assert judged(baseline, candidate)["codes"][0] == "ARMS_SHARE_START"


def test_runs_that_share_step_0_alone_are_runs() -> None:
    arms = [
        [curve_from_arrays([0, *run.steps], [10.8, *run.loss], label=run.label) for run in runs]
        for runs in (arm(1, 4), arm(2, 4))
    ]
    assert judged(*arms)["verdict"] == "pass"


def test_other_gates_are_refused() -> None:
    with pytest.raises(ValueError, match="judges the loss alone"):
        EvaluationCase(
            baseline=arm(1, 2),
            candidates={"nvfp4": arm(2, 2)},
            policy=policy_from_mapping({"margin": "1%", "checks": ["loss", "accuracy"]}),
            baseline_name="fp8",
        )


def test_coarse_rounding_makes_no_copies() -> None:
    arms = [
        [
            curve_from_arrays(run.steps, np.round(run.loss, 2), label=run.label)
            for run in arm(seed, 6, sd=0.01)
        ]
        for seed in (1, 2)
    ]
    document = judged(*arms)
    assert "ARMS_IDENTICAL" not in document["codes"]
    assert "REPLICATES_IDENTICAL" not in document["codes"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_a_loss_that_is_not_finite(bad: float) -> None:
    baseline, candidate = arm(1, 4), arm(2, 4)
    broken = candidate[2].loss.copy()
    broken[-3] = bad
    broken_arm = [*candidate[:2], curve_from_arrays(STEPS, broken, label="broken"), candidate[3]]
    assert (judged(baseline, broken_arm)["verdict"], judged(baseline, broken_arm)["codes"][0]) == (
        "fail",
        "NONFINITE_CAND",
    )
    assert judged(broken_arm, candidate)["codes"][0] == "BASELINE_INVALID"


def test_bits_against_nats() -> None:
    baseline = arm(1, 4)
    bits = [
        curve_from_arrays(run.steps, run.loss / math.log(2.0), label=run.label) for run in arm(2, 4)
    ]
    assert judged(baseline, bits)["codes"][0] == "LOSS_SCALED"
    assert judged(bits, baseline)["codes"][0] == "LOSS_SCALED"


def test_steps_in_different_units_have_no_common_point() -> None:
    tokens = [curve_from_arrays(run.steps * 8192, run.loss, label=run.label) for run in arm(2, 4)]
    assert judged(arm(1, 4), tokens)["codes"][0] == "NO_COMMON_STEPS"


def test_a_recorded_system_that_the_arms_do_not_share_confounds() -> None:
    baseline, candidate = on_systems(arm(1, 4), "ab"), on_systems(arm(2, 4), "cd")
    assert judged(baseline, candidate)["codes"][0] == "CONFOUNDED"
    shared = judged(baseline, on_systems(arm(2, 4), "bc"))
    assert shared["verdict"] == "pass"
    assert not any(ground["confounded"] for ground in shared["grounds"])
    hosts = judged(on_systems(arm(1, 4), "ab", "host"), on_systems(arm(2, 4), "cd", "host"))
    assert hosts["verdict"] == "pass"


def test_clusters_decide_and_both_intervals_are_named() -> None:
    rng = np.random.default_rng(0)
    systems = {letter: rng.normal(0, 0.01) for letter in "abcdef"}

    def runs(seed: int, letters: str, gap: float) -> list[Curve]:
        made = on_systems(arm(seed, 12, gap), letters)
        return [
            dataclasses.replace(run, loss=run.loss + systems[run.context["system"]]) for run in made
        ]

    document = judged(runs(1, "ab", 0.0), runs(2, "cdef", 0.015), cluster="system")
    gap = document["gap"]
    assert gap["over_runs"] is not None
    assert gap["over_clusters"] is not None
    assert gap["over_runs"]["hi"] < 0.03 < gap["over_clusters"]["hi"]
    assert gap["judged"] is not None
    assert gap["judged"].items() <= gap["over_clusters"].items()
    assert (
        gap["over_clusters"]["baseline"],
        gap["over_clusters"]["candidate"],
        gap["over_clusters"]["df"],
    ) == (2, 4, 4.0)
    assert document["verdict"] == "inconclusive"
    assert document["codes"][:2] == ["CI_STRADDLES_MARGIN", "CLUSTERS_WIDEN"]


def test_one_cluster_an_arm_decides_nothing() -> None:
    document = judged(on_systems(arm(1, 4), "a"), on_systems(arm(2, 4), "b"), cluster="system")
    assert (document["verdict"], document["codes"][0]) == ("inconclusive", "CLUSTERS_UNUSABLE")


def test_a_cluster_that_a_run_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no system on record"):
        judged(arm(1, 4), on_systems(arm(2, 4), "b"), cluster="system")


def test_pairs_of_one_seed_cancel_what_the_seed_shares() -> None:
    shared = np.random.default_rng(5).normal(0, 0.05, 6)
    arms = [
        [
            curve_from_arrays(run.steps, run.loss + shift, label=run.label, seed=run.seed)
            for run, shift in zip(runs, shared, strict=True)
        ]
        for runs in (arm(1, 6), arm(2, 6))
    ]
    paired, unpaired = judged(*arms, paired=True)["gap"], judged(*arms)["gap"]
    assert paired["over_runs"] is not None
    assert unpaired["over_runs"] is not None
    assert paired["pairs"] == 6
    assert unpaired["pairs"] is None
    assert paired["over_runs"]["se"] < 0.2 * unpaired["over_runs"]["se"]


def test_pairs_without_a_common_seed() -> None:
    other = [dataclasses.replace(run, seed=run.seed + 100) for run in arm(2, 4)]
    assert judged(arm(1, 4), other, paired=True)["codes"][0] == "RUNS_UNPAIRED"


@pytest.mark.parametrize("at", [(123,), (500, 10_001)])
def test_a_declared_point_without_an_evaluation_of_every_run(at: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not every run has an evaluation at"):
        judged(arm(1, 4), arm(2, 4), at=at)


@pytest.mark.parametrize(
    "asked",
    [{"target": -1.0}, {"target": math.nan}, {"tokens_per_step": 0.0}, {"planned_steps": 0}],
)
def test_what_is_not_positive_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a positive number"):
        judged(arm(1, 3), arm(2, 3), **asked)


@pytest.mark.parametrize(("tokens", "is_refused"), [(1e12, False), (1.1e12, True), (1e308, True)])
def test_tokens_a_step_that_no_batch_has_are_refused(tokens: float, is_refused: bool) -> None:
    def words() -> str:
        as_of = judged(arm(1, 3), arm(2, 3), tokens_per_step=tokens)["as_of"]
        return as_of["words"] if as_of else ""

    if is_refused:
        with pytest.raises(ValueError, match=r"tokens_per_step is .*; expected at most 1e\+12"):
            words()
    else:
        assert words().endswith("tokens")


def test_a_baseline_whose_losses_are_zero_has_no_shares_of_its_loss() -> None:
    none, some_loss = arm(1, 3, law=np.zeros(20), sd=0.0), arm(2, 3)
    document = judged(none, some_loss, margin="0.01 nats")
    assert document["verdict"] != "pass"
    assert document["candidate"]["spread"] is not None
    assert "rel" not in document["candidate"]["spread"]
    assert "rel" in (judged(arm(1, 3), some_loss)["candidate"]["spread"] or {})


def test_bands_hold_at_every_point_at_once() -> None:
    inside = 0
    for trial in range(some(60)):
        document = judged(arm(2 * trial, 5, law=FALLING), arm(2 * trial + 1, 5, law=FALLING))
        curve = document["curve"]
        assert curve is not None
        assert len(curve["steps"]) == 20
        inside += all(lo <= 0.0 <= hi for lo, hi in zip(curve["lo"], curve["hi"], strict=True))
    assert inside >= 0.93 * some(60)


def test_target_and_times() -> None:
    baseline, candidate = arm(1, 5, law=FALLING), arm(2, 5, 0.05, law=FALLING)
    times = [
        RunTimes(
            arm=name, run=run.label, hardware="b200", step_seconds=seconds, seconds_to_target=None
        )
        for name, runs, seconds in (("fp8", baseline, 0.30), ("nvfp4", candidate, 0.25))
        for run in runs
    ]
    document = judged(baseline, candidate, target=3.5, times=times)
    assert document["target"] is not None
    assert document["target"]["tax"] is not None
    assert 0.05 < document["target"]["tax"]["estimate"] < 0.1
    assert document["speed"][0]["step"]["value"] == pytest.approx(1.2)
    assert document["speed"][0]["net"] is None
    never = judged(baseline, candidate, target=1.0)["target"]
    assert never is not None
    assert never["tax"] is None
    assert never["reached"] == [0, 0]


def test_shuffled_runs_change_nothing() -> None:
    baseline, candidate = arm(1, 5), arm(2, 5)
    one, other = judged(baseline, candidate), judged(baseline[::-1], candidate[::-1])
    assert one["gap"]["over_runs"] == pytest.approx(other["gap"]["over_runs"])
    assert one["codes"] == other["codes"]


def test_honest_arms_of_five_evaluations_are_rarely_called_copies() -> None:
    """Three of five points near the median one are no evidence: the median point is near itself."""
    law = FINISHED[::4]
    called = 0
    for trial in range(some(60)):
        rng = np.random.default_rng(trial)
        arms = [
            [
                curve_from_arrays(
                    STEPS[::4], law + rng.normal(0, 0.004) + rng.normal(0, 0.001, 5), label=f"{n}"
                )
                for n in range(6)
            ]
            for _ in "ab"
        ]
        called += "ARMS_IDENTICAL" in judged(*arms)["codes"]
    assert called <= some(60) / 20


@pytest.mark.parametrize(
    ("context", "blocked"),
    [
        ({"parameters": "4M"}, True),
        ({"parameters": "124M"}, False),
        ({"architecture": "bert-base"}, True),
        ({"architecture": "llama"}, False),
    ],
)
@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_nothing_is_assumed_about_the_noise_of_small_models_and_encoders(
    context: dict[str, str], blocked: bool, gap: float
) -> None:
    document = judged(arm(1, 1, context=context), arm(2, 1, gap, context=context))
    codes = [reason["code"] for reason in document["reasons"]]
    assert ("RUN_NOISE_UNKNOWN" in codes) == blocked
    assert document["verdict"] == ("inconclusive" if blocked else "fail" if gap else "pass")
    measured = judged(arm(1, 3, context=context), arm(2, 3, gap, context=context))
    assert measured["verdict"] == ("fail" if gap else "pass")
    policy = {"baseline_run_noise": "0.1 %", "candidate_run_noise": "0.1 %"}
    declared = judged(arm(1, 1, context=context), arm(2, 1, gap, context=context), policy=policy)
    assert declared["verdict"] == ("fail" if gap else "pass")


@pytest.mark.parametrize("recorded", ["fp8_current", None])
def test_an_arm_whose_runs_recorded_another_precision_cannot_pass(recorded: str | None) -> None:
    context = {"recorded_recipe": recorded} if recorded else {}
    document = judged(arm(1, 2), arm(2, 2, context=context))
    honest = recorded is None
    assert document["verdict"] == ("pass" if honest else "inconclusive")
    assert ("RECIPE_CONTRADICTED" in [reason["code"] for reason in document["reasons"]]) != honest
    assert judged(arm(1, 2), arm(2, 2, 0.3, context=context))["verdict"] == "fail"


@pytest.mark.parametrize(("height", "verdict"), [(1.0, "inconclusive"), (0.01, "pass")])
def test_a_candidate_that_was_rolled_back_cannot_pass(height: float, verdict: str) -> None:
    first, second = arm(2, 2)
    restarted = curve_from_arrays(
        np.concatenate((STEPS[:10], STEPS[5:])),
        np.concatenate((first.loss[:5], first.loss[5:10] + height, first.loss[5:])),
        label=first.label,
        seed=first.seed,
    )
    document = judged(arm(1, 2), [restarted, second])
    assert document["verdict"] == verdict
    assert ("ROLLED_BACK" in [reason["code"] for reason in document["reasons"]]) == (
        verdict == "inconclusive"
    )


@pytest.mark.parametrize(
    ("off", "same"), [(5, True), (-5, True), (0, True), (6, False), (250, False)]
)
def test_steps_that_are_off_by_a_few_samples_are_the_same_evaluations(off: int, same: bool) -> None:
    """Two trainers that count 32 samples apart evaluated at the same points; 1 % of the 500 steps
    between evaluations is not much.
    """
    base, cand = arm(1, 2), arm(2, 2)
    document = judged(base, [dataclasses.replace(run, steps=run.steps + off) for run in cand])
    if same:
        plain = judged(base, cand)
        assert (document["verdict"], document["gap"], document["as_of"]) == (
            plain["verdict"],
            plain["gap"],
            plain["as_of"],
        )
        assert bool(off) == any("steps moved" in note["note"] for note in document["notes"])
    else:
        assert document["codes"][0] == "NO_COMMON_STEPS"


def test_a_copy_is_found_although_its_steps_were_moved() -> None:
    base = arm(1, 2)
    moved = dataclasses.replace(base[0], steps=base[0].steps + 5, label="other")
    assert "ARMS_IDENTICAL" in judged(base, [moved])["codes"]


def test_runs_with_gaps_between_their_evaluations_are_not_moved() -> None:
    base, cand = arm(1, 2), arm(2, 2)
    jittered = [
        dataclasses.replace(run, steps=run.steps + np.arange(len(run.steps)) % 3 + 1)
        for run in cand
    ]
    assert judged(base, jittered)["codes"][0] == "NO_COMMON_STEPS"
