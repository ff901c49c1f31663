"""What an analysis measures next, and what its forks say so far: a function of the results on record.

instant     the held-out losses (batches,) of one row: `on`, `off`, `without UNIT`, `alone UNIT`, `without INGREDIENT`
gradients   for one batch the sums over the gradient of all units, and of each unit alone, against bf16
fork        the final loss of one fork: `without CLUSTER` or `alone CLUSTER`, of one parent, with one draw of random numbers

Each measurement has a key, by which its result is stored once. The same results give the same next measurement, so an analysis that was
killed goes on where it was. `alone` of all units is everything on, the candidate's arithmetic, `without` all units is everything off:
their forks measure the noise of forks, and their difference is the whole effect at the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from parity.why.estimate import Estimate
from parity.why.forks import Ends, Forks, effect, ends
from parity.why.halving import Cluster, Guilt, both_ways, clusters, find_guilty
from parity.why.plan import FORWARD_SHARE
from parity.why.setup import Setup

Results = Mapping[str, Any]
Way = Literal["without", "alone"]
Kind = Literal["instant", "gradients", "fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One thing to measure, at the checkpoint of `parent` (its number); `steps` is its cost in steps of training.

    `way` and `units`: which units are off (`without`) or are the only ones on (`alone`). A fork has a `draw`, a gradient a `batch`.
    """

    key: str
    kind: Kind
    steps: float
    parent: int = 0
    way: Way = "without"
    units: Cluster = ()
    ingredient: str | None = None
    draw: int = 0
    batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEffect:
    """What a cluster does at the checkpoint: what switching it off gains, and what it costs alone, in nats."""

    cluster: Cluster
    without: Estimate
    alone: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search so far: `pending` forks of the next cluster; `stopped` if a further cluster would cost more than the plan allows.

    `ends` and `guilt` are None before the forks with everything on and off are complete. `effects` are those of
    `guilt.tested`, by cluster.
    """

    ends: Ends | None
    guilt: Guilt | None
    effects: Mapping[Cluster, ClusterEffect]
    pending: tuple[Measurement, ...]
    stopped: bool


def label(cluster: Sequence[str]) -> str:
    """A cluster of neighbouring units, by its first and last."""
    return cluster[0] if len(cluster) == 1 else f"{cluster[0]} to {cluster[-1]}"


def instant_rows(setup: Setup) -> Iterator[Measurement]:
    """The rows of the instant split."""
    steps = setup.batches * FORWARD_SHARE
    everything = setup.units

    def row(name: str, way: Way, units: Cluster, ingredient: str | None = None) -> Measurement:
        return Measurement(key=f"instant/{name}", kind="instant", steps=steps, way=way, units=units, ingredient=ingredient)

    yield row("off", "without", everything)
    yield row("on", "alone", everything)
    for unit in setup.units:
        yield row(f"without {unit}", "without", (unit,))
        yield row(f"alone {unit}", "alone", (unit,))
    for name in setup.ingredients:
        yield row(f"without {name}", "without", (), name)


def gradient_batches(setup: Setup) -> Iterator[Measurement]:
    """The batches of the gradient split."""
    for batch in range(setup.gradient_batches):
        steps = 1.0 + (1 + len(setup.units)) * setup.seeds
        yield Measurement(key=f"gradients/{batch}", kind="gradients", steps=steps, batch=batch)


def arm_forks(setup: Setup, way: Way, cluster: Cluster) -> list[Measurement]:
    """The forks of one arm; each has a draw that no other arm has."""
    is_root = cluster == setup.units
    most = max(setup.draws, setup.noise_draws)
    first = 1 + most * (2 * _numbers(setup.units)[cluster] + (way == "alone"))
    return [
        Measurement(
            key=f"fork/{way} {label(cluster)}/{parent}/{draw}",
            kind="fork",
            steps=setup.fork_steps,
            parent=parent,
            way=way,
            units=cluster,
            draw=draw,
        )
        for draw in range(first, first + (setup.noise_draws if is_root else setup.draws))
        for parent in range(len(setup.parents))
    ]


@lru_cache(maxsize=4)
def _numbers(units: Cluster) -> Mapping[Cluster, int]:
    """The number of every cluster of the tree."""
    return {cluster: number for number, cluster in enumerate(clusters(units))}


def search(setup: Setup, results: Results) -> Search:
    """Everything that the forks on record say, and the forks that are needed next."""
    root = setup.units
    pending = [each for each in (*arm_forks(setup, "alone", root), *arm_forks(setup, "without", root)) if each.key not in results]
    if pending:
        return Search(ends=None, guilt=None, effects={}, pending=tuple(pending), stopped=False)
    both = ends(arm_losses(setup, results, "alone", root), arm_losses(setup, results, "without", root))
    effects: dict[Cluster, ClusterEffect] = {}
    plan = setup.plan
    spent, stopped = plan.least_steps, False

    def p_of(cluster: Cluster) -> float | None:
        nonlocal spent, stopped
        if cluster == root:
            whole = effect(both.on, both.off)
            effects[cluster] = ClusterEffect(cluster=cluster, without=whole, alone=whole)
            return whole.p()
        forks = [*arm_forks(setup, "without", cluster), *arm_forks(setup, "alone", cluster)]
        cost = sum(each.steps for each in forks)
        if pending or spent + cost > setup.most_steps:
            stopped = stopped or not pending
            return None
        spent += cost
        pending.extend(each for each in forks if each.key not in results)
        if pending:
            return None
        without = effect(both.on, both.between(arm_losses(setup, results, "without", cluster)))
        alone = effect(both.between(arm_losses(setup, results, "alone", cluster)), both.off)
        effects[cluster] = ClusterEffect(cluster=cluster, without=without, alone=alone)
        return both_ways(without.p(), alone.p())

    guilt = find_guilty(root, p_of, setup.alpha)
    return Search(ends=both, guilt=guilt, effects=effects, pending=tuple(pending), stopped=stopped)


def next_measurement(setup: Setup, results: Results) -> Measurement | None:
    """What to measure next; None at the end of the analysis."""
    for each in (*instant_rows(setup), *gradient_batches(setup)):
        if each.key not in results:
            return each
    pending = search(setup, results).pending
    return pending[0] if pending else None


def steps_spent(setup: Setup, results: Results) -> float:
    """The cost of what is on record, in steps of training."""
    splits = sum(each.steps for each in (*instant_rows(setup), *gradient_batches(setup)) if each.key in results)
    return splits + setup.fork_steps * sum(key.startswith("fork/") for key in results)


def arm_losses(setup: Setup, results: Results, way: Way, cluster: Cluster) -> Forks:
    """The final losses of an arm's forks on record, by parent."""
    losses: dict[str, list[float]] = {parent: [] for parent in setup.parents}
    for each in arm_forks(setup, way, cluster):
        if each.key in results:
            losses[setup.parents[each.parent]].append(float(results[each.key]))
    return losses
