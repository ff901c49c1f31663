"""The numbers that all shapes of the list show: one pair of runs of our own."""

import dataclasses
from collections.abc import Sequence

import numpy as np

STEPS, EPOCHS, EVALUATED = 400, 4, 50
PER_EPOCH = STEPS // EPOCHS


@dataclasses.dataclass(frozen=True)
class Arm:
    """One run: the losses and learning rates of its steps, and held-out losses, one every EVALUATED
    steps.
    """

    name: str
    losses: Sequence[float]
    rates: Sequence[float]
    evaluations: Sequence[float]

    def evaluation(self, at: int) -> float | None:
        """The held-out loss after the step numbered from 0; None where none was measured."""
        if (at + 1) % EVALUATED:
            return None
        return self.evaluations[(at + 1) // EVALUATED - 1]


def _arms() -> tuple[Arm, Arm]:
    steps = np.arange(STEPS)
    rates = 3e-4 * (0.55 + 0.45 * np.cos(np.pi * steps / STEPS))
    shared = 2.31 + 5.5 * np.exp(-steps / 45) + np.random.default_rng(71).normal(0, 0.05, STEPS)
    arms = []
    for seed, (name, gap) in enumerate((("bf16", 0.0), ("fp8", 0.012))):
        own = np.random.default_rng(seed).normal(0, 0.004, STEPS)
        losses = (shared + own + gap * steps / STEPS).astype(np.float32).astype(float)
        held_out = [float(np.mean(losses[end - 20 : end])) + 0.11 for end in range(50, 401, 50)]
        arms.append(Arm(name, losses.tolist(), rates.tolist(), [round(x, 4) for x in held_out]))
    return arms[0], arms[1]


ARMS = _arms()
