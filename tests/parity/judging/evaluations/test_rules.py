"""What the rules of evaluations say beside their codes: the numbers, and which arm has them."""

import numpy as np
import pytest

from parity.judging.curves.curve import curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping

STEPS = np.arange(1, 21) * 500


@pytest.mark.parametrize("gap", [0.5, -0.2])
def test_as_of_a_point_the_gap_is_said_of_both_arms_in_percent_and_nats(gap: float) -> None:
    rng = np.random.default_rng(0)
    baseline, candidate = (
        level + rng.normal(0.0, 0.01, (3, 1)) + rng.normal(0.0, 0.01, (3, 20))
        for level in (4.0, 4.0 + gap)
    )
    (document,) = EvaluationCase(
        baseline=[curve_from_arrays(STEPS, loss, seed=0) for loss in baseline],
        candidates={"nvfp4": [curve_from_arrays(STEPS, loss, seed=1) for loss in candidate]},
        policy=policy_from_mapping({"margin": "1%", "schedule": "unstated"}),
        baseline_name="fp8",
        planned_steps=10_000,
    ).documents()
    (text,) = (reason["sentence"] for reason in document["reasons"] if reason["code"] == "AS_OF")
    level, mean = baseline[:, 16:].mean(), (candidate[:, 16:] - baseline[:, 16:]).mean()
    for words in ("fp8", "nvfp4", f"{abs(100.0 * mean / level):.2f} %", f"{mean:+.4f}"):
        assert words in text
