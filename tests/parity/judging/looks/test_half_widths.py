"""When a comparison can be decided: each look is the judge's interval had the plan ended there."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import parity
from parity import Criteria, Curve, criteria_from_mapping, judge
from parity.judging.looks.half_widths import half_widths

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
STEPS = 1500


def cut(run: Curve, steps: int) -> Curve:
    return curve_from_arrays(run.steps[:steps], run.loss[:steps], seed=run.seed, replicate=run.replicate)


@pytest.fixture(scope="module")
def arms(make_run: MakeRun) -> tuple[list[Curve], list[Curve]]:
    return (
        [make_run(STEPS, seed=seed, offset_sd=0.002) for seed in (1, 2)],
        [make_run(STEPS, seed=seed, offset_sd=0.002, gap=0.02) for seed in (3, 4)],
    )


@pytest.mark.parametrize("steps", [STEPS, 1000, 525])
def test_a_look_is_the_verdict_of_a_plan_that_ends_there(arms: tuple[list[Curve], list[Curve]], one_percent: Criteria, steps: int) -> None:
    widths = half_widths(*arms, one_percent, planned_steps=STEPS)
    (look,) = (look for look in widths.looks if look.step == steps - 1)
    base, cand = ([cut(run, steps) for run in arm] for arm in arms)
    (verdict,) = judge(base, {"cand": cand}, one_percent, planned_steps=steps)
    assert verdict.gap is not None
    assert verdict.margin is not None
    assert (look.gap, look.half_width, look.margin) == (verdict.gap.mean, verdict.gap.half_width(0.95), verdict.margin.nats)
    assert look.run_half_width <= look.half_width


def test_controls_count_as_for_the_judge(make_run: MakeRun, one_percent: Criteria) -> None:
    base, cand, control = (make_run(STEPS, seed=seed, offset_sd=0.002) for seed in (1, 3, 5))
    look = half_widths([base], [cand], one_percent, planned_steps=STEPS, controls=[control]).looks[-1]
    (verdict,) = judge([base], {"cand": [cand]}, one_percent, planned_steps=STEPS, controls=[control])
    assert verdict.gap is not None
    assert look.half_width == verdict.gap.half_width(0.95)
    assert look.half_width != half_widths([base], [cand], one_percent, planned_steps=STEPS).looks[-1].half_width


def test_what_is_known_is_not_made_again(arms: tuple[list[Curve], list[Curve]], one_percent: Criteria) -> None:
    base, cand = ([cut(run, 800) for run in arm] for arm in arms)
    before = half_widths(base, cand, one_percent, planned_steps=STEPS)
    marked = [dataclasses.replace(look, half_width=9.0) for look in before.looks]
    after = half_widths(*arms, one_percent, planned_steps=STEPS, known=marked)
    assert {look.half_width for look in after.looks if look.step < 800 and look.step != 799} == {9.0}
    assert all(look.half_width < 1.0 for look in after.looks if look.step > 800)
    again, anew = (half_widths(*arms, one_percent, planned_steps=STEPS, known=known) for known in (before.looks, ()))
    assert again.looks == anew.looks
    other_runs = half_widths(arms[0][:1], arms[1][:1], one_percent, planned_steps=STEPS, known=marked)
    assert all(look.half_width < 1.0 for look in other_runs.looks)


def test_the_forecast_is_near_what_comes(arms: tuple[list[Curve], list[Curve]], one_percent: Criteria) -> None:
    begun = half_widths([cut(arms[0][0], 700)], [cut(arms[1][0], 600)], one_percent, planned_steps=STEPS, runs=(2, 2))
    assert begun.looks[-1].step == 599
    assert [step for step, _ in begun.forecast][-1] == STEPS - 1
    end = half_widths(*arms, one_percent, planned_steps=STEPS).looks[-1].half_width
    assert begun.forecast[-1][1] == pytest.approx(end, rel=0.35)
    assert "with 1 run against 1" in begun.sentence
    assert "with 2 runs against 2" in begun.sentence


def test_a_run_that_is_behind_counts_where_it_has_been(arms: tuple[list[Curve], list[Curve]], one_percent: Criteria) -> None:
    (base, base_2), (cand, cand_2) = arms
    widths = half_widths([base, cut(base_2, 600)], [cand, cut(cand_2, 600)], one_percent, planned_steps=STEPS)
    runs = {look.step: (look.baseline_runs, look.candidate_runs) for look in widths.looks}
    assert (runs[599], runs[749], runs[STEPS - 1]) == ((2, 2), (1, 1), (1, 1))
    assert [step for step, _ in widths.forecast] == [STEPS - 1]


@pytest.mark.parametrize(
    ("gap", "margin", "words"),
    [
        (0.0, "2.0%", "narrow enough to decide, since step"),
        (0.05, "1.0%", "narrow enough to decide, since step"),
        (0.027, "1.0%", "Run-to-run noise alone is wider than that"),
    ],
)
def test_the_end_in_words(make_run: MakeRun, gap: float, margin: str, words: str) -> None:
    base, cand = make_run(STEPS, seed=1), make_run(STEPS, seed=3, gap=gap)
    widths = half_widths([base], [cand], criteria_from_mapping({"margin": margin}), planned_steps=STEPS)
    assert words in widths.sentence
    assert widths.forecast == ()
    assert widths.looks[-1].decides == ("narrow" in words)


def test_hardly_anything_is_no_error(make_run: MakeRun, one_percent: Criteria) -> None:
    run = make_run(STEPS, seed=2)
    assert "Not known yet" in half_widths([], [run], one_percent, planned_steps=STEPS).sentence
    assert half_widths([cut(run, 10)], [cut(make_run(STEPS), 10)], one_percent, planned_steps=STEPS).looks == ()
    loss = run.loss.copy()
    loss[900:] = np.nan
    broken = half_widths([make_run(STEPS)], [curve_from_arrays(run.steps, loss)], one_percent, planned_steps=STEPS)
    assert max(look.step for look in broken.looks) < 1200
    assert all(np.isfinite(look.half_width) for look in broken.looks)
    unmeasured = half_widths([make_run(STEPS)], [run], criteria_from_mapping({"profile": "noise-floor"}), planned_steps=STEPS)
    assert "margin is not known yet" in unmeasured.sentence
