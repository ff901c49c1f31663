"""The law of docs/design/judge.md#worse-never-helps: making a candidate worse never turns a fail or
an inconclusive verdict into a pass.
"""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from tests.conftest import some
from tests.parity.attacks.pairs import synthetic

PAIRS = [pair for seed in range(6) for pair in itertools.permutations(synthetic(seed)[:3], 2)]


def worse(run: Curve, by: np.ndarray | float) -> Curve:
    return curve_from_arrays(run.steps, run.loss + by, rounding=run.rounding)


def codes(base: Curve, cand: Curve, margin: str) -> tuple[str, ...]:
    return judge(
        [base],
        {"c": [cand]},
        policy_from_mapping({"schedule": "decayed", "margin": margin}),
        assume_complete=True,
    )[0].codes


@settings(max_examples=some(150))
@given(
    st.sampled_from(PAIRS),
    st.sampled_from(["1%", "0.5%", "0.25%"]),
    st.floats(0.0, 1.5),
    st.floats(0.0, 1.5),
    st.one_of(st.just(1750), st.integers(1, 400)),
    st.sampled_from([None, 2, 3]),
)
def test_a_worse_candidate_never_passes_where_the_better_one_did_not(
    pair: tuple[Curve, Curve],
    margin: str,
    start: float,
    more: float,
    last: int,
    decimals: int | None,
) -> None:
    base, cand = pair
    unit = float(margin.rstrip("%")) / 100.0 * float(base.loss[-350:].mean())
    gap = float((cand.loss - base.loss)[-350:].mean())
    before = worse(cand, start * unit - min(gap, 0.0))
    if decimals is not None:
        before = curve_from_arrays(before.steps, before.loss.round(decimals), rounding="nearest")
    after = worse(
        before, np.where(np.arange(len(cand.loss)) >= len(cand.loss) - last, more * unit, 0.0)
    )
    earlier = codes(base, before, margin)
    if earlier[0] not in ("WITHIN_MARGIN", "ARMS_IDENTICAL"):
        later = codes(base, after, margin)
        assert later[0] != "WITHIN_MARGIN", (earlier, later, start, more, last, decimals)


@settings(max_examples=some(60))
@given(
    st.integers(0, 5),
    st.sampled_from(["1%", "0.5%", "0.25%"]),
    st.floats(0.0, 1.5),
    st.floats(0.0, 1.5),
    st.integers(1, 870),
    st.sampled_from([0.4, 0.5]),
)
def test_a_candidate_that_gets_worse_after_its_short_reruns_stopped_does_not_pass_for_it(
    number: int, margin: str, start: float, more: float, last: int, stop: float
) -> None:
    base, cand, *reruns = synthetic(number)
    unit = float(margin.rstrip("%")) / 100.0 * float(base.loss[-350:].mean())
    noise = {
        "c": [
            curve_from_arrays(
                r.steps[: int(stop * 1750)], r.loss[: int(stop * 1750)], rounding="nearest"
            )
            for r in reruns
        ]
    }
    before = worse(cand, start * unit)
    after = worse(
        before, np.where(np.arange(len(cand.loss)) >= len(cand.loss) - last, more * unit, 0.0)
    )

    def verdict_of(run: Curve) -> str:
        policy = policy_from_mapping({"schedule": "decayed", "margin": margin})
        return judge(
            [base],
            {"c": [run]},
            policy,
            assume_complete=True,
            baseline_name="b",
            short_reruns=noise,
        )[0].codes[0]

    earlier = verdict_of(before)
    if earlier not in ("WITHIN_MARGIN", "ARMS_IDENTICAL"):
        assert verdict_of(after) != "WITHIN_MARGIN", (earlier, start, more, last)
