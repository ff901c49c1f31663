"""The law of docs/method.md for evaluations: making the candidate worse never turns a fail or an
inconclusive verdict into a pass.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping
from tests.conftest import some

POLICY = policy_from_mapping({"schedule": "decayed", "margin": "1.0%"})


def verdict(
    baseline: list[Curve], candidate: list[Curve], planned: int | None, *, paired: bool
) -> tuple[str, str, float]:
    """The verdict, what decided it, and the candidate's loss."""
    case = EvaluationCase(
        baseline=baseline,
        candidates={"nvfp4": candidate},
        policy=POLICY,
        baseline_name="fp8",
        planned_steps=planned,
        paired=paired,
        cluster="system" if baseline[0].context else None,
    )
    (document,) = case.documents()
    return document["verdict"], document["codes"][0], document["candidate"]["mean"] or 0.0


@settings(max_examples=some(100))
@given(st.data())
def test_worse_never_passes_where_better_did_not(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    points, runs = draw(st.sampled_from([4, 5, 12, 40])), draw(st.integers(1, 5))
    steps = np.arange(1, points + 1) * 100
    law = 3.0 + draw(st.sampled_from([0.0, 0.5, 3.0])) * np.exp(-steps / (0.15 * steps[-1]))
    sd, decimals = (
        draw(st.sampled_from([0.0, 0.0005, 0.005, 0.05])),
        draw(st.sampled_from([2, 4, 12])),
    )
    gap = draw(st.sampled_from([0.0, 0.01, 0.029, 0.04, 0.2]))

    def arm(offset: float, prefix: str) -> list[Curve]:
        context = [
            {"system": f"{prefix}{number % systems}"} if systems else {} for number in range(runs)
        ]
        losses = [
            np.round(law + offset + rng.normal(0, sd) + rng.normal(0, sd / 3, points), decimals)
            for _ in range(runs)
        ]
        return [
            curve_from_arrays(steps, loss, seed=n, label=f"{prefix}{n}", context=context[n])
            for n, loss in enumerate(losses)
        ]

    systems = draw(st.sampled_from([0, 1, 2, 3]))
    baseline, candidate = arm(0.0, "a"), arm(gap, draw(st.sampled_from(["a", "b"])))
    since = draw(st.integers(0, points - 1))  # worse from this evaluation on, in all runs or in one
    # one alone is no copy any more
    which = draw(st.sampled_from([range(runs), range(1)])) if decimals > 4 else range(runs)
    worse = draw(st.sampled_from([0.001, 0.02, 0.5]))
    changed = [
        curve_from_arrays(
            steps,
            run.loss + np.where(np.arange(points) >= since, worse * (n in which), 0.0),
            seed=n,
            label=run.label,
            context=run.context,
        )
        for n, run in enumerate(candidate)
    ]
    asked = {
        "planned": draw(st.sampled_from([None, int(steps[-1]), 2 * int(steps[-1])])),
        "paired": draw(st.booleans()),
    }
    before, code, mean = verdict(baseline, candidate, **asked)
    # by chance equal where losses are rounded, which worse ones are not
    one_run = code in ("ARMS_IDENTICAL", "ARMS_SHARE_START")
    if mean >= np.mean([run.loss[-1] for run in baseline]) and before != "pass" and not one_run:
        assert verdict(baseline, changed, **asked)[0] != "pass"
