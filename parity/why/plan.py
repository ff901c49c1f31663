"""What an attribution costs, before anything runs, and what it could see.

cost = evaluations (instant split), gradients (gradient split) and steps (forks), in steps of training:
       a forward pass of a batch is 1/3 of a step, a gradient 1 step
forks: the arms with everything on and everything off, with `noise_draws` forks for each parent, which measure the noise of forks and are
       the root's test; then the halves of each guilty cluster, each without and alone, with `draws` forks for each parent, and with
       `noise_draws` of them if neither is guilty. The first half without is the second one alone where the cluster is all units.

       Where several clusters are named, `draws` more for each parent, with all of them off.

A unit alone in its effect is found after log2(units) cuts, or fewer where the gradient split points to it. `smallest_effect` is what the
second look at it, without and alone together, sees with 80 % power if the fork noise is as assumed and effects add. Can fail: the fork
noise is known only after the A/A forks; several guilty units cost more, which is why the plan has a largest cost as well, at which the
search stops and names the smallest guilty clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from parity.judging import special
from parity.why.halving import LOOKS

FORWARD_SHARE = 1.0 / 3.0
POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyPlan:
    """What is measured: units, batches, seeds and checkpoints of the splits; parents, draws and steps of the forks."""

    units: int
    ingredients: int
    checkpoints: int
    batches: int
    seeds: int
    gradient_batches: int
    parents: int
    noise_draws: int
    draws: int
    fork_steps: int

    def __post_init__(self) -> None:
        for name in ("units", "checkpoints", "parents", "draws", "fork_steps"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"plan.{name} is {value}, expected at least 1")
        for name in ("batches", "noise_draws"):
            if getattr(self, name) < 2:
                raise ValueError(f"plan.{name} is {getattr(self, name)}, expected at least 2: an interval needs two values")

    @property
    def instant_steps(self) -> float:
        """The instant split, in steps: off, on, two evaluations for each unit, one for each ingredient."""
        rows = 2 + 2 * self.units + self.ingredients
        return self.checkpoints * self.batches * rows * FORWARD_SHARE

    @property
    def gradient_steps(self) -> float:
        """The gradient split, in steps: for each batch the reference, everything on, and each unit alone."""
        return self.checkpoints * self.gradient_batches * (1 + (1 + self.units) * self.seeds) * 1.0

    def forks(self, cuts: int) -> int:
        """Forks that are trained if this many clusters are cut and one of their halves is guilty at the first look."""
        arms = 4 * cuts - 2 if cuts else 0
        return self.parents * (2 * self.noise_draws + arms * self.draws)

    @property
    def cuts_for_one(self) -> int:
        """Clusters that are cut to find one guilty unit if all units weigh the same."""
        return math.ceil(math.log2(self.units))

    @property
    def least_steps(self) -> float:
        """Steps in all if nothing is guilty: the root alone is tested."""
        return self._steps(0)

    @property
    def steps_for_one(self) -> float:
        """Steps in all if one unit is guilty and the gradient points to it."""
        return self._steps(min(1, self.cuts_for_one))

    @property
    def steps_for_any(self) -> float:
        """Steps in all if one unit is guilty to which nothing points, and no second look is needed."""
        return self._steps(self.cuts_for_one)

    @property
    def together_steps(self) -> float:
        """The forks with all named units off, where several clusters are named."""
        return self.parents * self.draws * self.fork_steps

    def smallest_effect(self, fork_sd: float, alpha: float) -> float:
        """The effect (nats) of one unit that the second look at it sees with 80 % power, given the noise of forks (nats)."""
        df = 2 * self.parents * (self.noise_draws - 1)
        se = fork_sd / math.sqrt(self.noise_draws * self.parents)  # of half of (on - without + alone - off), four arms
        level = alpha * LOOKS[-1] / (3 * self.units)  # three tests, and the share of one unit
        return float((special.stdtrit(df, 1 - level / 2) + special.stdtrit(df, POWER)) * se)

    def _steps(self, cuts: int) -> float:
        return self.instant_steps + self.gradient_steps + self.forks(cuts) * self.fork_steps
