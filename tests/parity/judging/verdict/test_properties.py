"""Laws that every verdict obeys (A8): order of steps, offsets, swapped arms, scaled steps,
repetition.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parity
from parity.canonical_json import canonical_json
from parity.judging.curves.curve import Curve
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import Verdict, judge
from tests.conftest import some

curve_from_arrays = partial(parity.curve_from_arrays, rounding="nearest")

MakeRun = Callable[..., Curve]
ABSOLUTE = policy_from_mapping(
    {
        "schedule": "decayed",
        "margin": "0.03 nats",
        "baseline_run_noise": "0.002 nats",
        "candidate_run_noise": "0.002 nats",
    }
)
LAWS = settings(max_examples=some(60))

gaps = st.sampled_from([-0.05, -0.01, 0.0, 0.012, 0.03, 0.08])
run_seeds = st.integers(2, 40)


def judged(base: Curve, cand: Curve, planned: int = 1500) -> Verdict:
    return judge([base], {"c": [cand]}, ABSOLUTE, planned_steps=planned)[0]


@LAWS
@given(gaps, run_seeds)
def test_order_of_rows_does_not_matter(make_run: MakeRun, gap: float, seed: int) -> None:
    base, cand = make_run(1500), make_run(1500, seed=seed, gap=gap)
    order = np.random.default_rng(seed).permutation(1500)
    again = judged(
        curve_from_arrays(base.steps[order], base.loss[order], label=base.label),
        curve_from_arrays(cand.steps[order], cand.loss[order], label=cand.label),
    )
    assert canonical_json(again.document()) == canonical_json(judged(base, cand).document())


@LAWS
@given(gaps, run_seeds, st.floats(-1.0, 12.0))
def test_an_offset_on_both_arms_changes_nothing_in_absolute_terms(
    make_run: MakeRun, gap: float, seed: int, offset: float
) -> None:
    base, cand = make_run(1500), make_run(1500, seed=seed, gap=gap)
    moved = judged(*(curve_from_arrays(run.steps, run.loss + offset) for run in (base, cand)))
    plain = judged(base, cand)
    assert moved.gap.bounds(0.95) == pytest.approx(plain.gap.bounds(0.95), abs=1e-9)
    assert moved.verdict == plain.verdict


@LAWS
@given(gaps, run_seeds)
def test_swapped_arms_swap_the_sign(make_run: MakeRun, gap: float, seed: int) -> None:
    base, cand = make_run(1500), make_run(1500, seed=seed, gap=gap)
    there, back = judged(base, cand), judged(cand, base)
    lo, hi = there.gap.bounds(0.95)
    assert back.gap.bounds(0.95) == pytest.approx((-hi, -lo), abs=1e-12)
    assert not (there.verdict == "fail" and back.verdict == "fail")


@LAWS
@given(gaps, run_seeds, st.sampled_from([2, 10, 1000]))
def test_steps_in_another_unit_give_the_same_interval(
    make_run: MakeRun, gap: float, seed: int, factor: int
) -> None:
    base, cand = make_run(1500), make_run(1500, seed=seed, gap=gap)
    base_scaled, cand_scaled = (
        curve_from_arrays(run.steps * factor, run.loss) for run in (base, cand)
    )
    scaled = judged(base_scaled, cand_scaled, planned=1500 * factor)
    assert scaled.gap == judged(base, cand).gap


@LAWS
@given(gaps, run_seeds)
def test_the_same_input_gives_the_same_bytes(make_run: MakeRun, gap: float, seed: int) -> None:
    base, cand = make_run(1500), make_run(1500, seed=seed, gap=gap)
    assert canonical_json(judged(base, cand).document()) == canonical_json(
        judged(base, cand).document()
    )


@LAWS
@given(run_seeds, st.floats(0.0, 0.1), st.floats(0.0, 0.1))
def test_a_worse_candidate_never_gets_a_better_verdict(
    make_run: MakeRun, seed: int, gap: float, more: float
) -> None:
    rank = {"pass": 0, "inconclusive": 1, "fail": 2}
    base = make_run(1500)
    first, second = (
        judged(base, make_run(1500, seed=seed, gap=value)) for value in (gap, gap + more)
    )
    assert rank[first.verdict] <= rank[second.verdict]


losses = st.one_of(
    st.floats(-5, 50),
    st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, 1e300, -1e300]),
)
series = st.lists(st.tuples(st.integers(0, 300), losses), max_size=300)


@settings(max_examples=some(150))
@given(
    series, series, st.one_of(st.none(), st.integers(1, 400)), st.sampled_from(["1%", "0.01 nats"])
)
def test_no_input_crashes_or_gives_an_unsafe_document(
    base, cand, planned: int | None, margin: str
) -> None:
    curves = [
        curve_from_arrays([step for step, _ in rows], [loss for _, loss in rows])
        for rows in (base, cand)
    ]
    policy = policy_from_mapping({"schedule": "decayed", "margin": margin, "min_points": 20})
    (verdict,) = judge([curves[0]], {"c": [curves[1]]}, policy, planned_steps=planned)
    canonical_json(verdict.document())
    assert verdict.verdict in ("pass", "fail", "inconclusive")
    assert all(reason.sentence for reason in (verdict.decision.deciding, *verdict.decision.others))
