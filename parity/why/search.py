"""What an analysis measures next, and what its forks say so far: a function of the results on record.

instant     the held-out losses (batches,) of one row: `on`, `off`, `without UNIT`, `alone UNIT`, `without INGREDIENT`
gradients   for one batch the sums over the gradient of all units, and of each unit alone, against bf16
fork        the final loss of one fork: `without CLUSTER` or `alone CLUSTER`, of one parent, with one draw of random numbers

At the end, where several clusters are named, forks with all of them off say what they do together.

Each measurement has a key, by which its result is stored once. The same results give the same next measurement, so an analysis that was
killed goes on where it was. `alone` of all units is everything on, the candidate's arithmetic, `without` all units is everything off:
their forks measure the noise of forks, and their difference is the whole effect at the checkpoint.

The forks test clusters of units in the order of their weight (`parity.why.halving`). A unit weighs
(1 / units + 3 times its share of the squared errors of the gradient) / 4:
no fork has a part in it, and a unit that hardly moves the gradient keeps at least a quarter of an equal share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from parity.why.estimate import Estimate
from parity.why.forks import Arm, Ends, Forks, contrast, effect, ends
from parity.why.gradients import SUMS
from parity.why.halving import Cluster, Guilt, Tree, any_way, find_guilty, tree_of
from parity.why.plan import FORWARD_SHARE
from parity.why.setup import Setup

Results = Mapping[str, Any]
Way = Literal["without", "alone"]
Kind = Literal["instant", "gradients", "fork"]
_WAYS: tuple[Way, ...] = ("alone", "without")
_ROUNDING = 0.01  # steps: costs are sums of thirds, and the last bit of a sum decides nothing


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
    `guilt.tested`, by cluster. `rest` are the forks with all named units off, None before they are complete or if nothing is named.
    """

    tree: Tree
    ends: Ends | None
    guilt: Guilt | None
    effects: Mapping[Cluster, ClusterEffect]
    rest: Arm | None
    pending: tuple[Measurement, ...]
    stopped: bool


def label(cluster: Sequence[str]) -> str:
    """A cluster by the unit of largest weight: no other cluster of its tree has as many units from there on."""
    return ", ".join(cluster) if len(cluster) <= 2 else f"{cluster[0]} and {len(cluster) - 1} more"


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


def tree(setup: Setup, results: Results) -> Tree:
    """The tree of the units, by what the gradient split says; all of them weigh the same where it was not measured, or not finite."""
    batches = [results[each.key] for each in gradient_batches(setup) if each.key in results]
    count, error = len(setup.units), SUMS.index("error")
    is_complete = 0 < len(batches) == setup.gradient_batches
    errors = [sum(float(each[unit][error]) for each in batches) if is_complete else 1.0 for unit in setup.units]
    total = sum(errors)
    shares = [each / total for each in errors] if 0.0 < total < math.inf else [1 / count] * count
    return tree_of({unit: (1 / count + 3 * share) / 4 for unit, share in zip(setup.units, shares, strict=True)})


def arm_forks(setup: Setup, units: Tree, way: Way, cluster: Cluster, draws: int) -> list[Measurement]:
    """The first forks of one arm, `draws` for each parent; each has a draw that no other arm has.

    One half of all units without is the other half alone: it is one arm. Units that are no cluster of the tree are those that are named.
    """
    halves = units.halves(units.units)
    if way == "without" and cluster in halves:
        return arm_forks(setup, units, "alone", halves[cluster == halves[0]], draws)
    numbers = _numbers(units)
    first = 1 + max(setup.draws, setup.noise_draws) * (2 * numbers.get(cluster, len(numbers)) + (way == "alone"))
    name = "all" if cluster == units.units else label(cluster) if cluster in numbers else "named"
    return [
        Measurement(
            key=f"fork/{way} {name}/{parent}/{draw}",
            kind="fork",
            steps=setup.fork_steps,
            parent=parent,
            way=way,
            units=cluster,
            draw=draw,
        )
        for draw in range(first, first + draws)
        for parent in range(len(setup.parents))
    ]


@lru_cache(maxsize=4)
def _numbers(units: Tree) -> Mapping[Cluster, int]:
    """The number of every cluster of the tree."""
    return {cluster: number for number, cluster in enumerate(units.clusters())}


def search(setup: Setup, results: Results) -> Search:
    """Everything that the forks on record say, and the forks that are needed next."""
    units = tree(setup, results)
    root = units.units
    of_ends = [fork for way in _WAYS for fork in arm_forks(setup, units, way, root, setup.noise_draws)]
    pending = [each for each in of_ends if each.key not in results]
    if pending:
        return Search(tree=units, ends=None, guilt=None, effects={}, rest=None, pending=tuple(pending), stopped=False)
    on, off = (arm_losses(setup, results, units, way, root, setup.noise_draws) for way in _WAYS)
    both = ends(on, off)
    effects: dict[Cluster, ClusterEffect] = {}
    planned: set[str] = set()
    spent, stopped = setup.plan.least_steps, False

    def p_of(clusters: tuple[Cluster, ...], look: int) -> list[float] | None:
        nonlocal spent, stopped
        if clusters == (root,):
            whole = effect(both.on, both.off)
            effects[root] = ClusterEffect(cluster=root, without=whole, alone=whole)
            return [whole.p()]
        draws = (setup.draws, setup.noise_draws)[look]
        forks = {fork.key: fork for each in clusters for way in _WAYS for fork in arm_forks(setup, units, way, each, draws)}
        more = [fork for key, fork in forks.items() if key not in planned]
        cost = sum(each.steps for each in more)
        kept = 0.0 if clusters == units.halves(root) else setup.plan.together_steps  # both halves off is everything off
        if pending or spent + cost + kept > setup.most_steps + _ROUNDING:
            stopped = stopped or not pending
            return None
        spent += cost
        planned.update(forks)
        pending.extend(each for each in more if each.key not in results)
        return None if pending else [p_of_one(each, draws) for each in clusters]

    def p_of_one(cluster: Cluster, draws: int) -> float:
        off, alone = (both.between(arm_losses(setup, results, units, way, cluster, draws)) for way in ("without", "alone"))
        own = ClusterEffect(cluster=cluster, without=effect(both.on, off), alone=effect(alone, both.off))
        effects[cluster] = own
        together = contrast([(1.0, both.on), (-1.0, off), (1.0, alone), (-1.0, both.off)])
        return any_way(own.without.p(), own.alone.p(), together.p())

    guilt = find_guilty(units, p_of, setup.alpha)
    rest = None
    if guilt.named and not pending:
        named = tuple(unit for unit in root if any(unit in cluster for cluster in guilt.named))
        pending = [each for each in arm_forks(setup, units, "without", named, setup.draws) if each.key not in results]
        rest = None if pending else _off(both, setup, results, units, named)
    return Search(tree=units, ends=both, guilt=guilt, effects=effects, rest=rest, pending=tuple(pending), stopped=stopped)


def _off(both: Ends, setup: Setup, results: Results, units: Tree, named: Cluster) -> Arm:
    """The forks with these units off."""
    if named == units.units:
        return both.off
    return both.between(arm_losses(setup, results, units, "without", named, setup.noise_draws))


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


def arm_losses(setup: Setup, results: Results, units: Tree, way: Way, cluster: Cluster, draws: int) -> Forks:
    """The final losses of the first forks of an arm, `draws` of each parent, as far as they are on record."""
    losses: dict[str, list[float]] = {parent: [] for parent in setup.parents}
    for each in arm_forks(setup, units, way, cluster, draws):
        if each.key in results:
            losses[setup.parents[each.parent]].append(float(results[each.key]))
    return losses
