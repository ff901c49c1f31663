"""A pair of training runs that passes, and what makes a run of it another one."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from parity.judging.curves.curve import Curve, curve_from_arrays
from parity.judging.measurements import Measurements
from parity.judging.policy import policy_from_mapping
from parity.judging.verdict.verdict import judge
from tests.parity.conftest import synthetic

STEPS = 1_000
AT = np.arange(STEPS)
MARGIN = 0.028  # 1 % of the loss in the window, nats
Losses = np.ndarray


@dataclasses.dataclass
class Pair:
    """What the judge is given; a change edits it in place. Every pair begins as one that passes."""

    base: list[Curve] = dataclasses.field(default_factory=lambda: [run(1)])
    cand: list[Curve] = dataclasses.field(default_factory=lambda: [run(2)])
    names: tuple[str, str] = ("base", "cand")
    policy: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"margin": "1%", "schedule": "decayed"}
    )
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"planned_steps": STEPS})

    @property
    def runs(self) -> list[Curve]:
        """All runs of both arms."""
        return [*self.base, *self.cand]

    def measured(self) -> Measurements:
        """What the judge measures."""
        options = dict(self.options)
        if compares := options.pop("compares", None):
            options["compares"] = {self.names[1]: compares}
        (verdict,) = judge(
            self.base,
            {self.names[1]: self.cand},
            policy_from_mapping(self.policy),
            baseline_name=self.names[0],
            **options,
        )
        return verdict.measurements


def run(seed: int, batch_seed: int = 0) -> Curve:
    """A rerun: equal `batch_seed` reads the same batches."""
    return synthetic(STEPS, seed=seed, batch_seed=batch_seed)


def rebuilt(curve: Curve, steps: np.ndarray, loss: Losses, **changes: Any) -> Curve:
    """The run with other steps and losses; its columns go where their length does not fit."""
    fits = len(steps) == len(curve.steps)
    known = {
        "columns": dict(curve.columns) if fits else {},
        "label": curve.label,
        "seed": curve.seed if curve.seed_stated else None,
        "replicate": curve.replicate,
        "recipe": curve.recipe,
        "rounding": curve.rounding,
        "context": curve.context,
        "rolled_back": curve.completeness.rolled_back,
    }
    return curve_from_arrays(steps, loss, **(known | changes))


def with_loss(curve: Curve, change: Callable[[Losses], Losses]) -> Curve:
    """The run with losses that are changed as an array, (n,) to (n,)."""
    return rebuilt(curve, curve.steps, change(curve.loss.copy()))


def kept(curve: Curve, keep: Any) -> Curve:
    """Some points of the run, with its columns."""
    columns = {name: values[keep] for name, values in curve.columns.items()}
    return rebuilt(curve, curve.steps[keep], curve.loss[keep], columns=columns)


def with_facts(curve: Curve, **facts: str) -> Curve:
    """The run with further facts on record."""
    return dataclasses.replace(curve, context={**curve.context, **facts})


def with_column(curve: Curve, name: str, values: Callable[[np.ndarray], np.ndarray]) -> Curve:
    """The run with a column computed from its steps (n,)."""
    return dataclasses.replace(curve, columns={**curve.columns, name: values(curve.steps)})


def smoothed(loss: Losses, points: int) -> Losses:
    """Means of the last points."""
    if not len(loss):
        return loss
    padded = np.pad(loss, (points - 1, 0), "edge")
    return np.convolve(padded, np.ones(points) / points, "valid")


def shuffled(loss: Losses, first: int = 0) -> Losses:
    """The batch noise from a point on in another order: what lies off a line through neighbours."""
    trend = smoothed(loss, 25)
    noise = loss - trend
    noise[first:] = np.random.default_rng(5).permutation(noise[first:])
    return trend + noise
