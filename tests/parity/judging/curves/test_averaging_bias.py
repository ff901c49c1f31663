"""A log of averages lags behind a falling curve: neither a fail nor a pass. A trainer that broke
has batch noise of its own: a fail.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves.averaging_bias import smoothing_bias
from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.curves.step_noise import step_noise
from parity.judging.curves.treatment import same_first_batch
from parity.judging.curves.window import Window
from parity.judging.decision import FAIL, INCONCLUSIVE
from parity.judging.measurements import Compared, measure
from parity.judging.noise.noise_source import NoiseFamilies
from parity.judging.policy import Policy, policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge

MakeRun = Callable[..., Curve]
STEPS = 600
LAST_FIFTH = Window(
    first=480, last=599, fraction=0.2, origin=0, planned_steps=STEPS, plan="declared"
)
HALF_PERCENT = policy_from_mapping({"schedule": "decayed", "margin": "0.5%"})


def exponential(loss: np.ndarray, weight: float) -> np.ndarray:
    """An exponential average that begins at the first loss."""
    averaged = [float(loss[0])]
    for own in loss[1:]:
        averaged.append(weight * averaged[-1] + (1.0 - weight) * float(own))
    return np.array(averaged)


def running(loss: np.ndarray, width: int) -> np.ndarray:
    """The mean of the last so many losses, fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], loss]))
    ends = np.arange(1, len(loss) + 1)
    starts = np.maximum(0, ends - width)
    return (sums[ends] - sums[starts]) / (ends - starts)


AVERAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "weight 0.5": lambda loss: exponential(loss, 0.5),
    "weight 0.9": lambda loss: exponential(loss, 0.9),
    "weight 0.99": lambda loss: exponential(loss, 0.99),
    "last 3": lambda loss: running(loss, 3),
    "last 10": lambda loss: running(loss, 10),
    "last 100": lambda loss: running(loss, 100),
    "all so far": lambda loss: running(loss, len(loss)),
}
FALLS: dict[str, np.ndarray] = {
    "as a power": np.zeros(STEPS),
    "at its end": -0.5 * np.clip(np.arange(STEPS) / STEPS - 0.8, 0.0, None) / 0.2,
    "all the time": 3.0 - 3.0 * np.arange(STEPS) / STEPS,
}


def arm(run: Curve, loss: np.ndarray, every: int = 1, **options: Any) -> list[Curve]:
    options.setdefault("recipe", "bf16")
    return [
        curve_from_arrays(
            run.steps[every - 1 :: every],
            loss,
            seed=0,
            rounding="nearest",
            context={"device_class": "h100"},
            **options,
        )
    ]


def judged(
    base: list[Curve], head: list[Curve], policy: Policy = HALF_PERCENT, compares: Any = "revision"
) -> Verdict:
    (verdict,) = judge(
        base,
        {"head": head},
        policy,
        baseline_name="base",
        planned_steps=STEPS,
        compares={"head": compares},
    )
    return verdict


def broken(make_run: MakeRun, noise: float, gap: float = 0.3) -> tuple[list[Curve], list[Curve]]:
    """Head learns more slowly from the second update on; its batch noise is its own, and so many
    times the base's.
    """
    base, head = (
        make_run(STEPS, seed=seed, batch_seed=seed, batch_sd=sd)
        for seed, sd in ((1, 0.05), (2, 0.05 * noise))
    )
    loss = head.loss + gap * np.minimum(1.0, np.arange(STEPS) / 50)
    losses = base.loss.copy()
    loss[0] = losses[0] = 10.5  # exp of which is no whole number
    return arm(base, losses), arm(base, loss)


@pytest.mark.parametrize("noise", [0.25, 0.45, 0.7, 1.0, 1.6, 3.0])
def test_a_broken_trainer_fails_whatever_became_of_its_batch_noise(
    make_run: MakeRun, noise: float
) -> None:
    assert judged(*broken(make_run, noise)).verdict == FAIL


@pytest.mark.parametrize("what", ["weight 0.5", "last 3", "last 10"])
def test_a_broken_trainer_does_not_hide_behind_averages(make_run: MakeRun, what: str) -> None:
    base, (head,) = broken(make_run, 1.0)
    assert judged(base, arm(head, AVERAGES[what](head.loss))).verdict == FAIL


def test_averages_over_everything_could_explain_any_gap_below_the_start(make_run: MakeRun) -> None:
    base, (head,) = broken(make_run, 1.0)
    verdict = judged(base, arm(head, AVERAGES["all so far"](head.loss)))
    assert verdict.verdict == INCONCLUSIVE


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_it_is_the_first_loss_that_shows_the_same_data(make_run: MakeRun, noise: float) -> None:
    """Head reads other data, which are harder: its loss is higher from the first step on."""
    base, (head,) = broken(make_run, noise)
    other = head.loss.copy()
    other[0] += 0.01
    verdict = judged(base, arm(head, other))
    assert (verdict.verdict, verdict.codes[0] in ("DATA_ORDER_MISMATCH", "ARM_AVERAGED")) == (
        INCONCLUSIVE,
        True,
    )


def test_a_model_that_predicts_every_token_alike_begins_so_on_any_data(make_run: MakeRun) -> None:
    base, head = broken(make_run, 3.0)
    uniform = [
        [dataclasses.replace(run[0], loss=np.r_[np.log(50304.0), run[0].loss[1:]])]
        for run in (base, head)
    ]
    assert judged(*uniform).verdict == INCONCLUSIVE


def test_recipes_that_begin_alike_show_no_treatment(make_run: MakeRun) -> None:
    base, (head,) = broken(make_run, 3.0)
    verdict = judged(base, arm(head, head.loss, recipe="mxfp8"), compares="recipe")
    assert verdict.verdict == INCONCLUSIVE


@pytest.mark.parametrize("compares", ["revision", "environment", "recipe"])
@pytest.mark.parametrize("fall", FALLS)
@pytest.mark.parametrize("what", AVERAGES)
def test_averages_of_the_same_losses_neither_fail_nor_pass(
    make_run: MakeRun, what: str, fall: str, compares: str
) -> None:
    base, head = (make_run(STEPS, seed=seed, batch_seed=5, pair_sd=0.002) for seed in (1, 2))
    loss = AVERAGES[what](head.loss + FALLS[fall])
    loss[0] = base.loss[0] + FALLS[fall][0]
    further = {"recipe": "mxfp8"} if compares == "recipe" else {}
    verdict = judged(
        arm(base, base.loss + FALLS[fall]), arm(head, loss, **further), compares=compares
    )
    assert verdict.verdict == INCONCLUSIVE


@pytest.mark.parametrize("fall", FALLS)
def test_means_of_ten_steps_against_every_tenth_step_neither_fail_nor_pass(
    make_run: MakeRun, fall: str
) -> None:
    base, head = (make_run(STEPS, seed=seed, batch_seed=5, pair_sd=0.002) for seed in (1, 2))
    means = (head.loss + FALLS[fall]).reshape(-1, 10).mean(axis=1)
    assert (
        judged(arm(base, base.loss + FALLS[fall]), arm(head, means, every=10)).verdict
        == INCONCLUSIVE
    )


@pytest.mark.parametrize("compares", ["revision", "recipe"])
def test_an_averaged_baseline_lags_to_the_candidates_favour(
    make_run: MakeRun, compares: str
) -> None:
    base, head = (make_run(STEPS, seed=seed, batch_seed=5, pair_sd=0.002) for seed in (1, 2))
    further = {"recipe": "mxfp8"} if compares == "recipe" else {}
    verdict = judged(
        arm(base, exponential(base.loss, 0.9)), arm(head, head.loss, **further), compares=compares
    )
    assert verdict.verdict == INCONCLUSIVE


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    what=st.sampled_from(sorted(AVERAGES)),
    other_order=st.booleans(),
    slope=st.floats(0.0, 6.0),
    decay=st.floats(0.0, 1.0),
    noise=st.floats(0.02, 0.2),
)
def test_whatever_falls_averages_of_it_never_fail(
    seed: int, what: str, other_order: bool, slope: float, decay: float, noise: float
) -> None:
    """Head trains as base does, perhaps on other batches after the first, and logs averages."""
    rng = np.random.default_rng(seed)
    at = np.arange(STEPS) / STEPS
    curve = (
        2.5
        + slope * (1.0 - at)
        + 4.0 * (np.arange(STEPS) + 1.0) ** -0.5
        - decay * np.clip(at - 0.8, 0.0, None) / 0.2
    )
    batches = rng.normal(0.0, noise, (2, STEPS))
    base = curve + batches[0]
    head = curve + batches[1 if other_order else 0] + rng.normal(0.0, 0.002, STEPS)
    head[0] = base[0]
    runs = [
        curve_from_arrays(np.arange(STEPS), loss, recipe="bf16", rounding="nearest")
        for loss in (base, AVERAGES[what](head))
    ]
    assert judged([runs[0]], [runs[1]]).verdict == INCONCLUSIVE


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), gap=st.floats(0.0, 0.4), noise=st.floats(0.2, 4.0))
def test_more_gap_never_takes_back_a_fail(
    make_run: MakeRun, seed: int, gap: float, noise: float
) -> None:
    base, head = (
        make_run(STEPS, seed=seed + k, batch_seed=seed + k, batch_sd=sd)
        for k, sd in ((0, 0.05), (1, 0.05 * noise))
    )
    states = []
    for own in (gap, gap + 0.2):
        loss = head.loss + own * np.minimum(1.0, np.arange(STEPS) / 50)
        losses = base.loss.copy()
        loss[0] = losses[0] = 10.5
        states.append(judged(arm(base, losses), arm(head, loss)).verdict)
    assert states[0] != FAIL or states[1] == FAIL


@given(
    width=st.integers(2, 60),
    every=st.sampled_from([1, 3, 10]),
    slope=st.floats(0.001, 0.1),
    seed=st.integers(0, 1000),
)
def test_the_lift_is_above_what_a_running_mean_gains(
    width: int, every: int, slope: float, seed: int
) -> None:
    """Along a straight fall the mean of the last w losses is slope (w - 1) / 2 above the last."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0.0, 1.0, 6000)
    run = curve_from_arrays(np.arange(STEPS), 100.0 - slope * np.arange(STEPS))
    steps = run.steps[480::every]
    ratio = step_noise(running(noise, width)[::every]) / step_noise(noise)
    assert float(smoothing_bias(run, steps, ratio, LAST_FIFTH).mean()) > slope * (width - 1) / 2


def test_the_lift_of_averages_over_more_than_the_run_reaches_its_start(make_run: MakeRun) -> None:
    run = make_run(STEPS)
    bias = smoothing_bias(run, run.steps[480:], 0.0, LAST_FIFTH)
    assert float(bias.mean() + run.loss[480:].mean()) == pytest.approx(float(run.loss[0]), abs=0.01)


def test_no_lift_without_averages(make_run: MakeRun) -> None:
    base, head = (
        make_run(STEPS, seed=seed, batch_seed=5, recipe=recipe)
        for seed, recipe in ((1, "bf16"), (2, "mxfp8"))
    )
    assert (
        measure(
            Compared("a", "b"), [base], [head], HALF_PERCENT, LAST_FIFTH, NoiseFamilies(None, {})
        ).smoothing_bias
        is None
    )


@pytest.mark.parametrize("ratio", [0.9, 0.97, 1.0, 1.02])
def test_a_head_that_ends_above_the_margin_fails_whatever_its_noise_is_by_chance(
    ratio: float,
) -> None:
    """Half of all honest pairs have a noise ratio just below 1: that is no sign of averages."""
    rng = np.random.default_rng(7)
    curve = 2.5 + 8.0 * (np.arange(500) + 1.0) ** -0.5
    batches = rng.normal(0.0, 0.05, 500)
    head = curve + ratio * batches + rng.normal(0.0, 0.002, 500)
    head[450:] += 0.042
    base = curve + batches
    head[0] = base[0]
    runs = [
        curve_from_arrays(np.arange(500), loss, recipe="bf16", rounding="nearest")
        for loss in (base, head)
    ]
    policy = policy_from_mapping({"schedule": "decayed", "margin": "1%"})
    (verdict,) = judge(
        runs[:1], {"head": runs[1:]}, policy, planned_steps=500, compares={"head": "revision"}
    )
    assert (verdict.verdict, verdict.codes[0]) == (FAIL, "ENDS_ABOVE_MARGIN")


def test_a_stretch_of_harder_data_is_no_broken_trainer(make_run: MakeRun) -> None:
    """After the first batch head reads in another order; what it reads in the window is harder, as
    nothing before it.
    """
    base, (head,) = broken(make_run, 1.0, gap=0.0)
    harder = head.loss + np.where(np.arange(STEPS) >= 470, 0.1, 0.0)
    assert judged(base, arm(head, harder)).verdict == INCONCLUSIVE
    always = head.loss + np.where(np.arange(STEPS) >= 1, 0.1, 0.0)
    assert judged(base, arm(head, always)).verdict == FAIL


def test_a_first_loss_of_any_batch_shows_no_batch(make_run: MakeRun) -> None:
    """A logger's 0 before it has a loss; or ln V plus a constant, such as a z-loss, which all seeds
    begin with.
    """
    base, (head,) = broken(make_run, 3.0)
    zero = [arm(run, np.r_[0.0, run.loss[1:]]) for run in (base[0], head)]
    assert judged(*zero).verdict == INCONCLUSIVE
    assert same_first_batch(base, [head], rounding_step=0.0)
    assert not same_first_batch(zero[0], zero[1], rounding_step=0.0)
    seeds = [[dataclasses.replace(run, seed=seed) for seed in (0, 1, 2)] for run in (base[0], head)]
    assert not same_first_batch(seeds[0], seeds[1], rounding_step=0.0)
    own = [
        [dataclasses.replace(run, loss=np.r_[10.5 + run.seed / 7, run.loss[1:]]) for run in runs]
        for runs in seeds
    ]
    assert same_first_batch(own[0], own[1], rounding_step=0.0)


def test_each_run_of_the_candidate_has_to_begin_with_its_batch(make_run: MakeRun) -> None:
    base = [make_run(STEPS, batch_seed=seed) for seed in (0, 1)]
    base = [dataclasses.replace(run, seed=seed) for seed, run in enumerate(base)]
    other = [dataclasses.replace(run, seed=1 - run.seed) for run in base]
    assert same_first_batch(base, base, 0.0)
    assert not same_first_batch(base, other, 0.0)
    assert not same_first_batch(base, base, 0.01)
