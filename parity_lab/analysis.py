"""What an analysis measures next, and what its forks show so far, as a function of the results on
record.

replay      recorded steps trained again; if they differ from the record, the analysis ends
            (`parity_lab.replay`)
instant     the held-out losses (batches,) of one row: `on`, `off`, `without UNIT`, `alone UNIT`,
            `without INGREDIENT`
gradients   for one batch the sums over the gradient of all GEMMs, and of each GEMM alone, against
            bf16
fork        the final loss of one fork: `without CLUSTER` or `alone CLUSTER`, of one parent, with
            one draw of random numbers

At the end, where several clusters are named, forks with all of them off say what they do
together.

Each measurement has a key, by which its result is stored once. The same results give the same
next measurement, so an analysis that was killed goes on where it was. `alone` of all GEMMs is
everything on, the candidate's arithmetic, `without` all GEMMs is everything off: their forks
measure the noise of forks, and their difference is the whole effect at the checkpoint.

The forks test clusters of GEMMs in the order of their weight. A GEMM weighs
    (1 / units + 3 times its share of the squared errors of the gradient) / 4:
no fork has a part in it, and a GEMM that hardly moves the gradient keeps at least a quarter of an
equal share.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from parity.frozen import frozen
from parity_lab.analysis_plan import FORWARD_SHARE, Setup
from parity_lab.effects import Ends, ForkArm, Forks, contrast, effect, ends
from parity_lab.gradient_error import SUMS
from parity_lab.halving import Cluster, ClusterTree, Guilt, any_way, find_guilty, tree_of
from parity_lab.parting import replay_steps
from parity_lab.replay import (
    Replay,
    ReplayCheck,
    check,
)
from parity_lab.split import SplitPart

Results = Mapping[str, Any]
Way = Literal["without", "alone"]
Kind = Literal["replay", "instant", "gradients", "fork"]
_WAYS: tuple[Way, ...] = ("alone", "without")
_ROUNDING = 0.01  # steps: costs are sums of thirds, and the last bit of a sum decides nothing


@frozen
class Measurement:
    """One thing to measure, at the checkpoint of `parent` (its number); `steps` is its cost in
    steps of training.

    `way` and `units`: which units are off (`without`) or are the only ones on (`alone`). A fork has
    a `draw`, a gradient a `batch`; a `replay` with a draw is a rerun.
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
    replay: Replay | None = None


@frozen
class Search:
    """The search so far: `pending` forks of the next cluster; `stopped` if a further cluster would
    cost more than the plan allows.

    `ends` is None before the forks with everything on and off are complete, and nothing is tested.
    `effects` are those of `guilt.tested`, by cluster. `rest` are the forks with all named GEMMs
    off, None before they are complete or if nothing is named.
    """

    tree: ClusterTree
    ends: Ends | None
    guilt: Guilt
    effects: Mapping[Cluster, SplitPart]
    rest: ForkArm | None
    pending: tuple[Measurement, ...]
    stopped: bool


def label(cluster: Sequence[str]) -> str:
    """A cluster by the GEMM of largest weight: no other cluster of its tree has as many units from
    there on.
    """
    if len(cluster) <= 2:
        return ", ".join(cluster)
    return f"{cluster[0]} and {len(cluster) - 1} more"


def instant_rows(setup: Setup) -> Iterator[Measurement]:
    """The rows of the instant split."""
    steps = setup.batches * FORWARD_SHARE
    everything = setup.units

    def row(name: str, way: Way, units: Cluster, ingredient: str | None = None) -> Measurement:
        return Measurement(
            key=f"instant/{name}",
            kind="instant",
            steps=steps,
            way=way,
            units=units,
            ingredient=ingredient,
        )

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


def tree(setup: Setup, results: Results) -> ClusterTree:
    """The tree of the GEMMs, by what the gradient split says; all of them weigh the same where it
    was not measured, or not finite.
    """
    batches = [results[row.key] for row in gradient_batches(setup) if row.key in results]
    count, error = len(setup.units), SUMS.index("error")
    is_complete = 0 < len(batches) == setup.gradient_batches
    errors = [
        sum(float(batch[unit][error]) for batch in batches) if is_complete else 1.0
        for unit in setup.units
    ]
    total = sum(errors)
    shares = (
        [error_sum / total for error_sum in errors]
        if 0.0 < total < math.inf
        else [1 / count] * count
    )
    return tree_of(
        {unit: (1 / count + 3 * share) / 4 for unit, share in zip(setup.units, shares, strict=True)}
    )


def arm_forks(
    setup: Setup, units: ClusterTree, way: Way, cluster: Cluster, draws: int
) -> list[Measurement]:
    """The first forks of one arm, `draws` for each parent; each has a draw that no other arm has.

    One half of all GEMMs without is the other half alone: it is one arm. Units that are no cluster
    of the tree are those that are named.
    """
    halves = units.halves(units.units)
    if way == "without" and cluster in halves:
        return arm_forks(setup, units, "alone", halves[cluster == halves[0]], draws)
    numbers = _numbers(units)
    first = 1 + max(setup.draws, setup.noise_draws) * (
        2 * numbers.get(cluster, len(numbers)) + (way == "alone")
    )
    name = label(cluster) if cluster in numbers else "named"
    if cluster == units.units:
        name = "all"
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
def _numbers(units: ClusterTree) -> Mapping[Cluster, int]:
    """The number of every cluster of the tree."""
    return {cluster: number for number, cluster in enumerate(units.clusters())}


def search(setup: Setup, results: Results) -> Search:
    """Everything that the forks on record say, and the forks that are needed next."""
    units = tree(setup, results)
    root = units.units
    end_forks = [
        fork for way in _WAYS for fork in arm_forks(setup, units, way, root, setup.noise_draws)
    ]
    pending = [fork for fork in end_forks if fork.key not in results]
    if pending:
        return Search(
            tree=units,
            ends=None,
            guilt=Guilt(),
            effects={},
            rest=None,
            pending=tuple(pending),
            stopped=False,
        )
    on, off = (arm_losses(setup, results, units, way, root, setup.noise_draws) for way in _WAYS)
    both = ends(on, off)
    effects: dict[Cluster, SplitPart] = {}
    planned: set[str] = set()
    spent, stopped = setup.least_steps, False

    def p_of(clusters: tuple[Cluster, ...], look: int) -> list[float] | None:
        nonlocal spent, stopped
        if clusters == (root,):
            whole = effect(both.on, both.off)
            effects[root] = SplitPart(without=whole, alone=whole)
            return [whole.p()]
        draws = (setup.draws, setup.noise_draws)[look]
        forks = {
            fork.key: fork
            for cluster in clusters
            for way in _WAYS
            for fork in arm_forks(setup, units, way, cluster, draws)
        }
        more = [fork for key, fork in forks.items() if key not in planned]
        cost = sum(fork.steps for fork in more)
        # both halves off is everything off
        reserved = 0.0 if clusters == units.halves(root) else setup.together_steps
        if pending or spent + cost + reserved > setup.most_steps + _ROUNDING:
            stopped = stopped or not pending
            return None
        spent += cost
        planned.update(forks)
        pending.extend(fork for fork in more if fork.key not in results)
        if pending:
            return None
        return [p_of_one(cluster, draws) for cluster in clusters]

    def p_of_one(cluster: Cluster, draws: int) -> float:
        off, alone = (
            both.between(arm_losses(setup, results, units, way, cluster, draws))
            for way in ("without", "alone")
        )
        part = effects[cluster] = SplitPart(
            without=effect(both.on, off), alone=effect(alone, both.off)
        )
        together = contrast([(1.0, both.on), (-1.0, off), (1.0, alone), (-1.0, both.off)])
        return any_way(part.without.p(), part.alone.p(), together.p())

    guilt = find_guilty(units, p_of, setup.alpha)
    rest = None
    if guilt.named and not pending:
        named = tuple(unit for unit in root if any(unit in cluster for cluster in guilt.named))
        pending = [
            fork
            for fork in arm_forks(setup, units, "without", named, setup.draws)
            if fork.key not in results
        ]
        if named == root:
            rest = both.off
        elif not pending:
            rest = both.between(
                arm_losses(setup, results, units, "without", named, setup.noise_draws)
            )
    return Search(
        tree=units,
        ends=both,
        guilt=guilt,
        effects=effects,
        rest=rest,
        pending=tuple(pending),
        stopped=stopped,
    )


def checked(setup: Setup, results: Results) -> ReplayCheck:
    """What the replays say so far."""
    return check(setup.replays, results, setup.rates, accept_noise=setup.accept_noise)


def next_measurement(setup: Setup, results: Results) -> Measurement | None:
    """What to measure next; None at the end of the analysis."""
    check = checked(setup, results)
    if check.pending is not None:
        request = check.pending
        return Measurement(
            key=request.key,
            kind="replay",
            steps=request.steps,
            replay=request.replay,
            draw=request.draw,
        )
    if check.ends_it:
        return None
    for measurement in (*instant_rows(setup), *gradient_batches(setup)):
        if measurement.key not in results:
            return measurement
    pending = search(setup, results).pending
    return pending[0] if pending else None


def steps_spent(setup: Setup, results: Results) -> float:
    """The cost of what is on record, in steps of training."""
    splits = sum(
        measurement.steps
        for measurement in (*instant_rows(setup), *gradient_batches(setup))
        if measurement.key in results
    )
    return (
        replay_steps(results)
        + splits
        + setup.fork_steps * sum(key.startswith("fork/") for key in results)
    )


def arm_losses(
    setup: Setup, results: Results, units: ClusterTree, way: Way, cluster: Cluster, draws: int
) -> Forks:
    """The final losses of the first forks of an arm, `draws` of each parent, as far as they are on
    record.
    """
    losses: dict[str, list[float]] = {parent: [] for parent in setup.parents}
    for fork in arm_forks(setup, units, way, cluster, draws):
        if fork.key in results:
            losses[setup.parents[fork.parent]].append(float(results[fork.key]))
    return losses
