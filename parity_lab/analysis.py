"""What an analysis measures, what it costs, and what comes next: group tests by halving, as a
function of the results on record.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, TypedDict

from parity.frozen import frozen
from parity.judging import special
from parity_lab.effects import SUMS, Arm, Ends, Forks, Part, contrast, effect, ends
from parity_lab.replay import (
    Check,
    RatesDiffer,
    Recorded,
    RecordRequest,
    Replay,
    Role,
    check,
    planned,
    replay_steps,
    replays_from,
)

# Which units are guilty? Group tests by halving, with familywise control.
#
# H(C): no GEMM of the cluster C has an effect. The clusters form a binary tree over the GEMMs in
# order of falling weight; its root is all
# of them, and each cluster is cut where its two halves weigh most nearly the same.
# p(C)     = min(1, 3 min(p of `without C`, p of `alone C`, p of their sum)): what switching C off
#          gains, what it costs alone, and both
#            together, which has sqrt(2) times the signal of either where the effects of GEMMs add
# looks    the halves of a cluster are tested with few forks first, and with more of them only if
#          neither is guilty then:
#          p(C) = min over looks of p / share of the look,  with shares that sum to 1 (Bonferroni)
# adjusted = p(C) / weight of C,  never below that of the cluster above;  C is guilty if it and all
#                                 clusters above have adjusted <= alpha;
#            both units of a cluster of two have its weight: one of them has an effect, so at most
#            one is named wrongly (Shaffer)
#
# The chance that any cluster without an effect is named is at most alpha, however the tests depend
# on each other: the largest clusters without an effect do not overlap, so their weights sum to at
# most 1. A cluster is only tested if the one above it is guilty, so few of the tree's clusters need
# forks. A GEMM of large weight is soon tested by itself, at a larger share of the level. Off and
# alone are also tested separately, because a GEMM may do harm only together with the others, or
# only without them.
#
# A cluster for which the plan has no steps left is not tested: it is neither guilty nor innocent,
# and the cluster above it is named if no other part of that one is guilty.
#
# Can fail: weights that are taken from the forks themselves; a cluster whose effects cancel hides
# its GEMMs; a small effect next to a large one can need more forks than the plan has, and then the
# smallest cause, not one GEMM, is the answer.
#
# Source: Meinshausen, Hierarchical testing of variable importance, Biometrika 95 (2008); weights
# and pairs as in Goeman and Finos, The inheritance procedure, Statistical Applications in Genetics
# and Molecular Biology 11 (2012).

Cluster = tuple[str, ...]
LOOKS = (0.2, 0.8)
"""The share of the level that each look has: large effects need little of it."""
_PARTS = 1_000_000  # weights are whole numbers, so that every machine cuts the same tree


@frozen
class Tree:
    """Units by falling weight (whole numbers of at least 1)."""

    units: Cluster
    weights: tuple[int, ...]

    def weight(self, cluster: Cluster) -> float:
        """The weight of a cluster as a share of that of all GEMMs."""
        return sum(self._weights(cluster)) / sum(self.weights)

    def halves(self, cluster: Cluster) -> tuple[Cluster, ...]:
        """The two parts of a cluster that weigh most nearly the same; none for a single unit."""
        if len(cluster) == 1:
            return ()
        *left, whole = accumulate(self._weights(cluster))
        cut = 1 + min(range(len(left)), key=lambda at: abs(whole - 2 * left[at]))
        return cluster[:cut], cluster[cut:]

    def clusters(self) -> Iterator[Cluster]:
        """All clusters, each before its halves: 2 GEMMs - 1 of them."""
        waiting = [self.units]
        while waiting:
            cluster = waiting.pop()
            yield cluster
            waiting.extend(reversed(self.halves(cluster)))

    def _weights(self, cluster: Cluster) -> tuple[int, ...]:
        first = self.units.index(cluster[0])
        return self.weights[first : first + len(cluster)]


def tree_of(weights: Mapping[str, float]) -> Tree:
    """The tree of GEMMs with these weights (any scale); units of equal weight stay in their order.

    Raises ValueError without units and for weights that are not above 0.
    """
    total = sum(weights.values())
    if not weights or not all(0 < each <= total < float("inf") for each in weights.values()):
        raise ValueError(
            f"weights are {dict(weights)}, expected at least one GEMM, each with a finite weight "
            "above 0"
        )
    parts = {unit: max(1, round(_PARTS * each / total)) for unit, each in weights.items()}
    units = tuple(sorted(parts, key=lambda unit: -parts[unit]))
    return Tree(units=units, weights=tuple(parts[unit] for unit in units))


@frozen
class Tested:
    """A cluster that was tested: its own p-value, the adjusted one, and whether it is guilty."""

    cluster: Cluster
    p: float
    adjusted: float
    guilty: bool


@frozen
class Guilt:
    """Every test in its order, the smallest causes (no tested part of them is guilty by itself),
    and the parts of causes that were not tested.
    """

    tested: tuple[Tested, ...] = ()
    named: tuple[Cluster, ...] = ()
    untested: tuple[Cluster, ...] = ()


def any_way(*p: float) -> float:
    """The p-value of a hypothesis from several tests of it (Bonferroni)."""
    return min(1.0, len(p) * min(p))


PValues = Callable[[tuple[Cluster, ...], int], Sequence[float] | None]
"""The p-values of the root, or of both halves of a cluster, at a look; None if they cannot be
tested (any further).
"""


def find_guilty(tree: Tree, p_of: PValues, alpha: float) -> Guilt:
    """Test clusters from the root down; `p_of` is called for clusters only when they are needed.
    The root is tested at look 0 alone, at the whole level.

    The tree must not depend on the values that `p_of` uses. Raises ValueError for p-values outside
    0 to 1.
    """
    tested: list[Tested] = []
    named: list[Cluster] = []
    untested: list[Cluster] = []

    def decide(cluster: Cluster, p: float, above: float, weight: float) -> Tested:
        adjusted = min(1.0, max(above, p / weight))
        return Tested(cluster=cluster, p=p, adjusted=adjusted, guilty=adjusted <= alpha)

    def name_parts(guilty: Tested) -> None:
        """Name the smallest causes of a guilty one."""
        halves = tree.halves(guilty.cluster)
        own: tuple[Tested, ...] = ()
        for look, share in enumerate(LOOKS) if halves else ():
            values = p_of(halves, look)
            if values is None:
                break
            before = [each.p for each in own] or [1.0, 1.0]
            smallest = [
                min(old, _checked(new) / share) for old, new in zip(before, values, strict=True)
            ]
            own = tuple(
                decide(
                    half,
                    p,
                    guilty.adjusted,
                    tree.weight(guilty.cluster if len(guilty.cluster) == 2 else half),
                )
                for half, p in zip(halves, smallest, strict=True)
            )
            if any(each.guilty for each in own):
                break
        tested.extend(own)
        untested.extend(() if own else halves)
        below = [each for each in own if each.guilty]
        for each in below:
            name_parts(each)
        if not below:
            named.append(guilty.cluster)

    values = p_of((tree.units,), 0)
    if values is None:
        return Guilt(untested=(tree.units,))
    root = decide(tree.units, _checked(values[0]), 0.0, 1.0)
    tested.append(root)
    if root.guilty:
        name_parts(root)
    return Guilt(tested=tuple(tested), named=tuple(named), untested=tuple(untested))


def _checked(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"a p-value is {p}, expected 0 to 1")
    return p


# What an attribution costs, before anything runs, and what it could see.
#
# cost = evaluations (instant split), gradients (gradient split) and steps (forks), in steps of
# training:
#        a forward pass of a batch is 1/3 of a step, a gradient 1 step
# forks: the arms with everything on and everything off, with `noise_draws` forks for each parent,
# which measure the noise of forks and
#        are the root's test; then the halves of each cause, each without and alone, with `draws`
#        forks for each parent, and with
#        `noise_draws` of them if neither is guilty. The first half without is the second one alone
#        where the cluster is all GEMMs.
#
#        Where several clusters are named, `draws` more for each parent, with all of them off.
#
# A GEMM alone in its effect is found after log2(units) cuts, or fewer where the gradient split
# points to it. `smallest_effect` is what the second look at it, without and alone together, sees
# with 80 % power if the fork noise is as assumed and effects add. Can fail: the fork noise is known
# only after the A/A forks; several guilty units cost more, which is why the plan has a largest cost
# as well, at which the search stops and names the smallest causes.

FORWARD_SHARE = 1.0 / 3.0
POWER = 0.8


# What an analysis measures, fixed before it begins: its GEMMs, its parents, and how often
# everything is measured.
#
# The document of a setup is what the record keeps, so that an analysis that was stopped goes on
# with the same plan.

# The offset of a fork is settled after some 60 steps, while effects still grow
# (docs/design/attribution.md#forks-train-100-steps).
FORK_STEPS = 100
# Over all parents, at the first look and at the second, which is also that of the ends: with 9 the
# noise of forks was estimated too low too often
# (docs/design/attribution.md#each-end-has-its-own-noise).
FORKS_OF_AN_ARM, NOISE_FORKS = 3, 18
BATCHES, GRADIENT_BATCHES, SEEDS = 8, 4, 2
# of what finding one GEMM costs: so much of the record is trained again whole, in pairs of runs
REPLAY_SHARE = 0.5
# the chance of naming any unit without an effect
# (docs/design/attribution.md#halving-weighed-by-the-gradient)
ALPHA = 0.025
Origin = Role
"""Whose checkpoints are forked: the baseline's, into which units are put, or the candidate's, out
of which they are taken.
"""


@frozen
class Setup:
    """One analysis and its cost. `units` and `ingredients` are names; `parents` are ids of runs
    whose checkpoint of `fork_step` is kept.

    `noise_draws` and `draws` are the forks of an arm for each parent. The two splits are measured
    at the checkpoint of the first parent. `most_steps` is the largest cost, in steps of training,
    at which the search stops. `replays` are the recorded steps that are trained again before
    anything else; an analysis of an earlier version has none. `rates`: where a pair has different
    learning rates on record. `accept_noise`: whether a replay within the noise of reruns is enough,
    where bits may differ.
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
    replays: tuple[Replay, ...] = ()
    rates: RatesDiffer | None = None
    accept_noise: bool = False

    @property
    def replay_steps(self) -> float:
        """The replays, in steps."""
        return float(sum(each.steps for each in self.replays))

    @property
    def instant_steps(self) -> float:
        """The instant split, in steps: off, on, two evaluations for each GEMM, one for each
        ingredient.
        """
        rows = 2 + 2 * len(self.units) + len(self.ingredients)
        return self.batches * rows * FORWARD_SHARE

    @property
    def gradient_steps(self) -> float:
        """The gradient split, in steps: for each batch the reference, everything on, and each GEMM
        alone.
        """
        return self.gradient_batches * (1.0 + (1 + len(self.units)) * self.seeds)

    def forks(self, cuts: int) -> int:
        """Forks that are trained if this many clusters are cut and one of their halves is guilty at
        the first look.
        """
        arms = 4 * cuts - 2 if cuts else 0
        return len(self.parents) * (2 * self.noise_draws + arms * self.draws)

    @property
    def cuts_for_one(self) -> int:
        """Clusters that are cut to find one guilty unit if all GEMMs weigh the same."""
        return math.ceil(math.log2(len(self.units)))

    @property
    def least_steps(self) -> float:
        """Steps in all if nothing is guilty: the root alone is tested."""
        return self._steps(0)

    @property
    def steps_for_one(self) -> float:
        """Steps in all if one GEMM is guilty and the gradient points to it."""
        return self._steps(min(1, self.cuts_for_one))

    @property
    def steps_for_any(self) -> float:
        """Steps in all if one GEMM is guilty to which nothing points, and no second look is
        needed.
        """
        return self._steps(self.cuts_for_one)

    @property
    def together_steps(self) -> float:
        """The forks with all named GEMMs off, where several clusters are named."""
        return len(self.parents) * self.draws * self.fork_steps

    def smallest_effect(self, fork_sd: float) -> float:
        """The effect (nats) of one GEMM that the second look at it sees with 80 % power, given the
        noise of forks (nats).
        """
        df = 2 * len(self.parents) * (self.noise_draws - 1)
        # of half of (on - without + alone - off), four arms
        se = fork_sd / math.sqrt(self.noise_draws * len(self.parents))
        # three tests, and the share of one GEMM
        level = self.alpha * LOOKS[-1] / (3 * len(self.units))
        return float((special.stdtrit(df, 1 - level / 2) + special.stdtrit(df, POWER)) * se)

    def _steps(self, cuts: int) -> float:
        return (
            self.replay_steps
            + self.instant_steps
            + self.gradient_steps
            + self.forks(cuts) * self.fork_steps
        )


def make_setup(
    *,
    units: tuple[str, ...],
    ingredients: tuple[str, ...],
    parents: tuple[str, ...],
    fork_step: int,
    run_steps: int,
    fork_steps: int | None = None,
    most_steps: float | None = None,
    recorded: Sequence[Recorded] = (),
) -> Setup:
    """A setup with as many forks of the baseline for each parent as three parents need; the largest
    cost is by default that of one guilty unit to which nothing points, and of the forks with all
    named GEMMs off. Steps of the `recorded` runs are replayed first.

    Raises ValueError for forks that would end after the run.
    """
    length = min(FORK_STEPS, run_steps - fork_step) if fork_steps is None else fork_steps
    if not 1 <= length <= run_steps - fork_step:
        raise ValueError(
            f"fork_steps is {length}, expected 1 to {run_steps - fork_step}: the run ends at step "
            f"{run_steps}"
        )
    setup = Setup(
        units=units,
        ingredients=ingredients,
        parents=parents,
        fork_step=fork_step,
        fork_steps=length,
        pair_steps=2 * run_steps,
        origin="baseline",
        noise_draws=-(-NOISE_FORKS // len(parents)),
        draws=-(-FORKS_OF_AN_ARM // len(parents)),
    )
    setup = replace(
        setup,
        replays=planned(recorded, whole=int(REPLAY_SHARE * setup.steps_for_one / setup.pair_steps)),
    )
    return replace(
        setup,
        most_steps=setup.steps_for_any + setup.together_steps if most_steps is None else most_steps,
    )


def replayed_whole(setup: Setup, recorded: Sequence[Recorded]) -> Setup:
    """The setup with every recorded step of these runs replayed; what that adds is added to the
    largest cost.
    """
    whole = replace(setup, replays=planned(recorded, whole=len(recorded)))
    return replace(whole, most_steps=setup.most_steps + whole.replay_steps - setup.replay_steps)


def setup_from(document: Mapping[str, Any]) -> Setup:
    """The setup of a document: that of `asdict`."""
    given = {name: tuple(document[name]) for name in ("units", "ingredients", "parents")}
    rates = document.get("rates")
    replays, rates = (
        replays_from(document.get("replays", ())),
        RatesDiffer(**rates) if rates else None,
    )
    return Setup(**{**document, **given, "replays": replays, "rates": rates})


class MeasureRequest(TypedDict):
    """What a training process measures for an analysis, with its `Setup` as a document.

    `parents`: the specifications of the runs that are forked, by id. `baseline`: that of the
    baseline; None: against bf16. `records`: the runs that are replayed, by id. `results`: what is
    on record by key, which has cost `spent` steps of training.
    """

    setup: dict[str, Any]
    parents: dict[str, dict[str, Any]]
    baseline: dict[str, Any] | None
    records: dict[str, RecordRequest]
    results: dict[str, Any]
    spent: float


# What an analysis measures next, and what its forks say so far: a function of the results on
# record.
#
# replay      recorded steps trained again; if they differ from the record, the analysis ends
#             (`parity_lab.replay`)
# instant     the held-out losses (batches,) of one row: `on`, `off`, `without UNIT`, `alone UNIT`,
#             `without INGREDIENT`
# gradients   for one batch the sums over the gradient of all GEMMs, and of each GEMM alone, against
#             bf16
# fork        the final loss of one fork: `without CLUSTER` or `alone CLUSTER`, of one parent, with
#             one draw of random numbers
#
# At the end, where several clusters are named, forks with all of them off say what they do
# together.
#
# Each measurement has a key, by which its result is stored once. The same results give the same
# next measurement, so an analysis that was killed goes on where it was. `alone` of all GEMMs is
# everything on, the candidate's arithmetic, `without` all GEMMs is everything off: their forks
# measure the noise of forks, and their difference is the whole effect at the checkpoint.
#
# The forks test clusters of GEMMs in the order of their weight. A GEMM weighs
#     (1 / units + 3 times its share of the squared errors of the gradient) / 4:
# no fork has a part in it, and a GEMM that hardly moves the gradient keeps at least a quarter of an
# equal share.

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

    tree: Tree
    ends: Ends | None
    guilt: Guilt
    effects: Mapping[Cluster, Part]
    rest: Arm | None
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


def tree(setup: Setup, results: Results) -> Tree:
    """The tree of the GEMMs, by what the gradient split says; all of them weigh the same where it
    was not measured, or not finite.
    """
    batches = [results[each.key] for each in gradient_batches(setup) if each.key in results]
    count, error = len(setup.units), SUMS.index("error")
    is_complete = 0 < len(batches) == setup.gradient_batches
    errors = [
        sum(float(each[unit][error]) for each in batches) if is_complete else 1.0
        for unit in setup.units
    ]
    total = sum(errors)
    shares = [each / total for each in errors] if 0.0 < total < math.inf else [1 / count] * count
    return tree_of(
        {unit: (1 / count + 3 * share) / 4 for unit, share in zip(setup.units, shares, strict=True)}
    )


def arm_forks(
    setup: Setup, units: Tree, way: Way, cluster: Cluster, draws: int
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
def _numbers(units: Tree) -> Mapping[Cluster, int]:
    """The number of every cluster of the tree."""
    return {cluster: number for number, cluster in enumerate(units.clusters())}


def search(setup: Setup, results: Results) -> Search:
    """Everything that the forks on record say, and the forks that are needed next."""
    units = tree(setup, results)
    root = units.units
    of_ends = [
        fork for way in _WAYS for fork in arm_forks(setup, units, way, root, setup.noise_draws)
    ]
    pending = [each for each in of_ends if each.key not in results]
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
    effects: dict[Cluster, Part] = {}
    planned: set[str] = set()
    spent, stopped = setup.least_steps, False

    def p_of(clusters: tuple[Cluster, ...], look: int) -> list[float] | None:
        nonlocal spent, stopped
        if clusters == (root,):
            whole = effect(both.on, both.off)
            effects[root] = Part(without=whole, alone=whole)
            return [whole.p()]
        draws = (setup.draws, setup.noise_draws)[look]
        forks = {
            fork.key: fork
            for each in clusters
            for way in _WAYS
            for fork in arm_forks(setup, units, way, each, draws)
        }
        more = [fork for key, fork in forks.items() if key not in planned]
        cost = sum(each.steps for each in more)
        # both halves off is everything off
        kept = 0.0 if clusters == units.halves(root) else setup.together_steps
        if pending or spent + cost + kept > setup.most_steps + _ROUNDING:
            stopped = stopped or not pending
            return None
        spent += cost
        planned.update(forks)
        pending.extend(each for each in more if each.key not in results)
        if pending:
            return None
        return [p_of_one(each, draws) for each in clusters]

    def p_of_one(cluster: Cluster, draws: int) -> float:
        off, alone = (
            both.between(arm_losses(setup, results, units, way, cluster, draws))
            for way in ("without", "alone")
        )
        own = effects[cluster] = Part(without=effect(both.on, off), alone=effect(alone, both.off))
        together = contrast([(1.0, both.on), (-1.0, off), (1.0, alone), (-1.0, both.off)])
        return any_way(own.without.p(), own.alone.p(), together.p())

    guilt = find_guilty(units, p_of, setup.alpha)
    rest = None
    if guilt.named and not pending:
        named = tuple(unit for unit in root if any(unit in cluster for cluster in guilt.named))
        pending = [
            each
            for each in arm_forks(setup, units, "without", named, setup.draws)
            if each.key not in results
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


def checked(setup: Setup, results: Results) -> Check:
    """What the replays say so far."""
    return check(setup.replays, results, setup.rates, accept_noise=setup.accept_noise)


def next_measurement(setup: Setup, results: Results) -> Measurement | None:
    """What to measure next; None at the end of the analysis."""
    own = checked(setup, results)
    if own.pending is not None:
        wanted = own.pending
        return Measurement(
            key=wanted.key,
            kind="replay",
            steps=wanted.steps,
            replay=wanted.replay,
            draw=wanted.draw,
        )
    if own.ends_it:
        return None
    for each in (*instant_rows(setup), *gradient_batches(setup)):
        if each.key not in results:
            return each
    pending = search(setup, results).pending
    return pending[0] if pending else None


def steps_spent(setup: Setup, results: Results) -> float:
    """The cost of what is on record, in steps of training."""
    splits = sum(
        each.steps
        for each in (*instant_rows(setup), *gradient_batches(setup))
        if each.key in results
    )
    return (
        replay_steps(results)
        + splits
        + setup.fork_steps * sum(key.startswith("fork/") for key in results)
    )


def arm_losses(
    setup: Setup, results: Results, units: Tree, way: Way, cluster: Cluster, draws: int
) -> Forks:
    """The final losses of the first forks of an arm, `draws` of each parent, as far as they are on
    record.
    """
    losses: dict[str, list[float]] = {parent: [] for parent in setup.parents}
    for each in arm_forks(setup, units, way, cluster, draws):
        if each.key in results:
            losses[setup.parents[each.parent]].append(float(results[each.key]))
    return losses
