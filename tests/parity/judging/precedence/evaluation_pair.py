"""Two arms of held-out losses that pass, and what makes a run of them another one."""

import dataclasses
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.evaluations.case import EvaluationCase
from parity.judging.policy import policy_from_mapping

STEPS = np.arange(100, 2_001, 100)
MARGIN = 0.027  # 1 % of the loss at the end, nats


@dataclasses.dataclass
class EvaluationPair:
    """What the judge is given; a change edits it in place. Every pair begins as one that passes."""

    base: list[Curve] = dataclasses.field(default_factory=lambda: arm(1, 2, 3))
    cand: list[Curve] = dataclasses.field(default_factory=lambda: arm(4, 5, 6))
    policy: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"margin": "1%", "schedule": "decayed"}
    )
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"planned_steps": 2_000})
    names: tuple[str, str] = ("base", "cand")

    def case(self) -> EvaluationCase:
        """The comparison that the judge makes."""
        return EvaluationCase(
            baseline=self.base,
            candidates={self.names[1]: self.cand},
            policy=policy_from_mapping(self.policy),
            baseline_name=self.names[0],
            **self.options,
        )


def arm(*seeds: int) -> list[Curve]:
    """Runs with held-out losses at 20 points, apart by 0.2 % of the loss."""
    return [evaluated(seed) for seed in seeds]


def evaluated(seed: int) -> Curve:
    """A run's held-out losses."""
    rng = np.random.default_rng((seed, 99))
    loss = 2.5 + 8.0 / np.sqrt(STEPS) + 0.004 * rng.normal() + rng.normal(0.0, 0.001, len(STEPS))
    return curve_from_arrays(STEPS, loss, label=f"run {seed}", seed=seed, rounding="nearest")
