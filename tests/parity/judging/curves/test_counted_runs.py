"""Which reruns count: each reason by a word of it, and that what is left out changes nothing but a
warning.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
STEPS = 2000


def cut(run: Curve, share: float, **changes: object) -> Curve:
    """The run, stopped at a share of its steps."""
    keep = slice(0, round(share * len(run.steps)))
    columns = {name: values[keep] for name, values in run.columns.items()}
    facts = {
        "label": run.label,
        "seed": run.seed,
        "recipe": run.recipe,
        "rounding": run.rounding,
        "context": run.context,
    } | changes
    return curve_from_arrays(run.steps[keep], run.loss[keep], columns=columns, **facts)  # type: ignore[arg-type]


def judged(
    base: list[Curve],
    cand: list[Curve],
    noise: dict[str, list[Curve]],
    policy: dict[str, object] | None = None,
) -> Verdict:
    whole = policy_from_mapping({"schedule": "decayed", "margin": "1%"} | (policy or {}))
    return judge(
        base, {"cand": cand}, whole, planned_steps=STEPS, baseline_name="base", short_reruns=noise
    )[0]


@pytest.fixture
def pair(make_run: MakeRun) -> tuple[list[Curve], list[Curve]]:
    return [make_run(seed=1)], [make_run(seed=2)]


def with_loss(run: Curve, loss: np.ndarray, **changes: object) -> Curve:
    return curve_from_arrays(run.steps, loss, label=run.label, rounding="nearest", **changes)  # type: ignore[arg-type]


def test_reruns_that_were_stopped_early_measure_run_noise_and_are_not_judged(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    reruns = [
        cut(make_run(seed=seed, gap=offset), 0.5)
        for seed, offset in ((11, 0.003), (12, -0.004), (13, 0.001))
    ]
    verdict, without = judged(*pair, {"cand": reruns}), judged(*pair, {})
    document = verdict.document()
    noise = document["tau"]["candidate"]
    assert noise["source"] == "early-stopped reruns"
    assert noise["early_stopped"] == {
        "runs": 3, "stop": 0.5, "first": 600, "last": 999, "df": pytest.approx(1 / (1 / 3 + 0.18)), "rel": noise["early_stopped"]["rel"]  # noqa: E501
    }  # fmt: skip
    assert 0.0003 < noise["early_stopped"]["rel"] < 0.004
    assert (noise["measured"], noise["measured_df"], document["candidate"]["runs"]) == (None, 0, 1)
    assert document["gap"]["mean"] == without.document()["gap"]["mean"]
    assert [run["label"] for run in document["inputs"]["short_reruns"]["candidate"]] == [
        "run11",
        "run12",
        "run13",
    ]
    assert "early_stopped" not in document["tau"]["baseline"]
    assert "SHORT_RERUNS_LEFT_OUT" not in verdict.codes


def test_a_document_without_short_reruns_has_none_of_their_keys(
    pair: tuple[list[Curve], list[Curve]],
) -> None:
    document = judged(*pair, {}).document()
    assert "short_reruns" not in document["inputs"]
    assert "early_stopped" not in document["tau"]["candidate"]


RERUN = 21
REFUSED: dict[str, tuple[Callable[[MakeRun, Curve], Curve], str]] = {
    "runs to the end": (lambda make, _: make(seed=RERUN), "a further run of cand"),
    "runs to 96 %": (lambda make, _: cut(make(seed=RERUN), 0.96), "a further run of cand"),
    "stops too early": (lambda make, _: cut(make(seed=RERUN), 0.39), "40 % needed"),
    "the arm's own prefix": (lambda _, arm: cut(arm, 0.5), "equal as printed"),
    "the same with other digits": (
        lambda _, arm: cut(with_loss(arm, arm.loss.round(4)), 0.5),
        "equal as printed",
    ),
    "the same, smoothed": (
        lambda _, arm: cut(with_loss(arm, np.convolve(arm.loss, np.ones(5) / 5, "same")), 0.5),
        "second differences",
    ),
    "the same with noise": (
        lambda _, arm: cut(
            with_loss(arm, arm.loss + np.random.default_rng(0).normal(0, 0.001, STEPS)), 0.5
        ),
        "smooth change",
    ),
    "the same, scaled": (lambda _, arm: cut(with_loss(arm, 1.01 * arm.loss), 0.5), "factor"),
    "a fork at 20 %": (
        lambda make, arm: cut(
            with_loss(
                arm, np.append(arm.loss[:400], make(seed=RERUN, gap=0.01, pair_sd=0.02).loss[400:])
            ),
            0.5,
        ),
        "up to step 399",
    ),
    "a fork by its record": (
        lambda make, _: cut(make(seed=RERUN, context={"forked_from": "run 7"}), 0.5),
        "forked from run 7",
    ),
    "its start is not logged": (
        lambda make, arm: curve_from_arrays(
            *(a[300:1000] for a in (arm.steps, make(seed=RERUN).loss)), rounding="nearest"
        ),
        "starts at step 300",
    ),
    "other data order": (
        lambda make, _: cut(make(seed=RERUN, batch_seed=5), 0.5),
        "other data order",
    ),
    "other seed": (
        lambda make, _: dataclasses.replace(cut(make(seed=RERUN), 0.5), seed=3),
        "seed 3",
    ),
    "other recipe": (lambda make, _: cut(make(seed=RERUN, recipe="nvfp4"), 0.5), "recipe is nvfp4"),
    "other rounding": (
        lambda make, _: cut(make(seed=RERUN), 0.5, rounding="stochastic"),
        "rounded otherwise",
    ),
    "other engine": (
        lambda make, _: cut(make(seed=RERUN), 0.5, context={"engine": "other"}),
        "in engine",
    ),
    "a NaN": (
        lambda make, arm: cut(
            with_loss(arm, np.where(np.arange(STEPS) == 700, np.nan, make(seed=RERUN).loss)), 0.5
        ),
        "step 700",
    ),
    "no steps": (lambda _, __: curve_from_arrays([], []), "no steps"),
    "few points in the window": (
        lambda make, arm: curve_from_arrays(
            *(np.append(a[:620], a[990:1000]) for a in (arm.steps, make(seed=RERUN).loss))
        ),
        "50 needed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rerun_that_is_none_is_left_out_and_named(
    name: str, pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    base, (cand,) = pair
    cand = dataclasses.replace(cand, context={"engine": "e"}) if name == "other engine" else cand
    base = [dataclasses.replace(base[0], context=cand.context)]
    build, word = REFUSED[name]
    verdict, without = (
        judged(base, [cand], {"cand": [build(make_run, cand)]}),
        judged(base, [cand], {}),
    )
    reasons = {
        reason.code: reason.sentence
        for reason in (verdict.decision.deciding, *verdict.decision.others)
    }
    assert word in reasons["SHORT_RERUNS_LEFT_OUT"], reasons["SHORT_RERUNS_LEFT_OUT"]
    assert verdict.gap == without.gap
    assert verdict.document()["tau"] == without.document()["tau"]


def test_another_learning_rate_is_refused_unless_the_policy_lets_it_differ(
    make_run: MakeRun,
) -> None:
    steps = np.arange(STEPS)
    cosine = 0.5 * (1 + np.cos(np.pi * steps / STEPS))
    short = 0.5 * (1 + np.cos(np.pi * np.minimum(steps / 1000, 1.0)))
    base, cand, rerun = (with_rate(make_run(seed=seed), cosine) for seed in (1, 2, 3))
    honest, other = cut(rerun, 0.5), cut(with_rate(make_run(seed=3), short), 0.5)
    assert "SHORT_RERUNS_LEFT_OUT" not in judged([base], [cand], {"cand": [honest]}).codes
    assert "SHORT_RERUNS_LEFT_OUT" in judged([base], [cand], {"cand": [other]}).codes
    assert (
        "SHORT_RERUNS_LEFT_OUT"
        not in judged([base], [cand], {"cand": [other]}, {"may_differ": ["learning_rate"]}).codes
    )


def with_rate(run: Curve, rate: np.ndarray) -> Curve:
    return curve_from_arrays(
        run.steps, run.loss, columns={"learning_rate": rate}, label=run.label, rounding="nearest"
    )


def test_a_rerun_of_the_other_arm_and_a_rerun_given_twice_count_once(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    rerun = cut(make_run(seed=31, gap=0.002), 0.6)
    both = judged(*pair, {"base": [rerun], "cand": [rerun, cut(pair[0][0], 0.6)]}).document()
    assert both["tau"]["baseline"]["early_stopped"]["runs"] == 1
    assert "early_stopped" not in both["tau"]["candidate"]


def test_reruns_of_an_arm_are_measured_up_to_the_earliest_stop(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    reruns = [cut(make_run(seed=41), 0.7), cut(make_run(seed=42), 0.45)]
    early = judged(*pair, {"cand": reruns}).document()["tau"]["candidate"]["early_stopped"]
    assert (early["stop"], early["first"], early["last"]) == (0.45, 600, 899)


def test_a_log_of_every_tenth_step_may_stop_at_40_percent(make_run: MakeRun) -> None:
    thin = [
        curve_from_arrays(run.steps[::2], run.loss[::2], rounding="nearest")
        for run in (make_run(seed=s) for s in (1, 2, 3))
    ]
    rerun = curve_from_arrays(thin[2].steps[:400], thin[2].loss[:400], rounding="nearest")
    document = judged([thin[0]], [thin[1]], {"cand": [rerun]}).document()
    assert document["tau"]["candidate"]["early_stopped"]["stop"] == pytest.approx(0.4)


def test_short_reruns_too_many_for_their_points_to_see_mixtures_are_left_out(
    make_run: MakeRun,
) -> None:
    """Every 8th step: 125 points before the stop, of which the last half are enough for 6 runs, not
    for the 12 that there are.
    """

    def thinned(run: Curve) -> Curve:
        return curve_from_arrays(run.steps[::8], run.loss[::8], label=run.label, rounding="nearest")

    base, cand, *reruns = (thinned(make_run(seed=seed)) for seed in range(1, 13))
    halves = [
        curve_from_arrays(run.steps[:125], run.loss[:125], label=run.label, rounding="nearest")
        for run in reruns
    ]
    verdict = judged([base], [cand], {"cand": halves})
    reasons = {
        reason.code: reason.sentence
        for reason in (verdict.decision.deciding, *verdict.decision.others)
    }
    assert "too few points in common with 6 other runs to see whether it is a mixture" in " ".join(
        verdict.measurements.early[1].left_out
    )
    assert "SHORT_RERUNS_LEFT_OUT" in reasons


def test_at_most_16_short_reruns_per_arm(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    rerun = cut(make_run(seed=31), 0.5)
    with pytest.raises(
        ValueError, match="short reruns of cand are 17; expected at most 16 per arm"
    ):
        judged(*pair, {"cand": [rerun] * 17})


@pytest.mark.parametrize("arm", ["base", "cand"])
def test_a_rerun_that_diverged_blocks_a_pass(
    arm: str, pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    loss = make_run(seed=51).loss.copy()
    loss[900:] = np.nan
    policy = {"margin": "5%"}
    assert judged(*pair, {}, policy).verdict == "pass"
    verdict = judged(*pair, {arm: [cut(with_loss(pair[0][0], loss), 0.5)]}, policy)
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "SHORT_RERUN_DIVERGED")


FINITE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "stays at 10.8": (
        lambda loss: np.where(np.arange(STEPS) < 800, loss, 10.8),
        "51 of cand, which ends",
    ),
    "at 10 for its last steps": (
        lambda loss: np.where(np.arange(STEPS) < 900, loss, 10.0),
        "above the full runs of cand",
    ),
    "a ramp without noise": (
        lambda loss: np.linspace(loss[0], 1.5 * loss[0], STEPS),
        "above the full runs of cand",
    ),
    "5 % above": (lambda loss: np.where(np.arange(STEPS) < 850, loss, 1.05 * loss), "ends 5."),
}


@pytest.mark.parametrize("name", FINITE)
def test_a_rerun_that_diverged_to_a_finite_loss_blocks_a_pass(
    name: str, pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    change, word = FINITE[name]
    rerun = make_run(seed=51)
    bad = cut(dataclasses.replace(with_loss(rerun, change(rerun.loss)), label="run51"), 0.5)
    verdict = judged(*pair, {"cand": [bad]}, {"margin": "5%"})
    assert (verdict.verdict, verdict.codes[0]) == ("inconclusive", "SHORT_RERUN_DIVERGED")
    assert word in verdict.decision.deciding.sentence


def test_a_rerun_that_ends_2_percent_above_its_arm_did_not_diverge(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    rerun = make_run(seed=51)
    near = cut(with_loss(rerun, 1.02 * rerun.loss), 0.5)
    assert "SHORT_RERUN_DIVERGED" not in judged(*pair, {"cand": [near]}, {"margin": "5%"}).codes


def test_short_reruns_do_not_make_a_yardstick(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    """The noise-floor margin rests on full reruns alone: noisy early stops must not widen it."""
    reruns = [cut(make_run(seed=60 + number, gap=0.05 * number), 0.5) for number in range(5)]
    verdict = judged(*pair, {"base": reruns}, {"margin": None, "profile": "noise-floor"})
    assert verdict.codes[0] == "MARGIN_UNDETERMINED"


def test_a_policy_that_rejects_assumed_noise_counts_their_degrees_of_freedom(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    policy = {"margin": "5%", "assumed_noise": "reject"}

    def reruns(count: int, seed: int) -> list[Curve]:
        return [
            cut(make_run(seed=seed + number, gap=0.001 * (-1) ** number), 0.5)
            for number in range(count)
        ]

    assert judged(*pair, {"base": reruns(8, 70), "cand": reruns(8, 90)}, policy).verdict == "pass"
    # 3 + 3 runs, but 2.9 degrees of freedom
    few = judged(*pair, {"base": reruns(3, 70), "cand": reruns(3, 90)}, policy)
    assert few.codes[0] == "RUN_NOISE_ASSUMED"
    one_arm = judged(*pair, {"base": reruns(16, 100)}, policy)
    assert one_arm.codes[0] == "RUN_NOISE_ASSUMED"


def test_an_unknown_arm_and_an_unknown_recipe_are_refused(
    pair: tuple[list[Curve], list[Curve]], make_run: MakeRun
) -> None:
    with pytest.raises(ValueError, match="expected one of the arms base, cand"):
        judged(*pair, {"other": [make_run()]})
    with pytest.raises(ValueError, match="recipe of cand"):
        judged(*pair, {"cand": [dataclasses.replace(make_run(), recipe="nvpf4")]})
