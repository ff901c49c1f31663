"""Arms of one recipe that differ in revision or environment: what passes, and what may differ."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.judging.curves.context import compared_keys, confounding_keys
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.decision import FAIL, INCONCLUSIVE, PASS
from parity.judging.policy import Policy
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
SEEDS = (0, 1, 2)
STEPS = 2000


def at(revision: str, **further: str) -> dict[str, str]:
    return {
        "code_digest": f"digest-{revision}",
        "repository_revision": revision,
        "device_class": "h100",
        "data_digest": "d",
        **further,
    }


def arm(
    make_run: MakeRun,
    revision: str,
    *,
    own: int = 0,
    seeds: tuple[int, ...] = SEEDS,
    **options: Any,
) -> list[Curve]:
    """Runs of one seed and batch order each; arms with equal `own` are equal bit for bit."""
    context = options.pop("context", None) or at(revision)
    return [
        make_run(
            seed=100 * own + seed + 1, batch_seed=seed, context=context, recipe="bf16", **options
        )
        for seed in seeds
    ]


def seeded(runs: list[Curve]) -> list[Curve]:
    return [dataclasses.replace(run, seed=seed) for seed, run in enumerate(runs)]


@pytest.fixture
def base(make_run: MakeRun) -> list[Curve]:
    return seeded(arm(make_run, "base"))


@pytest.fixture
def same(make_run: MakeRun) -> list[Curve]:
    """A refactor: another revision, bit-equal runs."""
    return seeded(arm(make_run, "head"))


def judged(
    base: list[Curve], head: list[Curve], policy: Policy, compares: Any = "revision", **options: Any
) -> Verdict:
    options.setdefault("planned_steps", STEPS)
    (verdict,) = judge(
        base, {"head": head}, policy, baseline_name="base", compares={"head": compares}, **options
    )
    return verdict


def changed(run: Curve, loss: np.ndarray | None = None, **context: str) -> Curve:
    values = run.loss if loss is None else loss
    return curve_from_arrays(
        run.steps[: len(values)],
        values,
        label=run.label,
        seed=run.seed,
        recipe=run.recipe,
        rounding=run.rounding,
        context={**run.context, **context},
    )


def test_a_bit_equal_refactor_passes_with_no_gap(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    verdict = judged(base, same, one_percent)
    document = verdict.document()
    assert (verdict.verdict, verdict.codes[0]) == (PASS, "IDENTICAL")
    assert document["gap"] is not None
    assert (
        document["gap"]["mean"],
        document["gap"]["lo"],
        document["gap"]["hi"],
        document["gap"]["se"],
    ) == (0.0, 0.0, 0.0, 0.0)
    assert document["compares"] == "revision"
    assert document["may_differ"] == ["code_digest", "code_revision", "repository_revision"]
    assert not {"RUN_NOISE_ASSUMED", "WINDOW_SENSITIVE"} & {*verdict.codes}
    assert "3 runs are equal at each of 2,000 logged steps" in document["reasons"][0]["sentence"]


@pytest.mark.parametrize(
    "changes",
    [
        {"assumed_noise": "reject"},
        {"min_points": 1000},
        {"margin": "9%"},  # above 5 % of the loss, and nobody says that this is meant
        {"margin": None, "profile": "noise-floor"},
        {"looks": 5},
        {"loss_unit": "other"},
    ],
)
def test_no_noise_and_no_number_of_points_keeps_equal_runs_back(
    changes: dict[str, Any], base: list[Curve], same: list[Curve]
) -> None:
    policy = Policy(**{"schedule": "decayed", "margin": "1%", **changes})
    assert judged(base[:1], same[:1], policy).codes[0] == "IDENTICAL"
    other = [changed(same[0], same[0].loss + np.random.default_rng(5).normal(0.0, 0.004, STEPS))]
    assert judged(base[:1], other, policy).codes[0] != "IDENTICAL"


def test_equal_runs_of_a_small_model_pass_although_its_noise_is_unknown(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    small = [[changed(run, parameters="4M") for run in runs] for runs in (base[:1], same[:1])]
    assert judged(small[0], small[1], one_percent).codes[0] == "IDENTICAL"
    other = [
        changed(small[1][0], same[0].loss + np.random.default_rng(5).normal(0.0, 0.004, STEPS))
    ]
    assert judged(small[0], other, one_percent).codes[0] == "RUN_NOISE_UNKNOWN"


def test_a_copy_of_the_curve_is_still_refused_between_recipes(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    copies = [changed(run, **base[0].context) for run in same]
    verdict = judged(base, copies, one_percent, "recipe")
    assert (verdict.verdict, verdict.codes[0]) == (INCONCLUSIVE, "ARMS_IDENTICAL")
    assert "compares" not in verdict.document()
    assert "may_differ" not in verdict.document()


def test_another_revision_still_confounds_recipes(
    make_run: MakeRun, base: list[Curve], one_percent: Policy
) -> None:
    head = seeded(arm(make_run, "head", own=1))
    assert "CONFOUNDED" in judged(base, head, one_percent, "recipe").codes
    assert judged(base, head, one_percent).codes[0] == "WITHIN_MARGIN"


@pytest.mark.parametrize("ends", [[1500, 1500, 1500], [STEPS, STEPS, 1500]])
def test_equal_runs_that_are_not_complete_do_not_pass(
    ends: list[int], base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    cut = [
        [changed(run, run.loss[:end]) for run, end in zip(runs, ends, strict=True)]
        for runs in (base, same)
    ]
    verdict = judged(cut[0], cut[1], one_percent)
    assert (verdict.verdict, verdict.codes[:2]) == (INCONCLUSIVE, ("AS_OF", "IDENTICAL"))
    assert judged(base, cut[1], one_percent).verdict == INCONCLUSIVE


def test_an_end_of_the_schedule_that_nobody_showed_keeps_equal_runs_back(
    base: list[Curve], same: list[Curve]
) -> None:
    assert judged(base, same, Policy(margin="1%")).codes[0] == "AS_OF"
    # no margin, so the interval says nothing of the end
    noise_floor = judged(base, same, Policy(profile="noise-floor"))
    assert (noise_floor.margin, noise_floor.codes[0]) == (None, "AS_OF")


def test_a_hole_in_the_logs_keeps_equal_runs_back(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    keep = np.r_[0:1700, 1900:STEPS]
    holed = [
        [
            curve_from_arrays(
                run.steps[keep], run.loss[keep], seed=run.seed, recipe="bf16", context=run.context
            )
            for run in runs
        ]
        for runs in (base, same)
    ]
    assert judged(holed[0], holed[1], one_percent).codes[0] == "DOWNSAMPLED"


def test_one_equal_run_of_several_is_judged_as_any_other(
    make_run: MakeRun, base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    late = make_run(seed=900, batch_seed=2, context=at("head"), recipe="bf16")
    partly = [*same[:2], dataclasses.replace(late, seed=2)]
    verdict = judged(base, partly, one_percent)
    assert verdict.codes[0] in ("WITHIN_MARGIN", "CI_STRADDLES_MARGIN")
    assert verdict.measurements.identical is None
    assert verdict.gap is not None
    assert verdict.gap.run.variance > 0.0
    worse = [*same[:2], changed(same[2], same[2].loss + 0.1)]
    assert judged(base, worse, one_percent).verdict != PASS


def test_a_late_change_is_judged_although_it_shares_its_start(
    make_run: MakeRun, base: list[Curve], one_percent: Policy
) -> None:
    own = seeded(arm(make_run, "head", own=1))

    def from_the_middle(gap: float) -> list[Curve]:
        return [
            changed(run, np.concatenate([before.loss[:1000], run.loss[1000:] + gap]))
            for before, run in zip(base, own, strict=True)
        ]

    assert judged(base, from_the_middle(0.0), one_percent).codes[0] == "WITHIN_MARGIN"
    assert judged(base, from_the_middle(0.1), one_percent).codes[0] == "GAP_EXCEEDS_MARGIN"
    recipes = [changed(run, **base[0].context) for run in from_the_middle(0.0)]
    assert judged(base, recipes, one_percent, "recipe").verdict == INCONCLUSIVE


def test_a_fork_by_its_record_is_no_training_of_the_revision(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    forks = [changed(run, forked_from="run 7") for run in same]
    assert judged(base, forks, one_percent).codes[0] == "ARMS_SHARE_START"


def test_a_broken_head_fails(make_run: MakeRun, base: list[Curve], one_percent: Policy) -> None:
    verdict = judged(base, seeded(arm(make_run, "head", own=1, gap=0.6)), one_percent)
    assert (verdict.verdict, verdict.codes[0]) == (FAIL, "GAP_EXCEEDS_MARGIN")
    assert "bisect" in verdict.advice.sentences[0]


def test_a_head_that_is_better_by_the_margin_is_for_a_person_to_accept(
    make_run: MakeRun, base: list[Curve], one_percent: Policy
) -> None:
    better = judged(base, seeded(arm(make_run, "head", own=1, gap=-0.1)), one_percent)
    assert (better.verdict, better.codes[0]) == (INCONCLUSIVE, "BETTER_THAN_BASELINE")
    assert "leak" in better.document()["reasons"][0]["sentence"]
    assert (
        judged(base, seeded(arm(make_run, "head", own=1, gap=-0.005)), one_percent).codes[0]
        == "WITHIN_MARGIN"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device_class", "h200"),
        ("data_digest", "e"),
        ("engine", "other"),
        ("launcher", "b"),
        ("env.X", "1"),
        ("version.torch", "2.13"),
        ("start_precision", "fp8"),
        ("image", "sha256:1"),
    ],
)
def test_everything_but_the_revision_confounds(
    key: str, value: str, base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    stated = [
        changed(
            run,
            **{
                "engine": "command",
                "launcher": "a",
                "version.torch": "2.12",
                "start_precision": "bf16",
                "image": "sha256:0",
            },
        )
        for run in base
    ]
    head = [changed(run, **{**stated[0].context, **at("head"), key: value}) for run in same]
    verdict = judged(stated, head, one_percent)
    assert (verdict.verdict, verdict.codes[:2]) == (INCONCLUSIVE, ("CONFOUNDED", "IDENTICAL"))
    assert [entry.partition(":")[0] for entry in verdict.document()["context_differs"]] == [key]
    assert "revision" in verdict.document()["reasons"][0]["sentence"]


def test_an_environment_may_differ_in_versions_and_variables_but_not_in_code(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    new = {"env.X": "1", "version.torch": "2.13", "image": "sha256:1", "environment": "new"}
    old = [
        changed(run, **{"version.torch": "2.12", "image": "sha256:0", "environment": "old"})
        for run in base
    ]
    head = [changed(run, **{**run.context, **base[0].context, **new}) for run in same]
    verdict = judged(old, head, one_percent, "environment")
    assert verdict.codes[0] == "IDENTICAL"
    assert verdict.document()["may_differ"] == ["env.*", "environment", "image", "version.*"]
    code = [changed(run, code_digest="digest-head") for run in head]
    assert judged(old, code, one_percent, "environment").codes[0] == "CONFOUNDED"
    assert judged(old, head, one_percent, "revision").codes[0] == "CONFOUNDED"


def test_one_arm_is_one_revision(base: list[Curve], same: list[Curve], one_percent: Policy) -> None:
    mixed = [*same[:2], changed(same[2], **at("other"))]
    verdict = judged(base, mixed, one_percent)
    assert verdict.codes[0] == "CONFOUNDED"
    assert any(entry.startswith("code_digest: ") for entry in verdict.document()["context_differs"])


def test_one_digest_has_many_commits() -> None:
    readme = [at("a"), {**at("b"), "code_digest": "digest-a"}]
    assert confounding_keys(readme) == []
    assert confounding_keys(
        [{"repository_revision": "a", "code_digest": "1"}, {"repository_revision": "b"}]
    ) == ["repository_revision"]
    assert confounding_keys([at("a"), at("b")]) == ["code_digest"]
    assert confounding_keys([at("a"), at("b")], compares="revision") == []
    assert confounding_keys(
        [{"environments": "a"}, {"environments": "b"}], compares="environment"
    ) == ["environments"]
    assert compared_keys("recipe") == ()


def test_nan_at_the_same_step_of_both_arms_is_no_pass(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    def with_nan(runs: list[Curve], steps: list[int]) -> list[Curve]:
        loss = runs[0].loss.copy()
        loss[steps] = np.nan
        return [changed(runs[0], loss), *runs[1:]]

    for steps in ([STEPS - 1], list(range(300, 340))):
        assert judged(with_nan(base, steps), with_nan(same, steps), one_percent).verdict != PASS
    single = judged(with_nan(base, [700]), with_nan(same, [700]), one_percent)
    assert single.measurements.identical is None


@pytest.mark.parametrize(("digits", "equal"), [(4, True), (3, True), (2, False), (1, False)])
def test_equal_digits_show_equal_runs_only_where_they_are_fine(
    digits: int, equal: bool, base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    rounded = [[changed(run, np.round(run.loss, digits)) for run in runs] for runs in (base, same)]
    verdict = judged(rounded[0], rounded[1], one_percent)
    assert (verdict.codes[0] == "IDENTICAL") is equal
    if equal:
        gap = verdict.document()["gap"]
        assert gap is not None
        assert [gap["lo"], gap["hi"]] == pytest.approx([-(10.0**-digits), 10.0**-digits])


def test_few_points_need_finer_digits(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    def every(step: int, digits: int) -> Verdict:
        few = [
            [
                curve_from_arrays(
                    run.steps[step - 1 :: step],
                    np.round(run.loss[step - 1 :: step], digits),
                    seed=run.seed,
                    recipe="bf16",
                    context=run.context,
                )
                for run in runs
            ]
            for runs in (base, same)
        ]
        return judged(few[0], few[1], one_percent)

    assert every(100, 4).codes[0] == "IDENTICAL"  # 4 points in the window
    assert every(100, 3).verdict != PASS
    assert every(20, 3).codes[0] == "IDENTICAL"
    assert every(400, 7).verdict != PASS  # 5 points in all


@pytest.mark.parametrize(
    "column", [np.linspace(9.0, 1.0, STEPS), np.full(STEPS, 2.0), 3.0 + np.arange(STEPS) % 2 / 10]
)
def test_a_column_without_batch_noise_shows_nothing(
    column: np.ndarray, base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    """A learning rate or an epoch that was read as the loss is equal in any two revisions."""
    read = [[changed(run, column) for run in runs[:1]] for runs in (base, same)]
    assert judged(read[0], read[1], one_percent).measurements.identical is None


def test_gates_that_were_asked_for_are_made(base: list[Curve], same: list[Curve]) -> None:
    verdict = judged(
        base, same, Policy(margin="1%", schedule="decayed", checks=("loss", "accuracy"))
    )
    assert (verdict.verdict, verdict.codes[:2]) == (INCONCLUSIVE, ("ACCURACY_OPEN", "IDENTICAL"))


def test_a_contradicted_recipe_is_refused(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    head = [changed(run, recorded_recipe="nvfp4") for run in same]
    assert judged(base, head, one_percent).verdict == INCONCLUSIVE
    assert "RECIPE_CONTRADICTED" in judged(base, head, one_percent).codes


def test_copies_under_other_seeds_are_not_equal_runs(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    copies = [dataclasses.replace(same[0], seed=seed) for seed in SEEDS]
    assert judged(base, copies, one_percent).measurements.identical is None
    extra = [*same, dataclasses.replace(same[0], seed=7, loss=same[0].loss + 0.5)]
    assert judged(base, extra, one_percent).codes[0] != "IDENTICAL"
    fewer = judged(base, same[:2], one_percent)
    assert (fewer.codes[0], fewer.measurements.identical and fewer.measurements.identical.runs) == (
        "IDENTICAL",
        2,
    )


def test_a_deterministic_trainer_has_equal_replicates_that_count_once(
    base: list[Curve], same: list[Curve], one_percent: Policy
) -> None:
    twice = [
        [dataclasses.replace(runs[0], replicate=number) for number in (0, 1)]
        for runs in (base, same)
    ]
    verdict = judged(twice[0], twice[1], one_percent)
    assert (
        verdict.codes[0],
        verdict.measurements.identical and verdict.measurements.identical.runs,
    ) == ("IDENTICAL", 1)
    assert "REPLICATES_EQUAL" in verdict.codes


@given(order=st.permutations(SEEDS), other=st.permutations(SEEDS))
def test_the_order_of_runs_changes_nothing(order: list[int], other: list[int]) -> None:
    rng = np.random.default_rng(1)
    losses = [5.0 / np.sqrt(np.arange(400) + 1.0) + rng.normal(0.0, 0.05, 400) + 2.0 for _ in SEEDS]

    def runs(revision: str, seeds: list[int]) -> list[Curve]:
        return [
            curve_from_arrays(
                np.arange(400), losses[seed], seed=seed, recipe="bf16", context=at(revision)
            )
            for seed in seeds
        ]

    verdict = judged(
        runs("base", order),
        runs("head", other),
        Policy(margin="1%", schedule="decayed"),
        planned_steps=400,
    )
    assert verdict.codes == ("IDENTICAL", "SCHEDULE_STATED")
