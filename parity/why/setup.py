"""What an analysis measures, fixed before it begins: its units, its parents, and how often everything is measured.

The document of a setup is what the record keeps, so that an analysis that was stopped goes on with the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict

from parity.why.plan import WhyPlan

FORK_STEPS = 100  # the offset of a fork is settled after some 60 steps, while effects still grow (decision 0103)
# Over all parents, at the first look and at the second, which is also that of the ends: with 9 the noise of forks was estimated too low too
# often (decision 0100).
FORKS_OF_AN_ARM, NOISE_FORKS = 3, 18
BATCHES, GRADIENT_BATCHES, SEEDS = 8, 4, 2
ALPHA = 0.025  # the chance of naming any unit without an effect (decision 0102)
Origin = Literal["baseline", "candidate"]
"""Whose checkpoints are forked: the baseline's, into which units are put, or the candidate's, out of which they are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One analysis. `units` and `ingredients` are names; `parents` are ids of runs whose checkpoint of `fork_step` is kept.

    `most_steps` is the largest cost, in steps of training, at which the search stops. Without `gradients` the gradient split is left out.
    """

    units: tuple[str, ...]
    ingredients: tuple[str, ...]
    parents: tuple[str, ...]
    fork_step: int
    fork_steps: int
    pair_steps: int
    origin: Origin
    noise_draws: int
    draws: int
    batches: int = BATCHES
    gradient_batches: int = GRADIENT_BATCHES
    seeds: int = SEEDS
    most_steps: float = 0.0
    alpha: float = ALPHA

    @property
    def plan(self) -> WhyPlan:
        """Its cost. The two splits are measured at the checkpoint of the first parent."""
        return WhyPlan(
            units=len(self.units),
            ingredients=len(self.ingredients),
            checkpoints=1,
            batches=self.batches,
            seeds=self.seeds,
            gradient_batches=self.gradient_batches,
            parents=len(self.parents),
            noise_draws=self.noise_draws,
            draws=self.draws,
            fork_steps=self.fork_steps,
        )

    def document(self) -> dict[str, Any]:
        """The setup as a JSON-able dict."""
        return asdict(self)


def make_setup(
    *,
    units: tuple[str, ...],
    ingredients: tuple[str, ...],
    parents: tuple[str, ...],
    fork_step: int,
    run_steps: int,
    origin: Origin = "baseline",
    fork_steps: int | None = None,
    most_steps: float | None = None,
) -> Setup:
    """A setup with as many forks for each parent as three parents need; the largest cost is by default that of one guilty unit
    to which nothing points, and of the forks with all named units off.

    Raises ValueError for forks that would end after the run.
    """
    length = min(FORK_STEPS, run_steps - fork_step) if fork_steps is None else fork_steps
    if not 1 <= length <= run_steps - fork_step:
        raise ValueError(f"fork_steps is {length}, expected 1 to {run_steps - fork_step}: the run ends at step {run_steps}")
    setup = Setup(
        units=units,
        ingredients=ingredients,
        parents=parents,
        fork_step=fork_step,
        fork_steps=length,
        pair_steps=2 * run_steps,
        origin=origin,
        noise_draws=-(-NOISE_FORKS // len(parents)),
        draws=-(-FORKS_OF_AN_ARM // len(parents)),
    )
    return replace(setup, most_steps=setup.plan.steps_for_any + setup.plan.together_steps if most_steps is None else most_steps)


def setup_from(document: Mapping[str, Any]) -> Setup:
    """The setup of a document."""
    names = ("units", "ingredients", "parents")
    return Setup(**{**document, **{name: tuple(document[name]) for name in names}})


class MeasureRequest(TypedDict):
    """What a training process measures: an analysis, with its `Setup` as a document; or, with the specifications of `policies` by name, the
    forks of a search (`parity.search.setup.Forks`).

    `parents`: the specifications of the runs that are forked, by id. `baseline`: that of the baseline; None: against bf16. `results`: what
    is on record by key, which has cost `spent` steps of training.
    """

    setup: dict[str, Any]
    parents: dict[str, dict[str, Any]]
    baseline: dict[str, Any] | None
    policies: dict[str, dict[str, Any]] | None
    results: dict[str, Any]
    spent: float
